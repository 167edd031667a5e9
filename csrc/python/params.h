/* Parameters as dicts of ints, and results as dicts. */
#ifndef AX_PARAMS_H
#define AX_PARAMS_H

#include <stddef.h>

#include "binding.h"

#include "../core/arena.h"
#include "../core/codeheap.h"

/* One parameter: where it stands in its struct, and whether it has 4 or 8 bytes. */
typedef struct axpy_field {
    const char *name;
    size_t offset;
    size_t bytes;
} axpy_field;

#define AXPY_FIELD(type, name, member) {name, offsetof(type, member), sizeof(((type *)0)->member)}

/* Overwrites what the dict names. `owner`, in words, is for messages. */
int axpy_params_read(PyObject *dict, const axpy_field *fields, size_t count, const char *owner,
                     void *target);

/* Reads a dict {name: int} over the defaults. The policy is its number. */
int axpy_arena_params(PyObject *dict, ax_arena_params *params);
int axpy_code_params(PyObject *dict, ax_code_params *params);

/* A tuple of the texts that `name` gives for 0 .. count - 1. */
PyObject *axpy_names(const char *(*name)(uint32_t), uint32_t count);

/* dict[name] = value; 0 or -1. */
int axpy_put_u64(PyObject *dict, const char *name, uint64_t value);
int axpy_put_i64(PyObject *dict, const char *name, int64_t value);
int axpy_put_double(PyObject *dict, const char *name, double value);
/* dict[name] = {buffer bytes: transitions}, rungs without transitions left out. */
int axpy_put_histogram(PyObject *dict, const char *name, const ax_ladder *ladder,
                       const uint64_t *counts);
/* A list of one dict per living list (of one arena, or of all: AX_NO_LIST). */
PyObject *axpy_list_rows(const ax_arenas *set, uint32_t arena);

#endif
