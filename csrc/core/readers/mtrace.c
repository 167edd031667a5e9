/* glibc mtrace, one line an event, two a realloc; all numbers hexadecimal:
 *
 *     = Start                      tracing begins
 *     @ WHERE + PTR SIZE           an allocation
 *     @ WHERE - PTR                a free
 *     @ WHERE < OLD                a realloc ...
 *     @ WHERE > NEW SIZE           ... and what it answered
 *     @ WHERE ! OLD SIZE           a realloc that failed
 *     = End                        tracing ends; lines from here to the next '= Start' are only
 * counted
 *
 * "@ WHERE " may be missing, and WHERE may hold blanks and parentheses, so that a line is read from
 * its end. Threads, alignments, times and frees of NULL are not in the file. A program frees what
 * it allocated before tracing began, and the file cannot say so: that is a violation like any
 * other, which `skip` drops and counts.
 */
#include "reader.h"

#include <string.h>

static const char *const want_answer = "expected '> NEW SIZE' after '< OLD'";

/* The blank-separated word that ends at `end`; *before is where the text before it ends. */
static const char *last_word(const char *start, const char *end, const char **before)
{
    const char *word = end;
    while (word > start && word[-1] != ' ' && word[-1] != '\t') {
        word--;
    }
    *before = word;
    while (*before > start && ((*before)[-1] == ' ' || (*before)[-1] == '\t')) {
        --*before;
    }
    return word;
}

static int number_word(const char *word, const char *end, uint64_t *out)
{
    if (end - word == 5 && memcmp(word, "(nil)", 5) == 0) {
        *out = 0;
        return 1;
    }
    if (end - word > 2 && word[0] == '0' && (word[1] | 0x20) == 'x') {
        word += 2;
    }
    return ax_parse_hex_digits(&word, end, out) && word == end;
}

/* Whether the one-character operator may stand here: at the start, or after "@ WHERE". */
static int operator_word(const char *start, const char *word, const char *end, const char *before,
                         const char *allowed)
{
    return end - word == 1 && strchr(allowed, *word) && *word &&
           (word == start || (before > start && *start == '@'));
}

static int unpaired(ax_reader *reader, const char *expected)
{
    reader->realloc_pending = 0;
    return ax_read_drop(reader, AX_DROPPED_REALLOC_UNPAIRED, AX_ERR_SYNTAX, expected);
}

static int control_line(ax_reader *reader, const char *p, const char *end)
{
    if (reader->realloc_pending) {
        const int status = unpaired(reader, want_answer);
        if (status != AX_OK) {
            return status;
        }
    }
    p++;
    ax_skip_blanks(&p, end);
    if (end - p == 5 && memcmp(p, "Start", 5) == 0) {
        reader->after_end = 0;
    } else if (end - p == 3 && memcmp(p, "End", 3) == 0) {
        reader->after_end = 1;
    } else if (!reader->after_end) {
        return ax_read_syntax(reader, "expected '= Start' or '= End'");
    } else {
        reader->counts[AX_READ_LINES_AFTER_END]++;
    }
    return AX_OK;
}

int ax_mtrace_line(ax_reader *reader, const char *p, const char *end)
{
    uint64_t address = 0, size = 0;
    const char *before_size, *before_address, *before_op;
    ax_skip_blanks(&p, end);
    while (end > p && (end[-1] == ' ' || end[-1] == '\t')) {
        end--;
    }
    if (p == end) {
        return AX_OK;
    }
    if (*p == '=') {
        return control_line(reader, p, end);
    }
    if (reader->after_end) {
        reader->counts[AX_READ_LINES_AFTER_END]++;
        return AX_OK;
    }
    const char *const last = last_word(p, end, &before_size);
    const char *const middle = last_word(p, before_size, &before_address);
    const char *const first = last_word(p, before_address, &before_op);
    char op;
    if (operator_word(p, first, before_address, before_op, "+>!") &&
        number_word(middle, before_size, &address) && number_word(last, end, &size)) {
        op = *first;
    } else if (operator_word(p, middle, before_size, before_address, "-<") &&
               number_word(last, end, &address)) {
        op = *middle;
    } else {
        return ax_read_syntax(reader, "expected '+ PTR SIZE', '- PTR', '< OLD', '> NEW SIZE' or "
                                      "'! OLD SIZE' with hexadecimal numbers that fit 64 bits, "
                                      "after '@ WHERE' or alone");
    }
    if (reader->realloc_pending && op != '>') {
        const int status = unpaired(reader, want_answer);
        if (status != AX_OK) {
            return status;
        }
    }
    switch (op) {
    case '+':
        return ax_read_alloc(reader, address, size, 0);
    case '-':
        return ax_read_free(reader, address);
    case '<':
        reader->realloc_pending = 1;
        reader->realloc_old = address;
        return AX_OK;
    case '>':
        if (!reader->realloc_pending) {
            return unpaired(reader, "expected '< OLD' before '> NEW SIZE'");
        }
        reader->realloc_pending = 0;
        return ax_read_realloc(reader, reader->realloc_old, address, size);
    default:
        /* A failed realloc leaves its object, known or not, as it was. */
        reader->counts[AX_READ_FAILED_REALLOCS]++;
        return AX_OK;
    }
}

int ax_mtrace_finish(ax_reader *reader)
{
    if (!reader->realloc_pending) {
        return AX_OK;
    }
    return unpaired(reader, "expected '> NEW SIZE' after '< OLD', found the end of the file");
}
