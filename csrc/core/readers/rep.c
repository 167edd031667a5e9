/* The traces of the CS:APP malloc lab: four header lines with a number each (heap size, which
 * nobody uses; ids; requests; weight), then one request a line:
 *
 *     a ID SIZE       r ID SIZE       f ID       f -1
 *
 * A realloc to size 0 leaves the object, since `f` follows; f -1 is a free of NULL. The numbers of
 * ids and of requests in the header must be those of the file.
 */
#include "reader.h"

static const char *const want_number = "expected a decimal number that fits 64 bits";

static int read_header(ax_reader *reader, const char *p, const char *end)
{
    uint64_t number;
    if (!ax_parse_decimal(&p, end, &number)) {
        return ax_read_syntax(reader, "expected one of the four numbers of the header");
    }
    ax_skip_blanks(&p, end);
    if (p < end) {
        return ax_read_syntax(reader, "expected the end of the line");
    }
    reader->rep.header[reader->rep.headers++] = number;
    return AX_OK;
}

int ax_rep_line(ax_reader *reader, const char *p, const char *end)
{
    uint64_t id = 0, size = 0;
    ax_skip_blanks(&p, end);
    if (p == end) {
        return AX_OK;
    }
    if (reader->rep.headers < 4) {
        return read_header(reader, p, end);
    }
    const char op = *p++;
    if ((op != 'a' && op != 'r' && op != 'f') || p == end || (*p != ' ' && *p != '\t')) {
        return ax_read_syntax(reader, "expected 'a ID SIZE', 'r ID SIZE' or 'f ID'");
    }
    ax_skip_blanks(&p, end);
    const int of_null = op == 'f' && end - p >= 2 && p[0] == '-' && p[1] == '1';
    if (of_null) {
        p += 2;
    } else if (!ax_parse_decimal(&p, end, &id)) {
        return ax_read_syntax(reader, want_number);
    }
    if (op != 'f') {
        if (p < end && *p != ' ' && *p != '\t') {
            return ax_read_syntax(reader, want_number);
        }
        ax_skip_blanks(&p, end);
        if (!ax_parse_decimal(&p, end, &size)) {
            return ax_read_syntax(reader, want_number);
        }
    }
    ax_skip_blanks(&p, end);
    if (p < end) {
        return ax_read_syntax(reader, "expected the end of the line");
    }
    reader->rep.requests++;
    if (!of_null && id >= reader->rep.header[1]) {
        return ax_read_syntax(reader, "expected an id below the number of ids in the header");
    }
    switch (op) {
    case 'a':
        return ax_read_alloc(reader, id + 1, size, 0);
    case 'r':
        return ax_read_realloc(reader, id + 1, id + 1, size);
    default:
        return ax_read_free(reader, of_null ? 0 : id + 1);
    }
}

int ax_rep_finish(ax_reader *reader)
{
    if (reader->rep.headers < 4) {
        return ax_read_drop(reader, AX_DROPPED_COUNT_WRONG, AX_ERR_SYNTAX,
                            "expected four header lines, found the end of the file");
    }
    if (reader->rep.requests != reader->rep.header[2]) {
        return ax_read_drop(reader, AX_DROPPED_COUNT_WRONG, AX_ERR_SYNTAX,
                            "expected as many requests as the header says, found the end of the "
                            "file");
    }
    return AX_OK;
}
