/* TraceTimeline: a trace in intervals, driven from Python in steps without the GIL. */
#include "live.h"

#include <stdatomic.h>

#include "../core/timeline.h"

typedef struct timeline_object {
    PyObject_HEAD atomic_int busy;
    int begun;
    column columns[AXPY_COLUMNS];
    ax_timeline timeline;
} timeline_object;

static void timeline_release(timeline_object *self)
{
    if (self->begun) {
        ax_timeline_finish(&self->timeline);
        self->begun = 0;
    }
    for (int i = 0; i < AXPY_COLUMNS; i++) {
        axpy_column_release(&self->columns[i]);
    }
}

static int timeline_traverse(PyObject *op, visitproc visit, void *arg)
{
    timeline_object *self = (timeline_object *)op;
    Py_VISIT(Py_TYPE(op));
    for (int i = 0; i < AXPY_COLUMNS; i++) {
        if (self->columns[i].held) {
            Py_VISIT(self->columns[i].buffer.obj);
        }
    }
    return 0;
}

static int timeline_clear(PyObject *op)
{
    timeline_release((timeline_object *)op);
    return 0;
}

static void timeline_dealloc(PyObject *op)
{
    PyObject_GC_UnTrack(op);
    timeline_release((timeline_object *)op);
    axpy_free_object(op);
}

static PyObject *timeline_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"edges", "op",    "object",  "size_bytes", "thread",
                            "key",   "arena", "time_ns", NULL};
    PyObject *source;
    PyObject *sources[AXPY_COLUMNS] = {NULL, NULL, NULL, Py_None, Py_None, Py_None, Py_None};
    ax_trace_view view = {0};
    column edges = {0};
    ax_detail detail = {0};
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OOOO|OOOO", names, &source, &sources[0],
                                     &sources[1], &sources[2], &sources[3], &sources[4],
                                     &sources[5], &sources[6])) {
        return NULL;
    }
    timeline_object *self = (timeline_object *)axpy_make_object(type);
    if (!self || axpy_trace_columns(sources, self->columns, &view) < 0 ||
        axpy_column_get(source, "edges", sizeof(uint64_t), 0, SIZE_MAX, &edges) < 0) {
        Py_XDECREF((PyObject *)self);
        return NULL;
    }
    const size_t count = (size_t)edges.buffer.len / sizeof(uint64_t);
    int status = AX_ERR_RANGE;
    if (count == 0) {
        detail = (ax_detail){.what = "edges", .value = 0, .low = 1, .high = SIZE_MAX};
    } else {
        status = ax_timeline_begin(&self->timeline, &view, edges.buffer.buf, count - 1, &detail);
        self->begun = 1;
    }
    axpy_column_release(&edges);
    if (status != AX_OK) {
        module_state *state = axpy_state_of_type(type);
        if (state) {
            axpy_raise(state, status, &detail);
        }
        Py_DECREF((PyObject *)self);
        return NULL;
    }
    return (PyObject *)self;
}

static PyObject *timeline_step(PyObject *op, PyObject *argument)
{
    timeline_object *self = (timeline_object *)op;
    ax_detail detail = {0};
    int status;
    const size_t events = PyLong_AsSize_t(argument);
    if (events == (size_t)-1 && PyErr_Occurred()) {
        return NULL;
    }
    if (axpy_enter(&self->busy, "timeline") < 0) {
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS status = ax_timeline_step(&self->timeline, events, &detail);
    Py_END_ALLOW_THREADS const size_t next = self->timeline.next;
    axpy_leave(&self->busy);
    if (status != AX_OK) {
        module_state *state = axpy_state_of_type(Py_TYPE(op));
        return state ? axpy_raise(state, status, &detail) : NULL;
    }
    return PyLong_FromSize_t(next);
}

static PyObject *timeline_rows(PyObject *op, PyObject *unused)
{
    timeline_object *self = (timeline_object *)op;
    (void)unused;
    if (axpy_enter(&self->busy, "timeline") < 0) {
        return NULL;
    }
    PyObject *rows =
        PyBytes_FromStringAndSize((const char *)self->timeline.out,
                                  (Py_ssize_t)(self->timeline.rows * sizeof(ax_timeline_row)));
    axpy_leave(&self->busy);
    return rows;
}

static PyMethodDef timeline_methods[] = {
    {"step", timeline_step, METH_O,
     "step($self, events, /)\n--\n\nWalk at most that many further events; returns how many are "
     "done in all."},
    {"rows", timeline_rows, METH_NOARGS,
     "rows($self, /)\n--\n\nThe rows as bytes: 12 native uint64 each, as ax_timeline_row."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot timeline_slots[] = {
    {Py_tp_doc,
     "TraceTimeline(edges, op, object, size_bytes, thread=None, key=None, arena=None, "
     "time_ns=None)\n--\n\nSums up each interval of a trace in steps; interval r is of the events "
     "edges[r] to edges[r + 1] - 1."},
    {Py_tp_new, timeline_new},
    {Py_tp_dealloc, timeline_dealloc},
    {Py_tp_traverse, timeline_traverse},
    {Py_tp_clear, timeline_clear},
    {Py_tp_methods, timeline_methods},
    {0, NULL},
};

static PyType_Spec timeline_spec = {
    .name = "pyallocx._core.TraceTimeline",
    .basicsize = sizeof(timeline_object),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE | Py_TPFLAGS_HAVE_GC,
    .slots = timeline_slots,
};

int axpy_timeline_init(PyObject *module)
{
    return axpy_add_type(module, &timeline_spec, NULL);
}
