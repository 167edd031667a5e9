/* The table of bionic's malloc benchmark, one call a line; what is in a slot is known by it until
 * it is freed:
 *
 *     {MALLOC, SLOT, SIZE, 0},            {REALLOC, NEW_SLOT, SIZE, OLD_SLOT + 1},  (0: of NULL)
 *     {CALLOC, SLOT, SIZE, COUNT},        {FREE, SLOT, 0, 0},
 *     {MEMALIGN, SLOT, SIZE, ALIGNMENT},
 *
 * What is around it in C (comments, directives, the declaration) is passed over and counted.
 */
#include "reader.h"

#include <string.h>

static int at_word(const char *p, const char *end, const char *word)
{
    const size_t length = strlen(word);
    return (size_t)(end - p) == length && memcmp(p, word, length) == 0;
}

/* A comment, a directive, or the declaration before and behind the table. */
static int is_around(const char *p, const char *end)
{
    return *p == '#' || *p == '*' || *p == '/' || *p == '}' || (*p != '{' && end[-1] == '{') ||
           (*p != '{' && end[-1] == ';');
}

int ax_malloc_sql_line(ax_reader *reader, const char *p, const char *end)
{
    uint64_t number[3];
    ax_skip_blanks(&p, end);
    while (end > p && (end[-1] == ' ' || end[-1] == '\t')) {
        end--;
    }
    if (p == end) {
        return AX_OK;
    }
    if (is_around(p, end)) {
        reader->counts[AX_READ_OTHER_LINES]++;
        return AX_OK;
    }
    if (*p != '{') {
        return ax_read_syntax(reader, "expected {CALL, SLOT, SIZE, ARGUMENT} and a comma");
    }
    p++;
    ax_skip_blanks(&p, end);
    const char *const word = p;
    while (p < end && *p != ',' && *p != ' ') {
        p++;
    }
    reader->call = at_word(word, p, "MALLOC")     ? AX_MADE_BY_MALLOC
                   : at_word(word, p, "FREE")     ? AX_MADE_BY_FREE
                   : at_word(word, p, "REALLOC")  ? AX_MADE_BY_REALLOC
                   : at_word(word, p, "CALLOC")   ? AX_MADE_BY_CALLOC
                   : at_word(word, p, "MEMALIGN") ? AX_MADE_BY_MEMALIGN
                                                  : AX_MADE_BY_UNKNOWN;
    if (reader->call == AX_MADE_BY_UNKNOWN) {
        return ax_read_syntax(reader, "expected MALLOC, CALLOC, REALLOC, MEMALIGN or FREE");
    }
    for (int i = 0; i < 3; i++) {
        ax_skip_blanks(&p, end);
        if (p == end || *p++ != ',') {
            return ax_read_syntax(reader, "expected a comma and a number, three times");
        }
        ax_skip_blanks(&p, end);
        if (!ax_parse_decimal(&p, end, &number[i])) {
            return ax_read_syntax(reader, "expected a decimal number that fits 64 bits");
        }
    }
    ax_skip_blanks(&p, end);
    if (p == end || *p++ != '}') {
        return ax_read_syntax(reader, "expected '}' behind three numbers");
    }
    p += p < end && *p == ',';
    ax_skip_blanks(&p, end);
    if (p < end) {
        return ax_read_syntax(reader, "expected the end of the line");
    }
    if (number[0] == UINT64_MAX) {
        return ax_read_syntax(reader, "expected a slot below 2**64 - 1");
    }
    const uint64_t address = number[0] + 1, size = number[1], argument = number[2];
    switch (reader->call) {
    case AX_MADE_BY_FREE:
        return ax_read_free(reader, address);
    case AX_MADE_BY_REALLOC:
        return ax_read_realloc(reader, argument, address, size);
    case AX_MADE_BY_CALLOC:
        if (size != 0 && argument > UINT64_MAX / size) {
            return ax_read_drop(reader, AX_DROPPED_SIZE_OVERFLOW, AX_ERR_OVERFLOW,
                                "expected a calloc whose count times size fits 64 bits");
        }
        return ax_read_alloc(reader, address, size * argument, 0);
    default:
        return ax_read_alloc(reader, address, size,
                             reader->call == AX_MADE_BY_MEMALIGN ? argument : 0);
    }
}
