/* CodeHeap and Block: code on real pages that a CPU executes. */
#include "code.h"
#include "live.h"
#include "params.h"

#include <stdatomic.h>

#include "../core/codepolicy.h"
#include "../core/livecode.h"

typedef struct CodeHeapObject {
    PyObject ob_base;
    module_state *state;
    atomic_int busy; /* without a GIL two threads may meet here */
    ax_livecode live;
} CodeHeapObject;

/* Holds its heap, so that code which somebody can still call stays mapped. */
typedef struct BlockObject {
    PyObject ob_base;
    CodeHeapObject *heap;
    ax_code_handle handle;
    uint64_t size_bytes;
} BlockObject;

static int enter(CodeHeapObject *self)
{
    return axpy_enter(&self->busy, "code heap");
}

/* Leaves, and answers with None or with the exception. */
static PyObject *finish(CodeHeapObject *self, int status, const ax_detail *detail)
{
    axpy_leave(&self->busy);
    if (status != AX_OK) {
        return axpy_raise(self->state, status, detail);
    }
    Py_RETURN_NONE;
}

/* --- life of a heap
 * ------------------------------------------------------------------------------- */

static PyObject *heap_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"params", NULL};
    PyObject *dict;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!", names, &PyDict_Type, &dict)) {
        return NULL;
    }
    ax_code_params params;
    if (axpy_code_params(dict, &params) < 0) {
        return NULL;
    }
    CodeHeapObject *self = (CodeHeapObject *)axpy_make_object(type);
    if (!self) {
        return NULL;
    }
    self->state = axpy_find_state(type);
    ax_detail detail = {0};
    int status = ax_livecode_open(&self->live, &params, &detail);
    if (status != AX_OK) {
        axpy_raise(self->state, status, &detail);
        Py_DECREF((PyObject *)self);
        return NULL;
    }
    return (PyObject *)self;
}

static void heap_dealloc(PyObject *op)
{
    /* Blocks hold the heap, so nobody is inside. */
    ax_livecode_release(&((CodeHeapObject *)op)->live);
    axpy_free_object(op);
}

static PyObject *heap_close(PyObject *op, PyObject *Py_UNUSED(ignored))
{
    CodeHeapObject *self = (CodeHeapObject *)op;
    ax_detail detail = {0};
    if (enter(self) < 0) {
        return NULL;
    }
    return finish(self, ax_livecode_close(&self->live, &detail), &detail);
}

static PyObject *heap_enter(PyObject *op, PyObject *Py_UNUSED(ignored))
{
    if (!((CodeHeapObject *)op)->live.open) {
        PyErr_SetString(PyExc_ValueError, "code heap is closed");
        return NULL;
    }
    return Py_NewRef(op);
}

static PyObject *heap_exit(PyObject *op, PyObject *Py_UNUSED(args))
{
    return heap_close(op, NULL);
}

static PyObject *heap_closed(PyObject *op, void *Py_UNUSED(closure))
{
    return PyBool_FromLong(!((CodeHeapObject *)op)->live.open);
}

/* --- blocks
 * --------------------------------------------------------------------------------------- */

static PyObject *takes_no_size(const CodeHeapObject *self, uint64_t size_bytes)
{
    return PyErr_Format(PyExc_ValueError,
                        "size_bytes is %llu, but policy '%s' takes none: alloc() gives a block as "
                        "the design does, shrink() gives back what is too much",
                        (unsigned long long)size_bytes,
                        ax_code_policy_name(self->live.heap.params.policy));
}

static PyObject *heap_alloc(PyObject *op, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"size_bytes", NULL};
    CodeHeapObject *self = (CodeHeapObject *)op;
    PyObject *size_object = Py_None;
    uint64_t size_bytes = 0;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|O:alloc", names, &size_object) ||
        (size_object != Py_None &&
         axpy_get_number(size_object, "size_bytes", 1, UINT64_C(1) << 31, &size_bytes) < 0)) {
        return NULL;
    }
    /* The block first: once the heap has answered nothing may fail. */
    BlockObject *block =
        (BlockObject *)axpy_make_object((PyTypeObject *)self->state->CodeBlock_type);
    if (!block || enter(self) < 0) {
        Py_XDECREF((PyObject *)block);
        return NULL;
    }
    ax_detail detail = {0};
    int status = ax_livecode_alloc(&self->live, size_bytes, &block->handle, &detail);
    if (status == AX_OK && size_bytes == 0) {
        size_bytes = ax_livecode_size(&self->live, block->handle);
    }
    axpy_leave(&self->busy);
    if (status != AX_OK) {
        Py_DECREF((PyObject *)block);
        return status == AX_ERR_RANGE ? takes_no_size(self, size_bytes)
                                      : axpy_raise(self->state, status, &detail);
    }
    block->heap = (CodeHeapObject *)Py_NewRef(op);
    block->size_bytes = size_bytes;
    return (PyObject *)block;
}

/* The block, if it is one and of this heap. */
static BlockObject *get_block(CodeHeapObject *self, PyObject *object)
{
    int is_block = PyObject_IsInstance(object, self->state->CodeBlock_type);
    if (is_block < 0) {
        return NULL;
    }
    if (!is_block) {
        PyErr_Format(PyExc_TypeError, "expected a Block that alloc() returned, not %R", object);
        return NULL;
    }
    BlockObject *block = (BlockObject *)object;
    if (block->heap != self) {
        PyErr_Format(self->state->InvalidFree, "%R belongs to another code heap", object);
        return NULL;
    }
    return block;
}

static PyObject *heap_write(PyObject *op, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"block", "code", "offset", NULL};
    CodeHeapObject *self = (CodeHeapObject *)op;
    PyObject *object;
    PyObject *code;
    PyObject *offset_object = NULL;
    uint64_t offset = 0;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OO|O:write", names, &object, &code,
                                     &offset_object)) {
        return NULL;
    }
    BlockObject *block = get_block(self, object);
    if (!block || (offset_object &&
                   axpy_get_number(offset_object, "offset", 0, block->size_bytes, &offset) < 0)) {
        return NULL;
    }
    Py_buffer buffer;
    if (PyObject_GetBuffer(code, &buffer, PyBUF_SIMPLE) < 0) {
        return NULL;
    }
    PyObject *answer = NULL;
    if (enter(self) == 0) {
        ax_detail detail = {0};
        int status = ax_livecode_write(&self->live, block->handle, offset, buffer.buf,
                                       (uint64_t)buffer.len, &detail);
        answer = finish(self, status, &detail);
    }
    PyBuffer_Release(&buffer);
    return answer;
}

static PyObject *heap_shrink(PyObject *op, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"block", "size_bytes", NULL};
    CodeHeapObject *self = (CodeHeapObject *)op;
    PyObject *object;
    PyObject *size_object;
    uint64_t size_bytes;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OO:shrink", names, &object, &size_object)) {
        return NULL;
    }
    BlockObject *block = get_block(self, object);
    if (!block ||
        axpy_get_number(size_object, "size_bytes", 1, block->size_bytes, &size_bytes) < 0 ||
        enter(self) < 0) {
        return NULL;
    }
    ax_detail detail = {0};
    int status = ax_livecode_shrink(&self->live, block->handle, size_bytes, &detail);
    if (status == AX_OK) {
        block->size_bytes = size_bytes;
    }
    return finish(self, status, &detail);
}

typedef int (*block_action)(ax_livecode *live, ax_code_handle handle, ax_detail *detail);

static PyObject *act(PyObject *op, PyObject *object, block_action action)
{
    CodeHeapObject *self = (CodeHeapObject *)op;
    BlockObject *block = get_block(self, object);
    if (!block || enter(self) < 0) {
        return NULL;
    }
    ax_detail detail = {0};
    return finish(self, action(&self->live, block->handle, &detail), &detail);
}

static PyObject *heap_seal(PyObject *op, PyObject *block)
{
    return act(op, block, ax_livecode_seal);
}

static PyObject *heap_open(PyObject *op, PyObject *block)
{
    return act(op, block, ax_livecode_unseal);
}

static PyObject *heap_free(PyObject *op, PyObject *block)
{
    return act(op, block, ax_livecode_free);
}

/* --- looking at it
 * -------------------------------------------------------------------------------- */

static PyObject *heap_check(PyObject *op, PyObject *Py_UNUSED(ignored))
{
    CodeHeapObject *self = (CodeHeapObject *)op;
    ax_detail detail = {0};
    if (enter(self) < 0) {
        return NULL;
    }
    return finish(self, ax_livecode_check(&self->live, &detail), &detail);
}

static PyObject *stats_dict(const CodeHeapObject *self, const ax_livecode_totals *t)
{
    const ax_codeheap *heap = &self->live.heap;
    const ax_code_counters *c = &heap->counters;
    const uint64_t *calls = self->live.seam.calls;
    const uint64_t *failed = self->live.seam.failed;
    const struct {
        const char *name;
        uint64_t value;
    } numbers[] = {
        {"allocs", c->allocs},
        {"frees", c->frees},
        {"chunk_maps", calls[AX_CALL_MAP]},
        {"chunk_unmaps", calls[AX_CALL_UNMAP]},
        {"protect_calls", calls[AX_CALL_PROTECT]},
        {"file_calls", calls[AX_CALL_FILE]},
        {"system_calls",
         calls[AX_CALL_MAP] + calls[AX_CALL_UNMAP] + calls[AX_CALL_PROTECT] + calls[AX_CALL_FILE]},
        {"failed_calls", failed[AX_CALL_MAP] + failed[AX_CALL_UNMAP] + failed[AX_CALL_PROTECT] +
                             failed[AX_CALL_FILE]},
        {"flips_to_write", c->flips_to_write},
        {"flips_to_exec", c->flips_to_exec},
        {"pages_flipped", c->pages_flipped},
        {"chunks", heap->chunks_alive},
        {"mapped_bytes", heap->mapped_bytes},
        {"mapped_bytes_peak", heap->mapped_bytes_peak},
        {"empty_chunk_bytes", heap->empty_bytes},
        {"code_bytes", t->code.code_bytes},
        {"internal_fragmentation", t->code.payload_bytes - t->code.code_bytes},
        {"header_bytes", t->code.header_bytes},
        {"free_bytes", t->code.free_bytes},
        {"dead_bytes", t->code.dead_bytes},
        {"largest_free_block", t->code.largest_free_bytes},
        {"external_fragmentation", t->code.free_bytes - t->code.largest_free_bytes},
        {"used_blocks", t->code.blocks - t->code.free_blocks},
        {"free_blocks", t->code.free_blocks},
        {"open_blocks", t->open_blocks},
        {"sealed_blocks", t->sealed_blocks},
        {"executable_blocks", t->executable_blocks},
        {"splits", c->splits},
        {"coalesces", c->coalesces},
        {"list_scan_steps", c->list_scan_steps},
        {"unmarked_header_writes", c->unmarked_header_writes},
        {"vma_count_peak", c->vma_peak},
        {"reach_failures", c->reach_failures},
        {"flushes", c->flushes},
    };
    PyObject *dict = PyDict_New();
    for (size_t i = 0; dict && i < sizeof numbers / sizeof numbers[0]; i++) {
        if (axpy_put_u64(dict, numbers[i].name, numbers[i].value) < 0) {
            Py_CLEAR(dict);
        }
    }
    return dict;
}

static PyObject *heap_stats(PyObject *op, PyObject *Py_UNUSED(ignored))
{
    CodeHeapObject *self = (CodeHeapObject *)op;
    ax_detail detail = {0};
    ax_livecode_totals totals;
    if (enter(self) < 0) {
        return NULL;
    }
    int status = ax_livecode_totals_now(&self->live, &totals, &detail);
    PyObject *dict = status == AX_OK ? stats_dict(self, &totals) : NULL;
    axpy_leave(&self->busy);
    return status == AX_OK ? dict : axpy_raise(self->state, status, &detail);
}

static PyObject *heap_blocks(PyObject *op, PyObject *Py_UNUSED(ignored))
{
    CodeHeapObject *self = (CodeHeapObject *)op;
    if (enter(self) < 0) {
        return NULL;
    }
    PyObject *rows = NULL;
    if (self->live.open) {
        rows = axpy_code_blocks(&self->live.heap);
    } else {
        PyErr_SetString(PyExc_ValueError, "code heap is closed");
    }
    axpy_leave(&self->busy);
    return rows;
}

static PyObject *heap_fail(PyObject *op, PyObject *args, PyObject *kwargs)
{
    CodeHeapObject *self = (CodeHeapObject *)op;
    int bookkeeping;
    uint64_t n;
    if (axpy_fail_arguments(args, kwargs, &n, &bookkeeping) < 0 || enter(self) < 0) {
        return NULL;
    }
    axpy_fail_call(bookkeeping ? &self->live.books : &self->live.seam, n);
    return finish(self, AX_OK, NULL);
}

static PyMethodDef heap_methods[] = {
    {"alloc", (PyCFunction)(void (*)(void))heap_alloc, METH_VARARGS | METH_KEYWORDS,
     "alloc($self, /, size_bytes=None)\n--\n\n"
     "Allocate a block of code. It is open: write to it, then seal it.\n\n"
     "Parameters\n----------\n"
     "size_bytes : int, optional\n    1 to 2**31. The block holds exactly so many bytes for you; "
     "they are not\n    cleared. Without it you get what the design gives: the historical policies "
     "a\n    whole block or their limit (they take no size), the others ``byte_limit`` bytes or,\n"
     "    where that is 0, what fits in a chunk of ``chunk_bytes``. `shrink` it when you know\n"
     "    what you need.\n\n"
     "Returns\n-------\n"
     "Block\n    With ``address``, ``size_bytes``, ``sealed`` and ``executable``. It keeps the "
     "heap alive.\n\n"
     "Raises\n------\n"
     "ValueError\n    If the size is out of range, the policy takes none, or the heap is closed.\n"
     "MemoryError\n    If the system refused. The heap is as before (but a ``bump`` heap that was "
     "about to\n    flush may have flushed)."},
    {"shrink", (PyCFunction)(void (*)(void))heap_shrink, METH_VARARGS | METH_KEYWORDS,
     "shrink($self, /, block, size_bytes)\n--\n\n"
     "Keep the low bytes of an open block, and give back what is behind them.\n\n"
     "What is given back is a block of its own; if it would be too small for the design, it stays\n"
     "with this one. Either way ``block.size_bytes`` is the new size.\n\n"
     "Parameters\n----------\n"
     "block : Block\n    An open one.\n"
     "size_bytes : int\n    1 to ``block.size_bytes``.\n\n"
     "Raises\n------\n"
     "ValueError\n    If the block is sealed, or the size out of range. Nothing has changed.\n"
     "InvalidFree\n    If the block is another heap's, stale, or freed.\n"
     "MemoryError\n    If the bookkeeping was refused memory. Nothing has changed."},
    {"write", (PyCFunction)(void (*)(void))heap_write, METH_VARARGS | METH_KEYWORDS,
     "write($self, /, block, code, offset=0)\n--\n\n"
     "Copy code into an open block.\n\n"
     "Parameters\n----------\n"
     "block : Block\n    An open one.\n"
     "code : buffer\n    Bytes, or any contiguous buffer.\n"
     "offset : int\n    Where in the block the first byte goes.\n\n"
     "Raises\n------\n"
     "ValueError\n    If the block is sealed, or the code does not fit. Nothing was written.\n"
     "InvalidFree\n    If the block is another heap's, stale, or freed."},
    {"seal", heap_seal, METH_O,
     "seal($self, block, /)\n--\n\n"
     "End the writing: flush the instruction cache, make the block executable.\n\n"
     "With ``wx='flip'`` a chunk is executable while no block in it is open, so code runs when the "
     "last\n"
     "open block of its chunk is sealed or freed (``Block.executable`` tells).\n\n"
     "Raises\n------\n"
     "ValueError\n    If the block is sealed already.\n"
     "InvalidFree\n    If the block is another heap's, stale, or freed.\n"
     "MemoryError\n    If the system refused. The block is still open: seal it again."},
    {"open", heap_open, METH_O,
     "open($self, block, /)\n--\n\n"
     "Make a sealed block writable again.\n\n"
     "With ``wx='flip'`` that stops all code of its chunk until the block is sealed: calling it "
     "meanwhile\n"
     "ends the process. With ``'dual'`` and ``'rwx'`` everything runs on.\n\n"
     "Raises\n------\n"
     "ValueError\n    If the block is open already.\n"
     "InvalidFree\n    If the block is another heap's, stale, or freed.\n"
     "MemoryError\n    If the system refused. The block is still sealed."},
    {"free", heap_free, METH_O,
     "free($self, block, /)\n--\n\n"
     "Give a block back, open or sealed; it is joined with its free neighbours.\n\n"
     "Its memory is not touched. If the block was the last open one of a chunk with other blocks, "
     "the\nchunk becomes executable again.\n\n"
     "Raises\n------\n"
     "InvalidFree\n    If the block is another heap's, stale, or already freed.\n"
     "MemoryError\n    If the system refused to make the chunk executable. The block is not "
     "freed."},
    {"stats", heap_stats, METH_NOARGS,
     "stats($self, /)\n--\n\n"
     "Return counters and bytes.\n\n"
     "Returns\n-------\n"
     "dict\n"
     "    The counters of a sweep, and bytes whose parts add up: ``mapped_bytes`` is code, "
     "internal\n"
     "    fragmentation, headers and free bytes. ``chunk_maps``, ``chunk_unmaps``, "
     "``protect_calls``\n"
     "    and ``file_calls`` are the calls of mmap, munmap, mprotect and (with ``wx=\"dual\"``) "
     "memfd_create,\n"
     "    ftruncate and close that succeeded, ``failed_calls`` those that did not. "
     "``used_blocks``, which is ``open_blocks`` and ``sealed_blocks``, and "
     "``free_blocks``\n"
     "    together are what a sweep's column ``blocks_end`` counts."},
    {"blocks", heap_blocks, METH_NOARGS,
     "blocks($self, /)\n--\n\n"
     "Return every block, free ones too, in the order of addresses.\n\n"
     "Returns\n-------\n"
     "list of dict\n    As ``blocks`` of `CodeReplay`; `chunk_map` draws them."},
    {"check", heap_check, METH_NOARGS,
     "check($self, /)\n--\n\n"
     "Walk the whole state, headers in the chunks included, and raise if a rule is broken.\n\n"
     "Raises\n------\n"
     "CorruptionError\n    Naming the rule, or the field of a header and its address; what was "
     "found and what was\n    expected."},
    {"close", heap_close, METH_NOARGS,
     "close($self, /)\n--\n\n"
     "Give all memory back: no code of the heap may run. Closing twice is nothing.\n\n"
     "Raises\n------\n"
     "MemoryError\n    If the system kept a chunk. What it took is gone, the rest works: close "
     "again."},
    {"fail_backing_call", (PyCFunction)(void (*)(void))heap_fail, METH_VARARGS | METH_KEYWORDS,
     "fail_backing_call($self, /, n, bookkeeping=False)\n--\n\n"
     "Make the n-th call of mmap, munmap or mprotect from now fail; 0 takes that back.\n\n"
     "Parameters\n----------\n"
     "n : int\n    1 is the next one.\n"
     "bookkeeping : bool\n    The heap's own tables instead of its chunks."},
    {"__enter__", heap_enter, METH_NOARGS, NULL},
    {"__exit__", heap_exit, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef heap_getset[] = {
    {"closed", heap_closed, NULL, "Whether the heap was closed.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot heap_slots[] = {
    {Py_tp_doc,
     (void *)(uintptr_t) "The code heap behind pyallocx.CodeHeap; parameters as a dict of ints."},
    {Py_tp_new, (void *)(uintptr_t)heap_new},
    {Py_tp_dealloc, (void *)(uintptr_t)heap_dealloc},
    {Py_tp_methods, heap_methods},
    {Py_tp_getset, heap_getset},
    {0, NULL},
};

static PyType_Spec heap_spec = {
    .name = "pyallocx._core.CodeHeap",
    .basicsize = sizeof(CodeHeapObject),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE,
    .slots = heap_slots,
};

/* --- Block
 * ---------------------------------------------------------------------------------------- */

/* A heap of a subclass with attributes may hold its blocks, which hold the heap. */
static int block_traverse(PyObject *op, visitproc visit, void *arg)
{
    Py_VISIT((PyObject *)Py_TYPE(op));
    Py_VISIT((PyObject *)((BlockObject *)op)->heap);
    return 0;
}

static void block_dealloc(PyObject *op)
{
    PyObject_GC_UnTrack(op);
    Py_XDECREF((PyObject *)((BlockObject *)op)->heap);
    axpy_free_object(op);
}

/* Whether it is sealed and whether it can run; a block that is gone is neither. -1: an exception.
 */
static int look(const BlockObject *self, int *sealed, int *executable)
{
    *sealed = *executable = 0;
    if (enter(self->heap) < 0) {
        return -1;
    }
    int status = ax_livecode_look(&self->heap->live, self->handle, sealed, executable, NULL);
    axpy_leave(&self->heap->busy);
    return status == AX_OK;
}

static PyObject *block_repr(PyObject *op)
{
    const BlockObject *self = (BlockObject *)op;
    int sealed;
    int executable;
    int alive = look(self, &sealed, &executable);
    if (alive < 0) {
        return NULL;
    }
    const char *state = !alive ? "gone" : sealed ? "sealed" : "open";
    return PyUnicode_FromFormat("<Block %p size_bytes=%llu %s>", ax_at(self->handle.address),
                                (unsigned long long)self->size_bytes, state);
}

static PyObject *block_address(PyObject *op, void *Py_UNUSED(closure))
{
    return PyLong_FromUnsignedLongLong(((BlockObject *)op)->handle.address);
}

static PyObject *block_size(PyObject *op, void *Py_UNUSED(closure))
{
    return PyLong_FromUnsignedLongLong(((BlockObject *)op)->size_bytes);
}

static PyObject *block_sealed(PyObject *op, void *Py_UNUSED(closure))
{
    int sealed;
    int executable;
    return look((BlockObject *)op, &sealed, &executable) < 0 ? NULL : PyBool_FromLong(sealed);
}

static PyObject *block_executable(PyObject *op, void *Py_UNUSED(closure))
{
    int sealed;
    int executable;
    return look((BlockObject *)op, &sealed, &executable) < 0 ? NULL : PyBool_FromLong(executable);
}

static PyGetSetDef block_getset[] = {
    {"address", block_address, NULL, "Where its first byte is executed.", NULL},
    {"size_bytes", block_size, NULL, "Bytes that are yours: what was asked for or given.", NULL},
    {"sealed", block_sealed, NULL, "Whether it is sealed; False when it is open or gone.", NULL},
    {"executable", block_executable, NULL,
     "Whether it can be called now: sealed, and with wx='flip' no block of its chunk is open.",
     NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot block_slots[] = {
    {Py_tp_doc, (void *)(uintptr_t) "One block of a CodeHeap: made by alloc(), ended by free()."},
    {Py_tp_dealloc, (void *)(uintptr_t)block_dealloc},
    {Py_tp_traverse, (void *)(uintptr_t)block_traverse},
    {Py_tp_repr, (void *)(uintptr_t)block_repr},
    {Py_tp_getset, block_getset},
    {0, NULL},
};

static PyType_Spec block_spec = {
    .name = "pyallocx._core.Block",
    .basicsize = sizeof(BlockObject),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION | Py_TPFLAGS_HAVE_GC,
    .slots = block_slots,
};

int axpy_codeheap_init(PyObject *module, module_state *state)
{
    return axpy_add_type(module, &heap_spec, NULL) < 0
               ? -1
               : axpy_add_type(module, &block_spec, &state->CodeBlock_type);
}
