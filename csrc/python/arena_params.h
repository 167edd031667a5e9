/* Arena parameters and result dictionaries, shared by the live arena and the replay. */
#ifndef AX_ARENA_PARAMS_H
#define AX_ARENA_PARAMS_H

#include "binding.h"

#include "../core/arena.h"

/* Reads a dict {name: int} over the defaults. The policy is its number. */
int axpy_arena_params(PyObject *dict, ax_arena_params *params);

/* dict[name] = value; 0 or -1. */
int axpy_put_u64(PyObject *dict, const char *name, uint64_t value);
int axpy_put_double(PyObject *dict, const char *name, double value);
/* dict[name] = {buffer bytes: transitions}, rungs without transitions left out. */
int axpy_put_histogram(PyObject *dict, const char *name, const ax_ladder *ladder,
                       const uint64_t *counts);
/* A list of one dict per living list (of one arena, or of all: AX_NO_LIST). */
PyObject *axpy_list_rows(const ax_arenas *set, uint32_t arena);

#endif
