/* What valgrind --trace-malloc=yes writes, one call a line or a realloc and what it was made of:
 *
 *     --PID-- malloc(10) = 0x4A42040          --PID-- memalign(al 64, size 100) = 0x4A40080
 *     --PID-- free(0x4A42040)                 --PID-- realloc(0x0,7)malloc(7) = 0x4A40220
 *     --PID-- _Znwm(41) = 0x4D6DCE0           --PID-- realloc(0x4A40170,0)free(0x4A40170)
 *                                             --PID--  = 0
 *
 * and what jemalloc writes for utrace:
 *
 *     <jemalloc>:utrace: PID 0xNEW = realloc(0xOLD, 45)    PID 0xNEW = malloc(10)    PID
 * free(0xPTR)
 *
 * Both name the process and no thread: the process is kept as the thread, and has addresses of its
 * own.
 */
#include "reader.h"

#include <string.h>

static int starts_with(const char *p, const char *end, const char *prefix)
{
    const size_t length = strlen(prefix);
    return (size_t)(end - p) >= length && memcmp(p, prefix, length) == 0;
}

/* Moves *p behind a name and its opening parenthesis; the length of the name, 0 where there is
 * none. */
static size_t call_name(const char **p, const char *end)
{
    const char *at = *p;
    while (at < end && (((*at | 0x20) >= 'a' && (*at | 0x20) <= 'z') || *at == '_' ||
                        (*at >= '0' && *at <= '9'))) {
        at++;
    }
    const size_t length = (size_t)(at - *p);
    if (length == 0 || at == end || *at != '(') {
        return 0;
    }
    *p = at + 1;
    return length;
}

static const char *read_call(ax_written_call *call, const char *name, size_t length, const char **p,
                             const char *end)
{
    call->name = ax_call_by_name(name, length);
    const char *const wrong = ax_call_read_arguments(call, p, end);
    if (wrong) {
        return wrong;
    }
    if ((*p)[-1] != ')') {
        return "expected ')' at the end of the arguments";
    }
    return call->name == AX_BY_OTHER ? NULL : ax_call_check(call);
}

static int other_line(ax_reader *reader)
{
    reader->counts[AX_READ_OTHER_LINES]++;
    return AX_OK;
}

static int read_of_process(ax_reader *reader, uint64_t pid, const ax_written_call *call)
{
    const int status = ax_read_process(reader, pid);
    reader->tid = pid;
    return status == AX_OK ? ax_read_call(reader, call) : status;
}

int ax_valgrind_line(ax_reader *reader, const char *p, const char *end)
{
    uint64_t pid;
    ax_written_call call = {0}, inner = {0};
    ax_skip_blanks(&p, end);
    if (p == end) {
        return AX_OK;
    }
    /* What it reports, and what a program or valgrind itself shouts through it. */
    if (starts_with(p, end, "==") || starts_with(p, end, "**")) {
        return other_line(reader);
    }
    if (!starts_with(p, end, "--")) {
        return ax_read_syntax(reader, "expected --PID--, ==PID== or **PID**");
    }
    p += 2;
    if (!ax_parse_decimal(&p, end, &pid) || pid > UINT32_MAX || !starts_with(p, end, "-- ")) {
        return ax_read_syntax(reader, "expected --PID-- with a number up to 4294967295");
    }
    p += 3;
    const char *name = p;
    size_t length = call_name(&p, end);
    if (length == 0) {
        /* Its other messages, and the answer of a realloc that was a free. */
        return other_line(reader);
    }
    const char *wrong = read_call(&call, name, length, &p, end);
    if (wrong) {
        return ax_read_syntax(reader, wrong);
    }
    name = p;
    length = call_name(&p, end);
    if (length > 0 && call.name == AX_MADE_BY_REALLOC) {
        /* How it was done: a malloc where the old is NULL, a free where the new size is 0. */
        wrong = read_call(&inner, name, length, &p, end);
        if (wrong) {
            return ax_read_syntax(reader, wrong);
        }
    }
    ax_skip_blanks(&p, end);
    const int answers = p < end && *p == '=';
    if (answers) {
        p++;
        ax_skip_blanks(&p, end);
        if (!ax_call_number(&p, end, &call.result)) {
            return ax_read_syntax(reader, "expected an address after '='");
        }
        ax_skip_blanks(&p, end);
    }
    if (p < end) {
        return ax_read_syntax(reader, "expected '= ADDRESS' or the end of the line");
    }
    const int ends = call.name == AX_MADE_BY_FREE || call.name == AX_MADE_BY_DELETE ||
                     (call.name == AX_MADE_BY_REALLOC && call.argument[1] == 0);
    if (!answers && !ends && call.name < AX_BY_USABLE_SIZE) {
        return ax_read_syntax(reader, "expected '=' and what the call answered");
    }
    return read_of_process(reader, pid, &call);
}

int ax_utrace_line(ax_reader *reader, const char *p, const char *end)
{
    uint64_t pid;
    ax_written_call call = {0};
    ax_skip_blanks(&p, end);
    if (p == end) {
        return AX_OK;
    }
    if (!starts_with(p, end, "<jemalloc>:utrace:")) {
        return ax_read_syntax(reader, "expected <jemalloc>:utrace:");
    }
    p += strlen("<jemalloc>:utrace:");
    ax_skip_blanks(&p, end);
    if (!ax_parse_decimal(&p, end, &pid) || pid > UINT32_MAX || p == end || *p != ' ') {
        return ax_read_syntax(reader, "expected a process number up to 4294967295 and a blank");
    }
    ax_skip_blanks(&p, end);
    if (starts_with(p, end, "malloc_init()")) {
        return other_line(reader);
    }
    const int answers = p < end && (*p == '0' || *p == '(');
    if (answers) {
        if (!ax_call_number(&p, end, &call.result)) {
            return ax_read_syntax(reader, "expected an address before '='");
        }
        ax_skip_blanks(&p, end);
        if (p == end || *p != '=') {
            return ax_read_syntax(reader, "expected '=' after the address");
        }
        p++;
        ax_skip_blanks(&p, end);
    }
    const char *const name = p;
    const size_t length = call_name(&p, end);
    const char *wrong = length ? read_call(&call, name, length, &p, end) : "expected a call";
    if (!wrong) {
        ax_skip_blanks(&p, end);
        if (p < end) {
            wrong = "expected the end of the line";
        } else if (answers ? call.name != AX_MADE_BY_MALLOC && call.name != AX_MADE_BY_REALLOC
                           : call.name != AX_MADE_BY_FREE) {
            wrong =
                "expected ADDRESS = malloc(SIZE), ADDRESS = realloc(OLD, SIZE) or free(ADDRESS)";
        }
    }
    return wrong ? ax_read_syntax(reader, wrong) : read_of_process(reader, pid, &call);
}
