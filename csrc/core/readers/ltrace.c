/* ltrace, one call a line, or two where another thread or call came in between:
 *
 *     prog->malloc(16)                       = 0x55b76f2d22a0
 *     [pid 22405] prog->malloc(16 <unfinished ...>
 *     [pid 22405] <... malloc resumed> )     = 0x7f7e08000d30
 *     22405 12:00:01.123456 free(0x55b76f2d22a0)   = <void>
 *     +++ exited (status 0) +++
 *
 * Before the call may stand a thread number (bare or as [pid N]), a time (of day, since 1970, or
 * relative to the line before) and an instruction pointer, which is passed over. A line without a
 * number is of thread 0. ltrace does not tell a thread from a forked process.
 *
 * A malloc counts where it returned, a free where it was called, a realloc gives up its address
 * where it was called and is an event where it returned. What a memory function of ours calls
 * before it returns is how it does its work, and only counted; so are calls of other functions.
 */
#include "reader.h"

#include <string.h>

typedef struct pending {
    uint64_t id; /* thread number + 1 */
    ax_written_call call;
    uint32_t object; /* of a realloc */
    uint32_t depth;  /* calls within that have not returned either */
} pending;

static int starts_with(const char *p, const char *end, const char *prefix)
{
    const size_t length = strlen(prefix);
    return (size_t)(end - p) >= length && memcmp(p, prefix, length) == 0;
}

void ax_ltrace_release(ax_reader *reader)
{
    ax_idmap_free(&reader->ltrace.pending, &reader->books);
}

int ax_ltrace_finish(ax_reader *reader)
{
    reader->counts[AX_READ_UNFINISHED_CALLS] += reader->ltrace.pending.used;
    ax_ltrace_release(reader);
    return AX_OK;
}

/* Up to nine digits after a point as nanoseconds. */
static uint64_t fraction(const char **p, const char *end)
{
    uint64_t ns = 0, unit = 1000000000;
    if (*p < end && **p == '.') {
        for (++*p; *p < end && **p >= '0' && **p <= '9'; ++*p) {
            unit /= 10;
            ns += (uint64_t)(**p - '0') * unit;
        }
    }
    return ns;
}

/* What follows a first number that is no thread number: a time. NULL, or what was expected. */
static const char *read_time(ax_reader *reader, uint64_t first, const char **p, const char *end)
{
    const uint64_t second = 1000000000;
    const uint64_t since_1970 = 100000000; /* seconds; less is relative */
    uint64_t seconds = first, minutes = 0;
    const int of_day = **p == ':';
    if (of_day) {
        ++*p;
        if (first > 23 || !ax_parse_decimal(p, end, &minutes) || minutes > 59 || *p == end ||
            **p != ':') {
            return "expected a time of day";
        }
        ++*p;
        if (!ax_parse_decimal(p, end, &seconds) || seconds > 60) {
            return "expected a time of day";
        }
        seconds += (first * 60 + minutes) * 60;
    }
    if (seconds > UINT64_MAX / second - 1) {
        return "expected a time that fits 64 bits in nanoseconds";
    }
    reader->time_ns = seconds * second + fraction(p, end);
    if (!of_day && seconds < since_1970) {
        if (reader->ltrace.relative_ns > UINT64_MAX - reader->time_ns) {
            return "expected times that together fit 64 bits in nanoseconds";
        }
        reader->time_ns = reader->ltrace.relative_ns += reader->time_ns;
    }
    return NULL;
}

/* What stands before the call. NULL, or what was expected. */
static const char *read_prefix(ax_reader *reader, const char **p, const char *end)
{
    uint64_t number = 0;
    int timed = 0, numbered = 0;
    reader->tid = 0;
    ax_skip_blanks(p, end);
    if (starts_with(*p, end, "[pid ")) {
        *p += 5;
        ax_skip_blanks(p, end);
        if (!ax_parse_decimal(p, end, &reader->tid) || *p == end || **p != ']') {
            return "expected [pid N]";
        }
        ++*p;
        numbered = 1;
        ax_skip_blanks(p, end);
    }
    while (*p < end && **p >= '0' && **p <= '9') {
        if (!ax_parse_decimal(p, end, &number) || *p == end) {
            return "expected a number and a call";
        }
        if (**p == ' ' && !numbered && !timed) {
            reader->tid = number;
            numbered = 1;
        } else if ((**p == ':' || **p == '.') && !timed) {
            const char *const wrong = read_time(reader, number, p, end);
            if (wrong) {
                return wrong;
            }
            timed = 1;
        } else {
            return "expected a thread number, a time and a call";
        }
        ax_skip_blanks(p, end);
    }
    if (reader->tid > UINT32_MAX) {
        return "a thread number is above 4294967295";
    }
    if (starts_with(*p, end, "[0x")) {
        while (*p < end && **p != ']') {
            ++*p;
        }
        *p += *p < end;
        ax_skip_blanks(p, end);
    }
    if (reader->timed >= 0 && reader->timed != timed) {
        return timed ? "expected no time, as on the lines before"
                     : "expected a time, as on the lines before";
    }
    reader->timed = timed;
    return NULL;
}

static const char *const want_result = "expected '=' and what the call answered";

/* Blanks, '=' and an answer; what may follow is the time it took. NULL, or what was expected. */
static const char *read_result(ax_written_call *call, const char *p, const char *end)
{
    ax_skip_blanks(&p, end);
    if (p == end || *p != '=') {
        return want_result;
    }
    p++;
    ax_skip_blanks(&p, end);
    if (call->name == AX_MADE_BY_FREE || call->name == AX_MADE_BY_DELETE ||
        call->name == AX_BY_OTHER) {
        return NULL;
    }
    if (!ax_call_number(&p, end, &call->result)) {
        return want_result;
    }
    ax_skip_blanks(&p, end);
    if (p < end && *p == '<') {
        p = end;
    }
    return p < end ? "expected the end of the line" : NULL;
}

static int returned(ax_reader *reader, const ax_written_call *call)
{
    if (call->name == AX_MADE_BY_POSIX_MEMALIGN) {
        if (call->result != 0) {
            reader->counts[AX_READ_FAILED_ALLOCS]++;
            return AX_OK;
        }
        return ax_read_drop(reader, AX_DROPPED_RESULT_UNSEEN, AX_ERR_SYNTAX,
                            "expected a call whose answer ltrace sees: posix_memalign writes the "
                            "address to memory");
    }
    return ax_read_call(reader, call);
}

/* A call that does not return on its line. */
static int begun(ax_reader *reader, const ax_written_call *call)
{
    uint32_t object = AX_READ_NO_OBJECT;
    int status = AX_OK;
    if (call->name == AX_MADE_BY_FREE) {
        status = ax_read_call(reader, call);
    } else if (call->name == AX_MADE_BY_REALLOC || call->name == AX_MADE_BY_REALLOCARRAY) {
        status = ax_read_realloc_begin(reader, call->argument[0], &object);
    }
    if (status == AX_OK) {
        status = ax_idmap_reserve(&reader->ltrace.pending, sizeof(pending), &reader->books);
        if (status != AX_OK) {
            return ax_read_refuse(reader, status, NULL);
        }
        pending *slot = ax_idmap_add(&reader->ltrace.pending, reader->tid + 1);
        slot->call = *call;
        slot->object = object;
        slot->depth = 0;
    }
    return status;
}

static int resumed(ax_reader *reader, uint8_t name, const char *p, const char *end)
{
    pending *slot = ax_idmap_find(&reader->ltrace.pending, reader->tid + 1);
    if (slot && slot->depth > 0) {
        slot->depth--;
        return AX_OK;
    }
    if (!slot || slot->call.name != name) {
        return ax_read_drop(reader, AX_DROPPED_CALL_UNPAIRED, AX_ERR_SYNTAX,
                            "expected a call to resume that was unfinished before");
    }
    ax_written_call call = slot->call;
    const uint32_t object = slot->object;
    ax_idmap_remove(&reader->ltrace.pending, slot);
    const char *const wrong = read_result(&call, p, end);
    if (wrong) {
        return ax_read_syntax(reader, wrong);
    }
    reader->call = call.name;
    if (call.name == AX_MADE_BY_FREE) {
        return AX_OK;
    }
    if (call.name == AX_MADE_BY_REALLOC) {
        return ax_read_realloc_end(reader, call.argument[0], object, call.result, call.argument[1]);
    }
    if (call.name == AX_MADE_BY_REALLOCARRAY) {
        const uint64_t a = call.argument[1], b = call.argument[2];
        /* Where the product does not fit the call failed, and the old object lives on. */
        const int fits = b == 0 || a <= UINT64_MAX / b;
        return ax_read_realloc_end(reader, call.argument[0], object, fits ? call.result : 0,
                                   fits ? a * b : UINT64_MAX);
    }
    return returned(reader, &call);
}

/* The word up to `stop`, without the library before "->" and behind '@'. */
static uint8_t name_of(const char *start, const char *stop)
{
    const char *end = start;
    for (const char *at = start; at + 1 < stop; at++) {
        if (at[0] == '-' && at[1] == '>') {
            start = at + 2;
        }
    }
    for (end = start; end < stop && *end != '@'; end++) {
    }
    const uint8_t name = ax_call_by_name(start, (size_t)(end - start));
    /* These call malloc and free, which the file has as well. */
    return name == AX_MADE_BY_NEW || name == AX_MADE_BY_DELETE ? AX_BY_OTHER : name;
}

int ax_ltrace_line(ax_reader *reader, const char *p, const char *end)
{
    ax_written_call call = {0};
    ax_skip_blanks(&p, end);
    if (p == end) {
        return AX_OK;
    }
    const char *wrong = read_prefix(reader, &p, end);
    if (wrong) {
        return ax_read_syntax(reader, wrong);
    }
    if (starts_with(p, end, "+++ ") || starts_with(p, end, "--- ")) {
        pending *const slot = ax_idmap_find(&reader->ltrace.pending, reader->tid + 1);
        reader->counts[AX_READ_OTHER_LINES]++;
        if (slot && *p == '+') {
            /* The thread is gone, and its call with it. */
            reader->counts[AX_READ_UNFINISHED_CALLS]++;
            ax_idmap_remove(&reader->ltrace.pending, slot);
        }
        return AX_OK;
    }
    const char *name = p;
    if (starts_with(p, end, "<... ")) {
        name = p += 5;
        while (p < end && *p != ' ') {
            p++;
        }
        if (!starts_with(p, end, " resumed>")) {
            return ax_read_syntax(reader, "expected <... NAME resumed>");
        }
        call.name = name_of(name, p);
        if (call.name >= AX_BY_USABLE_SIZE) {
            return AX_OK;
        }
        /* The rest of the arguments, which were read where it was called. */
        while (p < end && *p != '=') {
            p++;
        }
        return resumed(reader, call.name, p, end);
    }
    while (p < end && *p != '(') {
        if (*p == ' ') {
            /* operator new(unsigned long)(16) and whatever else is demangled */
            if (!starts_with(name, end, "operator ")) {
                return ax_read_syntax(reader, "expected a call: NAME(ARGUMENTS) = RESULT");
            }
        }
        p++;
    }
    if (p == end || p == name) {
        return ax_read_syntax(reader, "expected a call: NAME(ARGUMENTS) = RESULT");
    }
    call.name = name_of(name, p);
    if (call.name >= AX_BY_USABLE_SIZE) {
        const size_t rest = (size_t)(end - p);
        if (!memchr(p, '=', rest) && !memchr(p, '<', rest)) {
            return ax_read_syntax(reader, want_result);
        }
        return ax_read_call(reader, &call);
    }
    p++;
    wrong = ax_call_read_arguments(&call, &p, end);
    if (!wrong) {
        wrong = ax_call_check(&call);
    }
    if (wrong) {
        return ax_read_syntax(reader, wrong);
    }
    const int unfinished = starts_with(p, end, "<unfinished ...>");
    if (!unfinished) {
        wrong = p[-1] == ')' ? read_result(&call, p, end) : "expected ')' or <unfinished ...>";
        if (wrong) {
            return ax_read_syntax(reader, wrong);
        }
    }
    pending *outer = ax_idmap_find(&reader->ltrace.pending, reader->tid + 1);
    if (outer) {
        reader->counts[AX_READ_NESTED_CALLS]++;
        outer->depth += (uint32_t)unfinished;
        return AX_OK;
    }
    return unfinished ? begun(reader, &call) : returned(reader, &call);
}
