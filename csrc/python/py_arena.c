/* Arena, Handle and the exporter behind a view: live objects on real memory. */
#include "live.h"
#include "params.h"

#include <stdatomic.h>
#include <string.h>

#include "../core/checked.h"

/* One set of arenas, shared by those Arena objects that were made with share=. */
typedef struct shared_set {
    atomic_size_t users;
    atomic_int busy; /* without a GIL two threads may meet here */
    ax_arenas set;
    ax_seam seam;
    ax_seam books;
} shared_set;

typedef struct ArenaObject {
    PyObject ob_base;
    module_state *state;
    shared_set *shared;
    uint64_t serial;
    ax_checked checked;
} ArenaObject;

typedef struct HandleObject {
    PyObject ob_base;
    uint64_t arena_serial; /* not a reference: the arena may be gone */
    uint64_t address;
    uint64_t size_bytes;
    uint32_t generation;
    uint32_t key;
} HandleObject;

typedef struct ViewObject {
    PyObject ob_base;
    ArenaObject *arena;
    uint64_t address;
    uint64_t size_bytes;
} ViewObject;

/* --- entering and leaving
 * ------------------------------------------------------------------------- */

static int enter(ArenaObject *self)
{
    if (!self->shared) {
        PyErr_SetString(PyExc_ValueError, "arena is closed");
        return -1;
    }
    return axpy_enter(&self->shared->busy, "arena");
}

static void leave(ArenaObject *self)
{
    axpy_leave(&self->shared->busy);
}

static PyObject *refuse(ArenaObject *self, int status, const ax_detail *detail)
{
    return axpy_raise(self->state, status, detail);
}

/* --- life of an arena
 * ----------------------------------------------------------------------------- */

static void drop_shared(shared_set *shared)
{
    if (atomic_fetch_sub(&shared->users, 1) == 1) {
        ax_arenas_release(&shared->set);
        PyMem_Free(shared);
    }
}

static int open_set(ArenaObject *self, PyObject *params_dict)
{
    ax_arena_params params;
    ax_detail detail = {0};
    if (axpy_arena_params(params_dict, &params) < 0) {
        return -1;
    }
    shared_set *shared = PyMem_Calloc(1, sizeof *shared);
    if (!shared) {
        PyErr_NoMemory();
        return -1;
    }
    ax_seam_init(&shared->seam, AX_BACKING_REAL);
    ax_seam_init(&shared->books, AX_BACKING_REAL);
    int status = ax_arenas_init(&shared->set, &params, &shared->seam, &shared->books, &detail);
    if (status != AX_OK) {
        PyMem_Free(shared);
        refuse(self, status, &detail);
        return -1;
    }
    atomic_store(&shared->users, 1);
    self->shared = shared;
    return 0;
}

static PyObject *arena_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"params", "share", NULL};
    PyObject *params;
    PyObject *share = Py_None;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!|O", names, &PyDict_Type, &params, &share)) {
        return NULL;
    }
    ArenaObject *self = (ArenaObject *)axpy_make_object(type);
    if (!self) {
        return NULL;
    }
    self->state = axpy_find_state(type);
    self->serial = atomic_fetch_add(&self->state->arenas_made, 1) + 1;
    if (share == Py_None) {
        if (open_set(self, params) < 0) {
            Py_DECREF((PyObject *)self);
            return NULL;
        }
    } else {
        int is_arena = PyObject_IsInstance(share, self->state->Arena_type);
        if (is_arena <= 0) {
            if (is_arena == 0) {
                PyErr_Format(PyExc_TypeError, "share must be an Arena, not %R", share);
            }
            Py_DECREF((PyObject *)self);
            return NULL;
        }
        ArenaObject *other = (ArenaObject *)share;
        if (PyDict_Size(params) != 0) {
            PyErr_SetString(PyExc_TypeError,
                            "an arena that shares another's policy takes no parameters of its own");
            Py_DECREF((PyObject *)self);
            return NULL;
        }
        if (!other->shared || !other->checked.open) {
            PyErr_SetString(PyExc_ValueError, "share: arena is closed");
            Py_DECREF((PyObject *)self);
            return NULL;
        }
        self->shared = other->shared;
        atomic_fetch_add(&self->shared->users, 1);
    }
    if (enter(self) < 0) {
        Py_DECREF((PyObject *)self);
        return NULL;
    }
    int status = ax_checked_open(&self->checked, &self->shared->set);
    leave(self);
    if (status != AX_OK) {
        refuse(self, status, NULL);
        Py_DECREF((PyObject *)self);
        return NULL;
    }
    return (PyObject *)self;
}

static void arena_dealloc(PyObject *op)
{
    ArenaObject *self = (ArenaObject *)op;
    if (self->shared) {
        /* Views hold the arena, so none is left. */
        axpy_enter_waiting(&self->shared->busy);
        (void)ax_checked_close(&self->checked, NULL);
        leave(self);
        drop_shared(self->shared);
    }
    axpy_free_object(op);
}

static PyObject *arena_close(PyObject *op, PyObject *Py_UNUSED(ignored))
{
    ArenaObject *self = (ArenaObject *)op;
    if (!self->checked.open) {
        Py_RETURN_NONE;
    }
    ax_detail detail = {0};
    if (enter(self) < 0) {
        return NULL;
    }
    int status = ax_checked_close(&self->checked, &detail);
    leave(self);
    if (status != AX_OK) {
        return refuse(self, status, &detail);
    }
    Py_RETURN_NONE;
}

static PyObject *arena_enter(PyObject *op, PyObject *Py_UNUSED(ignored))
{
    if (!((ArenaObject *)op)->checked.open) {
        PyErr_SetString(PyExc_ValueError, "arena is closed");
        return NULL;
    }
    return Py_NewRef(op);
}

/* A view that is still out keeps the arena open. Where the block is left by an exception that is
 * told instead of ours; the arena then closes when the last reference goes. */
static PyObject *arena_exit(PyObject *op, PyObject *args)
{
    PyObject *kind = Py_None;
    PyObject *closed = arena_close(op, NULL);
    if (!closed && PyTuple_Size(args) > 0) {
        kind = PyTuple_GetItem(args, 0);
    }
    if (!closed && kind != Py_None && PyErr_ExceptionMatches(PyExc_BufferError)) {
        PyErr_Clear();
        Py_RETURN_NONE;
    }
    return closed;
}

/* --- alloc, free, view
 * ---------------------------------------------------------------------------- */

static PyObject *arena_alloc(PyObject *op, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"key", "size_bytes", NULL};
    ArenaObject *self = (ArenaObject *)op;
    PyObject *key_object;
    PyObject *size_object;
    uint64_t key;
    uint64_t size_bytes;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OO:alloc", names, &key_object, &size_object) ||
        axpy_get_number(key_object, "key", 0, UINT32_MAX, &key) < 0 ||
        axpy_get_number(size_object, "size_bytes", 1, UINT64_C(1) << 40, &size_bytes) < 0) {
        return NULL;
    }
    /* The handle first: once the arena has answered nothing may fail. */
    HandleObject *handle =
        (HandleObject *)axpy_make_object((PyTypeObject *)self->state->Handle_type);
    if (!handle || enter(self) < 0) {
        Py_XDECREF((PyObject *)handle);
        return NULL;
    }
    ax_detail detail = {0};
    int status = ax_checked_alloc(&self->checked, (uint32_t)key, size_bytes, &handle->address,
                                  &handle->generation, &detail);
    if (status == AX_OK) {
        handle->arena_serial = self->serial;
        handle->key = (uint32_t)key;
        handle->size_bytes = size_bytes;
    }
    leave(self);
    if (status != AX_OK) {
        Py_DECREF((PyObject *)handle);
        return refuse(self, status, &detail);
    }
    return (PyObject *)handle;
}

/* The handle, if it is one and of this arena. */
static HandleObject *get_handle(ArenaObject *self, PyObject *object)
{
    int is_handle = PyObject_IsInstance(object, self->state->Handle_type);
    if (is_handle < 0) {
        return NULL;
    }
    if (!is_handle) {
        PyErr_Format(PyExc_TypeError, "expected a Handle that alloc() returned, not %R", object);
        return NULL;
    }
    HandleObject *handle = (HandleObject *)object;
    if (handle->arena_serial != self->serial) {
        PyErr_Format(self->state->InvalidFree, "%R belongs to another arena", object);
        return NULL;
    }
    return handle;
}

static PyObject *arena_free(PyObject *op, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"key", "handle", NULL};
    ArenaObject *self = (ArenaObject *)op;
    PyObject *key_object;
    PyObject *object;
    uint64_t key;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OO:free", names, &key_object, &object) ||
        axpy_get_number(key_object, "key", 0, UINT32_MAX, &key) < 0) {
        return NULL;
    }
    HandleObject *handle = get_handle(self, object);
    if (!handle || enter(self) < 0) {
        return NULL;
    }
    ax_detail detail = {0};
    int status = ax_checked_free(&self->checked, (uint32_t)key, handle->address, handle->generation,
                                 &detail);
    leave(self);
    if (status == AX_ERR_WRONG_KEY) {
        PyErr_Format(self->state->InvalidFree, "%R was allocated under key %llu, freed under %llu",
                     object, (unsigned long long)detail.low, (unsigned long long)detail.where);
        return NULL;
    }
    if (status != AX_OK) {
        return refuse(self, status, &detail);
    }
    Py_RETURN_NONE;
}

static PyObject *arena_view(PyObject *op, PyObject *object)
{
    ArenaObject *self = (ArenaObject *)op;
    HandleObject *handle = get_handle(self, object);
    if (!handle) {
        return NULL;
    }
    ViewObject *view = (ViewObject *)axpy_make_object((PyTypeObject *)self->state->View_type);
    if (!view || enter(self) < 0) {
        Py_XDECREF((PyObject *)view);
        return NULL;
    }
    ax_detail detail = {0};
    ax_object *record;
    int status =
        ax_checked_find(&self->checked, handle->address, handle->generation, &record, &detail);
    if (status == AX_OK) {
        ax_checked_export(&self->checked, record);
        view->arena = (ArenaObject *)Py_NewRef(op);
        view->address = handle->address;
        view->size_bytes = handle->size_bytes;
    }
    leave(self);
    if (status != AX_OK) {
        Py_DECREF((PyObject *)view);
        return refuse(self, status, &detail);
    }
    PyObject *memory = PyMemoryView_FromObject((PyObject *)view);
    Py_DECREF((PyObject *)view);
    return memory;
}

static int view_getbuffer(PyObject *op, Py_buffer *buffer, int flags)
{
    ViewObject *self = (ViewObject *)op;
    return PyBuffer_FillInfo(buffer, op, ax_at(self->address), (Py_ssize_t)self->size_bytes, 0,
                             flags);
}

static void view_dealloc(PyObject *op)
{
    ViewObject *self = (ViewObject *)op;
    if (self->arena) {
        axpy_enter_waiting(&self->arena->shared->busy);
        ax_checked_unexport(&self->arena->checked, self->address);
        leave(self->arena);
        Py_DECREF((PyObject *)self->arena);
    }
    axpy_free_object(op);
}

/* --- looking at it
 * -------------------------------------------------------------------------------- */

static PyObject *arena_check(PyObject *op, PyObject *Py_UNUSED(ignored))
{
    ArenaObject *self = (ArenaObject *)op;
    ax_detail detail = {0};
    if (enter(self) < 0) {
        return NULL;
    }
    int status = ax_checked_check(&self->checked, &detail);
    leave(self);
    if (status != AX_OK) {
        return refuse(self, status, &detail);
    }
    Py_RETURN_NONE;
}

static int put_seam(PyObject *dict, const ax_seam *seam)
{
    if (axpy_put_u64(dict, "backing_mallocs", seam->calls[AX_CALL_MALLOC]) < 0 ||
        axpy_put_u64(dict, "backing_reallocs", seam->calls[AX_CALL_REALLOC]) < 0 ||
        axpy_put_u64(dict, "backing_frees", seam->calls[AX_CALL_FREE]) < 0 ||
        axpy_put_u64(dict, "backing_bytes", seam->bytes_held) < 0 ||
        axpy_put_u64(dict, "backing_bytes_peak", seam->bytes_peak) < 0) {
        return -1;
    }
    uint64_t failed = seam->failed[AX_CALL_MALLOC] + seam->failed[AX_CALL_REALLOC];
    return axpy_put_u64(dict, "backing_failed", failed);
}

static int put_stats(PyObject *dict, const ArenaObject *self)
{
    const ax_arenas *set = &self->shared->set;
    const ax_checked *checked = &self->checked;
    const ax_arena_counters *c = &set->counters;
    const uint64_t width = set->params.pointer_bytes;
    ax_arena_totals t;
    ax_arenas_totals(set, &t);
    const struct {
        const char *name;
        uint64_t value;
    } numbers[] = {
        {"operations", set->operations},
        {"arenas", set->arenas_alive},
        {"lists", t.lists},
        {"pops", t.pops},
        {"pops_large", t.pops_large},
        {"transitions", t.transitions},
        {"peaks_sum", t.peaks_sum},
        {"bumps", t.bumps},
        {"list_mallocs", c->list_mallocs},
        {"list_reallocs", c->list_reallocs},
        {"list_frees", c->list_frees},
        {"list_frees_at_close", c->list_frees_at_close},
        {"list_bytes_moved", c->list_bytes_moved},
        {"overhead_bytes", (set->capacity_entries - set->length_entries) * width},
        {"overhead_bytes_peak", set->overhead_peak_entries * width},
        {"list_header_bytes", t.lists_with_buffer * set->ladder.header_bytes},
        {"list_buffer_bytes", t.list_buffer_bytes},
        {"live_objects", checked->live_objects},
        {"live_bytes", checked->live_bytes},
        {"requested_bytes", checked->live_request_bytes},
        {"rounding_bytes", checked->live_bytes - checked->live_request_bytes},
        {"freelist_objects", t.freelist_objects},
        {"freelist_bytes", t.freelist_bytes},
        {"leaked_bytes", t.leaked_bytes},
        {"chunks", t.chunks},
        {"oversize_chunks", t.oversize_chunks},
        {"chunk_bytes", t.chunk_bytes},
        {"chunk_header_bytes", t.chunk_header_bytes},
        {"slop_bytes", t.slop_bytes},
        {"unused_tail_bytes", t.unused_tail_bytes},
    };
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        if (axpy_put_u64(dict, numbers[i].name, numbers[i].value) < 0) {
            return -1;
        }
    }
    if (put_seam(dict, &self->shared->seam) < 0 ||
        axpy_put_histogram(dict, "histogram_peak", &set->ladder, c->histogram_peak) < 0) {
        return -1;
    }
    return axpy_put_histogram(dict, "histogram_buffer", &set->ladder, c->histogram_buffer);
}

static PyObject *arena_stats(PyObject *op, PyObject *Py_UNUSED(ignored))
{
    ArenaObject *self = (ArenaObject *)op;
    PyObject *dict = PyDict_New();
    if (!dict || enter(self) < 0) {
        Py_XDECREF(dict);
        return NULL;
    }
    int failed = put_stats(dict, self) < 0;
    leave(self);
    if (failed) {
        Py_CLEAR(dict);
    }
    return dict;
}

static PyObject *arena_free_lists(PyObject *op, PyObject *Py_UNUSED(ignored))
{
    ArenaObject *self = (ArenaObject *)op;
    if (enter(self) < 0) {
        return NULL;
    }
    PyObject *rows = self->checked.open ? axpy_list_rows(&self->shared->set, self->checked.arena)
                                        : PyList_New(0);
    leave(self);
    return rows;
}

static PyObject *arena_fail_next(PyObject *op, PyObject *args, PyObject *kwargs)
{
    ArenaObject *self = (ArenaObject *)op;
    int bookkeeping;
    uint64_t n;
    if (axpy_fail_arguments(args, kwargs, &n, &bookkeeping) < 0 || enter(self) < 0) {
        return NULL;
    }
    axpy_fail_call(bookkeeping ? &self->shared->books : &self->shared->seam, n);
    leave(self);
    Py_RETURN_NONE;
}

static PyObject *arena_closed(PyObject *op, void *Py_UNUSED(closure))
{
    return PyBool_FromLong(!((ArenaObject *)op)->checked.open);
}

static PyMethodDef arena_methods[] = {
    {"alloc", (PyCFunction)(void (*)(void))arena_alloc, METH_VARARGS | METH_KEYWORDS,
     "alloc($self, /, key, size_bytes)\n--\n\n"
     "Allocate an object: the newest freed one of the key, or the next bytes of a chunk.\n\n"
     "Parameters\n----------\n"
     "key : int\n    Type of the object, 0 to 2**32 - 1. A key has one size.\n"
     "size_bytes : int\n    1 to 2**40; rounded up to the alignment.\n\n"
     "Returns\n-------\n"
     "Handle\n    With ``address``, ``size_bytes``, ``key`` and ``generation``. The memory is not "
     "cleared.\n\n"
     "Raises\n------\n"
     "ValueError\n    If the key came with another rounded size before, a number is out of range, "
     "or the\n"
     "    arena is closed.\n"
     "PoisonError\n    With ``check_poison``: the object was written to while it was free. It "
     "stays on its\n"
     "    list, so the key is blocked until the memory is mended.\n"
     "MemoryError\n    If the backing refused. The arena is as before."},
    {"free", (PyCFunction)(void (*)(void))arena_free, METH_VARARGS | METH_KEYWORDS,
     "free($self, /, key, handle)\n--\n\n"
     "Put an object on its key's free list, overwritten with the poison pattern.\n\n"
     "Raises\n------\n"
     "InvalidFree\n    If the handle is another arena's, stale, already freed, or of another key.\n"
     "BufferError\n    While a view of the object is exported.\n"
     "MemoryError\n    If the list needs a larger buffer and the backing refused.\n"
     "    In all cases the arena is as before."},
    {"view", arena_view, METH_O,
     "view($self, handle, /)\n--\n\n"
     "Return a writable memoryview of exactly the bytes of a live object.\n\n"
     "While it, or anything made of it, is exported the object cannot be freed and the arena "
     "cannot\n"
     "be closed (BufferError); it keeps the memory even when the arena's name is gone.\n\n"
     "Raises\n------\n"
     "InvalidFree\n    As `free`."},
    {"stats", arena_stats, METH_NOARGS,
     "stats($self, /)\n--\n\n"
     "Return counters and bytes, over all arenas that share the policy.\n\n"
     "Returns\n-------\n"
     "dict\n"
     "    The counters of a sweep, and bytes whose parts add up: ``chunk_bytes`` is headers, "
     "live,\n"
     "    free-listed, leaked, slop and the current chunk's unused tail; ``live_bytes`` (of this\n"
     "    arena alone, like ``requested_bytes``) is requested and rounding; ``list_buffer_bytes`` "
     "is\n"
     "    headers, entries and overhead; ``backing_bytes`` is chunks and list buffers.\n"
     "    ``histogram_peak`` and ``histogram_buffer`` count transitions to empty by the buffer "
     "that\n"
     "    the episode's peak needed, and by the buffer at that moment."},
    {"free_lists", arena_free_lists, METH_NOARGS,
     "free_lists($self, /)\n--\n\n"
     "Return one dict per key of this arena.\n\n"
     "Returns\n-------\n"
     "list of dict\n"
     "    ``key``, ``entry_bytes``, ``length``, ``capacity``, ``buffer_bytes``, ``peak`` (of the\n"
     "    running episode), ``pops``, ``pops_large``, ``bumps``, ``transitions``, ``peaks_sum`` "
     "(over\n"
     "    finished episodes), ``freelist_bytes``."},
    {"check", arena_check, METH_NOARGS,
     "check($self, /)\n--\n\n"
     "Walk the whole state and raise if a rule is broken.\n\n"
     "Raises\n------\n"
     "CorruptionError\n    Naming the rule, what was found and what was expected.\n"
     "PoisonError\n    With ``check_poison``: a free object was written to."},
    {"close", arena_close, METH_NOARGS,
     "close($self, /)\n--\n\n"
     "Give all memory back. Closing twice is nothing.\n\n"
     "Raises\n------\n"
     "BufferError\n    While a view is exported; the arena stays open. A ``with`` block that is "
     "left by an\n"
     "    exception of its own lets that one through."},
    {"fail_backing_call", (PyCFunction)(void (*)(void))arena_fail_next,
     METH_VARARGS | METH_KEYWORDS,
     "fail_backing_call($self, /, n, bookkeeping=False)\n--\n\n"
     "Make the n-th call from now to the backing that may fail, fail; 0 takes that back.\n\n"
     "Parameters\n----------\n"
     "n : int\n    1 is the next one.\n"
     "bookkeeping : bool\n    The arena's own tables instead of its chunks and list buffers."},
    {"__enter__", arena_enter, METH_NOARGS, NULL},
    {"__exit__", arena_exit, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef arena_getset[] = {
    {"closed", arena_closed, NULL, "Whether the arena was closed.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot arena_slots[] = {
    {Py_tp_doc,
     (void *)(uintptr_t) "The arena behind pyallocx.Arena; parameters as a dict of ints."},
    {Py_tp_new, (void *)(uintptr_t)arena_new},
    {Py_tp_dealloc, (void *)(uintptr_t)arena_dealloc},
    {Py_tp_methods, arena_methods},
    {Py_tp_getset, arena_getset},
    {0, NULL},
};

static PyType_Spec arena_spec = {
    .name = "pyallocx._core.Arena",
    .basicsize = sizeof(ArenaObject),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE,
    .slots = arena_slots,
};

static PyType_Slot view_slots[] = {
    {Py_tp_dealloc, (void *)(uintptr_t)view_dealloc},
    {Py_bf_getbuffer, (void *)(uintptr_t)view_getbuffer},
    {0, NULL},
};

static PyType_Spec view_spec = {
    .name = "pyallocx._core.View",
    .basicsize = sizeof(ViewObject),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = view_slots,
};

/* --- handles
 * -------------------------------------------------------------------------------------- */

static PyObject *handle_repr(PyObject *op)
{
    const HandleObject *self = (HandleObject *)op;
    return PyUnicode_FromFormat("<Handle %p key=%u size_bytes=%llu generation=%u>",
                                ax_at(self->address), self->key,
                                (unsigned long long)self->size_bytes, self->generation);
}

static PyObject *handle_address(PyObject *op, void *Py_UNUSED(closure))
{
    return PyLong_FromUnsignedLongLong(((HandleObject *)op)->address);
}

static PyObject *handle_size(PyObject *op, void *Py_UNUSED(closure))
{
    return PyLong_FromUnsignedLongLong(((HandleObject *)op)->size_bytes);
}

static PyObject *handle_key(PyObject *op, void *Py_UNUSED(closure))
{
    return PyLong_FromUnsignedLong(((HandleObject *)op)->key);
}

static PyObject *handle_generation(PyObject *op, void *Py_UNUSED(closure))
{
    return PyLong_FromUnsignedLong(((HandleObject *)op)->generation);
}

static PyGetSetDef handle_getset[] = {
    {"address", handle_address, NULL, "Address of the object's first byte.", NULL},
    {"size_bytes", handle_size, NULL, "Bytes asked for.", NULL},
    {"key", handle_key, NULL, "Key it was allocated under.", NULL},
    {"generation", handle_generation, NULL, "How often this address has been handed out.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot handle_slots[] = {
    {Py_tp_doc,
     (void *)(uintptr_t) "One allocation of an Arena: made by alloc(), ended by free()."},
    {Py_tp_dealloc, (void *)(uintptr_t)axpy_free_object},
    {Py_tp_repr, (void *)(uintptr_t)handle_repr},
    {Py_tp_getset, handle_getset},
    {0, NULL},
};

static PyType_Spec handle_spec = {
    .name = "pyallocx._core.Handle",
    .basicsize = sizeof(HandleObject),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = handle_slots,
};

static PyObject *ladder(PyObject *module, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"list_header_bytes", "pointer_bytes", NULL};
    unsigned int header = 8;
    unsigned int width = 8;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|II:ladder", names, &header, &width)) {
        return NULL;
    }
    ax_ladder l;
    ax_detail detail = {0};
    int status = ax_ladder_init(&l, header, width, &detail);
    if (status != AX_OK) {
        return axpy_raise(axpy_state_of_module(module), status, &detail);
    }
    PyObject *rungs = PyList_New(0);
    for (uint32_t r = 1; rungs && r < l.rungs; r++) {
        PyObject *pair = Py_BuildValue("KI", (unsigned long long)l.bytes[r], l.capacity[r]);
        if (!pair || PyList_Append(rungs, pair) < 0) {
            Py_CLEAR(rungs);
        }
        Py_XDECREF(pair);
    }
    return rungs;
}

static PyMethodDef arena_functions[] = {
    {"ladder", (PyCFunction)(void (*)(void))ladder, METH_VARARGS | METH_KEYWORDS,
     "ladder($module, /, list_header_bytes=8, pointer_bytes=8)\n--\n\n"
     "The buffer sizes that a free list climbs: (bytes, entries) per rung."},
    {NULL, NULL, 0, NULL},
};

int axpy_arena_init(PyObject *module, module_state *state)
{
    state->Arena_type = PyType_FromModuleAndSpec(module, &arena_spec, NULL);
    state->Handle_type = PyType_FromModuleAndSpec(module, &handle_spec, NULL);
    state->View_type = PyType_FromModuleAndSpec(module, &view_spec, NULL);
    if (!state->Arena_type || !state->Handle_type || !state->View_type ||
        PyModule_AddObjectRef(module, "Arena", state->Arena_type) < 0 ||
        PyModule_AddObjectRef(module, "Handle", state->Handle_type) < 0) {
        return -1;
    }
    PyObject *names = axpy_names(ax_policy_name, AX_POLICIES);
    int failed = !names || PyModule_AddObjectRef(module, "ARENA_POLICIES", names) < 0;
    Py_XDECREF(names);
    return failed ? -1 : PyModule_AddFunctions(module, arena_functions);
}
