/* SizeFit: the search for the best size classes, a slice of work at a time; and what a given table
 * costs. */
#include "live.h"
#include "params.h"

#include <stdatomic.h>
#include <string.h>

#include "../core/sizefit.h"

#define FIELD(name) AXPY_FIELD(ax_sizefit_params, #name, name)
#define STEP(i)                                         \
    AXPY_FIELD(ax_sizefit_params, "step_" #i, step[i]), \
        AXPY_FIELD(ax_sizefit_params, "step_end_" #i, step_end[i])

static const axpy_field fit_fields[] = {
    FIELD(align_bytes),
    FIELD(header_bytes),
    FIELD(largest_bytes),
    FIELD(cap_bytes),
    FIELD(bits),
    FIELD(span_max_pages),
    FIELD(span_page_bytes),
    FIELD(tail_num),
    FIELD(tail_den),
    FIELD(span_largest),
    FIELD(span_move_bytes),
    FIELD(steps),
    FIELD(odd_bits),
    STEP(0),
    STEP(1),
    STEP(2),
    STEP(3),
};

/* In the order of enum ax_sizefit_method. */
static const char *const method_names[AX_SIZEFIT_METHODS] = {"auto", "quadratic", "divide", "price",
                                                             "greedy"};

static const char *method_name(uint32_t method)
{
    return method_names[method];
}

typedef struct FitObject {
    PyObject ob_base;
    module_state *state;
    column sizes;
    column counts;
    ax_seam books;
    ax_sizefit fit;
    int begun;
    int started;
    atomic_int busy; /* step() runs without the GIL */
} FitObject;

static int read_params(PyObject *dict, ax_sizefit_params *params)
{
    memset(params, 0, sizeof *params);
    params->align_bytes = 1;
    return axpy_params_read(dict, fit_fields, sizeof fit_fields / sizeof fit_fields[0], "size fit",
                            params);
}

/* A column of doubles, as many as there are sizes. */
static int get_doubles(PyObject *source, size_t items, column *out)
{
    if (PyObject_GetBuffer(source, &out->buffer, PyBUF_ND | PyBUF_FORMAT) < 0) {
        return -1;
    }
    out->held = 1;
    const Py_buffer *b = &out->buffer;
    const char *format = b->format ? b->format : "B";
    format += *format == '@' || *format == '=';
    if (b->ndim != 1 || b->itemsize != 8 || strcmp(format, "d") != 0) {
        PyErr_Format(PyExc_TypeError, "counts must be a one-dimensional array of float64");
    } else if ((size_t)b->shape[0] != items) {
        PyErr_Format(PyExc_ValueError, "%zd counts for %zu sizes", b->shape[0], items);
    } else {
        return 0;
    }
    axpy_column_release(out);
    return -1;
}

static int get_profile(PyObject *size_source, PyObject *count_source, column *sizes, column *counts)
{
    if (axpy_column_get(size_source, "sizes", 8, 0, SIZE_MAX, sizes) < 0) {
        return -1;
    }
    if (get_doubles(count_source, (size_t)sizes->buffer.shape[0], counts) < 0) {
        axpy_column_release(sizes);
        return -1;
    }
    return 0;
}

/* A sequence of classes; the caller frees it with PyMem_Free. At least one byte is allocated. */
static uint64_t *get_classes(PyObject *sequence, size_t *count)
{
    const Py_ssize_t n = PySequence_Size(sequence);
    if (n < 0) {
        return NULL;
    }
    uint64_t *classes = PyMem_Malloc(((size_t)n + 1) * sizeof *classes);
    if (!classes) {
        PyErr_NoMemory();
        return NULL;
    }
    for (Py_ssize_t i = 0; i < n; i++) {
        PyObject *item = PySequence_GetItem(sequence, i);
        if (!item || axpy_get_number(item, "class", 1, AX_SIZEFIT_MOST_BYTES, &classes[i]) < 0) {
            Py_XDECREF(item);
            PyMem_Free(classes);
            return NULL;
        }
        Py_DECREF(item);
        if (i && classes[i] <= classes[i - 1]) {
            PyErr_Format(PyExc_ValueError, "classes must rise, but %llu follows %llu",
                         (unsigned long long)classes[i], (unsigned long long)classes[i - 1]);
            PyMem_Free(classes);
            return NULL;
        }
    }
    *count = (size_t)n;
    return classes;
}

static void fit_dealloc(PyObject *op)
{
    FitObject *self = (FitObject *)op;
    if (self->begun) {
        ax_sizefit_release(&self->fit);
    }
    axpy_column_release(&self->sizes);
    axpy_column_release(&self->counts);
    axpy_free_object(op);
}

static PyObject *fit_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"sizes", "counts", "params", "forced", "fail_at", NULL};
    PyObject *sizes;
    PyObject *counts;
    PyObject *dict;
    PyObject *forced_sequence;
    unsigned long long fail_at = 0;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OOO!O|K", names, &sizes, &counts, &PyDict_Type,
                                     &dict, &forced_sequence, &fail_at)) {
        return NULL;
    }
    ax_sizefit_params params;
    if (read_params(dict, &params) < 0) {
        return NULL;
    }
    size_t forced_count = 0;
    uint64_t *forced = get_classes(forced_sequence, &forced_count);
    if (!forced) {
        return NULL;
    }
    FitObject *self = (FitObject *)axpy_make_object(type);
    if (!self) {
        PyMem_Free(forced);
        return NULL;
    }
    self->state = axpy_state_of_type(type);
    if (!self->state || get_profile(sizes, counts, &self->sizes, &self->counts) < 0) {
        PyMem_Free(forced);
        Py_DECREF((PyObject *)self);
        return NULL;
    }
    ax_seam_init(&self->books, AX_BACKING_REAL);
    self->books.fail_at = fail_at;
    const size_t n = (size_t)self->sizes.buffer.shape[0];
    const uint64_t *size = self->sizes.buffer.buf;
    const double *count = self->counts.buffer.buf;
    ax_detail detail = {0};
    int status;
    Py_BEGIN_ALLOW_THREADS status = ax_sizefit_begin(&self->fit, size, count, n, &params, forced,
                                                     forced_count, &self->books, &detail);
    Py_END_ALLOW_THREADS PyMem_Free(forced);
    if (status != AX_OK) {
        PyObject *none = axpy_raise(self->state, status, &detail);
        Py_DECREF((PyObject *)self);
        return none;
    }
    self->begun = 1;
    return (PyObject *)self;
}

static PyObject *fit_start(PyObject *op, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"method", "classes", "curve", NULL};
    FitObject *self = (FitObject *)op;
    unsigned int method;
    PyObject *number;
    int curve = 0;
    uint64_t classes;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "IO|p", names, &method, &number, &curve) ||
        axpy_get_number(number, "classes", 1, UINT32_MAX, &classes) < 0) {
        return NULL;
    }
    if (method >= AX_SIZEFIT_METHODS) {
        return PyErr_Format(PyExc_ValueError, "method is %u, allowed is 0 to %d", method,
                            AX_SIZEFIT_METHODS - 1);
    }
    if (axpy_enter(&self->busy, "the fit") < 0) {
        return NULL;
    }
    ax_detail detail = {0};
    self->started = 0;
    const int status = ax_sizefit_start(&self->fit, (enum ax_sizefit_method)method,
                                        (uint32_t)classes, curve, &detail);
    self->started = status == AX_OK;
    axpy_leave(&self->busy);
    if (status != AX_OK) {
        return axpy_raise(self->state, status, &detail);
    }
    Py_RETURN_NONE;
}

static PyObject *fit_step(PyObject *op, PyObject *argument)
{
    FitObject *self = (FitObject *)op;
    uint64_t work;
    if (axpy_get_number(argument, "work", 0, UINT64_MAX, &work) < 0 ||
        axpy_enter(&self->busy, "the fit") < 0) {
        return NULL;
    }
    if (!self->started) {
        axpy_leave(&self->busy);
        PyErr_SetString(PyExc_RuntimeError, "the fit was not started");
        return NULL;
    }
    uint64_t left = 0;
    int status;
    Py_BEGIN_ALLOW_THREADS status = ax_sizefit_step(&self->fit, work, &left);
    Py_END_ALLOW_THREADS self->started = status == AX_OK;
    axpy_leave(&self->busy);
    if (status != AX_OK) {
        return axpy_raise(self->state, status, NULL);
    }
    return PyLong_FromUnsignedLongLong(left);
}

/* Enters where a run of the kind has ended; 0 or -1. */
static int enter_done(FitObject *self, int curve)
{
    if (axpy_enter(&self->busy, "the fit") < 0) {
        return -1;
    }
    if (!self->started || self->fit.stage != AX_SIZEFIT_DONE || self->fit.curve != curve) {
        axpy_leave(&self->busy);
        PyErr_SetString(PyExc_RuntimeError, "the fit is not finished");
        return -1;
    }
    return 0;
}

static PyObject *sizes_list(const ax_sizefit *fit, const uint32_t *path, uint32_t count)
{
    PyObject *list = PyList_New((Py_ssize_t)count);
    for (uint32_t k = 0; list && k < count; k++) {
        PyObject *size = PyLong_FromUnsignedLongLong(fit->size[path ? path[k] : k + 1]);
        if (!size || PyList_SetItem(list, (Py_ssize_t)k, size) < 0) {
            Py_CLEAR(list);
        }
    }
    return list;
}

static PyObject *doubles_list(const double *values, size_t count)
{
    PyObject *list = PyList_New((Py_ssize_t)count);
    for (size_t k = 0; list && k < count; k++) {
        PyObject *value = PyFloat_FromDouble(values[k]);
        if (!value || PyList_SetItem(list, (Py_ssize_t)k, value) < 0) {
            Py_CLEAR(list);
        }
    }
    return list;
}

static PyObject *fit_result(PyObject *op, PyObject *Py_UNUSED(ignored))
{
    FitObject *self = (FitObject *)op;
    if (enter_done(self, 0) < 0) {
        return NULL;
    }
    const ax_sizefit *fit = &self->fit;
    double saved;
    const uint32_t added = ax_sizefit_best_addition(fit, fit->path, fit->classes, &saved);
    PyObject *dict = PyDict_New();
    PyObject *classes = sizes_list(fit, fit->path, fit->classes);
    if (dict && (!classes || PyDict_SetItemString(dict, "classes", classes) < 0 ||
                 axpy_put_double(dict, "wastage_bytes", fit->cost) < 0 ||
                 axpy_put_double(dict, "lower_bound_bytes", fit->bound) < 0 ||
                 axpy_put_u64(dict, "method", fit->method) < 0 ||
                 axpy_put_u64(dict, "candidates", fit->m) < 0 ||
                 axpy_put_u64(dict, "exact", (uint64_t)fit->exact) < 0 ||
                 axpy_put_u64(dict, "monge", fit->monge == 1) < 0 ||
                 axpy_put_u64(dict, "largest_bytes", fit->params.largest_bytes) < 0 ||
                 axpy_put_double(dict, "excluded_count", fit->excluded_count) < 0 ||
                 axpy_put_double(dict, "excluded_bytes", fit->excluded_bytes) < 0 ||
                 axpy_put_u64(dict, "addition", fit->size[added]) < 0 ||
                 axpy_put_double(dict, "addition_saves", saved) < 0)) {
        Py_CLEAR(dict);
    }
    Py_XDECREF(classes);
    axpy_leave(&self->busy);
    return dict;
}

static PyObject *fit_curve(PyObject *op, PyObject *Py_UNUSED(ignored))
{
    FitObject *self = (FitObject *)op;
    if (enter_done(self, 1) < 0) {
        return NULL;
    }
    PyObject *list = doubles_list(self->fit.opt + 1, self->fit.wanted);
    axpy_leave(&self->busy);
    return list;
}

static PyObject *fit_candidates(PyObject *op, PyObject *Py_UNUSED(ignored))
{
    FitObject *self = (FitObject *)op;
    return sizes_list(&self->fit, NULL, self->fit.m); /* they do not change */
}

static PyObject *fit_check(PyObject *op, PyObject *Py_UNUSED(ignored))
{
    FitObject *self = (FitObject *)op;
    ax_detail detail = {0};
    if (axpy_enter(&self->busy, "the fit") < 0) {
        return NULL;
    }
    const int status = ax_sizefit_check(&self->fit, &detail);
    axpy_leave(&self->busy);
    if (status != AX_OK) {
        return axpy_raise(self->state, status, &detail);
    }
    Py_RETURN_NONE;
}

/* size_waste(sizes, counts, params, classes) */
static PyObject *size_waste(PyObject *module, PyObject *args)
{
    PyObject *size_source;
    PyObject *count_source;
    PyObject *dict;
    PyObject *class_sequence;
    ax_sizefit_params params;
    column sizes = {.held = 0};
    column counts = {.held = 0};
    size_t n = 0;
    if (!PyArg_ParseTuple(args, "OOO!O", &size_source, &count_source, &PyDict_Type, &dict,
                          &class_sequence) ||
        read_params(dict, &params) < 0) {
        return NULL;
    }
    uint64_t *classes = get_classes(class_sequence, &n);
    if (!classes) {
        return NULL;
    }
    PyObject *result = NULL;
    PyObject *list = NULL;
    ax_sizefit_row *rows = PyMem_Calloc(n + 1, sizeof *rows);
    double excluded_count = 0;
    double excluded_bytes = 0;
    if (!rows) {
        PyErr_NoMemory();
        goto out;
    }
    ax_detail detail = {0};
    int status = ax_sizefit_check_params(&params, &detail);
    if (status != AX_OK) {
        axpy_raise(axpy_state_of_module(module), status, &detail);
        goto out;
    }
    if (get_profile(size_source, count_source, &sizes, &counts) < 0) {
        goto out;
    }
    for (size_t k = 0; k < n; k++) {
        rows[k].class_bytes = classes[k];
    }
    const uint64_t *size = sizes.buffer.buf;
    const double *count = counts.buffer.buf;
    const size_t items = (size_t)sizes.buffer.shape[0];
    Py_BEGIN_ALLOW_THREADS ax_sizefit_evaluate(&params, size, count, items, rows, n,
                                               &excluded_count, &excluded_bytes);
    Py_END_ALLOW_THREADS list = PyList_New((Py_ssize_t)n);
    for (size_t k = 0; list && k < n; k++) {
        const ax_sizefit_row *r = &rows[k];
        PyObject *row =
            Py_BuildValue("(Kdddddddd)", (unsigned long long)r->class_bytes, r->effective, r->count,
                          r->requested, r->alignment, r->rest, r->tail, r->cut, r->loss);
        if (!row || PyList_SetItem(list, (Py_ssize_t)k, row) < 0) {
            Py_CLEAR(list);
        }
    }
    result = list ? Py_BuildValue("(Odd)", list, excluded_count, excluded_bytes) : NULL;
out:
    Py_XDECREF(list);
    axpy_column_release(&sizes);
    axpy_column_release(&counts);
    PyMem_Free(rows);
    PyMem_Free(classes);
    return result;
}

/* size_span(params, class_bytes) */
static PyObject *size_span(PyObject *module, PyObject *args)
{
    PyObject *dict;
    PyObject *number;
    ax_sizefit_params params;
    uint64_t size;
    ax_detail detail = {0};
    if (!PyArg_ParseTuple(args, "O!O", &PyDict_Type, &dict, &number) ||
        read_params(dict, &params) < 0 ||
        axpy_get_number(number, "class", 1, AX_SIZEFIT_MOST_BYTES, &size) < 0) {
        return NULL;
    }
    const int status = ax_sizefit_check_params(&params, &detail);
    if (status != AX_OK) {
        return axpy_raise(axpy_state_of_module(module), status, &detail);
    }
    uint64_t pages = 0;
    const double effective = ax_sizefit_effective(&params, size, &pages);
    return Py_BuildValue("(dK)", effective, (unsigned long long)pages);
}

/* size_round(params, need) */
static PyObject *size_round(PyObject *module, PyObject *args)
{
    PyObject *dict;
    PyObject *number;
    ax_sizefit_params params;
    uint64_t need;
    ax_detail detail = {0};
    if (!PyArg_ParseTuple(args, "O!O", &PyDict_Type, &dict, &number) ||
        read_params(dict, &params) < 0 ||
        axpy_get_number(number, "need", 0, AX_SIZEFIT_MOST_BYTES, &need) < 0) {
        return NULL;
    }
    const int status = ax_sizefit_check_params(&params, &detail);
    if (status != AX_OK) {
        return axpy_raise(axpy_state_of_module(module), status, &detail);
    }
    return PyLong_FromUnsignedLongLong(ax_sizefit_round(&params, need));
}

static PyMethodDef fit_methods[] = {
    {"start", (PyCFunction)(void (*)(void))fit_start, METH_VARARGS | METH_KEYWORDS,
     "start($self, method, classes, curve=False)\n--\n\nBegin a search; of a curve only values."},
    {"step", fit_step, METH_O,
     "step($self, work, /)\n--\n\nDo about so many evaluations more; 0 when the search is done."},
    {"result", fit_result, METH_NOARGS, "result($self, /)\n--\n\nThe answer of a search."},
    {"curve", fit_curve, METH_NOARGS,
     "curve($self, /)\n--\n\nThe least wastage of 1, 2, ... classes; inf where more are forced."},
    {"candidates", fit_candidates, METH_NOARGS,
     "candidates($self, /)\n--\n\nThe classes that can be of use."},
    {"check", fit_check, METH_NOARGS,
     "check($self, /)\n--\n\nRaise CorruptionError if candidates or answer are inconsistent."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot fit_slots[] = {
    {Py_tp_doc, (void *)(uintptr_t) "The search for the best size classes."},
    {Py_tp_new, (void *)(uintptr_t)fit_new},
    {Py_tp_dealloc, (void *)(uintptr_t)fit_dealloc},
    {Py_tp_methods, fit_methods},
    {0, NULL},
};

static PyType_Spec fit_spec = {
    .name = "pyallocx._core.SizeFit",
    .basicsize = sizeof(FitObject),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = fit_slots,
};

static PyMethodDef functions[] = {
    {"size_waste", size_waste, METH_VARARGS,
     "size_waste($module, sizes, counts, params, classes, /)\n--\n\nWhat each class of a table "
     "costs, and what is too large for it."},
    {"size_round", size_round, METH_VARARGS,
     "size_round($module, params, need, /)\n--\n\nThe smallest class that holds so much; 0: none."},
    {"size_span", size_span, METH_VARARGS,
     "size_span($module, params, class_bytes, /)\n--\n\nWhat an object costs under a tail rule, "
     "and the pages of its span."},
    {NULL, NULL, 0, NULL},
};

int axpy_sizefit_init(PyObject *module, module_state *Py_UNUSED(state))
{
    if (axpy_add_type(module, &fit_spec, NULL) < 0) {
        return -1;
    }
    PyObject *names = axpy_names(method_name, AX_SIZEFIT_METHODS);
    const int failed = !names || PyModule_AddObjectRef(module, "FIT_METHODS", names) < 0 ||
                       PyModule_AddFunctions(module, functions) < 0;
    Py_XDECREF(names);
    return failed ? -1 : 0;
}
