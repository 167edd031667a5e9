/* ArenaReplay: a trace driven through arenas, a slice of events at a time. */
#include "live.h"
#include "params.h"

#include <math.h>
#include <stdatomic.h>
#include <string.h>

#include "../core/replay_arena.h"

typedef struct ReplayObject {
    PyObject ob_base;
    module_state *state;
    column columns[AXPY_COLUMNS];
    ax_replay replay;
    int begun;
    atomic_int busy; /* step() runs without the GIL */
} ReplayObject;

static void replay_dealloc(PyObject *op)
{
    ReplayObject *self = (ReplayObject *)op;
    if (self->begun) {
        ax_replay_end(&self->replay);
    }
    for (int i = 0; i < AXPY_COLUMNS; i++) {
        axpy_column_release(&self->columns[i]);
    }
    axpy_free_object(op);
}

/* A sequence of thresholds, strictly rising from 0. The caller frees it with PyMem_Free. */
static uint64_t *get_thresholds(PyObject *sequence, uint32_t *count)
{
    Py_ssize_t n = PySequence_Size(sequence);
    if (n < 1 || n > (1 << 20)) {
        if (!PyErr_Occurred()) {
            PyErr_Format(PyExc_ValueError, "%zd thresholds, allowed are 1 to %d", n, 1 << 20);
        }
        return NULL;
    }
    uint64_t *thresholds = PyMem_Malloc((size_t)n * sizeof *thresholds);
    if (!thresholds) {
        PyErr_NoMemory();
        return NULL;
    }
    for (Py_ssize_t i = 0; i < n; i++) {
        PyObject *item = PySequence_GetItem(sequence, i);
        unsigned long long value = item ? PyLong_AsUnsignedLongLong(item) : 0;
        Py_XDECREF(item);
        if (!PyErr_Occurred() && (i == 0 ? value != 0 : value <= thresholds[i - 1])) {
            PyErr_Format(PyExc_ValueError, "thresholds must rise from 0, but number %zd is %llu", i,
                         value);
        }
        if (PyErr_Occurred()) {
            PyMem_Free(thresholds);
            return NULL;
        }
        thresholds[i] = value;
    }
    *count = (uint32_t)n;
    return thresholds;
}

static PyObject *replay_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"params",       "op",        "object",   "size_bytes",
                            "thread",       "key",       "arena",    "time_ns",
                            "objects",      "arena_ids", "arena_by", "max_object_bytes",
                            "retain_bytes", "modelled",  "fail_at",  NULL};
    PyObject *params;
    PyObject *sources[AXPY_COLUMNS];
    unsigned long long objects;
    unsigned long long arena_ids;
    unsigned long long max_object_bytes;
    unsigned long long fail_at = 0;
    int arena_by;
    int modelled = 1;
    PyObject *retain_bytes = Py_None;
    if (!PyArg_ParseTupleAndKeywords(
            args, kwargs, "O!OOOOOOOKKiK|OpK", names, &PyDict_Type, &params, &sources[0],
            &sources[1], &sources[2], &sources[3], &sources[4], &sources[5], &sources[6], &objects,
            &arena_ids, &arena_by, &max_object_bytes, &retain_bytes, &modelled, &fail_at)) {
        return NULL;
    }
    if (arena_by < 0 || arena_by >= AX_ARENA_BYS) {
        return PyErr_Format(PyExc_ValueError, "arena_by is %d, allowed is 0 to %d", arena_by,
                            AX_ARENA_BYS - 1);
    }
    ReplayObject *self = (ReplayObject *)axpy_make_object(type);
    if (!self) {
        return NULL;
    }
    self->state = axpy_state_of_type(type);
    ax_trace_view view;
    ax_replay_options options = {
        .engine = retain_bytes == Py_None ? AX_ENGINE_ARENA : AX_ENGINE_CURVE,
        .backing = modelled ? AX_BACKING_MODELLED : AX_BACKING_REAL,
        .arena_by = (enum ax_arena_by)arena_by,
        .max_object_bytes = max_object_bytes,
        .objects = objects,
        .arena_ids = arena_ids,
        .fail_at = fail_at,
    };
    uint64_t *thresholds = NULL;
    if (!self->state || axpy_arena_params(params, &options.params) < 0 ||
        axpy_trace_columns(sources, self->columns, &view) < 0) {
        Py_DECREF((PyObject *)self);
        return NULL;
    }
    if (retain_bytes != Py_None) {
        thresholds = get_thresholds(retain_bytes, &options.thresholds);
        if (!thresholds) {
            Py_DECREF((PyObject *)self);
            return NULL;
        }
        options.retain_bytes = thresholds;
    }
    ax_detail detail = {0};
    int status = ax_replay_begin(&self->replay, &view, &options, &detail);
    PyMem_Free(thresholds);
    if (status != AX_OK) {
        PyObject *none = axpy_raise(self->state, status, &detail);
        Py_DECREF((PyObject *)self);
        return none;
    }
    self->begun = 1;
    return (PyObject *)self;
}

static int enter(ReplayObject *self)
{
    return axpy_enter(&self->busy, "replay");
}

static PyObject *replay_step(PyObject *op, PyObject *argument)
{
    ReplayObject *self = (ReplayObject *)op;
    size_t events = PyLong_AsSize_t(argument);
    if (events == (size_t)-1 && PyErr_Occurred()) {
        return NULL;
    }
    if (enter(self) < 0) {
        return NULL;
    }
    size_t left = 0;
    ax_detail detail = {0};
    int status;
    Py_BEGIN_ALLOW_THREADS status = ax_replay_step(&self->replay, events, &left, &detail);
    Py_END_ALLOW_THREADS axpy_leave(&self->busy);
    if (status != AX_OK) {
        return axpy_raise(self->state, status, &detail);
    }
    return PyLong_FromSize_t(left);
}

static PyObject *row_dict(const ax_replay *replay, const ax_replay_row *row)
{
    const struct {
        const char *name;
        uint64_t value;
    } numbers[] = {
        {"retain_bytes", row->retain_bytes},
        {"pops", row->pops},
        {"pops_large", row->pops_large},
        {"transitions", row->transitions},
        {"bumps", row->bumps},
        {"list_mallocs", row->list_mallocs},
        {"list_reallocs", row->list_reallocs},
        {"list_frees", row->list_frees},
        {"list_frees_at_close", row->list_frees_at_close},
        {"list_bytes_moved", row->list_bytes_moved},
        {"overhead_bytes_end", row->overhead_bytes_end},
        {"overhead_bytes_peak", row->overhead_bytes_peak},
        {"held_bytes_end", row->held_bytes_end},
        {"chunk_bytes_end", row->chunk_bytes_end},
        {"freelist_bytes_end", row->freelist_bytes_end},
        {"slop_bytes_end", row->slop_bytes_end},
        {"live_bytes_end", row->live_bytes_end},
        {"leaked_bytes_end", row->leaked_bytes_end},
        {"chunk_mallocs", row->chunk_mallocs},
        {"arenas_end", row->arenas_end},
        {"lists_end", row->lists_end},
        {"bypassed", row->bypassed},
    };
    PyObject *dict = PyDict_New();
    for (size_t i = 0; dict && i < sizeof numbers / sizeof numbers[0]; i++) {
        if (axpy_put_u64(dict, numbers[i].name, numbers[i].value) < 0) {
            Py_CLEAR(dict);
        }
    }
    if (dict &&
        (axpy_put_double(dict, "overhead_bytes_mean", row->overhead_bytes_mean) < 0 ||
         axpy_put_double(dict, "overhead_bytes_mean_ns", row->overhead_bytes_mean_ns) < 0 ||
         axpy_put_histogram(dict, "histogram_peak", &replay->set.ladder, row->histogram_peak) < 0 ||
         axpy_put_histogram(dict, "histogram_buffer", &replay->set.ladder, row->histogram_buffer) <
             0)) {
        Py_CLEAR(dict);
    }
    return dict;
}

static PyObject *replay_rows(PyObject *op, PyObject *Py_UNUSED(ignored))
{
    ReplayObject *self = (ReplayObject *)op;
    if (enter(self) < 0) {
        return NULL;
    }
    PyObject *rows = PyList_New(0);
    uint32_t count = ax_replay_rows(&self->replay);
    for (uint32_t i = 0; rows && i < count; i++) {
        ax_replay_row row;
        if (ax_replay_row_get(&self->replay, i, &row) != AX_OK) {
            PyErr_SetString(PyExc_RuntimeError, "replay is not finished");
            Py_CLEAR(rows);
            break;
        }
        PyObject *dict = row_dict(&self->replay, &row);
        if (!dict || PyList_Append(rows, dict) < 0) {
            Py_CLEAR(rows);
        }
        Py_XDECREF(dict);
    }
    axpy_leave(&self->busy);
    return rows;
}

static PyObject *replay_free_lists(PyObject *op, PyObject *Py_UNUSED(ignored))
{
    ReplayObject *self = (ReplayObject *)op;
    if (enter(self) < 0) {
        return NULL;
    }
    PyObject *rows = axpy_list_rows(&self->replay.set, AX_NO_LIST);
    axpy_leave(&self->busy);
    return rows;
}

/* check() of the arenas as they stand. */
static PyObject *replay_check(PyObject *op, PyObject *Py_UNUSED(ignored))
{
    ReplayObject *self = (ReplayObject *)op;
    ax_detail detail = {0};
    if (enter(self) < 0) {
        return NULL;
    }
    int status = self->replay.engine == AX_ENGINE_ARENA
                     ? ax_arenas_check(&self->replay.set, &detail)
                     : AX_OK;
    axpy_leave(&self->busy);
    if (status != AX_OK) {
        return axpy_raise(self->state, status, &detail);
    }
    Py_RETURN_NONE;
}

static PyMethodDef replay_methods[] = {
    {"step", replay_step, METH_O,
     "step($self, events, /)\n--\n\nReplay at most so many events more; how many are left."},
    {"rows", replay_rows, METH_NOARGS,
     "rows($self, /)\n--\n\nThe counters of a finished replay, one dict per threshold."},
    {"free_lists", replay_free_lists, METH_NOARGS,
     "free_lists($self, /)\n--\n\nOne dict per free list (not for a replay of several "
     "thresholds)."},
    {"check", replay_check, METH_NOARGS,
     "check($self, /)\n--\n\nRaise CorruptionError if the arenas' state is inconsistent."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot replay_slots[] = {
    {Py_tp_doc, (void *)(uintptr_t) "A trace driven through arenas, a slice of events at a time."},
    {Py_tp_new, (void *)(uintptr_t)replay_new},
    {Py_tp_dealloc, (void *)(uintptr_t)replay_dealloc},
    {Py_tp_methods, replay_methods},
    {0, NULL},
};

static PyType_Spec replay_spec = {
    .name = "pyallocx._core.ArenaReplay",
    .basicsize = sizeof(ReplayObject),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = replay_slots,
};

int axpy_replay_init(PyObject *module, module_state *Py_UNUSED(state))
{
    return axpy_add_type(module, &replay_spec, NULL);
}
