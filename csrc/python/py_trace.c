#include "binding.h"
int axpy_trace_init(PyObject *module, module_state *state){(void)module;(void)state;return 0;}
