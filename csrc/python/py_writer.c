/* TraceWriter: a trace as text, asked for in pieces; each step works without the GIL. */
#include "live.h"

#include <stdatomic.h>
#include <string.h>

#include "../core/writers/writer.h"

/* A piece is what one step answers at most, whatever it is asked for. */
enum { PIECE_BYTES = 1 << 20, EXTRA_COLUMNS = 4 };

typedef struct writer_object {
    PyObject_HEAD atomic_int busy;
    int begun;
    column columns[AXPY_COLUMNS];
    column extra[EXTRA_COLUMNS]; /* align_log2, call, thread_ends, tids */
    ax_writer writer;
    char *piece;
    size_t piece_bytes;
} writer_object;

static void writer_release(writer_object *self)
{
    if (self->begun) {
        ax_grow_free(&self->writer.books, &self->piece, &self->piece_bytes, 1);
        ax_writer_free(&self->writer);
        self->begun = 0;
    }
    for (int i = 0; i < AXPY_COLUMNS; i++) {
        axpy_column_release(&self->columns[i]);
    }
    for (int i = 0; i < EXTRA_COLUMNS; i++) {
        axpy_column_release(&self->extra[i]);
    }
}

static int writer_traverse(PyObject *op, visitproc visit, void *arg)
{
    writer_object *self = (writer_object *)op;
    Py_VISIT(Py_TYPE(op));
    for (int i = 0; i < AXPY_COLUMNS; i++) {
        if (self->columns[i].held) {
            Py_VISIT(self->columns[i].buffer.obj);
        }
    }
    for (int i = 0; i < EXTRA_COLUMNS; i++) {
        if (self->extra[i].held) {
            Py_VISIT(self->extra[i].buffer.obj);
        }
    }
    return 0;
}

static int writer_clear(PyObject *op)
{
    writer_release((writer_object *)op);
    return 0;
}

static void writer_dealloc(PyObject *op)
{
    PyObject_GC_UnTrack(op);
    writer_release((writer_object *)op);
    axpy_free_object(op);
}

static int format_of(const char *name)
{
    static const char *const names[AX_WRITE_FORMATS] = {"aosp", "csv", "c"};
    for (int i = 0; i < AX_WRITE_FORMATS; i++) {
        if (strcmp(name, names[i]) == 0) {
            return i;
        }
    }
    PyErr_Format(PyExc_ValueError, "format is '%s', allowed are 'aosp', 'csv' and 'c'", name);
    return -1;
}

static int get_extra(writer_object *self, PyObject *sources[EXTRA_COLUMNS], ax_write_source *out)
{
    static const struct {
        const char *name;
        size_t itemsize;
        int by_event;
    } kinds[EXTRA_COLUMNS] = {
        {"align_log2", 1, 1}, {"call", 1, 1}, {"thread_ends", 8, 0}, {"tids", 4, 0}};
    const void *data[EXTRA_COLUMNS];
    size_t lengths[EXTRA_COLUMNS];
    for (int i = 0; i < EXTRA_COLUMNS; i++) {
        if (axpy_column_get(sources[i], kinds[i].name, kinds[i].itemsize, 1,
                            kinds[i].by_event ? out->trace.events : SIZE_MAX,
                            &self->extra[i]) < 0) {
            return -1;
        }
        const int held = self->extra[i].held;
        data[i] = held ? self->extra[i].buffer.buf : NULL;
        lengths[i] = held ? (size_t)self->extra[i].buffer.shape[0] : 0;
    }
    out->align_log2 = data[0];
    out->call = data[1];
    out->thread_ends = data[2];
    out->thread_end_count = lengths[2];
    out->tids = data[3];
    out->tid_count = lengths[3];
    return 0;
}

static PyObject *writer_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"format",      "op",    "object",  "size_bytes", "thread",
                            "key",         "arena", "time_ns", "align_log2", "call",
                            "thread_ends", "tids",  "fields",  NULL};
    const char *name;
    const char *fields = NULL;
    PyObject *sources[AXPY_COLUMNS] = {NULL, NULL, NULL, Py_None, Py_None, Py_None, Py_None};
    PyObject *extra[EXTRA_COLUMNS] = {Py_None, Py_None, Py_None, Py_None};
    ax_write_source source = {0};
    ax_detail detail = {0};
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "sOOO|OOOO$OOOOz:TraceWriter", names, &name,
                                     &sources[0], &sources[1], &sources[2], &sources[3],
                                     &sources[4], &sources[5], &sources[6], &extra[0], &extra[1],
                                     &extra[2], &extra[3], &fields)) {
        return NULL;
    }
    const int format = format_of(name);
    writer_object *self = format < 0 ? NULL : (writer_object *)axpy_make_object(type);
    if (!self) {
        return NULL;
    }
    if (axpy_trace_columns(sources, self->columns, &source.trace) < 0 ||
        get_extra(self, extra, &source) < 0) {
        Py_DECREF(self);
        return NULL;
    }
    source.fields = fields;
    const int status = ax_writer_begin(&self->writer, format, &source, &detail);
    self->begun = 1;
    if (status != AX_OK) {
        module_state *state = axpy_state_of_type(type);
        Py_DECREF(self);
        return state ? axpy_raise(state, status, &detail) : NULL;
    }
    return (PyObject *)self;
}

static PyObject *writer_step(PyObject *op, PyObject *argument)
{
    writer_object *self = (writer_object *)op;
    ax_detail detail = {0};
    size_t length = 0;
    const size_t events = PyLong_AsSize_t(argument);
    if (events == (size_t)-1 && PyErr_Occurred()) {
        return NULL;
    }
    if (axpy_enter(&self->busy, "trace writer") < 0) {
        return NULL;
    }
    int status;
    PyObject *result = NULL;
    Py_BEGIN_ALLOW_THREADS status =
        ax_grow_array(&self->writer.books, &self->piece, &self->piece_bytes, PIECE_BYTES, 1);
    if (status == AX_OK) {
        status = ax_writer_step(&self->writer, events, self->piece, PIECE_BYTES, &length, &detail);
    }
    Py_END_ALLOW_THREADS if (status == AX_OK)
    {
        result = PyBytes_FromStringAndSize(self->piece, (Py_ssize_t)length);
    }
    axpy_leave(&self->busy);
    if (status != AX_OK) {
        module_state *state = axpy_state_of_type(Py_TYPE(op));
        return state ? axpy_raise(state, status, &detail) : NULL;
    }
    return result;
}

static PyObject *writer_done(PyObject *op, PyObject *unused)
{
    writer_object *self = (writer_object *)op;
    (void)unused;
    if (axpy_enter(&self->busy, "trace writer") < 0) {
        return NULL;
    }
    const size_t done = self->writer.next;
    axpy_leave(&self->busy);
    return PyLong_FromSize_t(done);
}

static PyMethodDef writer_methods[] = {
    {"step", writer_step, METH_O,
     "step($self, events, /)\n--\n\nThe text of at most that many further events, 1 MiB at most; "
     "empty where there are none."},
    {"done", writer_done, METH_NOARGS, "done($self, /)\n--\n\nThe events written so far."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot writer_slots[] = {
    {Py_tp_doc,
     "TraceWriter(format, op, object, size_bytes, thread=None, key=None, arena=None, "
     "time_ns=None, *, align_log2=None, call=None, thread_ends=None, tids=None, "
     "fields=None)\n--\n\nMakes text of a trace in steps. format: 'aosp', 'csv' or 'c'."},
    {Py_tp_new, writer_new},
    {Py_tp_dealloc, writer_dealloc},
    {Py_tp_traverse, writer_traverse},
    {Py_tp_clear, writer_clear},
    {Py_tp_methods, writer_methods},
    {0, NULL},
};

static PyType_Spec writer_spec = {
    .name = "pyallocx._core.TraceWriter",
    .basicsize = sizeof(writer_object),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE | Py_TPFLAGS_HAVE_GC,
    .slots = writer_slots,
};

int axpy_writer_init(PyObject *module, module_state *state)
{
    (void)state;
    PyObject *names = PyTuple_New(AX_MADE_BY);
    for (int i = 0; names && i < AX_MADE_BY; i++) {
        PyObject *name = PyUnicode_FromString(ax_call_name(i));
        if (!name || PyTuple_SetItem(names, i, name) < 0) {
            Py_CLEAR(names);
        }
    }
    const int status = names ? PyModule_AddObjectRef(module, "CALL_NAMES", names) : -1;
    Py_XDECREF(names);
    return status < 0 ? -1 : axpy_add_type(module, &writer_spec, NULL);
}
