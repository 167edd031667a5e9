#include "params.h"

#include <stddef.h>
#include <string.h>

#define FIELD(name, member) AXPY_FIELD(ax_arena_params, name, member)

static const axpy_field arena_fields[] = {
    FIELD("chunk_bytes", shape.chunk_bytes),
    FIELD("chunk_header_bytes", shape.header_bytes),
    FIELD("alignment_bytes", shape.alignment_bytes),
    FIELD("list_header_bytes", list_header_bytes),
    FIELD("pointer_bytes", pointer_bytes),
    FIELD("large_capacity", large_capacity),
    FIELD("policy", policy),
    FIELD("retain_bytes", retain_bytes),
    FIELD("retain_capacity", retain_capacity),
    FIELD("window_episodes", window_episodes),
    FIELD("padding_entries", padding_entries),
    FIELD("metered", metered),
    FIELD("poison", poison),
    FIELD("check_poison", check_poison),
    FIELD("tick_operations", tick_operations),
    FIELD("idle_operations", idle_operations),
    FIELD("budget_bytes", budget_bytes),
    FIELD("recycle_below_bytes", recycle_below_bytes),
};

#undef FIELD
#define FIELD(name) AXPY_FIELD(ax_code_params, #name, name)

static const axpy_field code_fields[] = {
    FIELD(page_bytes),
    FIELD(chunk_bytes),
    FIELD(byte_limit),
    FIELD(header_bytes),
    FIELD(min_payload_bytes),
    FIELD(pointer_bytes),
    FIELD(granule_bytes),
    FIELD(min_rest_bytes),
    FIELD(policy),
    FIELD(min_hole),
    FIELD(wx),
    FIELD(partitions),
    FIELD(max_code_bytes),
    FIELD(reach_bytes),
    FIELD(keep_bytes),
    FIELD(keep_operations),
    FIELD(keep_chunks),
};

static const axpy_field *find_field(const axpy_field *fields, size_t count, PyObject *name,
                                    const char *owner)
{
    for (size_t i = 0; i < count; i++) {
        if (PyUnicode_CompareWithASCIIString(name, fields[i].name) == 0) {
            return &fields[i];
        }
    }
    PyErr_Format(PyExc_TypeError, "unknown %s parameter %R", owner, name);
    return NULL;
}

int axpy_params_read(PyObject *dict, const axpy_field *fields, size_t count, const char *owner,
                     void *target)
{
    PyObject *name;
    PyObject *value;
    Py_ssize_t at = 0;
    while (PyDict_Next(dict, &at, &name, &value)) {
        const axpy_field *f = PyUnicode_Check(name) ? find_field(fields, count, name, owner) : NULL;
        if (!f) {
            if (!PyErr_Occurred()) {
                PyErr_SetString(PyExc_TypeError, "parameters have names");
            }
            return -1;
        }
        unsigned long long number = PyLong_AsUnsignedLongLong(value);
        if (number == (unsigned long long)-1 && PyErr_Occurred()) {
            if (PyErr_ExceptionMatches(PyExc_OverflowError)) {
                PyErr_Format(PyExc_ValueError, "%s is %R, allowed is 0 to %llu", f->name, value,
                             f->bytes == 4 ? (unsigned long long)UINT32_MAX : UINT64_MAX);
            }
            return -1;
        }
        char *place = (char *)target + f->offset;
        if (f->bytes == 4) {
            if (number > UINT32_MAX) {
                PyErr_Format(PyExc_ValueError, "%s is %llu, allowed is 0 to %llu", f->name, number,
                             (unsigned long long)UINT32_MAX);
                return -1;
            }
            uint32_t narrow = (uint32_t)number;
            memcpy(place, &narrow, sizeof narrow);
        } else {
            uint64_t wide = number;
            memcpy(place, &wide, sizeof wide);
        }
    }
    return 0;
}

int axpy_arena_params(PyObject *dict, ax_arena_params *params)
{
    ax_arena_params_default(params);
    return axpy_params_read(dict, arena_fields, sizeof arena_fields / sizeof arena_fields[0],
                            "arena", params);
}

int axpy_code_params(PyObject *dict, ax_code_params *params)
{
    ax_code_params_default(params);
    return axpy_params_read(dict, code_fields, sizeof code_fields / sizeof code_fields[0],
                            "code heap", params);
}

PyObject *axpy_names(const char *(*name)(uint32_t), uint32_t count)
{
    PyObject *names = PyTuple_New((Py_ssize_t)count);
    for (uint32_t i = 0; names && i < count; i++) {
        PyObject *text = PyUnicode_FromString(name(i));
        if (!text || PyTuple_SetItem(names, (Py_ssize_t)i, text) < 0) {
            Py_CLEAR(names);
        }
    }
    return names;
}

static int put(PyObject *dict, const char *name, PyObject *value)
{
    int result = value ? PyDict_SetItemString(dict, name, value) : -1;
    Py_XDECREF(value);
    return result;
}

int axpy_put_u64(PyObject *dict, const char *name, uint64_t value)
{
    return put(dict, name, PyLong_FromUnsignedLongLong(value));
}

int axpy_put_i64(PyObject *dict, const char *name, int64_t value)
{
    return put(dict, name, PyLong_FromLongLong(value));
}

int axpy_put_double(PyObject *dict, const char *name, double value)
{
    return put(dict, name, PyFloat_FromDouble(value));
}

int axpy_put_histogram(PyObject *dict, const char *name, const ax_ladder *ladder,
                       const uint64_t *counts)
{
    PyObject *histogram = PyDict_New();
    if (!histogram) {
        return -1;
    }
    for (uint32_t r = 1; r < ladder->rungs; r++) {
        if (counts[r] == 0) {
            continue;
        }
        PyObject *bytes = PyLong_FromUnsignedLongLong(ladder->bytes[r]);
        PyObject *count = PyLong_FromUnsignedLongLong(counts[r]);
        int failed = !bytes || !count || PyDict_SetItem(histogram, bytes, count) < 0;
        Py_XDECREF(bytes);
        Py_XDECREF(count);
        if (failed) {
            Py_DECREF(histogram);
            return -1;
        }
    }
    return put(dict, name, histogram);
}

static PyObject *list_row(const ax_arenas *set, const ax_list *list)
{
    PyObject *row = PyDict_New();
    if (!row) {
        return NULL;
    }
    const ax_ptrlist *entries = &list->entries;
    if (axpy_put_u64(row, "arena", list->arena) < 0 || axpy_put_u64(row, "key", list->key) < 0 ||
        axpy_put_u64(row, "entry_bytes", list->entry_bytes) < 0 ||
        axpy_put_u64(row, "length", entries->len) < 0 ||
        axpy_put_u64(row, "capacity", entries->capacity) < 0 ||
        axpy_put_u64(row, "buffer_bytes", set->ladder.bytes[entries->rung]) < 0 ||
        axpy_put_u64(row, "peak", list->peak) < 0 || axpy_put_u64(row, "pops", list->pops) < 0 ||
        axpy_put_u64(row, "pops_large", list->pops_large) < 0 ||
        axpy_put_u64(row, "bumps", list->bumps) < 0 ||
        axpy_put_u64(row, "transitions", list->transitions) < 0 ||
        axpy_put_u64(row, "peaks_sum", list->peaks_sum) < 0 ||
        axpy_put_u64(row, "freelist_bytes", entries->len * list->entry_bytes) < 0) {
        Py_DECREF(row);
        return NULL;
    }
    return row;
}

PyObject *axpy_list_rows(const ax_arenas *set, uint32_t arena)
{
    PyObject *rows = PyList_New(0);
    for (uint32_t i = 0; rows && i < set->lists_used; i++) {
        const ax_list *list = &set->lists[i];
        if (list->life == 0 || (arena != AX_NO_LIST && list->arena != arena)) {
            continue;
        }
        PyObject *row = list_row(set, list);
        if (!row || PyList_Append(rows, row) < 0) {
            Py_CLEAR(rows);
        }
        Py_XDECREF(row);
    }
    return rows;
}
