/* pyallocx._core: multi-phase initialisation, all state in the module, no statics. */
#include "binding.h"

module_state *axpy_state_of_module(PyObject *module)
{
    return (module_state *)PyModule_GetState(module);
}

module_state *axpy_state_of_type(PyTypeObject *type)
{
    PyObject *module = PyType_GetModule(type);
    return module ? axpy_state_of_module(module) : NULL;
}

int axpy_add_type(PyObject *module, PyType_Spec *spec, PyObject **keep)
{
    PyObject *type = PyType_FromModuleAndSpec(module, spec, NULL);
    const int status = type ? PyModule_AddType(module, (PyTypeObject *)type) : -1;
    if (status == 0 && keep) {
        *keep = Py_NewRef(type);
    }
    Py_XDECREF(type);
    return status;
}

static int module_exec(PyObject *module)
{
    module_state *state = axpy_state_of_module(module);
    if (axpy_errors_init(module, state) < 0 || axpy_trace_init(module, state) < 0 ||
        axpy_rawlog_init(module, state) < 0 || axpy_arena_init(module, state) < 0 ||
        axpy_signals_init(module, state) < 0 || axpy_replay_init(module, state) < 0 ||
        axpy_code_init(module, state) < 0 || axpy_codeheap_init(module, state) < 0 ||
        axpy_sizefit_init(module, state) < 0 || axpy_sizemap_init(module, state) < 0 ||
        axpy_writer_init(module, state) < 0 || axpy_timeline_init(module) < 0) {
        return -1;
    }
    return 0;
}

static int module_traverse(PyObject *module, visitproc visit, void *arg)
{
    module_state *state = axpy_state_of_module(module);
    Py_VISIT(state->InvalidFree);
    Py_VISIT(state->PoisonError);
    Py_VISIT(state->TraceError);
    Py_VISIT(state->CorruptionError);
    Py_VISIT(state->Arena_type);
    Py_VISIT(state->Handle_type);
    Py_VISIT(state->View_type);
    Py_VISIT(state->CodeBlock_type);
    Py_VISIT(state->Column_type);
    return 0;
}

static int module_clear(PyObject *module)
{
    module_state *state = axpy_state_of_module(module);
    Py_CLEAR(state->InvalidFree);
    Py_CLEAR(state->PoisonError);
    Py_CLEAR(state->TraceError);
    Py_CLEAR(state->CorruptionError);
    Py_CLEAR(state->Arena_type);
    Py_CLEAR(state->Handle_type);
    Py_CLEAR(state->View_type);
    Py_CLEAR(state->CodeBlock_type);
    Py_CLEAR(state->Column_type);
    return 0;
}

static void module_free(void *module)
{
    module_clear((PyObject *)module);
}

static PyModuleDef_Slot module_slots[] = {
    {Py_mod_exec, (void *)(uintptr_t)module_exec},
#if !defined(Py_LIMITED_API) && PY_VERSION_HEX >= 0x030D0000
    {Py_mod_multiple_interpreters, Py_MOD_PER_INTERPRETER_GIL_SUPPORTED},
    {Py_mod_gil, Py_MOD_GIL_NOT_USED},
#endif
    {0, NULL},
};

struct PyModuleDef axpy_module_def = {
    PyModuleDef_HEAD_INIT,
    .m_name = "pyallocx._core",
    .m_doc = "The C core of pyallocx: allocators, traces and replays.",
    .m_size = sizeof(module_state),
    .m_slots = module_slots,
    .m_traverse = module_traverse,
    .m_clear = module_clear,
    .m_free = module_free,
};

PyMODINIT_FUNC PyInit__core(void);
PyMODINIT_FUNC PyInit__core(void)
{
    return PyModuleDef_Init(&axpy_module_def);
}
