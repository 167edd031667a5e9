/* Calls of memory functions as programs write them down: NAME(ARGUMENTS) and what they answered.
 * What a call is made of is the same in logalloc, ltrace, valgrind and utrace; how a line is laid
 * out is theirs.
 */
#include "reader.h"

#include <string.h>

typedef struct function {
    const char *name;
    uint8_t call;
} function;

static int is_name(const char *name, size_t length, const char *known)
{
    return length == strlen(known) && memcmp(name, known, length) == 0;
}

uint8_t ax_call_by_name(const char *name, size_t length)
{
    /* Mangled: _Zn is new, _Zd delete; w one object, a an array; m and j the type of the size. */
    static const function functions[] = {
        {"malloc", AX_MADE_BY_MALLOC},
        {"free", AX_MADE_BY_FREE},
        {"realloc", AX_MADE_BY_REALLOC},
        {"calloc", AX_MADE_BY_CALLOC},
        {"memalign", AX_MADE_BY_MEMALIGN},
        {"posix_memalign", AX_MADE_BY_POSIX_MEMALIGN},
        {"aligned_alloc", AX_MADE_BY_ALIGNED_ALLOC},
        {"reallocarray", AX_MADE_BY_REALLOCARRAY},
        {"valloc", AX_MADE_BY_VALLOC},
        {"pvalloc", AX_MADE_BY_PVALLOC},
        {"cfree", AX_MADE_BY_FREE},
        {"malloc_usable_size", AX_BY_USABLE_SIZE},
    };
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
        if (is_name(name, length, functions[i].name)) {
            return functions[i].call;
        }
    }
    if (length > 4 && memcmp(name, "_Z", 2) == 0) {
        if (name[2] == 'n' && (name[3] == 'w' || name[3] == 'a') &&
            (name[4] == 'm' || name[4] == 'j')) {
            return AX_MADE_BY_NEW;
        }
        if (name[2] == 'd' && (name[3] == 'l' || name[3] == 'a') && name[4] == 'P') {
            return AX_MADE_BY_DELETE;
        }
    }
    return AX_BY_OTHER;
}

int ax_call_number(const char **p, const char *end, uint64_t *out)
{
    static const char *const nulls[] = {"(nil)", "nil", "NULL"};
    if (*p < end && **p == '#') {
        ++*p;
        return ax_parse_decimal(p, end, out);
    }
    if (end - *p > 2 && (*p)[0] == '0' && ((*p)[1] | 0x20) == 'x') {
        return ax_parse_address(p, end, out);
    }
    for (size_t i = 0; i < sizeof nulls / sizeof *nulls; i++) {
        const size_t length = strlen(nulls[i]);
        if ((size_t)(end - *p) >= length && memcmp(*p, nulls[i], length) == 0) {
            *p += length;
            *out = 0;
            return 1;
        }
    }
    return ax_parse_decimal(p, end, out);
}

/* How many arguments say something; more there may be. */
static uint8_t needed(uint8_t name)
{
    switch (name) {
    case AX_MADE_BY_CALLOC:
    case AX_MADE_BY_REALLOC:
    case AX_MADE_BY_POSIX_MEMALIGN:
    case AX_MADE_BY_ALIGNED_ALLOC:
    case AX_MADE_BY_MEMALIGN:
        return 2;
    case AX_MADE_BY_REALLOCARRAY:
        return 3;
    default:
        return 1;
    }
}

const char *ax_call_read_arguments(ax_written_call *call, const char **p, const char *end)
{
    const char *at = *p;
    call->arguments = 0;
    ax_skip_blanks(&at, end);
    while (at < end && *at != ')' && *at != '<') {
        if (call->arguments < AX_CALL_ARGUMENTS) {
            /* memalign(al 64, size 100) */
            const char *const word = at;
            while (at < end && *at >= 'a' && *at <= 'z') {
                at++;
            }
            if (at == end || *at != ' ') {
                at = word; /* nil) */
            }
            ax_skip_blanks(&at, end);
            if (!ax_call_number(&at, end, &call->argument[call->arguments])) {
                if (call->arguments < needed(call->name)) {
                    return "expected arguments that are numbers of at most 64 bits";
                }
                /* What a function was not given may be anything. */
                call->argument[call->arguments] = 0;
            }
            call->arguments++;
        }
        while (at < end && *at != ',' && *at != ')' && *at != '<') {
            if (*at != ' ' && call->arguments <= needed(call->name)) {
                return "expected a comma, or the end of the arguments";
            }
            at++;
        }
        if (at < end && *at == ',') {
            at++;
            ax_skip_blanks(&at, end);
        }
    }
    *p = at;
    if (at < end && *at == ')') {
        ++*p;
    }
    return NULL;
}

const char *ax_call_check(const ax_written_call *call)
{
    return call->arguments >= needed(call->name) ? NULL : "expected more arguments of this call";
}

/* The product of two arguments; 0 with the line dropped or refused (*status) where there is none.
 */
static int product(ax_reader *reader, const ax_written_call *call, int first, uint64_t *out,
                   int *status)
{
    const uint64_t a = call->argument[first], b = call->argument[first + 1];
    if (b != 0 && a > UINT64_MAX / b) {
        if (call->result == 0) {
            reader->counts[first ? AX_READ_FAILED_REALLOCS : AX_READ_FAILED_ALLOCS]++;
            *status = AX_OK;
        } else {
            *status = ax_read_drop(reader, AX_DROPPED_SIZE_OVERFLOW, AX_ERR_OVERFLOW,
                                   "expected a count times size that fits 64 bits");
        }
        return 0;
    }
    *out = a * b;
    return 1;
}

int ax_read_call(ax_reader *reader, const ax_written_call *call)
{
    const uint64_t *const argument = call->argument;
    uint64_t size = 0;
    int status;
    reader->call = call->name;
    switch (call->name) {
    case AX_MADE_BY_FREE:
    case AX_MADE_BY_DELETE:
        return ax_read_free(reader, argument[0]);
    case AX_MADE_BY_CALLOC:
        return product(reader, call, 0, &size, &status)
                   ? ax_read_alloc(reader, call->result, size, 0)
                   : status;
    case AX_MADE_BY_REALLOC:
        return ax_read_realloc(reader, argument[0], call->result, argument[1]);
    case AX_MADE_BY_REALLOCARRAY:
        return product(reader, call, 1, &size, &status)
                   ? ax_read_realloc(reader, argument[0], call->result, size)
                   : status;
    case AX_MADE_BY_POSIX_MEMALIGN:
    case AX_MADE_BY_ALIGNED_ALLOC:
    case AX_MADE_BY_MEMALIGN:
        return ax_read_alloc(reader, call->result, argument[1], argument[0]);
    case AX_BY_USABLE_SIZE:
        reader->counts[AX_READ_USABLE_SIZES]++;
        return AX_OK;
    case AX_BY_OTHER:
        reader->counts[AX_READ_OTHER_CALLS]++;
        return AX_OK;
    default:
        return ax_read_alloc(reader, call->result, argument[0], 0);
    }
}
