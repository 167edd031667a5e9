/* SizeMap: a size map of the core over Python ints and borrowed arrays. */
#include "live.h"
#include "params.h"

#include <string.h>

#include "../core/sizemap.h"

/* Below that many items letting go of the GIL costs more than it gives. */
enum { GIL_ITEMS = 4096 };

typedef struct SizeMapObject {
    PyObject ob_base;
    module_state *state;
    ax_sizemap map; /* never changes, so any thread may look up at any time */
    ax_seam books;
} SizeMapObject;

#define FIELD(name) AXPY_FIELD(ax_sizemap_params, #name, name)

static const axpy_field fields[] = {
    FIELD(kind),         FIELD(num_bits),    FIELD(min_size_log), FIELD(mid_size_log),
    FIELD(max_size_log), FIELD(delta_bytes), FIELD(align_bytes),
};

static int get_params(PyObject *dict, ax_sizemap_params *params)
{
    *params = (ax_sizemap_params){.align_bytes = 1};
    return axpy_params_read(dict, fields, sizeof fields / sizeof fields[0], "size map", params);
}

static void map_dealloc(PyObject *op)
{
    ax_sizemap_release(&((SizeMapObject *)op)->map);
    axpy_free_object(op);
}

static PyObject *map_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"params", "classes", "fail_at", NULL};
    PyObject *dict;
    PyObject *classes = Py_None;
    unsigned long long fail_at = 0;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!|OK", names, &PyDict_Type, &dict, &classes,
                                     &fail_at)) {
        return NULL;
    }
    ax_sizemap_params params;
    column sizes = {.held = 0};
    if (get_params(dict, &params) < 0 ||
        axpy_column_get(classes, "classes", 8, 1, SIZE_MAX, &sizes) < 0) {
        return NULL;
    }
    if (!sizes.held && params.kind != AX_MAP_FIXED) {
        PyErr_SetString(PyExc_TypeError, "classes are missing");
        return NULL;
    }
    SizeMapObject *self = (SizeMapObject *)axpy_make_object(type);
    if (self) {
        self->state = axpy_state_of_type(type);
        ax_seam_init(&self->books, AX_BACKING_REAL);
        self->books.fail_at = fail_at;
        ax_detail detail = {0};
        const uint64_t *data = sizes.held ? sizes.buffer.buf : NULL;
        const uint64_t count = sizes.held ? (uint64_t)sizes.buffer.shape[0] : 0;
        const int status = ax_sizemap_init(&self->map, &params, data, count, &self->books, &detail);
        if (status != AX_OK) {
            (void)axpy_raise(self->state, status, &detail);
            Py_CLEAR(self);
        }
    }
    axpy_column_release(&sizes);
    return (PyObject *)self;
}

static PyObject *map_class_of(PyObject *op, PyObject *argument)
{
    const SizeMapObject *self = (SizeMapObject *)op;
    uint64_t size;
    if (axpy_get_number(argument, "size", 0, UINT64_MAX, &size) < 0) {
        return NULL;
    }
    return PyLong_FromUnsignedLong(ax_sizemap_class_of(&self->map, size));
}

static PyObject *map_size_of(PyObject *op, PyObject *argument)
{
    const SizeMapObject *self = (SizeMapObject *)op;
    uint64_t id;
    if (axpy_get_number(argument, "id", 0, self->map.count, &id) < 0) {
        return NULL;
    }
    return PyLong_FromUnsignedLongLong(ax_sizemap_size_of(&self->map, (uint32_t)id));
}

/* --- arrays --- */

/* One-dimensional, with any stride, of integers of any width in native order. */
static int get_integers(PyObject *source, const char *name, int writable, Py_buffer *buffer,
                        ax_integers *out)
{
    if (PyObject_GetBuffer(source, buffer,
                           PyBUF_STRIDES | PyBUF_FORMAT | (writable ? PyBUF_WRITABLE : 0)) < 0) {
        return -1;
    }
    const char *format = buffer->format ? buffer->format : "B";
    if (*format == '@' || *format == '=' || *format == (PY_LITTLE_ENDIAN ? '<' : '>')) {
        format++;
    }
    const Py_ssize_t bytes = buffer->itemsize;
    const int is_unsigned = format[0] && strchr("BHILQN", format[0]) != NULL;
    const int is_signed = format[0] && strchr("bhilqn", format[0]) != NULL;
    if (buffer->ndim != 1) {
        PyErr_Format(PyExc_ValueError, "%s has %d dimensions, expected 1", name, buffer->ndim);
    } else if (format[1] || !(is_unsigned || is_signed) ||
               !(bytes == 1 || bytes == 2 || bytes == 4 || bytes == 8)) {
        PyErr_Format(PyExc_TypeError, "%s must hold integers in native byte order, not '%s'", name,
                     buffer->format ? buffer->format : "B");
    } else {
        *out = (ax_integers){buffer->buf, buffer->strides[0], (uint32_t)bytes, is_signed};
        return 0;
    }
    PyBuffer_Release(buffer);
    return -1;
}

static uint64_t largest_answer(const ax_sizemap *map, int what)
{
    return what == AX_LOOKUP_CLASS ? map->count : what == AX_LOOKUP_LEAST_BIT ? 63 : map->largest;
}

static int check_out(const ax_sizemap *map, int what, const ax_integers *out)
{
    const uint32_t bits = 8 * out->bytes - (out->is_signed ? 1 : 0);
    const uint64_t most = bits == 64 ? UINT64_MAX : (UINT64_C(1) << bits) - 1;
    if (largest_answer(map, what) <= most) {
        return 0;
    }
    PyErr_Format(PyExc_ValueError, "out holds numbers up to %llu, the largest answer is %llu",
                 (unsigned long long)most, (unsigned long long)largest_answer(map, what));
    return -1;
}

static void raise_item(int what, const ax_integers *in, const ax_detail *d, uint64_t start)
{
    const char *name = what == AX_LOOKUP_CLASS || what == AX_LOOKUP_ROUND ? "sizes" : "ids";
    const unsigned long long at = start + d->where;
    const uint64_t sign = UINT64_C(1) << (8 * in->bytes - 1);
    if (in->is_signed && d->value & sign) {
        PyErr_Format(PyExc_ValueError, "%s[%llu] is %lld, allowed is at least 0", name, at,
                     (long long)(int64_t)((d->value ^ sign) - sign));
        return;
    }
    PyErr_Format(PyExc_ValueError, "%s[%llu] is %llu, allowed is %llu to %llu", name, at,
                 (unsigned long long)d->value, (unsigned long long)d->low,
                 (unsigned long long)d->high);
}

static ax_integers part(ax_integers array, uint64_t start)
{
    if (array.data) {
        array.data = (char *)array.data + (ptrdiff_t)start * array.stride;
    }
    return array;
}

static PyObject *map_look_up(PyObject *op, PyObject *args)
{
    const SizeMapObject *self = (SizeMapObject *)op;
    int what;
    PyObject *source;
    PyObject *target;
    Py_ssize_t start;
    Py_ssize_t stop;
    if (!PyArg_ParseTuple(args, "iOOnn:look_up", &what, &source, &target, &start, &stop)) {
        return NULL;
    }
    if (what < AX_LOOKUP_CLASS || what > AX_LOOKUP_LEAST_BIT) {
        return PyErr_Format(PyExc_ValueError, "what is %d, allowed is 0 to 3", what);
    }
    Py_buffer in_buffer;
    Py_buffer out_buffer;
    ax_integers in;
    ax_integers out = {0};
    if (get_integers(source, "source", 0, &in_buffer, &in) < 0) {
        return NULL;
    }
    if (target != Py_None && get_integers(target, "out", 1, &out_buffer, &out) < 0) {
        PyBuffer_Release(&in_buffer);
        return NULL;
    }
    const Py_ssize_t items = in_buffer.shape[0];
    const int has_out = target != Py_None;
    int failed = 1;
    if (has_out && out_buffer.shape[0] != items) {
        PyErr_Format(PyExc_ValueError, "out has %zd items, expected %zd", out_buffer.shape[0],
                     items);
    } else if (start < 0 || stop < start || stop > items) {
        PyErr_Format(PyExc_ValueError, "items %zd to %zd of %zd", start, stop, items);
    } else if (!has_out || check_out(&self->map, what, &out) == 0) {
        failed = 0;
    }
    if (!failed) {
        ax_detail detail = {0};
        const size_t n = (size_t)(stop - start);
        const ax_integers from = part(in, (uint64_t)start);
        const ax_integers to = part(out, (uint64_t)start);
        const enum ax_map_lookup lookup = (enum ax_map_lookup)what;
        int status;
        if (n < GIL_ITEMS) {
            status = ax_sizemap_look_up(&self->map, lookup, from, to, n, &detail);
        } else {
            Py_BEGIN_ALLOW_THREADS status =
                ax_sizemap_look_up(&self->map, lookup, from, to, n, &detail);
            Py_END_ALLOW_THREADS
        }
        if (status != AX_OK) {
            raise_item(what, &in, &detail, (uint64_t)start);
            failed = 1;
        }
    }
    PyBuffer_Release(&in_buffer);
    if (has_out) {
        PyBuffer_Release(&out_buffer);
    }
    return failed ? NULL : Py_NewRef(Py_None);
}

/* --- the rest --- */

static PyObject *map_check(PyObject *op, PyObject *args)
{
    const SizeMapObject *self = (SizeMapObject *)op;
    unsigned long long first;
    unsigned long long sizes;
    if (!PyArg_ParseTuple(args, "KK:check", &first, &sizes)) {
        return NULL;
    }
    uint64_t next = first;
    ax_detail detail = {0};
    int status;
    Py_BEGIN_ALLOW_THREADS status = ax_sizemap_check(&self->map, &next, sizes, &detail);
    Py_END_ALLOW_THREADS if (status != AX_OK)
    {
        return axpy_raise(self->state, status, &detail);
    }
    return PyLong_FromUnsignedLongLong(next);
}

static PyObject *map_measure(PyObject *op, PyObject *args)
{
    const SizeMapObject *self = (SizeMapObject *)op;
    PyObject *source;
    int chained;
    unsigned int mask = 0;
    if (!PyArg_ParseTuple(args, "Op|I:measure", &source, &chained, &mask)) {
        return NULL;
    }
    column sizes;
    if (axpy_column_get(source, "sizes", 4, 0, SIZE_MAX, &sizes) < 0) {
        return NULL;
    }
    const size_t n = (size_t)sizes.buffer.shape[0];
    const uint32_t *data = sizes.buffer.buf;
    const ax_map_kind_ops *ops = self->map.ops;
    uint64_t sum;
    Py_BEGIN_ALLOW_THREADS sum =
        chained ? ops->chain(&self->map, data, n, mask) : ops->sum(&self->map, data, n);
    Py_END_ALLOW_THREADS axpy_column_release(&sizes);
    return PyLong_FromUnsignedLongLong(sum);
}

static PyObject *map_hints(PyObject *op, PyObject *args)
{
    const SizeMapObject *self = (SizeMapObject *)op;
    unsigned int most;
    unsigned int bytes_log;
    if (!PyArg_ParseTuple(args, "II:hints", &most, &bytes_log)) {
        return NULL;
    }
    if (bytes_log > 63) {
        return PyErr_Format(PyExc_ValueError, "max_bytes_log is %u, allowed is 0 to 63", bytes_log);
    }
    PyObject *hints = PyList_New((Py_ssize_t)self->map.count);
    for (uint32_t id = 1; hints && id <= self->map.count; id++) {
        PyObject *hint = PyLong_FromUnsignedLong(ax_sizemap_hint(&self->map, id, most, bytes_log));
        if (!hint || PyList_SetItem(hints, (Py_ssize_t)id - 1, hint) < 0) {
            Py_CLEAR(hints);
        }
    }
    return hints;
}

static PyObject *map_classes(PyObject *op, PyObject *Py_UNUSED(ignored))
{
    const ax_sizemap *map = &((SizeMapObject *)op)->map;
    return PyBytes_FromStringAndSize((const char *)&map->sizes[1],
                                     (Py_ssize_t)(map->count * sizeof *map->sizes));
}

static PyObject *map_entries(PyObject *op, PyObject *Py_UNUSED(ignored))
{
    const ax_sizemap *map = &((SizeMapObject *)op)->map;
    return PyBytes_FromStringAndSize((const char *)map->entries,
                                     (Py_ssize_t)(map->entry_count * map->entry_bytes));
}

static PyObject *map_layout(PyObject *op, PyObject *Py_UNUSED(ignored))
{
    const ax_sizemap *map = &((SizeMapObject *)op)->map;
    const int levels = map->params.kind != AX_MAP_FLAT ? 0 : map->split == UINT64_MAX ? 1 : 2;
    const struct {
        const char *name;
        uint64_t value;
    } numbers[] = {
        {"entries", map->entry_count},
        {"entry_bytes", map->entry_bytes},
        {"levels", (uint64_t)levels},
        {"split_bytes", levels == 2 ? map->split : 0},
        {"shift", map->shift[0]},
        {"bias", map->bias[0]},
        {"shift_above", map->shift[1]},
        {"bias_above", map->bias[1]},
        {"base_above", map->base[1]},
        {"packed", (uint64_t)map->is_packed},
        {"packed_least", map->packed_least},
        {"packed_bits", map->packed_bits},
    };
    PyObject *dict = PyDict_New();
    for (size_t i = 0; dict && i < sizeof numbers / sizeof numbers[0]; i++) {
        if (axpy_put_u64(dict, numbers[i].name, numbers[i].value) < 0) {
            Py_CLEAR(dict);
        }
    }
    return dict;
}

static PyObject *violations(PyObject *module, PyObject *args)
{
    PyObject *dict;
    PyObject *source;
    if (!PyArg_ParseTuple(args, "O!O:size_map_violations", &PyDict_Type, &dict, &source)) {
        return NULL;
    }
    ax_sizemap_params params;
    column classes;
    if (get_params(dict, &params) < 0) {
        return NULL;
    }
    params.kind = AX_MAP_TABLE;
    if (axpy_column_get(source, "classes", 8, 0, SIZE_MAX, &classes) < 0) {
        return NULL;
    }
    const uint64_t count = (uint64_t)classes.buffer.shape[0];
    ax_detail detail = {0};
    ax_violation found[AX_MAP_CONDITIONS];
    uint32_t broken = 0;
    const int status =
        ax_sizemap_violations(&params, classes.buffer.buf, count, found, &broken, &detail);
    axpy_column_release(&classes);
    if (status != AX_OK) {
        return axpy_raise(axpy_state_of_module(module), status, &detail);
    }
    PyObject *list = PyList_New(0);
    for (uint32_t i = 0; list && i < broken; i++) {
        const ax_violation *v = &found[i];
        PyObject *row = Py_BuildValue("(IOKKK)", v->condition, v->refused ? Py_True : Py_False,
                                      (unsigned long long)v->index, (unsigned long long)v->value,
                                      (unsigned long long)v->expected);
        if (!row || PyList_Append(list, row) < 0) {
            Py_CLEAR(list);
        }
        Py_XDECREF(row);
    }
    return list;
}

static PyMethodDef map_methods[] = {
    {"class_of", map_class_of, METH_O,
     "class_of($self, size, /)\n--\n\nThe class of a size; 0 above the largest."},
    {"size_of", map_size_of, METH_O, "size_of($self, id, /)\n--\n\nThe size of a class."},
    {"look_up", map_look_up, METH_VARARGS,
     "look_up($self, what, source, out, start, stop, /)\n--\n\nLook up a part of an array: classes "
     "(0), sizes of ids (1), rounded sizes (2), lowest set bits of ids (3). Without out only check "
     "it."},
    {"check", map_check, METH_VARARGS,
     "check($self, first, sizes, /)\n--\n\nAsk the oracle from a size on (0 first), about at most "
     "so many; where to go on."},
    {"measure", map_measure, METH_VARARGS,
     "measure($self, sizes, chained, mask=0, /)\n--\n\nThe sum of the ids of uint32 sizes, looked "
     "up independently or each after the last."},
    {"hints", map_hints, METH_VARARGS,
     "hints($self, max_cached, max_bytes_log, /)\n--\n\nCached objects of each class."},
    {"classes", map_classes, METH_NOARGS,
     "classes($self, /)\n--\n\nThe sizes of the classes as bytes of uint64."},
    {"entries", map_entries, METH_NOARGS, "entries($self, /)\n--\n\nThe table as bytes."},
    {"layout", map_layout, METH_NOARGS,
     "layout($self, /)\n--\n\nThe numbers of the table and of the packed bits."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot map_slots[] = {
    {Py_tp_doc, (void *)(uintptr_t) "A map from sizes to size classes."},
    {Py_tp_new, (void *)(uintptr_t)map_new},
    {Py_tp_dealloc, (void *)(uintptr_t)map_dealloc},
    {Py_tp_methods, map_methods},
    {0, NULL},
};

static PyType_Spec map_spec = {
    .name = "pyallocx._core.SizeMap",
    .basicsize = sizeof(SizeMapObject),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = map_slots,
};

static PyMethodDef functions[] = {
    {"size_map_violations", violations, METH_VARARGS,
     "size_map_violations($module, params, classes, /)\n--\n\nWhat keeps classes from being a "
     "table map: (condition, refused, index, value, expected)."},
    {NULL, NULL, 0, NULL},
};

int axpy_sizemap_init(PyObject *module, module_state *Py_UNUSED(state))
{
    if (axpy_add_type(module, &map_spec, NULL) < 0) {
        return -1;
    }
    PyObject *kinds = axpy_names(ax_map_kind_name, AX_MAP_KINDS);
    const int failed = !kinds || PyModule_AddObjectRef(module, "MAP_KINDS", kinds) < 0 ||
                       PyModule_AddFunctions(module, functions) < 0;
    Py_XDECREF(kinds);
    return failed ? -1 : 0;
}
