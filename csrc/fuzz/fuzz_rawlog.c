/* Any bytes as a raw log of the recorder: a trace or a refusal, the same in steps of any length.
 *
 *     byte 0: flags of the log    byte 1: bit 0 skip, bit 1 the clock, bit 2: the rest is the
 * header byte 2: records in a step   then windows: u16 length (bit 15: text), and so many bytes
 *
 * Compiled together with fuzz_readers.c, which calls it for one input in so many.
 */
#include <stdlib.h>
#include <string.h>

#include "../core/readers/rawlog.h"
#include "fuzz.h"

enum { MOST_WINDOWS = 8, MOST_BYTES = AX_RAWLOG_HEADER_BYTES + MOST_WINDOWS * AX_RAWLOG_GRANULE };

typedef struct file {
    size_t length;
    unsigned char bytes[MOST_BYTES];
} file;

static int read_file(void *source, uint64_t offset, void *to, size_t bytes, size_t *got)
{
    const file *f = source;
    const size_t there = offset < f->length ? f->length - (size_t)offset : 0;
    *got = bytes < there ? bytes : there;
    if (*got) {
        memcpy(to, f->bytes + offset, *got);
    }
    return AX_OK;
}

static void make_file(file *f, const uint8_t *data, size_t size)
{
    memset(f, 0, sizeof *f);
    f->length = AX_RAWLOG_HEADER_BYTES;
    const ax_rawlog_header start = {.magic = AX_RAWLOG_MAGIC,
                                    .version = AX_RAWLOG_VERSION,
                                    .header_bytes = AX_RAWLOG_HEADER_BYTES,
                                    .flags = data[0],
                                    .clock = data[1] & 2 ? AX_RAWLOG_MONOTONIC : 0};
    memcpy(f->bytes, &start, sizeof start);
    if (data[1] & 4) {
        /* The header itself, behind magic and version, is what the bytes say. */
        const size_t n = size - 3 < 512 ? size - 3 : 512;
        memcpy(f->bytes + 12, data + 3, n);
    }
    for (size_t at = 3; size - at > 2 && f->length + AX_RAWLOG_GRANULE <= MOST_BYTES;) {
        const unsigned word = (unsigned)data[at] | (unsigned)data[at + 1] << 8;
        size_t n = word & 0x3fff;
        at += 2;
        n = n < size - at ? n : size - at;
        ax_rawlog_window head = {.magic =
                                     word & 0x8000 ? AX_RAWLOG_MAPS_MAGIC : AX_RAWLOG_WINDOW_MAGIC,
                                 .bytes = AX_RAWLOG_GRANULE,
                                 .thread = n ? data[at] & 3 : 0,
                                 .base_stamp = n > 1 ? data[at + 1] : 0};
        memcpy(f->bytes + f->length, &head, sizeof head);
        const size_t room = AX_RAWLOG_GRANULE - sizeof head;
        memcpy(f->bytes + f->length + sizeof head, data + at, n < room ? n : room);
        f->length += AX_RAWLOG_GRANULE;
        at += n;
    }
    if (!(data[1] & 4)) {
        const uint64_t next = f->length;
        memcpy(f->bytes + offsetof(ax_rawlog_header, next), &next, sizeof next);
    }
}

static const ax_rawlog_column *column(const ax_rawlog_table *table, const char *name)
{
    for (int i = 0; i < table->columns; i++) {
        if (strcmp(table->column[i].name, name) == 0) {
            return &table->column[i];
        }
    }
    return NULL;
}

static int is_valid(const ax_rawlog *log)
{
    const ax_rawlog_table *events = &log->tables[AX_TABLE_EVENTS];
    const ax_trace_view view = {.events = events->rows,
                                .op = column(events, "op")->array,
                                .object = column(events, "object")->array,
                                .size_bytes = column(events, "size_bytes")->array,
                                .thread = column(events, "thread")->array,
                                .time_ns = column(events, "time_ns")->array};
    return ax_trace_validate(&view, NULL) == AX_OK;
}

static int same(const ax_rawlog *a, const ax_rawlog *b)
{
    if (memcmp(a->counts, b->counts, sizeof a->counts) != 0) {
        return 0;
    }
    for (int t = 0; t < AX_TABLES; t++) {
        const ax_rawlog_table *c = &a->tables[t], *d = &b->tables[t];
        if (c->rows != d->rows || c->columns != d->columns) {
            return 0;
        }
        for (int i = 0; i < c->columns && c->rows > 0; i++) {
            const ax_rawlog_column *x = &c->column[i], *y = &d->column[i];
            if (!x->array != !y->array ||
                (x->array && memcmp(x->array, y->array, c->rows * x->item_bytes) != 0)) {
                return 0;
            }
        }
    }
    return 1;
}

static int read_log(ax_rawlog *log, file *f, int skip, size_t step)
{
    int status = ax_rawlog_begin(log, read_file, f, f->length, skip);
    if (status == AX_OK) {
        ax_rawlog_set_rate(log, 0.5);
    }
    while (status == AX_OK && log->state == AX_RAWLOG_MERGING) {
        status = ax_rawlog_step(log, step);
    }
    return status;
}

const char *fuzz_rawlog(const uint8_t *data, size_t size)
{
    static file f; /* too large for a stack; made anew each time */
    static ax_rawlog one, other;
    const char *wrong = NULL;
    if (size < 3) {
        return NULL;
    }
    make_file(&f, data, size);
    const int skip = data[1] & 1;
    const int status = read_log(&one, &f, skip, (size_t)1 << 20);
    if (read_log(&other, &f, skip, (size_t)data[2] + 1) != status) {
        wrong = "another status in steps";
    } else if (status == AX_OK) {
        wrong = !same(&one, &other) ? "another trace in steps"
                : !is_valid(&one)   ? "no valid trace"
                                    : NULL;
    } else if (status != AX_ERR_SYNTAX && status != AX_ERR_OVERFLOW) {
        wrong = "a refusal that may not be";
    } else if (one.detail.where != other.detail.where || one.detail.where > f.length) {
        wrong = "a refusal without its place";
    }
    ax_rawlog_free(&one);
    ax_rawlog_free(&other);
    if (one.books.bytes_held != 0 || other.books.bytes_held != 0) {
        wrong = wrong ? wrong : "memory that was not freed";
    }
    return wrong;
}
