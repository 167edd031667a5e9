/* AOSP memory_replay text, one event a line; both times or none on every line of a file:
 *
 *     TID: malloc 0xPTR SIZE [START END]         TID: realloc 0xNEW 0xOLD SIZE [START END]
 *     TID: calloc 0xPTR COUNT SIZE [START END]   TID: free 0xPTR [START END]
 *     TID: memalign 0xPTR ALIGN SIZE [START END] TID: thread_done 0x0 [END]
 *
 * Sizes and times are decimal, times in nanoseconds. The start is kept as the time of the event.
 * Behind a free or a realloc newer recorders write how many bytes of the old object were in memory
 * (-1: not known), which is only counted.
 */
#include "reader.h"

#include <string.h>

static int at_op(const char *p, size_t length, const char *name)
{
    return length == strlen(name) && memcmp(p, name, length) == 0;
}

/* Blanks, then a number up to the next blank or the end. */
static int next_number(const char **p, const char *end, uint64_t *out)
{
    ax_skip_blanks(p, end);
    return ax_parse_decimal(p, end, out) && (*p == end || **p == ' ' || **p == '\t');
}

static int next_address(const char **p, const char *end, uint64_t *out)
{
    ax_skip_blanks(p, end);
    return ax_parse_address(p, end, out) && (*p == end || **p == ' ' || **p == '\t');
}

static const char *const want_address = "expected an address: 0x and up to 16 hexadecimal digits";
static const char *const want_size = "expected a decimal number that fits 64 bits";
static const char *const want_times = "expected the start and end time, or the end of the line";

/* The numbers at the end of a line: the times, and in a free or realloc perhaps the bytes that were
 * present. NULL, or what was expected. */
static const char *read_tail(ax_reader *reader, const char *p, const char *end, int of_old)
{
    uint64_t number[3];
    int n = 0;
    ax_skip_blanks(&p, end);
    while (p < end) {
        if (n == (of_old ? 3 : 2)) {
            return "expected the end of the line";
        }
        /* Only as the last of one or three numbers. */
        if (of_old && n != 1 && end - p == 2 && p[0] == '-' && p[1] == '1') {
            p = end;
        } else if (!next_number(&p, end, &number[n])) {
            return want_times;
        }
        n++;
        ax_skip_blanks(&p, end);
    }
    const int timed = n >= 2;
    if (n == 1 && !of_old) {
        return want_times;
    }
    reader->counts[AX_READ_PRESENT_BYTES] += (unsigned)n & 1;
    if (timed && number[1] < number[0]) {
        return "expected an end time that is not before the start time";
    }
    if (reader->timed < 0) {
        reader->timed = timed;
    } else if (reader->timed != timed) {
        return timed ? "expected no times, as on the lines before"
                     : "expected a start and an end time, as on the lines before";
    }
    if (timed) {
        reader->time_ns = number[0];
    }
    return NULL;
}

static const char *read_thread_done(const char *p, const char *end)
{
    uint64_t ignored;
    if (!next_address(&p, end, &ignored)) {
        return want_address;
    }
    ax_skip_blanks(&p, end);
    if (p < end && !next_number(&p, end, &ignored)) {
        return "expected the end time, or the end of the line";
    }
    ax_skip_blanks(&p, end);
    return p < end ? "expected the end of the line" : NULL;
}

int ax_aosp_line(ax_reader *reader, const char *p, const char *end)
{
    uint64_t address, old = 0, size = 0, factor = 0;
    const char *wrong;
    ax_skip_blanks(&p, end);
    if (p == end) {
        return AX_OK;
    }
    if (!ax_parse_decimal(&p, end, &reader->tid) || p == end || *p++ != ':') {
        return ax_read_syntax(reader, "expected a thread number and a colon");
    }
    if (reader->tid > UINT32_MAX) {
        return ax_read_syntax(reader, "a thread number is above 4294967295");
    }
    ax_skip_blanks(&p, end);
    const char *const op = p;
    while (p < end && *p != ' ' && *p != '\t') {
        p++;
    }
    const size_t length = (size_t)(p - op);
    const int is_free = at_op(op, length, "free");
    const int is_malloc = !is_free && at_op(op, length, "malloc");
    const int is_realloc = !is_free && !is_malloc && at_op(op, length, "realloc");
    const int is_calloc = !is_free && !is_malloc && !is_realloc && at_op(op, length, "calloc");
    if (!is_free && !is_malloc && !is_realloc && !is_calloc) {
        if (at_op(op, length, "thread_done")) {
            wrong = read_thread_done(p, end);
            if (!wrong) {
                reader->counts[AX_READ_THREADS_DONE]++;
            }
            return wrong ? ax_read_syntax(reader, wrong) : AX_OK;
        }
        if (!at_op(op, length, "memalign")) {
            return ax_read_syntax(
                reader, "expected malloc, calloc, realloc, memalign, free or thread_done");
        }
    }
    if (!next_address(&p, end, &address) || (is_realloc && !next_address(&p, end, &old))) {
        return ax_read_syntax(reader, want_address);
    }
    if (!is_free && !is_malloc && !is_realloc && !next_number(&p, end, &factor)) {
        return ax_read_syntax(reader, want_size);
    }
    if (!is_free && !next_number(&p, end, &size)) {
        return ax_read_syntax(reader, want_size);
    }
    wrong = read_tail(reader, p, end, is_free || is_realloc);
    if (wrong) {
        return ax_read_syntax(reader, wrong);
    }
    if (is_free) {
        reader->call = AX_MADE_BY_FREE;
        return ax_read_free(reader, address);
    }
    if (is_malloc) {
        reader->call = AX_MADE_BY_MALLOC;
        return ax_read_alloc(reader, address, size, 0);
    }
    if (is_realloc) {
        reader->call = AX_MADE_BY_REALLOC;
        return ax_read_realloc(reader, old, address, size);
    }
    if (is_calloc) {
        reader->call = AX_MADE_BY_CALLOC;
        if (size != 0 && factor > UINT64_MAX / size) {
            /* A calloc that cannot be satisfied is recorded with its answer, NULL. */
            if (address == 0) {
                return ax_read_alloc(reader, 0, 0, 0);
            }
            return ax_read_drop(reader, AX_DROPPED_SIZE_OVERFLOW, AX_ERR_OVERFLOW,
                                "expected a calloc whose count times size fits 64 bits");
        }
        return ax_read_alloc(reader, address, factor * size, 0);
    }
    /* posix_memalign and aligned_alloc are written as memalign, too. */
    reader->call = AX_MADE_BY_MEMALIGN;
    return ax_read_alloc(reader, address, size, factor);
}
