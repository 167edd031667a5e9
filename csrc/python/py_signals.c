/* Signals with their senders: Python's own handlers are not told who sent one. */
#include "binding.h"

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <unistd.h>

#define MOST_SIGNALS 64

/* Signals are the process's, so is what catches them. */
static atomic_int pipe_end = -1;
static struct {
    int number;
    struct sigaction before;
} caught[MOST_SIGNALS];
static size_t n_caught;

static void tell(int number, siginfo_t *about, void *context)
{
    const int error = errno;
    const int32_t words[3] = {number, about->si_code, about->si_pid};
    const int fd = atomic_load(&pipe_end);
    (void)context;
    if (fd >= 0 && write(fd, words, sizeof words) < 0) {
        /* The pipe is full of signals that nobody has looked at; this one is like them. */
    }
    errno = error;
}

static PyObject *uncatch_signals(PyObject *module, PyObject *nothing)
{
    (void)module;
    (void)nothing;
    while (n_caught > 0) {
        n_caught--;
        sigaction(caught[n_caught].number, &caught[n_caught].before, NULL);
    }
    atomic_store(&pipe_end, -1);
    return Py_NewRef(Py_None);
}

static PyObject *catch_signals(PyObject *module, PyObject *args)
{
    int fd;
    PyObject *numbers;
    struct sigaction action = {.sa_flags = SA_SIGINFO | SA_RESTART | SA_ONSTACK};
    (void)module;
    if (!PyArg_ParseTuple(args, "iO!:catch_signals", &fd, &PyTuple_Type, &numbers)) {
        return NULL;
    }
    if (n_caught > 0 || PyTuple_Size(numbers) > MOST_SIGNALS) {
        PyErr_SetString(PyExc_RuntimeError, n_caught ? "signals are caught already"
                                                     : "that many signals cannot be caught");
        return NULL;
    }
    action.sa_sigaction = tell;
    sigfillset(&action.sa_mask);
    atomic_store(&pipe_end, fd);
    for (Py_ssize_t i = 0; i < PyTuple_Size(numbers); i++) {
        const long number = PyLong_AsLong(PyTuple_GetItem(numbers, i));
        if (number == -1 && PyErr_Occurred()) {
            uncatch_signals(module, NULL);
            return NULL;
        }
        caught[n_caught].number = (int)number;
        if (sigaction((int)number, &action, &caught[n_caught].before) < 0) {
            PyErr_SetFromErrno(PyExc_OSError);
            uncatch_signals(module, NULL);
            return NULL;
        }
        n_caught++;
    }
    return Py_NewRef(Py_None);
}

static PyMethodDef functions[] = {
    {"catch_signals", catch_signals, METH_VARARGS,
     "catch_signals($module, fd, numbers, /)\n--\n\nWrite each signal of these numbers to a pipe "
     "that does not block: its number, si_code and the sender's pid, as three int32."},
    {"uncatch_signals", uncatch_signals, METH_NOARGS,
     "uncatch_signals($module, /)\n--\n\nHandle signals as before catch_signals."},
    {NULL, NULL, 0, NULL},
};

int axpy_signals_init(PyObject *module, module_state *state)
{
    (void)state;
    return PyModule_AddFunctions(module, functions);
}
