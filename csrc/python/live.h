/* What the objects that hold live memory share: their ways in and out, their numbers. */
#ifndef AX_LIVE_H
#define AX_LIVE_H

#include "binding.h"

/* Calls tp_alloc; zeroed. */
PyObject *axpy_make_object(PyTypeObject *type);
/* A tp_dealloc for objects that own nothing, and the end of the others' own. */
void axpy_free_object(PyObject *self);

/* The state of our module. The type may be a subclass made in Python, which has no module of ours:
 * looks along its bases. */
module_state *axpy_find_state(PyTypeObject *type);

/* A Python int as an unsigned number from `least` to `most`; 0 or -1. */
int axpy_get_number(PyObject *value, const char *name, uint64_t least, uint64_t most,
                    uint64_t *out);

/* Without a GIL two threads may meet in an object; the second is refused: RuntimeError, -1. */
int axpy_enter(atomic_int *busy, const char *what);
/* For a dealloc, which cannot be refused. */
void axpy_enter_waiting(atomic_int *busy);
void axpy_leave(atomic_int *busy);

/* The arguments of fail_backing_call(n, bookkeeping=False); 0 or -1. */
int axpy_fail_arguments(PyObject *args, PyObject *kwargs, uint64_t *n, int *bookkeeping);
/* Makes the n-th attempt from now fail; 0 takes that back. */
void axpy_fail_call(ax_seam *seam, uint64_t n);

#endif
