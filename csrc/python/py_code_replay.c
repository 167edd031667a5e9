/* CodeReplay: a trace of compiled methods driven through a code heap, a slice of events at a time.
 */
#include "code.h"
#include "live.h"

#include <stdatomic.h>
#include <string.h>

#include "../core/replay_code.h"

typedef struct CodeReplayObject {
    PyObject ob_base;
    module_state *state;
    column columns[AXPY_COLUMNS];
    ax_code_replay replay;
    int begun;
    atomic_int busy; /* step(), row() and check() run without the GIL */
} CodeReplayObject;

static void replay_dealloc(PyObject *op)
{
    CodeReplayObject *self = (CodeReplayObject *)op;
    if (self->begun) {
        /* Nobody can reach it any more; giving large tables back takes time that others can use. */
        Py_BEGIN_ALLOW_THREADS ax_code_replay_end(&self->replay);
        Py_END_ALLOW_THREADS
    }
    for (int i = 0; i < AXPY_COLUMNS; i++) {
        axpy_column_release(&self->columns[i]);
    }
    axpy_free_object(op);
}

static PyObject *replay_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"params",     "op",          "object",   "size_bytes", "objects",
                            "jump_bytes", "hot_methods", "modelled", "fail_at",    NULL};
    PyObject *params;
    PyObject *sources[AXPY_COLUMNS] = {NULL, NULL, NULL, Py_None, Py_None, Py_None, Py_None};
    unsigned long long objects;
    unsigned long long fail_at = 0;
    unsigned int jump_bytes;
    unsigned int hot_methods;
    int modelled = 1;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!OOOKII|pK", names, &PyDict_Type, &params,
                                     &sources[0], &sources[1], &sources[2], &objects, &jump_bytes,
                                     &hot_methods, &modelled, &fail_at)) {
        return NULL;
    }
    CodeReplayObject *self = (CodeReplayObject *)axpy_make_object(type);
    if (!self) {
        return NULL;
    }
    self->state = axpy_state_of_type(type);
    ax_trace_view view;
    ax_code_replay_options options = {
        .backing = modelled ? AX_BACKING_MODELLED : AX_BACKING_REAL,
        .objects = objects,
        .jump_bytes = jump_bytes,
        .hot_methods = hot_methods,
        .fail_at = fail_at,
    };
    if (!self->state || axpy_code_params(params, &options.params) < 0 ||
        axpy_trace_columns(sources, self->columns, &view) < 0) {
        Py_DECREF((PyObject *)self);
        return NULL;
    }
    ax_detail detail = {0};
    int status = ax_code_replay_begin(&self->replay, &view, &options, &detail);
    if (status != AX_OK) {
        PyObject *none = axpy_raise(self->state, status, &detail);
        Py_DECREF((PyObject *)self);
        return none;
    }
    self->begun = 1;
    return (PyObject *)self;
}

static int enter(CodeReplayObject *self)
{
    return axpy_enter(&self->busy, "replay");
}

static PyObject *replay_step(PyObject *op, PyObject *argument)
{
    CodeReplayObject *self = (CodeReplayObject *)op;
    size_t events = PyLong_AsSize_t(argument);
    if ((events == (size_t)-1 && PyErr_Occurred()) || enter(self) < 0) {
        return NULL;
    }
    size_t left = 0;
    ax_detail detail = {0};
    int status;
    Py_BEGIN_ALLOW_THREADS status =
        ax_code_replay_step(&self->replay, events, AX_CODE_STEP_WORK, &left, &detail);
    Py_END_ALLOW_THREADS axpy_leave(&self->busy);
    return status == AX_OK ? PyLong_FromSize_t(left) : axpy_raise(self->state, status, &detail);
}

static PyObject *row_dict(const ax_code_row *row)
{
    const ax_code_counters *c = &row->counters;
    const struct {
        const char *name;
        uint64_t value;
    } numbers[] = {
        {"methods", row->methods},
        {"chunk_maps", row->chunk_maps},
        {"chunk_unmaps", row->chunk_unmaps},
        {"protect_calls", row->protect_calls},
        {"file_calls", row->file_calls},
        {"flips_to_write", c->flips_to_write},
        {"flips_to_exec", c->flips_to_exec},
        {"pages_flipped", c->pages_flipped},
        {"mapped_bytes_end", row->mapped_bytes_end},
        {"mapped_bytes_peak", row->mapped_bytes_peak},
        {"code_bytes_end", row->code_bytes_end},
        {"code_bytes_peak", row->code_bytes_peak},
        {"wastage_bytes_peak", row->wastage_bytes_peak},
        {"header_bytes", row->header_bytes},
        {"dead_bytes", row->dead_bytes},
        {"free_bytes", row->free_bytes},
        {"largest_free_block", row->largest_free_block},
        {"internal_fragmentation", row->internal_fragmentation},
        {"external_fragmentation", row->external_fragmentation},
        {"splits", c->splits},
        {"coalesces", c->coalesces},
        {"list_scan_steps", c->list_scan_steps},
        {"unmarked_header_writes", c->unmarked_header_writes},
        {"vma_count_peak", c->vma_peak},
        {"reach_failures", c->reach_failures},
        {"flushes", c->flushes},
        {"hot_pages_4k", row->hot_pages[0]},
        {"hot_pages_64k", row->hot_pages[1]},
        {"hot_pages_2m", row->hot_pages[2]},
        {"undersized_blocks", row->undersized_blocks},
        {"blocks_end", row->blocks_end},
        {"chunks_end", row->chunks_end},
    };
    PyObject *dict = PyDict_New();
    for (size_t i = 0; dict && i < sizeof numbers / sizeof numbers[0]; i++) {
        if (axpy_put_u64(dict, numbers[i].name, numbers[i].value) < 0) {
            Py_CLEAR(dict);
        }
    }
    if (dict &&
        (axpy_put_double(dict, "mapped_bytes_mean", row->mapped_bytes_mean) < 0 ||
         axpy_put_double(dict, "wastage_bytes_mean", row->wastage_bytes_mean) < 0 ||
         axpy_put_double(dict, "pages_flipped_per_method", row->pages_flipped_per_method) < 0)) {
        Py_CLEAR(dict);
    }
    return dict;
}

static PyObject *replay_row(PyObject *op, PyObject *Py_UNUSED(ignored))
{
    CodeReplayObject *self = (CodeReplayObject *)op;
    if (enter(self) < 0) {
        return NULL;
    }
    ax_code_row row;
    int status;
    Py_BEGIN_ALLOW_THREADS status = ax_code_replay_row(&self->replay, &row);
    Py_END_ALLOW_THREADS axpy_leave(&self->busy);
    if (status == AX_ERR_STATE) {
        PyErr_SetString(PyExc_RuntimeError, "replay is not finished");
        return NULL;
    }
    return status == AX_OK ? row_dict(&row) : axpy_raise(self->state, status, NULL);
}

static PyObject *replay_check(PyObject *op, PyObject *Py_UNUSED(ignored))
{
    CodeReplayObject *self = (CodeReplayObject *)op;
    ax_detail detail = {0};
    if (enter(self) < 0) {
        return NULL;
    }
    int status;
    Py_BEGIN_ALLOW_THREADS status = ax_codeheap_check(&self->replay.heap, &detail);
    Py_END_ALLOW_THREADS axpy_leave(&self->busy);
    if (status != AX_OK) {
        return axpy_raise(self->state, status, &detail);
    }
    Py_RETURN_NONE;
}

static PyObject *replay_blocks(PyObject *op, PyObject *Py_UNUSED(ignored))
{
    CodeReplayObject *self = (CodeReplayObject *)op;
    if (enter(self) < 0) {
        return NULL;
    }
    PyObject *rows = axpy_code_blocks(&self->replay.heap);
    axpy_leave(&self->busy);
    return rows;
}

static PyMethodDef replay_methods[] = {
    {"step", replay_step, METH_O,
     "step($self, events, /)\n--\n\n"
     "Replay at most so many events more, fewer where they are slow; how many are left."},
    {"row", replay_row, METH_NOARGS, "row($self, /)\n--\n\nThe counters of a finished replay."},
    {"check", replay_check, METH_NOARGS,
     "check($self, /)\n--\n\nRaise CorruptionError if the heap's state is inconsistent."},
    {"blocks", replay_blocks, METH_NOARGS,
     "blocks($self, /)\n--\n\nOne dict per block in the order of addresses."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot replay_slots[] = {
    {Py_tp_doc, (void *)(uintptr_t) "A trace of compiled methods driven through a code heap."},
    {Py_tp_new, (void *)(uintptr_t)replay_new},
    {Py_tp_dealloc, (void *)(uintptr_t)replay_dealloc},
    {Py_tp_methods, replay_methods},
    {0, NULL},
};

static PyType_Spec replay_spec = {
    .name = "pyallocx._core.CodeReplay",
    .basicsize = sizeof(CodeReplayObject),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = replay_slots,
};

int axpy_code_init(PyObject *module, module_state *Py_UNUSED(state))
{
    if (axpy_add_type(module, &replay_spec, NULL) < 0) {
        return -1;
    }
    PyObject *names = axpy_names(ax_code_policy_name, AX_CODE_POLICIES);
    const int failed = !names || PyModule_AddObjectRef(module, "CODE_POLICIES", names) < 0;
    Py_XDECREF(names);
    return failed ? -1 : axpy_code_blocks_init(module);
}
