/* One switch from the core's answers to Python's exceptions. */
#include "binding.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* PyErr_Format of CPython 3.11 knows no hexadecimal wider than int but that of pointers, whose zero
 * it writes as the C library does, which may be (nil). */
typedef struct hex_text {
    char text[2 + 16 + 1];
} hex_text;

static hex_text hex(uint64_t number)
{
    hex_text made;
    snprintf(made.text, sizeof made.text, "0x%" PRIx64, number);
    return made;
}

PyObject *axpy_raise(module_state *state, int status, const ax_detail *detail)
{
    const char *text = ax_status_text(status);
    ax_detail none = {0};
    const ax_detail *d = detail ? detail : &none;
    const char *what = d->what ? d->what : text;

    switch (status) {
    case AX_ERR_NOMEM:
        PyErr_SetString(PyExc_MemoryError,
                        d->what ? what : "out of memory: the system refused a request for more");
        return NULL;
    case AX_ERR_RANGE:
        if (d->where) {
            return PyErr_Format(PyExc_ValueError,
                                "%s is %llu, allowed is %llu to %llu in steps of %llu", what,
                                (unsigned long long)d->value, (unsigned long long)d->low,
                                (unsigned long long)d->high, (unsigned long long)d->where);
        }
        return PyErr_Format(PyExc_ValueError, "%s is %llu, allowed is %llu to %llu", what,
                            (unsigned long long)d->value, (unsigned long long)d->low,
                            (unsigned long long)d->high);
    case AX_ERR_OVERFLOW:
        return PyErr_Format(PyExc_OverflowError, "%s: %llu", what, (unsigned long long)d->value);
    case AX_ERR_FOREIGN:
    case AX_ERR_STALE:
    case AX_ERR_DOUBLE_FREE:
    case AX_ERR_WRONG_KEY:
        return PyErr_Format(state->InvalidFree, "%s (address %s)", what, hex(d->value).text);
    case AX_ERR_WRONG_SIZE:
        return PyErr_Format(
            PyExc_ValueError, "key %llu holds objects of %llu bytes, asked for %llu bytes",
            (unsigned long long)d->where, (unsigned long long)d->low, (unsigned long long)d->value);
    case AX_ERR_POISON:
        if (d->what) {
            return PyErr_Format(state->PoisonError, "%s: object at %s, found %s", what,
                                hex(d->high).text, hex(d->value).text);
        }
        return PyErr_Format(
            state->PoisonError,
            "free object at %s was written to: at byte offset %llu wanted %s, found %s",
            hex(d->high).text, (unsigned long long)d->where, hex(d->low).text, hex(d->value).text);
    case AX_ERR_CORRUPT:
        return PyErr_Format(state->CorruptionError, "%s: found %llu, expected %llu (at %llu)", what,
                            (unsigned long long)d->value, (unsigned long long)d->low,
                            (unsigned long long)d->where);
    case AX_ERR_HEADER:
        if ((uint32_t)d->high == UINT32_MAX) {
            return PyErr_Format(
                state->CorruptionError,
                "%s: %s of the terminator of chunk %llu at %s: found %s, expected %s", text, what,
                (unsigned long long)(d->high >> 32), hex(d->where).text, hex(d->value).text,
                hex(d->low).text);
        }
        return PyErr_Format(state->CorruptionError,
                            "%s: %s of block %llu of chunk %llu at %s: found %s, expected %s", text,
                            what, (unsigned long long)(uint32_t)d->high,
                            (unsigned long long)(d->high >> 32), hex(d->where).text,
                            hex(d->value).text, hex(d->low).text);
    case AX_ERR_CLOSED:
    case AX_ERR_SEALED:
        return PyErr_Format(PyExc_ValueError, "%s", what);
    case AX_ERR_EXPORTED:
        return PyErr_Format(PyExc_BufferError, "%s", what);
    case AX_ERR_EVENT_OP:
    case AX_ERR_EVENT_ORDER:
    case AX_ERR_EVENT_OBJECT:
    case AX_ERR_EVENT_DEAD:
    case AX_ERR_EVENT_ARENA:
    case AX_ERR_EVENT_TIME:
    case AX_ERR_EVENT_SIZE:
        if (d->low > d->high) {
            return PyErr_Format(state->TraceError, "event %llu: %s (found %llu)",
                                (unsigned long long)d->where, what, (unsigned long long)d->value);
        }
        if (d->low == d->high) {
            return PyErr_Format(state->TraceError, "event %llu: %s (found %llu, expected %llu)",
                                (unsigned long long)d->where, what, (unsigned long long)d->value,
                                (unsigned long long)d->low);
        }
        return PyErr_Format(state->TraceError, "event %llu: %s (found %llu, expected %llu to %llu)",
                            (unsigned long long)d->where, what, (unsigned long long)d->value,
                            (unsigned long long)d->low, (unsigned long long)d->high);
    case AX_ERR_SYNTAX:
        return PyErr_Format(state->TraceError, "line %llu: %s", (unsigned long long)d->where, what);
    default:
        return PyErr_Format(PyExc_RuntimeError, "%s", what);
    }
}

static int add_exception(PyObject *module, const char *name, const char *doc, PyObject *base,
                         PyObject **slot)
{
    *slot = PyErr_NewExceptionWithDoc(name, doc, base, NULL);
    if (!*slot) {
        return -1;
    }
    return PyModule_AddObjectRef(module, strrchr(name, '.') + 1, *slot);
}

int axpy_errors_init(PyObject *module, module_state *state)
{
    if (add_exception(module, "pyallocx.InvalidFree",
                      "A handle that is foreign, stale, doubly freed or freed under a wrong key. "
                      "The allocator is unchanged.",
                      PyExc_ValueError, &state->InvalidFree) < 0 ||
        add_exception(module, "pyallocx.PoisonError",
                      "A free object was written to between its free and its reuse.",
                      PyExc_RuntimeError, &state->PoisonError) < 0 ||
        add_exception(module, "pyallocx.TraceError",
                      "A trace, or a file that should hold one, that breaks the rules of a trace.",
                      PyExc_ValueError, &state->TraceError) < 0 ||
        add_exception(module, "pyallocx.CorruptionError",
                      "check() found a broken rule in an allocator's own state.",
                      PyExc_RuntimeError, &state->CorruptionError) < 0) {
        return -1;
    }
    return 0;
}
