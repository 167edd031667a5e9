/* logalloc of Firefox, one call a line, logged when it has returned:
 *
 *     PID TID malloc(32)=0x7f90495120e0       PID TID realloc(0x7f90495120e0,84)=0x7f9049512100
 *     PID TID posix_memalign(64,100)=#3       PID TID free(#3)
 *     PID TID jemalloc_stats()
 *
 * The old form has no TID. Pointers are addresses, or `#slot` after munging: a slot is used again
 * once what was in it is freed, so it is an address like any other; #0 is NULL. Processes have
 * addresses of their own; a thread is known by process and number.
 */
#include "reader.h"

#include <string.h>

int ax_logalloc_line(ax_reader *reader, const char *p, const char *end)
{
    uint64_t pid, tid;
    ax_written_call call = {0};
    ax_skip_blanks(&p, end);
    if (p == end) {
        return AX_OK;
    }
    if (!ax_parse_decimal(&p, end, &pid) || pid >= UINT32_MAX || p == end || *p != ' ') {
        return ax_read_syntax(reader, "expected a process number below 4294967295 and a blank");
    }
    ax_skip_blanks(&p, end);
    tid = pid;
    if (p < end && *p >= '0' && *p <= '9') {
        if (!ax_parse_decimal(&p, end, &tid) || tid > UINT32_MAX || p == end || *p != ' ') {
            return ax_read_syntax(reader, "expected a thread number up to 4294967295 and a blank");
        }
        ax_skip_blanks(&p, end);
    }
    const char *const name = p;
    while (p < end && *p != '(' && *p != ' ') {
        p++;
    }
    if (p == end || *p != '(') {
        return ax_read_syntax(reader, "expected a call: NAME(ARGUMENTS)=RESULT");
    }
    call.name = ax_call_by_name(name, (size_t)(p - name));
    if (call.name == AX_BY_OTHER &&
        (p - name < 8 || memcmp(name, "jemalloc", 8) != 0 || p[-1] == '_')) {
        return ax_read_syntax(reader, "expected malloc, calloc, realloc, posix_memalign, "
                                      "aligned_alloc, memalign, valloc, free or jemalloc_...");
    }
    p++;
    const char *wrong = ax_call_read_arguments(&call, &p, end);
    if (!wrong && p[-1] != ')') {
        wrong = "expected ')' at the end of the arguments";
    }
    if (!wrong && call.name != AX_BY_OTHER) {
        wrong = ax_call_check(&call);
    }
    if (wrong) {
        return ax_read_syntax(reader, wrong);
    }
    const int answers = p < end && *p == '=';
    if (answers) {
        p++;
        if (!ax_call_number(&p, end, &call.result)) {
            return ax_read_syntax(reader, "expected an address or #slot after '='");
        }
    }
    ax_skip_blanks(&p, end);
    if (p < end) {
        return ax_read_syntax(reader, "expected the end of the line");
    }
    if (!answers && call.name != AX_MADE_BY_FREE && call.name < AX_BY_USABLE_SIZE) {
        return ax_read_syntax(reader, "expected '=' and what the call answered");
    }
    const int status = ax_read_process(reader, pid);
    reader->tid = pid << 32 | tid;
    return status == AX_OK ? ax_read_call(reader, &call) : status;
}
