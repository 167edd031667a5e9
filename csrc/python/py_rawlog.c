/* RawLog: the log of the recorder, merged into the columns of a trace in steps. */
#include "live.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#if defined(__x86_64__)
#include <x86intrin.h>
#endif

#include "../core/readers/rawlog.h"

typedef struct rawlog_object {
    PyObject_HEAD atomic_int busy;
    int begun;
    int taken;
    int fd;      /* our own */
    int problem; /* errno of what could not be read */
    ax_rawlog log;
} rawlog_object;

/* ---- the file ----------------------------------------------------------------------------------
 */

static int read_file(void *source, uint64_t offset, void *to, size_t bytes, size_t *got)
{
    rawlog_object *self = source;
    size_t done = 0;
    while (done < bytes) {
        const ssize_t now =
            pread(self->fd, (char *)to + done, bytes - done, (off_t)(offset + done));
        if (now < 0 && errno == EINTR) {
            continue;
        }
        if (now < 0) {
            self->problem = errno;
            return AX_ERR_STATE;
        }
        if (now == 0) {
            break;
        }
        done += (size_t)now;
    }
    *got = done;
    return AX_OK;
}

static PyObject *raise_rawlog(rawlog_object *self, module_state *state, int status)
{
    const ax_detail *d = &self->log.detail;
    if (self->problem) {
        errno = self->problem;
        return PyErr_SetFromErrno(PyExc_OSError);
    }
    if (status == AX_ERR_SYNTAX) {
        return PyErr_Format(state->TraceError, "at byte %llu: %s", (unsigned long long)d->where,
                            d->what);
    }
    return axpy_raise(state, status, d);
}

/* ---- the object --------------------------------------------------------------------------------
 */

static void rawlog_dealloc(PyObject *op)
{
    rawlog_object *self = (rawlog_object *)op;
    if (self->begun) {
        ax_rawlog_free(&self->log);
    }
    if (self->fd >= 0) {
        close(self->fd);
    }
    axpy_free_object(op);
}

static PyObject *rawlog_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"file", "skip", NULL};
    int fd;
    int skip = 0;
    int status;
    struct stat about;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "i|p:RawLog", names, &fd, &skip)) {
        return NULL;
    }
    module_state *state = axpy_state_of_type(type);
    rawlog_object *self = state ? (rawlog_object *)axpy_make_object(type) : NULL;
    if (!self) {
        return NULL;
    }
    self->fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    if (self->fd < 0 || fstat(self->fd, &about) < 0) {
        PyErr_SetFromErrno(PyExc_OSError);
        Py_DECREF((PyObject *)self);
        return NULL;
    }
    self->begun = 1;
    Py_BEGIN_ALLOW_THREADS status =
        ax_rawlog_begin(&self->log, read_file, self, (uint64_t)about.st_size, skip);
    Py_END_ALLOW_THREADS if (status != AX_OK)
    {
        raise_rawlog(self, state, status);
        Py_DECREF((PyObject *)self);
        return NULL;
    }
    return (PyObject *)self;
}

static PyObject *rawlog_step(PyObject *op, PyObject *argument)
{
    rawlog_object *self = (rawlog_object *)op;
    int status;
    const size_t records = PyLong_AsSize_t(argument);
    if (records == (size_t)-1 && PyErr_Occurred()) {
        return NULL;
    }
    if (axpy_enter(&self->busy, "raw log") < 0) {
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS status = ax_rawlog_step(&self->log, records);
    Py_END_ALLOW_THREADS const int finished = self->log.state == AX_RAWLOG_FINISHED;
    axpy_leave(&self->busy);
    if (status != AX_OK) {
        module_state *state = axpy_state_of_type(Py_TYPE(op));
        return state ? raise_rawlog(self, state, status) : NULL;
    }
    return PyBool_FromLong(finished);
}

static PyObject *rawlog_set_rate(PyObject *op, PyObject *argument)
{
    rawlog_object *self = (rawlog_object *)op;
    const double rate = PyFloat_AsDouble(argument);
    if (PyErr_Occurred() || axpy_enter(&self->busy, "raw log") < 0) {
        return NULL;
    }
    ax_rawlog_set_rate(&self->log, rate);
    axpy_leave(&self->busy);
    return Py_NewRef(Py_None);
}

/* ---- what it holds -----------------------------------------------------------------------------
 */

/* Text that somebody else wrote, without what follows a NUL. */
static PyObject *bytes_until_nul(const char *text, size_t most)
{
    return PyBytes_FromStringAndSize(text, (Py_ssize_t)strnlen(text, most));
}

static PyObject *rawlog_header(PyObject *op, PyObject *unused)
{
    rawlog_object *self = (rawlog_object *)op;
    (void)unused;
    if (axpy_enter(&self->busy, "raw log") < 0) {
        return NULL;
    }
    const ax_rawlog *log = &self->log;
    const ax_rawlog_header *h = &log->header;
    const struct {
        const char *name;
        uint64_t value;
    } numbers[] = {
        {"version", h->version},
        {"flags", h->flags},
        {"clock", h->clock},
        {"pid", h->pid},
        {"ppid", h->ppid},
        {"ended", h->ended},
        {"start_realtime_ns", h->start_realtime_ns},
        {"stamp0", h->stamp0},
        {"mono0_ns", h->mono0_ns},
        {"threads", h->threads},
        {"cut", h->cut},
        {"cut_ns", h->cut ? ax_rawlog_ns(log, h->cut_stamp) : 0},
        {"forks", h->forks},
        {"children_not_recorded", h->children_not_recorded},
        {"fork_stamp", h->fork_stamp},
        {"own_malloc", h->own_malloc},
        {"next", h->next},
        {"clock_span_ns", ax_rawlog_clock_span_ns(log)},
        {"bytes", log->bytes_total},
        {"bytes_done", log->bytes_done},
    };
    const size_t words =
        h->command_bytes < sizeof h->command ? h->command_bytes : sizeof h->command;
    PyObject *dict = PyDict_New();
    int status = dict ? 0 : -1;
    for (size_t i = 0; status == 0 && i < sizeof numbers / sizeof *numbers; i++) {
        status = axpy_put(dict, numbers[i].name, PyLong_FromUnsignedLongLong(numbers[i].value));
    }
    if (status == 0) {
        status = axpy_put(dict, "ns_per_tick", PyFloat_FromDouble(log->ns_per_tick));
    }
    if (status == 0) {
        status =
            axpy_put(dict, "parent_file", bytes_until_nul(h->parent_file, sizeof h->parent_file));
    }
    if (status == 0) {
        status = axpy_put(dict, "exe", bytes_until_nul(h->exe, sizeof h->exe));
    }
    if (status == 0) {
        status =
            axpy_put(dict, "command", PyBytes_FromStringAndSize(h->command, (Py_ssize_t)words));
    }
    axpy_leave(&self->busy);
    if (status != 0) {
        Py_CLEAR(dict);
    }
    return dict;
}

static PyObject *take_table(module_state *state, ax_rawlog *log, ax_rawlog_table *table)
{
    PyObject *columns = PyDict_New();
    for (int i = 0; columns && i < table->columns; i++) {
        ax_rawlog_column *one = &table->column[i];
        const char *format = one->item_bytes == 1 ? "B" : one->item_bytes == 4 ? "I" : "Q";
        PyObject *made = axpy_make_column(state, &log->books, &one->array, &one->capacity,
                                          table->rows, one->item_bytes, format);
        if (axpy_put(columns, one->name, made) < 0) {
            Py_CLEAR(columns);
        }
    }
    return columns;
}

static PyObject *rawlog_tables(PyObject *op, PyObject *unused)
{
    rawlog_object *self = (rawlog_object *)op;
    module_state *state = axpy_state_of_type(Py_TYPE(op));
    (void)unused;
    if (!state || axpy_enter(&self->busy, "raw log") < 0) {
        return NULL;
    }
    PyObject *dict = NULL;
    if (self->log.state != AX_RAWLOG_FINISHED || self->taken) {
        PyErr_SetString(PyExc_RuntimeError, "tables can be taken once, when all steps are done");
    } else {
        self->taken = 1;
        dict = PyDict_New();
        for (int i = 0; dict && i < AX_TABLES; i++) {
            ax_rawlog_table *table = &self->log.tables[i];
            if (axpy_put(dict, table->name, take_table(state, &self->log, table)) < 0) {
                Py_CLEAR(dict);
            }
        }
    }
    axpy_leave(&self->busy);
    return dict;
}

static PyObject *rawlog_counts(PyObject *op, PyObject *unused)
{
    rawlog_object *self = (rawlog_object *)op;
    (void)unused;
    if (axpy_enter(&self->busy, "raw log") < 0) {
        return NULL;
    }
    PyObject *result = axpy_counts(self->log.counts, AX_RAWLOG_COUNTS, AX_RAWLOG_DROPPED_TRUNCATED,
                                   ax_rawlog_count_name);
    axpy_leave(&self->busy);
    return result;
}

static PyObject *rawlog_threads(PyObject *op, PyObject *unused)
{
    rawlog_object *self = (rawlog_object *)op;
    (void)unused;
    if (axpy_enter(&self->busy, "raw log") < 0) {
        return NULL;
    }
    PyObject *list = axpy_numbers(self->log.tids, self->log.tids_found);
    axpy_leave(&self->busy);
    return list;
}

static PyObject *rawlog_sites(PyObject *op, PyObject *unused)
{
    rawlog_object *self = (rawlog_object *)op;
    (void)unused;
    if (axpy_enter(&self->busy, "raw log") < 0) {
        return NULL;
    }
    PyObject *list = axpy_numbers(self->log.sites, self->log.sites_found);
    axpy_leave(&self->busy);
    return list;
}

static PyObject *rawlog_texts(PyObject *op, PyObject *unused)
{
    rawlog_object *self = (rawlog_object *)op;
    (void)unused;
    if (axpy_enter(&self->busy, "raw log") < 0) {
        return NULL;
    }
    const ax_rawlog *log = &self->log;
    PyObject *list = PyList_New((Py_ssize_t)log->texts_found);
    for (size_t i = 0; list && i < log->texts_found; i++) {
        const ax_rawlog_place *place = &log->texts[i];
        const unsigned long long skipped = place->bytes < AX_RAWLOG_WINDOW_HEADER_BYTES
                                               ? place->bytes
                                               : AX_RAWLOG_WINDOW_HEADER_BYTES;
        PyObject *one = Py_BuildValue("KK", (unsigned long long)place->offset + skipped,
                                      (unsigned long long)place->bytes - skipped);
        if (!one || PyList_SetItem(list, (Py_ssize_t)i, one) < 0) {
            Py_CLEAR(list);
        }
    }
    axpy_leave(&self->busy);
    return list;
}

static PyMethodDef rawlog_methods[] = {
    {"step", rawlog_step, METH_O,
     "step($self, records, /)\n--\n\nTake at most that many further records; returns whether "
     "those were all."},
    {"set_rate", rawlog_set_rate, METH_O,
     "set_rate($self, ns_per_tick, /)\n--\n\nSay how long a tick of the clock is, before any step, "
     "where the file's own span is too short to tell."},
    {"header", rawlog_header, METH_NOARGS,
     "header($self, /)\n--\n\nWhat the header says, by name, and how far the reading is."},
    {"tables", rawlog_tables, METH_NOARGS,
     "tables($self, /)\n--\n\nThe events and the asides, each the columns by name. Once, at the "
     "end."},
    {"counts", rawlog_counts, METH_NOARGS,
     "counts($self, /)\n--\n\nTwo dicts: what was met beside events, and what was dropped."},
    {"threads", rawlog_threads, METH_NOARGS,
     "threads($self, /)\n--\n\nThe system's thread id of each dense thread."},
    {"sites", rawlog_sites, METH_NOARGS,
     "sites($self, /)\n--\n\nThe return address of each call site."},
    {"texts", rawlog_texts, METH_NOARGS,
     "texts($self, /)\n--\n\nThe offset and length of each text of memory maps in the file."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot rawlog_slots[] = {
    {Py_tp_doc, "RawLog(file, skip=False)\n--\n\nReads the log of the recorder from a file "
                "descriptor. skip: leave out and count what is damaged, which would raise "
                "TraceError."},
    {Py_tp_new, rawlog_new},
    {Py_tp_dealloc, rawlog_dealloc},
    {Py_tp_methods, rawlog_methods},
    {0, NULL},
};

static PyType_Spec rawlog_spec = {
    .name = "pyallocx._core.RawLog",
    .basicsize = sizeof(rawlog_object),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = rawlog_slots,
};

/* ---- this machine's clock ----------------------------------------------------------------------
 */

static uint64_t ticks_now(int clock)
{
    uint64_t ticks = 0;
    (void)clock;
#if defined(__x86_64__)
    ticks = clock == AX_RAWLOG_TSC ? __rdtsc() : 0;
#elif defined(__aarch64__)
    if (clock == AX_RAWLOG_CNTVCT) {
        __asm__ volatile("isb; mrs %0, cntvct_el0" : "=r"(ticks));
    }
#endif
    return ticks;
}

static uint64_t ns_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static PyObject *clock_rate(PyObject *module, PyObject *argument)
{
    const struct timespec nap = {.tv_nsec = 10000000};
    const long clock = PyLong_AsLong(argument);
    (void)module;
    if (clock == -1 && PyErr_Occurred()) {
        return NULL;
    }
    const uint64_t first = ticks_now((int)clock), first_ns = ns_now();
    if (first == 0) {
        return Py_NewRef(Py_None);
    }
    Py_BEGIN_ALLOW_THREADS nanosleep(&nap, NULL);
    Py_END_ALLOW_THREADS const uint64_t last = ticks_now((int)clock), last_ns = ns_now();
    if (last <= first || last_ns <= first_ns) {
        return Py_NewRef(Py_None);
    }
    return PyFloat_FromDouble((double)(last_ns - first_ns) / (double)(last - first));
}

static PyMethodDef functions[] = {
    {"clock_rate", clock_rate, METH_O,
     "clock_rate($module, clock, /)\n--\n\nNanoseconds in a tick of this machine's clock of the "
     "kind that raw logs number so; None where it has none. Takes 10 ms."},
    {NULL, NULL, 0, NULL},
};

int axpy_rawlog_init(PyObject *module, module_state *state)
{
    (void)state;
    if (axpy_add_type(module, &rawlog_spec, NULL) < 0) {
        return -1;
    }
    return PyModule_AddFunctions(module, functions);
}
