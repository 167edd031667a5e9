#include "live.h"

PyObject *axpy_make_object(PyTypeObject *type)
{
    allocfunc make = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    return make(type, 0);
}

void axpy_free_object(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    release(self);
    Py_DECREF(type);
}

module_state *axpy_find_state(PyTypeObject *type)
{
    while (type) {
        module_state *state = axpy_state_of_type(type);
        if (state) {
            return state;
        }
        PyErr_Clear();
        type = (PyTypeObject *)PyType_GetSlot(type, Py_tp_base);
    }
    return NULL;
}

int axpy_get_number(PyObject *value, const char *name, uint64_t least, uint64_t most, uint64_t *out)
{
    PyObject *index = PyNumber_Index(value);
    if (!index) {
        return -1;
    }
    unsigned long long number = PyLong_AsUnsignedLongLong(index);
    int bad = number == (unsigned long long)-1 && PyErr_Occurred();
    if (bad || number < least || number > most) {
        PyErr_Format(PyExc_ValueError, "%s is %R, allowed is %llu to %llu", name, index,
                     (unsigned long long)least, (unsigned long long)most);
        Py_DECREF(index);
        return -1;
    }
    Py_DECREF(index);
    *out = number;
    return 0;
}

int axpy_enter(atomic_int *busy, const char *what)
{
    if (atomic_exchange(busy, 1)) {
        PyErr_Format(PyExc_RuntimeError, "%s is in use by another thread", what);
        return -1;
    }
    return 0;
}

void axpy_enter_waiting(atomic_int *busy)
{
    while (atomic_exchange(busy, 1)) {
        /* Whoever is inside holds no lock of ours and is soon out. */
    }
}

void axpy_leave(atomic_int *busy)
{
    atomic_store(busy, 0);
}

int axpy_fail_arguments(PyObject *args, PyObject *kwargs, uint64_t *n, int *bookkeeping)
{
    static char *names[] = {"n", "bookkeeping", NULL};
    PyObject *number;
    *bookkeeping = 0;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O|p:fail_backing_call", names, &number,
                                     bookkeeping)) {
        return -1;
    }
    return axpy_get_number(number, "n", 0, UINT32_MAX, n);
}

void axpy_fail_call(ax_seam *seam, uint64_t n)
{
    seam->fail_at = n ? seam->attempts + n : 0;
}
