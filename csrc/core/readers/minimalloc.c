/* The problems of minimalloc and idealloc: buffers with a lifetime, one a line in any order.
 *
 *     id,lower,upper,size        the header
 *     b1,0,3,4                   lives from step 0 until before step 3
 *
 * Steps are an order and no times. At a step, what ends there is freed first, then what begins
 * there is made; among each other both keep the order of the file.
 */
#include "reader.h"

#include <string.h>

void ax_minimalloc_release(ax_reader *reader)
{
    ax_minimalloc *m = &reader->minimalloc;
    ax_grow_free(&reader->books, &m->rows, &m->rows_capacity, sizeof *m->rows);
    m->n_rows = 0;
}

/* The text up to the next comma or the end, without blanks around it. */
static const char *field(const char **p, const char *end, const char **stop)
{
    ax_skip_blanks(p, end);
    const char *const start = *p;
    while (*p < end && **p != ',') {
        ++*p;
    }
    *stop = *p;
    while (*stop > start && ((*stop)[-1] == ' ' || (*stop)[-1] == '\t')) {
        --*stop;
    }
    return start;
}

static int read_header(ax_reader *reader, const char *p, const char *end)
{
    static const char *const names[] = {"id", "lower", "upper", "size"};
    for (int i = 0; i < 4; i++) {
        const char *stop;
        const char *const start = field(&p, end, &stop);
        if ((size_t)(stop - start) != strlen(names[i]) ||
            memcmp(start, names[i], strlen(names[i])) != 0 || (i < 3) != (p < end)) {
            return ax_read_syntax(reader, "expected the header id,lower,upper,size");
        }
        p += p < end;
    }
    reader->minimalloc.header_read = 1;
    return AX_OK;
}

int ax_minimalloc_line(ax_reader *reader, const char *p, const char *end)
{
    ax_minimalloc *m = &reader->minimalloc;
    uint64_t number[3];
    const char *stop;
    ax_skip_blanks(&p, end);
    if (p == end) {
        return AX_OK;
    }
    if (!m->header_read) {
        return read_header(reader, p, end);
    }
    if (field(&p, end, &stop) == stop) {
        return ax_read_syntax(reader, "expected an id");
    }
    for (int i = 0; i < 3; i++) {
        if (p == end) {
            return ax_read_syntax(reader, "expected four columns: id,lower,upper,size");
        }
        p++;
        const char *at = field(&p, end, &stop);
        if (!ax_parse_decimal(&at, stop, &number[i]) || at != stop) {
            return ax_read_syntax(reader, "expected a decimal number that fits 64 bits");
        }
    }
    if (p < end) {
        return ax_read_syntax(reader, "expected four columns: id,lower,upper,size");
    }
    if (number[0] >= number[1]) {
        return ax_read_syntax(reader, "expected a lifetime whose lower step is below its upper");
    }
    if (m->n_rows == AX_READ_NO_OBJECT) {
        return ax_read_refuse(reader, AX_ERR_OVERFLOW, "more rows than a trace read here can hold");
    }
    const int status =
        ax_grow_array(&reader->books, &m->rows, &m->rows_capacity, m->n_rows + 1, sizeof *m->rows);
    if (status != AX_OK) {
        return ax_read_refuse(reader, status, NULL);
    }
    m->rows[m->n_rows++] = (struct ax_life){number[0], number[1], number[2]};
    return AX_OK;
}

/* A row at the step where it begins or ends. */
typedef struct moment {
    uint64_t step;
    uint32_t row;
} moment;

/* Sorts rows by where they begin or end; those of a step stay in order. The result is in *order. */
static void sort_rows(const ax_minimalloc *m, moment **order, moment **scratch, int upper)
{
    const size_t n = m->n_rows;
    for (size_t i = 0; i < n; i++) {
        const struct ax_life *row = &m->rows[i];
        (*order)[i] = (moment){upper ? row->upper : row->lower, (uint32_t)i};
    }
    for (size_t width = 1; width < n; width *= 2) {
        const moment *const from = *order;
        moment *const to = *scratch;
        for (size_t low = 0; low < n; low += 2 * width) {
            const size_t middle = low + width < n ? low + width : n;
            const size_t high = middle + width < n ? middle + width : n;
            size_t a = low, b = middle, i = low;
            while (a < middle && b < high) {
                to[i++] = from[a].step <= from[b].step ? from[a++] : from[b++];
            }
            memcpy(to + i, from + a, (middle - a) * sizeof *to);
            memcpy(to + i + (middle - a), from + b, (high - b) * sizeof *to);
        }
        *scratch = *order;
        *order = to;
    }
}

/* `objects` has room for the object of every row. */
static int emit(ax_reader *reader, const moment *begins, const moment *ends, uint32_t *objects)
{
    ax_minimalloc *m = &reader->minimalloc;
    size_t begun = 0, ended = 0;
    int status = AX_OK;
    while (ended < m->n_rows && status == AX_OK) {
        if (begun < m->n_rows && begins[begun].step < ends[ended].step) {
            const uint32_t row = begins[begun++].row;
            status = ax_read_new(reader, m->rows[row].size_bytes, 0, &objects[row]);
        } else {
            status = ax_read_end(reader, objects[ends[ended++].row]);
        }
    }
    return status;
}

int ax_minimalloc_finish(ax_reader *reader)
{
    ax_minimalloc *m = &reader->minimalloc;
    moment *order[3] = {NULL, NULL, NULL}; /* by beginning, by end, scratch */
    uint32_t *objects = NULL;
    size_t capacity[3] = {0, 0, 0}, objects_capacity = 0;
    int status = AX_OK;
    if (!m->header_read) {
        return ax_read_drop(reader, AX_DROPPED_COUNT_WRONG, AX_ERR_SYNTAX,
                            "expected the header id,lower,upper,size, found the end of the file");
    }
    if (m->n_rows > 0) {
        for (int i = 0; i < 3 && status == AX_OK; i++) {
            status = ax_grow_to(&reader->books, &order[i], &capacity[i], m->n_rows, sizeof **order);
        }
        if (status == AX_OK) {
            status =
                ax_grow_to(&reader->books, &objects, &objects_capacity, m->n_rows, sizeof *objects);
        }
        if (status != AX_OK) {
            status = ax_read_refuse(reader, status, NULL);
        } else {
            sort_rows(m, &order[0], &order[2], 0);
            sort_rows(m, &order[1], &order[2], 1);
            status = emit(reader, order[0], order[1], objects);
        }
    }
    for (int i = 0; i < 3; i++) {
        ax_grow_free(&reader->books, &order[i], &capacity[i], sizeof **order);
    }
    ax_grow_free(&reader->books, &objects, &objects_capacity, sizeof *objects);
    ax_minimalloc_release(reader);
    return status;
}
