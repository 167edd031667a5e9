/* What the files of the binding share. Only files in this folder include Python.h. */
#ifndef AX_BINDING_H
#define AX_BINDING_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <stdatomic.h>

#include "../core/trace.h"

typedef struct module_state {
    PyObject *InvalidFree;
    PyObject *PoisonError;
    PyObject *TraceError;
    PyObject *CorruptionError;
    PyObject *Arena_type;
    PyObject *Handle_type;
    PyObject *View_type;
    atomic_ullong arenas_made; /* numbers arenas, so that a handle knows its own */
    PyObject *CodeBlock_type;
    PyObject *Column_type;
} module_state;

extern struct PyModuleDef axpy_module_def;

/* The state of the module that made `type` (a heap type of ours, or a subclass of one). */
module_state *axpy_state_of_type(PyTypeObject *type);
module_state *axpy_state_of_module(PyObject *module);

/* Turns a status of the core into a Python exception; returns NULL so that callers can return it.
 */
PyObject *axpy_raise(module_state *state, int status, const ax_detail *detail);

/* errors.c */
int axpy_errors_init(PyObject *module, module_state *state);

/* Makes a type and adds it to the module under its name; where `keep` is not NULL it gets a
 * reference of its own. 0 or -1. */
int axpy_add_type(PyObject *module, PyType_Spec *spec, PyObject **keep);

/* One per file of types or functions; each adds its names to the module. */
int axpy_trace_init(PyObject *module, module_state *state);
int axpy_rawlog_init(PyObject *module, module_state *state);
int axpy_signals_init(PyObject *module, module_state *state);
int axpy_arena_init(PyObject *module, module_state *state);
int axpy_replay_init(PyObject *module, module_state *state);
int axpy_code_init(PyObject *module, module_state *state);
int axpy_codeheap_init(PyObject *module, module_state *state);
int axpy_sizefit_init(PyObject *module, module_state *state);
int axpy_sizemap_init(PyObject *module, module_state *state);
int axpy_writer_init(PyObject *module, module_state *state);
int axpy_timeline_init(PyObject *module);

/* py_trace.c: a column that owns what the pointer at `slot` points to, read-only by the buffer
 * protocol. Where it fails, the memory stays where it was. */
PyObject *axpy_make_column(module_state *state, ax_seam *books, void *slot, size_t *capacity,
                           size_t events, size_t itemsize, const char *format);
/* Adds key: value and drops the value; -1 with an exception, also where value is NULL. */
int axpy_put(PyObject *dict, const char *key, PyObject *value);
/* Two dicts: the counts before the first that is a loss, and those from there on. */
PyObject *axpy_counts(const uint64_t *counts, int count, int first_dropped,
                      const char *(*name)(int));
PyObject *axpy_numbers(const uint64_t *numbers, size_t count);

/* buffers.c: borrowed columns. A column is any object with the buffer protocol, one-dimensional and
 * contiguous, whose items are unsigned integers of `itemsize` bytes (judged by kind and size, never
 * by the format letter). `events` is checked when it is not SIZE_MAX. None is allowed where
 * optional. */
typedef struct column {
    Py_buffer buffer;
    int held;
} column;

int axpy_column_get(PyObject *source, const char *name, size_t itemsize, int optional,
                    size_t events, column *out);
void axpy_column_release(column *col);

/* The columns of a trace in the order in which our functions take them: op, object, size_bytes,
 * thread, key, arena, time_ns. The view borrows from the columns; on failure those that are held
 * stay held. */
#define AXPY_COLUMNS 7
int axpy_trace_columns(PyObject *sources[AXPY_COLUMNS], column columns[AXPY_COLUMNS],
                       ax_trace_view *view);

#endif
