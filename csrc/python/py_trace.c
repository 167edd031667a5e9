/* Traces: readers of foreign formats, the check and the summary of a trace.
 *
 * All three are driven from Python in steps: one call does a bounded amount of work without the
 * GIL. An object that is inside a call refuses another one from another thread (RuntimeError).
 */
#include "live.h"

#include <stdatomic.h>
#include <string.h>

#include "../core/readers/reader.h"
#include "../core/trace.h"

/* ---- what the types here share -----------------------------------------------------------------
 */

static void *alloc_object(PyTypeObject *type)
{
    const allocfunc alloc = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    return alloc(type, 0);
}

int axpy_put(PyObject *dict, const char *key, PyObject *value)
{
    const int result = value ? PyDict_SetItemString(dict, key, value) : -1;
    Py_XDECREF(value);
    return result;
}

static int put_number(PyObject *dict, const char *key, uint64_t value)
{
    return axpy_put(dict, key, PyLong_FromUnsignedLongLong(value));
}

PyObject *axpy_counts(const uint64_t *counts, int count, int first_dropped,
                      const char *(*name)(int))
{
    PyObject *seen = PyDict_New();
    PyObject *dropped = PyDict_New();
    PyObject *result = NULL;
    int status = seen && dropped ? 0 : -1;
    for (int i = 0; i < count && status == 0; i++) {
        status = put_number(i < first_dropped ? seen : dropped, name(i), counts[i]);
    }
    if (status == 0) {
        result = PyTuple_Pack(2, seen, dropped);
    }
    Py_XDECREF(seen);
    Py_XDECREF(dropped);
    return result;
}

PyObject *axpy_numbers(const uint64_t *numbers, size_t count)
{
    PyObject *list = PyList_New((Py_ssize_t)count);
    for (size_t i = 0; list && i < count; i++) {
        PyObject *one = PyLong_FromUnsignedLongLong(numbers[i]);
        if (!one || PyList_SetItem(list, (Py_ssize_t)i, one) < 0) {
            Py_CLEAR(list);
        }
    }
    return list;
}

/* ---- Column: memory of the core as a read-only buffer -------------------------------------------
 */

typedef struct column_object {
    PyObject_HEAD ax_seam books; /* that holds the memory */
    void *memory;
    size_t capacity; /* items */
    Py_ssize_t events;
    Py_ssize_t itemsize;
    const char *format;
} column_object;

PyObject *axpy_make_column(module_state *state, ax_seam *books, void *slot, size_t *capacity,
                           size_t events, size_t itemsize, const char *format)
{
    void *const none = NULL;
    column_object *self = alloc_object((PyTypeObject *)state->Column_type);
    if (!self) {
        return NULL;
    }
    ax_seam_init(&self->books, AX_BACKING_REAL);
    ax_seam_hand_over(books, &self->books, *capacity * itemsize);
    memcpy(&self->memory, slot, sizeof self->memory);
    memcpy(slot, &none, sizeof none);
    self->capacity = *capacity;
    *capacity = 0;
    self->events = (Py_ssize_t)events;
    self->itemsize = (Py_ssize_t)itemsize;
    self->format = format;
    return (PyObject *)self;
}

static void column_dealloc(PyObject *op)
{
    column_object *self = (column_object *)op;
    ax_grow_free(&self->books, &self->memory, &self->capacity, (size_t)self->itemsize);
    axpy_free_object(op);
}

static int column_getbuffer(PyObject *op, Py_buffer *view, int flags)
{
    column_object *self = (column_object *)op;
    if (flags & PyBUF_WRITABLE) {
        view->obj = NULL;
        PyErr_SetString(PyExc_BufferError, "a column is read-only");
        return -1;
    }
    /* A column without events has no memory; a buffer must point somewhere. */
    view->buf = self->memory ? self->memory : (void *)&self->events;
    view->obj = Py_NewRef(op);
    view->len = self->events * self->itemsize;
    view->itemsize = self->itemsize;
    view->readonly = 1;
    view->ndim = 1;
    view->format = NULL;
    if (flags & PyBUF_FORMAT) {
        /* The field lacks a const; nobody writes to it. */
        memcpy(&view->format, &self->format, sizeof view->format);
    }
    view->shape = (flags & PyBUF_ND) ? &self->events : NULL;
    view->strides = (flags & PyBUF_STRIDES) == PyBUF_STRIDES ? &self->itemsize : NULL;
    view->suboffsets = NULL;
    view->internal = NULL;
    return 0;
}

static PyType_Slot column_slots[] = {
    {Py_tp_doc, "Column()\n--\n\nA column that a reader made: read-only, by the buffer protocol."},
    {Py_tp_dealloc, column_dealloc},
    {Py_bf_getbuffer, column_getbuffer},
    {0, NULL},
};

static PyType_Spec column_spec = {
    .name = "pyallocx._core.Column",
    .basicsize = sizeof(column_object),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = column_slots,
};

/* ---- TraceReader -------------------------------------------------------------------------------
 */

typedef struct reader_object {
    PyObject_HEAD atomic_int busy;
    int taken;
    ax_reader reader;
} reader_object;

static PyObject *raise_read(reader_object *self, int status)
{
    module_state *state = axpy_state_of_type(Py_TYPE((PyObject *)self));
    const ax_detail *d = &self->reader.detail;
    if (!state) {
        return NULL;
    }
    if (status == AX_ERR_NOMEM || status == AX_ERR_STATE || status == AX_ERR_RANGE) {
        return axpy_raise(state, status, d);
    }
    return PyErr_Format(state->TraceError, "line %llu: %s, in '%s'", (unsigned long long)d->where,
                        d->what ? d->what : ax_status_text(status), self->reader.excerpt);
}

static PyObject *format_names(void)
{
    PyObject *names = PyTuple_New(AX_READ_FORMATS);
    for (int i = 0; names && i < AX_READ_FORMATS; i++) {
        PyObject *name = PyUnicode_FromString(ax_read_format_name(i));
        if (!name || PyTuple_SetItem(names, i, name) < 0) {
            Py_CLEAR(names);
        }
    }
    return names;
}

static PyObject *unknown_format(const char *name)
{
    PyObject *names = format_names();
    if (names) {
        PyErr_Format(PyExc_ValueError, "format is '%s', allowed are %R", name, names);
        Py_DECREF(names);
    }
    return NULL;
}

static PyObject *reader_formats(PyObject *type, PyObject *unused)
{
    (void)type;
    (void)unused;
    return format_names();
}

static PyObject *reader_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"format", "skip", NULL};
    const char *name;
    int skip = 0;
    int format;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "s|p:TraceReader", names, &name, &skip)) {
        return NULL;
    }
    for (format = 0; format < AX_READ_FORMATS; format++) {
        if (strcmp(name, ax_read_format_name(format)) == 0) {
            break;
        }
    }
    if (format == AX_READ_FORMATS) {
        return unknown_format(name);
    }
    reader_object *self = alloc_object(type);
    if (!self) {
        return NULL;
    }
    ax_reader_begin(&self->reader, format, skip);
    return (PyObject *)self;
}

static void reader_dealloc(PyObject *op)
{
    ax_reader_free(&((reader_object *)op)->reader);
    axpy_free_object(op);
}

static PyObject *reader_feed(PyObject *op, PyObject *source)
{
    reader_object *self = (reader_object *)op;
    Py_buffer bytes;
    int status;
    if (PyObject_GetBuffer(source, &bytes, PyBUF_SIMPLE) < 0) {
        return NULL;
    }
    if (axpy_enter(&self->busy, "reader") < 0) {
        PyBuffer_Release(&bytes);
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS status = ax_reader_feed(&self->reader, bytes.buf, (size_t)bytes.len);
    Py_END_ALLOW_THREADS PyObject *result =
        status == AX_OK ? Py_NewRef(Py_None) : raise_read(self, status);
    axpy_leave(&self->busy);
    PyBuffer_Release(&bytes);
    return result;
}

static PyObject *reader_finish(PyObject *op, PyObject *unused)
{
    reader_object *self = (reader_object *)op;
    int status;
    (void)unused;
    if (axpy_enter(&self->busy, "reader") < 0) {
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS status = ax_reader_finish(&self->reader);
    Py_END_ALLOW_THREADS PyObject *result =
        status == AX_OK ? Py_NewRef(Py_None) : raise_read(self, status);
    axpy_leave(&self->busy);
    return result;
}

static PyObject *take_columns(reader_object *self)
{
    module_state *state = axpy_state_of_type(Py_TYPE((PyObject *)self));
    ax_read_columns *c = &self->reader.columns;
    const struct {
        const char *name;
        void *slot;
        size_t *capacity;
        size_t itemsize;
        const char *format;
        int present;
    } columns[] = {
        {"op", &c->op, &c->capacity.op, sizeof *c->op, "B", 1},
        {"object", &c->object, &c->capacity.object, sizeof *c->object, "I", 1},
        {"size_bytes", &c->size_bytes, &c->capacity.size_bytes, sizeof *c->size_bytes, "Q", 1},
        {"thread", &c->thread, &c->capacity.thread, sizeof *c->thread, "I", c->thread != NULL},
        {"time_ns", &c->time_ns, &c->capacity.time_ns, sizeof *c->time_ns, "Q", c->time_ns != NULL},
        {"align_log2", &c->align_log2, &c->capacity.align_log2, sizeof *c->align_log2, "B",
         c->align_log2 != NULL},
        {"key", &c->key, &c->capacity.key, sizeof *c->key, "I", c->key != NULL},
        {"call", &c->call, &c->capacity.call, sizeof *c->call, "B", c->call != NULL},
    };
    PyObject *dict = state ? PyDict_New() : NULL;
    if (!dict) {
        return NULL;
    }
    self->taken = 1;
    for (size_t i = 0; i < sizeof columns / sizeof *columns; i++) {
        PyObject *made =
            columns[i].present
                ? axpy_make_column(state, &self->reader.books, columns[i].slot, columns[i].capacity,
                                   c->events, columns[i].itemsize, columns[i].format)
                : Py_NewRef(Py_None);
        if (axpy_put(dict, columns[i].name, made) < 0) {
            Py_DECREF(dict);
            return NULL;
        }
    }
    return dict;
}

static PyObject *reader_columns(PyObject *op, PyObject *unused)
{
    reader_object *self = (reader_object *)op;
    (void)unused;
    if (axpy_enter(&self->busy, "reader") < 0) {
        return NULL;
    }
    PyObject *result = NULL;
    if (self->reader.state != AX_READER_FINISHED || self->taken) {
        PyErr_SetString(PyExc_RuntimeError, "columns can be taken once, after finish()");
    } else {
        result = take_columns(self);
    }
    axpy_leave(&self->busy);
    return result;
}

static PyObject *reader_counts(PyObject *op, PyObject *unused)
{
    reader_object *self = (reader_object *)op;
    (void)unused;
    if (axpy_enter(&self->busy, "reader") < 0) {
        return NULL;
    }
    PyObject *result =
        axpy_counts(self->reader.counts, AX_READ_COUNTS, AX_DROPPED_SYNTAX, ax_read_count_name);
    axpy_leave(&self->busy);
    return result;
}

static PyObject *reader_threads(PyObject *op, PyObject *unused)
{
    reader_object *self = (reader_object *)op;
    (void)unused;
    if (axpy_enter(&self->busy, "reader") < 0) {
        return NULL;
    }
    PyObject *list = axpy_numbers(self->reader.tids, self->reader.threads.used);
    axpy_leave(&self->busy);
    return list;
}

/* An address, or the name of a function, empty where the file has none. */
static PyObject *key_name(const ax_reader *reader, size_t key)
{
    const char *text;
    size_t length;
    uint64_t address;
    (void)ax_heaptrack_name(reader, key, &address, &text, &length);
    if (address) {
        /* Python 3.11 has no %llx. */
        char digits[24];
        PyOS_snprintf(digits, sizeof digits, "0x%llx", (unsigned long long)address);
        return PyUnicode_FromString(digits);
    }
    return PyUnicode_DecodeUTF8(text ? text : "", (Py_ssize_t)length, "replace");
}

static PyObject *reader_key_names(PyObject *op, PyObject *unused)
{
    reader_object *self = (reader_object *)op;
    (void)unused;
    if (axpy_enter(&self->busy, "reader") < 0) {
        return NULL;
    }
    const size_t n = ax_heaptrack_keys(&self->reader);
    PyObject *list = PyList_New((Py_ssize_t)n);
    for (size_t i = 0; list && i < n; i++) {
        PyObject *name = key_name(&self->reader, i);
        if (!name || PyList_SetItem(list, (Py_ssize_t)i, name) < 0) {
            Py_CLEAR(list);
        }
    }
    axpy_leave(&self->busy);
    return list;
}

static PyMethodDef reader_methods[] = {
    {"formats", reader_formats, METH_NOARGS | METH_STATIC,
     "formats()\n--\n\nThe names of the formats that there are."},
    {"key_names", reader_key_names, METH_NOARGS,
     "key_names($self, /)\n--\n\nWhat is at the top of the call stack of each key."},
    {"feed", reader_feed, METH_O,
     "feed($self, data, /)\n--\n\nRead further bytes; they may end anywhere in a line."},
    {"finish", reader_finish, METH_NOARGS, "finish($self, /)\n--\n\nRead the last line."},
    {"columns", reader_columns, METH_NOARGS,
     "columns($self, /)\n--\n\nThe columns by name, None where unknown. Once, after finish()."},
    {"counts", reader_counts, METH_NOARGS,
     "counts($self, /)\n--\n\nTwo dicts: what was met beside events, and what was dropped."},
    {"threads", reader_threads, METH_NOARGS,
     "threads($self, /)\n--\n\nThe file's thread number of each dense thread."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot reader_slots[] = {
    {Py_tp_doc, "TraceReader(format, skip=False)\n--\n\n"
                "Reads a text trace fed in pieces. format: one of formats(). skip: drop and count "
                "what would raise TraceError."},
    {Py_tp_new, reader_new},
    {Py_tp_dealloc, reader_dealloc},
    {Py_tp_methods, reader_methods},
    {0, NULL},
};

static PyType_Spec reader_spec = {
    .name = "pyallocx._core.TraceReader",
    .basicsize = sizeof(reader_object),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = reader_slots,
};

/* ---- TraceCheck and TraceSummary ----------------------------------------------------------------
 */

typedef struct walk_object {
    PyObject_HEAD atomic_int busy;
    int begun;
    int summarises;
    column columns[AXPY_COLUMNS];
    ax_trace_summary summary; /* a TraceCheck uses the check inside */
} walk_object;

static const char *walk_noun(const walk_object *self)
{
    return self->summarises ? "trace summary" : "trace check";
}

static void walk_release(walk_object *self)
{
    if (self->begun) {
        ax_trace_summary_finish(&self->summary);
        self->begun = 0;
    }
    for (int i = 0; i < AXPY_COLUMNS; i++) {
        axpy_column_release(&self->columns[i]);
    }
}

static int walk_traverse(PyObject *op, visitproc visit, void *arg)
{
    walk_object *self = (walk_object *)op;
    Py_VISIT(Py_TYPE(op));
    for (int i = 0; i < AXPY_COLUMNS; i++) {
        if (self->columns[i].held) {
            Py_VISIT(self->columns[i].buffer.obj);
        }
    }
    return 0;
}

static int walk_clear(PyObject *op)
{
    walk_release((walk_object *)op);
    return 0;
}

static void walk_dealloc(PyObject *op)
{
    PyObject_GC_UnTrack(op);
    walk_release((walk_object *)op);
    axpy_free_object(op);
}

static PyObject *walk_new(PyTypeObject *type, PyObject *args, PyObject *kwargs, int summarises)
{
    static char *names[] = {"op",  "object", "size_bytes", "thread",
                            "key", "arena",  "time_ns",    NULL};
    PyObject *sources[AXPY_COLUMNS] = {NULL, NULL, NULL, Py_None, Py_None, Py_None, Py_None};
    ax_trace_view view = {0};
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OOO|OOOO", names, &sources[0], &sources[1],
                                     &sources[2], &sources[3], &sources[4], &sources[5],
                                     &sources[6])) {
        return NULL;
    }
    walk_object *self = alloc_object(type);
    if (!self) {
        return NULL;
    }
    if (axpy_trace_columns(sources, self->columns, &view) < 0) {
        Py_DECREF(self);
        return NULL;
    }
    ax_trace_summary_begin(&self->summary, &view);
    self->summarises = summarises;
    self->begun = 1;
    return (PyObject *)self;
}

static PyObject *check_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    return walk_new(type, args, kwargs, 0);
}

static PyObject *summary_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    return walk_new(type, args, kwargs, 1);
}

static PyObject *walk_step(PyObject *op, PyObject *argument)
{
    walk_object *self = (walk_object *)op;
    ax_detail detail = {0};
    int status;
    const size_t events = PyLong_AsSize_t(argument);
    if (events == (size_t)-1 && PyErr_Occurred()) {
        return NULL;
    }
    if (axpy_enter(&self->busy, walk_noun(self)) < 0) {
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS status =
        self->summarises ? ax_trace_summary_step(&self->summary, events, &detail)
                         : ax_trace_check_step(&self->summary.check, events, &detail);
    Py_END_ALLOW_THREADS const size_t next = self->summary.check.next;
    axpy_leave(&self->busy);
    if (status != AX_OK) {
        module_state *state = axpy_state_of_type(Py_TYPE(op));
        return state ? axpy_raise(state, status, &detail) : NULL;
    }
    return PyLong_FromSize_t(next);
}

static PyObject *check_objects(PyObject *op, PyObject *unused)
{
    walk_object *self = (walk_object *)op;
    (void)unused;
    if (axpy_enter(&self->busy, walk_noun(self)) < 0) {
        return NULL;
    }
    const uint64_t objects = self->summary.check.objects;
    axpy_leave(&self->busy);
    return PyLong_FromUnsignedLongLong(objects);
}

static PyObject *summary_totals(PyObject *op, PyObject *unused)
{
    walk_object *self = (walk_object *)op;
    (void)unused;
    if (axpy_enter(&self->busy, walk_noun(self)) < 0) {
        return NULL;
    }
    const ax_trace_totals t = self->summary.totals;
    axpy_leave(&self->busy);
    const struct {
        const char *name;
        uint64_t value;
    } entries[] = {
        {"allocs", t.by_op[AX_OP_ALLOC]},
        {"frees", t.by_op[AX_OP_FREE]},
        {"reallocs", t.by_op[AX_OP_REALLOC]},
        {"destroys", t.by_op[AX_OP_DESTROY]},
        {"objects", t.objects},
        {"threads", t.threads},
        {"arenas", t.arenas},
        {"keys", t.keys},
        {"distinct_sizes", t.distinct_sizes},
        {"largest_size_bytes", t.largest_size_bytes},
        {"peak_live_bytes", t.peak_live_bytes},
        {"peak_live_objects", t.peak_live_objects},
        {"peak_event", t.peak_event},
        {"most_live_objects", t.most_live_objects},
        {"live_bytes_end", t.live_bytes},
        {"live_objects_end", t.live_objects},
        {"allocated_bytes", t.allocated_bytes},
        {"cross_thread_frees", t.cross_thread_frees},
        {"first_time_ns", t.first_time_ns},
        {"last_time_ns", t.last_time_ns},
    };
    PyObject *dict = PyDict_New();
    for (size_t i = 0; dict && i < sizeof entries / sizeof *entries; i++) {
        if (put_number(dict, entries[i].name, entries[i].value) < 0) {
            Py_CLEAR(dict);
        }
    }
    return dict;
}

#define STEP_METHOD                                                                      \
    {"step", walk_step, METH_O,                                                          \
     "step($self, events, /)\n--\n\nWalk at most that many further events; returns how " \
     "many are done in all."}

static PyMethodDef check_methods[] = {
    STEP_METHOD,
    {"objects", check_objects, METH_NOARGS,
     "objects($self, /)\n--\n\nThe objects allocated so far."},
    {NULL, NULL, 0, NULL},
};

static PyMethodDef summary_methods[] = {
    STEP_METHOD,
    {"totals", summary_totals, METH_NOARGS,
     "totals($self, /)\n--\n\nThe totals of the events so far, by name."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot check_slots[] = {
    {Py_tp_doc, "TraceCheck(op, object, size_bytes, thread=None, key=None, arena=None, "
                "time_ns=None)\n--\n\nChecks the rules of a trace in steps; TraceError names the "
                "event that breaks one."},
    {Py_tp_new, check_new},
    {Py_tp_dealloc, walk_dealloc},
    {Py_tp_traverse, walk_traverse},
    {Py_tp_clear, walk_clear},
    {Py_tp_methods, check_methods},
    {0, NULL},
};

static PyType_Spec check_spec = {
    .name = "pyallocx._core.TraceCheck",
    .basicsize = sizeof(walk_object),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE | Py_TPFLAGS_HAVE_GC,
    .slots = check_slots,
};

static PyType_Slot summary_slots[] = {
    {Py_tp_doc, "TraceSummary(op, object, size_bytes, thread=None, key=None, arena=None, "
                "time_ns=None)\n--\n\nSums up a trace in steps, checking its rules on the way."},
    {Py_tp_new, summary_new},
    {Py_tp_dealloc, walk_dealloc},
    {Py_tp_traverse, walk_traverse},
    {Py_tp_clear, walk_clear},
    {Py_tp_methods, summary_methods},
    {0, NULL},
};

static PyType_Spec summary_spec = {
    .name = "pyallocx._core.TraceSummary",
    .basicsize = sizeof(walk_object),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE | Py_TPFLAGS_HAVE_GC,
    .slots = summary_slots,
};

/* ---- the module --------------------------------------------------------------------------------
 */

int axpy_trace_init(PyObject *module, module_state *state)
{
    if (axpy_add_type(module, &column_spec, &state->Column_type) < 0 ||
        axpy_add_type(module, &reader_spec, NULL) < 0 ||
        axpy_add_type(module, &check_spec, NULL) < 0 ||
        axpy_add_type(module, &summary_spec, NULL) < 0) {
        return -1;
    }
    return 0;
}
