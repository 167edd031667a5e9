/* The traces of wee_alloc: `Alloc(552),` and `Free(1),` where 1 is the second Alloc of the file. */
#include "reader.h"

#include <string.h>

static const char *const want_line = "expected Alloc(SIZE) or Free(NUMBER) and a comma";

int ax_wee_alloc_line(ax_reader *reader, const char *p, const char *end)
{
    uint64_t number;
    ax_skip_blanks(&p, end);
    if (p == end) {
        return AX_OK;
    }
    const int is_alloc = end - p > 6 && memcmp(p, "Alloc(", 6) == 0;
    if (!is_alloc && (end - p <= 5 || memcmp(p, "Free(", 5) != 0)) {
        return ax_read_syntax(reader, want_line);
    }
    p += is_alloc ? 6 : 5;
    if (!ax_parse_decimal(&p, end, &number)) {
        return ax_read_syntax(reader, "expected a decimal number that fits 64 bits");
    }
    if (p == end || *p != ')') {
        return ax_read_syntax(reader, want_line);
    }
    p++;
    p += p < end && *p == ',';
    ax_skip_blanks(&p, end);
    if (p < end) {
        return ax_read_syntax(reader, "expected the end of the line");
    }
    if (is_alloc) {
        /* Every Alloc takes a number, so the numbers are addresses that were never used before. */
        return ax_read_alloc(reader, reader->objects + 1, number, 0);
    }
    if (number == UINT64_MAX) {
        return ax_read_syntax(reader, "expected the number of an Alloc");
    }
    return ax_read_free(reader, number + 1);
}
