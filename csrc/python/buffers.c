/* Borrowed columns: buffers checked by kind and item size. */
#include "binding.h"

#include <string.h>

/* NumPy says 'L' for a uint64 array and 'Q' for a uint64 field: what counts is that the letter is
 * one of the unsigned integers and that the item size fits. */
static int is_unsigned(const char *format)
{
    if (!format) {
        return 1; /* bytes */
    }
    if (*format == '@' || *format == '=' || (*format == '<' && PY_LITTLE_ENDIAN) ||
        (*format == '>' && PY_BIG_ENDIAN)) {
        format++;
    }
    return format[0] && strchr("BHILQN", format[0]) && !format[1];
}

int axpy_column_get(PyObject *source, const char *name, size_t itemsize, int optional,
                    size_t events, column *out)
{
    out->held = 0;
    if (optional && source == Py_None) {
        return 0;
    }
    if (PyObject_GetBuffer(source, &out->buffer, PyBUF_ND | PyBUF_FORMAT) < 0) {
        if (PyErr_ExceptionMatches(PyExc_BufferError)) {
            PyErr_Format(PyExc_ValueError, "column '%s' must be contiguous", name);
        } else if (PyErr_ExceptionMatches(PyExc_TypeError)) {
            PyErr_Format(PyExc_TypeError, "column '%s' must be an array, not %R", name,
                         (PyObject *)Py_TYPE(source));
        }
        return -1;
    }
    out->held = 1;
    const Py_buffer *b = &out->buffer;
    if (b->ndim != 1) {
        PyErr_Format(PyExc_ValueError, "column '%s' has %d dimensions, expected 1", name, b->ndim);
    } else if (!is_unsigned(b->format) || (size_t)b->itemsize != itemsize) {
        PyErr_Format(
            PyExc_TypeError,
            "column '%s' must hold unsigned integers of %zu bytes in native byte order, not "
            "'%s' of %zd bytes",
            name, itemsize, b->format ? b->format : "B", b->itemsize);
    } else if (events != SIZE_MAX && (size_t)b->shape[0] != events) {
        PyErr_Format(PyExc_ValueError, "column '%s' has %zd events, expected %zu", name,
                     b->shape[0], events);
    } else {
        return 0;
    }
    axpy_column_release(out);
    return -1;
}

void axpy_column_release(column *col)
{
    if (col->held) {
        PyBuffer_Release(&col->buffer);
        col->held = 0;
    }
}

/* 8 where the items of an object column are 8 bytes, else 4, which axpy_column_get then insists on.
 */
static size_t object_itemsize(PyObject *source)
{
    Py_buffer buffer;
    if (PyObject_GetBuffer(source, &buffer, PyBUF_ND) < 0) {
        PyErr_Clear();
        return 4;
    }
    const size_t itemsize = buffer.itemsize == 8 ? 8 : 4;
    PyBuffer_Release(&buffer);
    return itemsize;
}

int axpy_trace_columns(PyObject *sources[AXPY_COLUMNS], column columns[AXPY_COLUMNS],
                       ax_trace_view *view)
{
    static const struct {
        const char *name;
        size_t itemsize;
        int optional;
    } kinds[AXPY_COLUMNS] = {
        {"op", 1, 0},  {"object", 4, 0}, {"size_bytes", 8, 0}, {"thread", 4, 1},
        {"key", 4, 1}, {"arena", 4, 1},  {"time_ns", 8, 1},
    };
    const void *data[AXPY_COLUMNS];
    size_t events = SIZE_MAX;
    const size_t object_bytes = object_itemsize(sources[1]);
    for (int i = 0; i < AXPY_COLUMNS; i++) {
        const size_t itemsize = i == 1 ? object_bytes : kinds[i].itemsize;
        if (axpy_column_get(sources[i], kinds[i].name, itemsize, kinds[i].optional, events,
                            &columns[i]) < 0) {
            return -1;
        }
        data[i] = columns[i].held ? columns[i].buffer.buf : NULL;
        if (i == 0) {
            events = (size_t)columns[0].buffer.shape[0];
        }
    }
    *view = (ax_trace_view){
        .events = events,
        .op = data[0],
        .object = data[1],
        .size_bytes = data[2],
        .thread = data[3],
        .key = data[4],
        .arena = data[5],
        .time_ns = data[6],
        .object_is_u64 = object_bytes == 8,
    };
    return 0;
}
