/* CodeBlocks: a code heap on modelled pages, driven call by call. For tests and explanations: what
 * a replay never does (holes in the middle of a block, frees of single blocks) can be done here. */
#include "code.h"
#include "live.h"

#include <string.h>

typedef struct CodeBlocksObject {
    PyObject ob_base;
    module_state *state;
    int begun;
    ax_codeheap heap;
    ax_seam seam;
    ax_seam books;
} CodeBlocksObject;

PyObject *axpy_code_blocks(const ax_codeheap *heap)
{
    const uint64_t header = heap->params.header_bytes;
    /* Executable all the time, whatever the chunk's flag says. */
    const int always = heap->params.wx == AX_WX_DUAL || heap->params.wx == AX_WX_RWX;
    PyObject *rows = PyList_New(0);
    for (uint32_t place = 0; rows && place < heap->chunks_alive; place++) {
        const ax_code_chunk *chunk = &heap->chunks[heap->by_address[place]];
        for (uint32_t i = chunk->first; rows && i != AX_NO_BLOCK; i = heap->blocks[i].higher) {
            const ax_block *b = &heap->blocks[i];
            PyObject *row = PyDict_New();
            if (!row || axpy_put_u64(row, "chunk", place) < 0 ||
                axpy_put_u64(row, "chunk_bytes", chunk->bytes) < 0 ||
                axpy_put_u64(row, "offset", b->start - chunk->base) < 0 ||
                axpy_put_u64(row, "header_bytes", header) < 0 ||
                axpy_put_i64(row, "payload_bytes", (int64_t)ax_block_payload(heap, i)) < 0 ||
                axpy_put_u64(row, "code_bytes", b->code_bytes) < 0 ||
                axpy_put_u64(row, "free", b->is_free) < 0 ||
                axpy_put_u64(row, "listed", b->listed) < 0 ||
                axpy_put_u64(row, "dead", (uint64_t)ax_codeheap_is_dead(heap, i)) < 0 ||
                axpy_put_u64(row, "executable", (uint64_t)(always || chunk->exec)) < 0 ||
                PyList_Append(rows, row) < 0) {
                Py_CLEAR(rows);
            }
            Py_XDECREF(row);
        }
    }
    return rows;
}

static void blocks_dealloc(PyObject *op)
{
    CodeBlocksObject *self = (CodeBlocksObject *)op;
    if (self->begun) {
        ax_codeheap_release(&self->heap);
    }
    axpy_free_object(op);
}

static PyObject *blocks_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"params", NULL};
    PyObject *params;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!", names, &PyDict_Type, &params)) {
        return NULL;
    }
    CodeBlocksObject *self = (CodeBlocksObject *)axpy_make_object(type);
    if (!self) {
        return NULL;
    }
    self->state = axpy_state_of_type(type);
    ax_code_params given;
    if (!self->state || axpy_code_params(params, &given) < 0) {
        Py_DECREF((PyObject *)self);
        return NULL;
    }
    ax_detail detail = {0};
    ax_seam_init(&self->seam, AX_BACKING_MODELLED);
    ax_seam_init(&self->books, AX_BACKING_REAL);
    int status = ax_codeheap_init(&self->heap, &given, &self->seam, &self->books, &detail);
    if (status != AX_OK) {
        PyObject *none = axpy_raise(self->state, status, &detail);
        Py_DECREF((PyObject *)self);
        return none;
    }
    self->begun = 1;
    return (PyObject *)self;
}

static PyObject *raise_status(CodeBlocksObject *self, int status)
{
    return status == AX_OK ? Py_NewRef(Py_None) : axpy_raise(self->state, status, NULL);
}

/* A block as (number, address of its payload, bytes of its payload). */
static PyObject *triple(const ax_codeheap *heap, uint32_t block)
{
    return Py_BuildValue("(IKK)", block, (unsigned long long)ax_block_address(heap, block),
                         (unsigned long long)ax_block_payload(heap, block));
}

/* A used block, or -1 with an exception. */
static int get_used(CodeBlocksObject *self, PyObject *number, uint32_t *block)
{
    unsigned long n = PyLong_AsUnsignedLong(number);
    if (n == (unsigned long)-1 && PyErr_Occurred()) {
        return -1;
    }
    int status = n >= self->heap.blocks_used || !self->heap.blocks[n].alive ? AX_ERR_FOREIGN
                 : self->heap.blocks[n].is_free                             ? AX_ERR_DOUBLE_FREE
                                                                            : AX_OK;
    if (status != AX_OK) {
        (void)axpy_raise(self->state, status, NULL);
        return -1;
    }
    *block = (uint32_t)n;
    return 0;
}

static PyObject *blocks_alloc(PyObject *op, PyObject *args)
{
    CodeBlocksObject *self = (CodeBlocksObject *)op;
    unsigned long long size = 0;
    if (!PyArg_ParseTuple(args, "|K:alloc", &size)) {
        return NULL;
    }
    uint32_t block;
    int status = ax_codeheap_alloc(&self->heap, size, &block);
    return status == AX_OK ? triple(&self->heap, block) : axpy_raise(self->state, status, NULL);
}

static PyObject *blocks_free(PyObject *op, PyObject *number)
{
    CodeBlocksObject *self = (CodeBlocksObject *)op;
    uint32_t block;
    return get_used(self, number, &block) < 0
               ? NULL
               : raise_status(self, ax_codeheap_free(&self->heap, block));
}

static PyObject *blocks_add_remainder(PyObject *op, PyObject *args)
{
    CodeBlocksObject *self = (CodeBlocksObject *)op;
    PyObject *number;
    unsigned long long from;
    unsigned long long to;
    uint32_t block;
    if (!PyArg_ParseTuple(args, "OKK:add_remainder", &number, &from, &to) ||
        get_used(self, number, &block) < 0) {
        return NULL;
    }
    if (from > to || from < ax_block_address(&self->heap, block) ||
        to > self->heap.blocks[block].end) {
        PyErr_SetString(PyExc_ValueError, "the hole is not inside the block");
        return NULL;
    }
    uint32_t list = AX_NO_BLOCK;
    int status = ax_codeheap_add_remainder(&self->heap, &list, block, from, to);
    if (status != AX_OK) {
        return axpy_raise(self->state, status, NULL);
    }
    PyObject *pieces = PyList_New(0);
    for (uint32_t i = list; pieces && i != AX_NO_BLOCK; i = self->heap.blocks[i].next) {
        PyObject *piece = triple(&self->heap, i);
        if (!piece || PyList_Append(pieces, piece) < 0) {
            Py_CLEAR(pieces);
        }
        Py_XDECREF(piece);
    }
    return pieces;
}

static PyObject *blocks_shrink(PyObject *op, PyObject *args)
{
    CodeBlocksObject *self = (CodeBlocksObject *)op;
    PyObject *number;
    unsigned long long size;
    uint32_t block;
    if (!PyArg_ParseTuple(args, "OK:shrink", &number, &size) ||
        get_used(self, number, &block) < 0) {
        return NULL;
    }
    if (size > ax_block_payload(&self->heap, block)) {
        PyErr_SetString(PyExc_ValueError, "the block is smaller");
        return NULL;
    }
    int status = ax_codeheap_shrink(&self->heap, block, size);
    return status == AX_OK ? triple(&self->heap, block) : axpy_raise(self->state, status, NULL);
}

static PyObject *blocks_mark_exec(PyObject *op, PyObject *number)
{
    CodeBlocksObject *self = (CodeBlocksObject *)op;
    uint32_t block;
    return get_used(self, number, &block) < 0
               ? NULL
               : raise_status(self,
                              ax_codeheap_mark_exec(&self->heap, self->heap.blocks[block].chunk));
}

static PyObject *blocks_sweep(PyObject *op, PyObject *Py_UNUSED(ignored))
{
    CodeBlocksObject *self = (CodeBlocksObject *)op;
    return raise_status(self, ax_codeheap_sweep(&self->heap));
}

static PyObject *blocks_reset(PyObject *op, PyObject *Py_UNUSED(ignored))
{
    CodeBlocksObject *self = (CodeBlocksObject *)op;
    return raise_status(self, ax_codeheap_reset(&self->heap));
}

static PyObject *blocks_fail(PyObject *op, PyObject *args)
{
    CodeBlocksObject *self = (CodeBlocksObject *)op;
    unsigned int n;
    int bookkeeping = 0;
    if (!PyArg_ParseTuple(args, "I|p:fail_backing_call", &n, &bookkeeping)) {
        return NULL;
    }
    ax_seam *seam = bookkeeping ? &self->books : &self->seam;
    seam->fail_at = n ? seam->attempts + n : 0;
    Py_RETURN_NONE;
}

static PyObject *blocks_check(PyObject *op, PyObject *Py_UNUSED(ignored))
{
    CodeBlocksObject *self = (CodeBlocksObject *)op;
    ax_detail detail = {0};
    int status = ax_codeheap_check(&self->heap, &detail);
    return status == AX_OK ? Py_NewRef(Py_None) : axpy_raise(self->state, status, &detail);
}

static PyObject *blocks_blocks(PyObject *op, PyObject *Py_UNUSED(ignored))
{
    return axpy_code_blocks(&((CodeBlocksObject *)op)->heap);
}

static PyObject *blocks_counters(PyObject *op, PyObject *Py_UNUSED(ignored))
{
    const CodeBlocksObject *self = (CodeBlocksObject *)op;
    const ax_code_counters *c = &self->heap.counters;
    const struct {
        const char *name;
        uint64_t value;
    } numbers[] = {
        {"chunk_maps", self->seam.calls[AX_CALL_MAP]},
        {"chunk_unmaps", self->seam.calls[AX_CALL_UNMAP]},
        {"protect_calls", self->seam.calls[AX_CALL_PROTECT]},
        {"file_calls", self->seam.calls[AX_CALL_FILE]},
        {"flips_to_write", c->flips_to_write},
        {"flips_to_exec", c->flips_to_exec},
        {"pages_flipped", c->pages_flipped},
        {"splits", c->splits},
        {"coalesces", c->coalesces},
        {"list_scan_steps", c->list_scan_steps},
        {"unmarked_header_writes", c->unmarked_header_writes},
        {"reach_failures", c->reach_failures},
        {"flushes", c->flushes},
        {"vma_count_peak", c->vma_peak},
        {"mapped_bytes", self->heap.mapped_bytes},
        {"code_bytes", self->heap.code_bytes},
    };
    PyObject *dict = PyDict_New();
    for (size_t i = 0; dict && i < sizeof numbers / sizeof numbers[0]; i++) {
        if (axpy_put_u64(dict, numbers[i].name, numbers[i].value) < 0) {
            Py_CLEAR(dict);
        }
    }
    return dict;
}

static PyMethodDef blocks_methods[] = {
    {"alloc", blocks_alloc, METH_VARARGS,
     "alloc($self, size_bytes=0, /)\n--\n\n"
     "A used block as (number, address of its payload, bytes of its payload)."},
    {"free", blocks_free, METH_O, "free($self, block, /)\n--\n\nGive a used block back."},
    {"add_remainder", blocks_add_remainder, METH_VARARGS,
     "add_remainder($self, block, hole_start, hole_end, /)\n--\n\n"
     "Give a hole of a used block back; the used pieces that remain."},
    {"shrink", blocks_shrink, METH_VARARGS,
     "shrink($self, block, size_bytes, /)\n--\n\n"
     "Keep the low bytes of a used block, give back what is behind them; the block."},
    {"mark_exec", blocks_mark_exec, METH_O,
     "mark_exec($self, block, /)\n--\n\nMake the chunk of a used block executable."},
    {"sweep", blocks_sweep, METH_NOARGS, "sweep($self, /)\n--\n\nGive empty chunks back."},
    {"reset", blocks_reset, METH_NOARGS, "reset($self, /)\n--\n\nGive all chunks back."},
    {"fail_backing_call", blocks_fail, METH_VARARGS,
     "fail_backing_call($self, n, bookkeeping=False, /)\n--\n\n"
     "Make the n-th call from now fail, of the pages or of the heap's own tables; 0: none."},
    {"check", blocks_check, METH_NOARGS,
     "check($self, /)\n--\n\nRaise CorruptionError if the heap's state is inconsistent."},
    {"blocks", blocks_blocks, METH_NOARGS,
     "blocks($self, /)\n--\n\nOne dict per block in the order of addresses."},
    {"counters", blocks_counters, METH_NOARGS,
     "counters($self, /)\n--\n\nWhat the heap has counted."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot blocks_slots[] = {
    {Py_tp_doc, (void *)(uintptr_t) "A code heap on modelled pages, driven call by call."},
    {Py_tp_new, (void *)(uintptr_t)blocks_new},
    {Py_tp_dealloc, (void *)(uintptr_t)blocks_dealloc},
    {Py_tp_methods, blocks_methods},
    {0, NULL},
};

static PyType_Spec blocks_spec = {
    .name = "pyallocx._core.CodeBlocks",
    .basicsize = sizeof(CodeBlocksObject),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = blocks_slots,
};

int axpy_code_blocks_init(PyObject *module)
{
    return axpy_add_type(module, &blocks_spec, NULL);
}
