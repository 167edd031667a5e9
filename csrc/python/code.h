/* What the types of the code heap share. */
#ifndef AXPY_CODE_H
#define AXPY_CODE_H

#include "params.h"

#include "../core/codeheap.h"

/* One dict per block, chunk by chunk in the order of addresses: for pictures and tests. */
PyObject *axpy_code_blocks(const ax_codeheap *heap);

/* py_code_blocks.c */
int axpy_code_blocks_init(PyObject *module);

#endif
