/* reader: foreign trace formats, read in pieces of any length into event columns.
 *
 *     bytes --feed--> lines --(aosp.c | mtrace.c)--> alloc, free, realloc of addresses
 *                                                        |
 *                 address -> object (ax_idmap) <---------+--> columns: op, object, size, ...
 *
 * A format knows how a line is written. What a line may say is decided in one place, ax_read_*:
 *
 * - An allocation at a live address, and a free or realloc of an address that is not live, are
 *   violations. They are refused, or dropped and counted where the reader was begun with `skip`;
 * the same goes for lines that the format does not allow.
 * - An allocation that answered NULL is not an event; it is counted. A failed realloc leaves its
 * object as it was; it is counted. A free of NULL is counted. A realloc of NULL is an alloc, a
 * realloc to NULL with size 0 is a free.
 * - Threads are numbered in the order in which their first event appears.
 * - Events keep the order of the file. Recorders take the start time before they take the place in
 * the file, so starts run backwards across threads; a time is raised to the latest one before it,
 * and how many were raised is counted.
 * - An alignment is kept as its binary logarithm; one that is not a power of two is raised to the
 * next, as allocators do, and counted. 0 stands for "none asked for".
 *
 * A line of more than AX_LINE_BYTES is a syntax error. A reader that refused is finished: every
 * further call answers AX_ERR_STATE. All memory goes through the seam `books`.
 */
#ifndef AX_READER_H
#define AX_READER_H

#include <stddef.h>
#include <stdint.h>

#include "../idmap.h"
#include "../trace.h"

#define AX_LINE_BYTES 65536
#define AX_EXCERPT_BYTES 80

enum ax_read_format { AX_READ_AOSP = 0, AX_READ_MTRACE = 1, AX_READ_FORMATS = 2 };

/* What a reader counts beside events. Those from AX_DROPPED_SYNTAX on are losses. */
enum ax_read_count {
    AX_READ_LINES = 0,
    AX_READ_REALLOCS_OF_NULL,
    AX_READ_REALLOCS_TO_NULL,
    AX_READ_FAILED_ALLOCS,
    AX_READ_FAILED_REALLOCS,
    AX_READ_FREES_OF_NULL,
    AX_READ_THREADS_DONE,
    AX_READ_LINES_AFTER_END,
    AX_READ_TIMES_RAISED,
    AX_READ_ALIGNMENTS_RAISED,
    AX_DROPPED_SYNTAX,
    AX_DROPPED_ALLOC_OF_LIVE,
    AX_DROPPED_FREE_OF_UNKNOWN,
    AX_DROPPED_REALLOC_OF_UNKNOWN,
    AX_DROPPED_REALLOC_TO_LIVE,
    AX_DROPPED_SIZE_OVERFLOW,
    AX_DROPPED_REALLOC_UNPAIRED,
    AX_READ_COUNTS
};

/* The name of a count ("failed_allocs"), NULL where there is no such count. */
const char *ax_read_count_name(int count);

typedef struct ax_read_columns {
    size_t events;
    uint8_t *op;
    uint32_t *object;
    uint64_t *size_bytes;
    uint32_t *thread;    /* NULL where the format names no threads */
    uint64_t *time_ns;   /* NULL where the file has no times */
    uint8_t *align_log2; /* NULL where no event asked for an alignment */
    uint8_t *call;       /* enum ax_made_by; NULL where the format does not name functions */
    struct {             /* the items that each has memory for */
        size_t op, object, size_bytes, thread, time_ns, align_log2, call;
    } capacity;
} ax_read_columns;

enum ax_reader_state { AX_READER_READING = 0, AX_READER_FINISHED = 1, AX_READER_REFUSED = 2 };

typedef struct ax_reader {
    ax_seam books;
    enum ax_read_format format;
    int skip;
    enum ax_reader_state state;
    uint64_t counts[AX_READ_COUNTS];

    ax_read_columns columns;
    size_t capacity; /* events that every column there is has memory for */
    uint64_t objects;
    ax_idmap live;    /* address -> object */
    ax_idmap threads; /* thread number of the file + 1 -> dense thread */
    uint64_t *tids;   /* dense thread -> thread number of the file */
    size_t tids_capacity;
    uint64_t last_tid;
    uint32_t last_thread;
    uint64_t last_time_ns;

    char *carry; /* the start of a line whose end has not been fed */
    size_t carried;
    size_t carry_capacity;
    int in_long_line; /* the rest of a line already refused as too long */
    const char *line;
    const char *line_end;

    /* The line at hand, as far as the format says. */
    uint64_t tid;
    uint64_t time_ns;
    uint8_t call; /* enum ax_made_by: the function that the line is of */
    int timed;    /* AOSP: -1 not known yet, else whether the file has times */

    int after_end;        /* mtrace: between '= End' and the next '= Start' */
    int realloc_pending;  /* mtrace: '<' seen, '>' not */
    uint64_t realloc_old; /* its address */

    ax_detail detail;                   /* of the refusal; where = line, from 1 */
    char excerpt[AX_EXCERPT_BYTES + 1]; /* the line refused, printable, cut */
} ax_reader;

/* AX_ERR_RANGE: no such format. */
int ax_reader_begin(ax_reader *reader, int format, int skip);

/* AX_ERR_SYNTAX, AX_ERR_EVENT_OBJECT (an address that is or is not live), AX_ERR_OVERFLOW,
 * AX_ERR_NOMEM, AX_ERR_STATE. The numbers are in reader->detail. */
int ax_reader_feed(ax_reader *reader, const char *bytes, size_t length);

/* Reads a last line without a newline; columns are complete. */
int ax_reader_finish(ax_reader *reader);

void ax_reader_free(ax_reader *reader);

/* ---- for the formats --------------------------------------------------------------------------
 */

/* One line, without its end; answers as ax_reader_feed. */
int ax_aosp_line(ax_reader *reader, const char *p, const char *end);
int ax_mtrace_line(ax_reader *reader, const char *p, const char *end);
int ax_mtrace_finish(ax_reader *reader);

/* Refuses the line at hand, or drops and counts it. */
int ax_read_drop(ax_reader *reader, enum ax_read_count kind, int status, const char *what);
int ax_read_syntax(ax_reader *reader, const char *expected);

int ax_read_alloc(ax_reader *reader, uint64_t address, uint64_t size_bytes, uint64_t alignment);
int ax_read_free(ax_reader *reader, uint64_t address);
int ax_read_realloc(ax_reader *reader, uint64_t old_address, uint64_t new_address,
                    uint64_t size_bytes);

/* Parsers: each moves *p behind what it read and answers 1, or answers 0 with *p anywhere. */
static inline void ax_skip_blanks(const char **p, const char *end)
{
    while (*p < end && (**p == ' ' || **p == '\t')) {
        ++*p;
    }
}

static inline int ax_parse_decimal(const char **p, const char *end, uint64_t *out)
{
    const char *const start = *p;
    const char *at = start;
    uint64_t value = 0;
    unsigned digit;
    while (at < end && (digit = (unsigned)(unsigned char)*at - '0') <= 9) {
        if (value > (UINT64_MAX - digit) / 10) {
            return 0;
        }
        value = value * 10 + digit;
        at++;
    }
    *p = at;
    *out = value;
    return at > start;
}

static inline int ax_parse_hex_digits(const char **p, const char *end, uint64_t *out)
{
    const char *const start = *p;
    const char *at = start;
    uint64_t value = 0;
    for (; at < end; at++) {
        const unsigned c = (unsigned char)*at;
        unsigned digit = c - '0';
        if (digit > 9) {
            digit = (c | 0x20) - 'a';
            if (digit > 5) {
                break;
            }
            digit += 10;
        }
        if (value >> 60) {
            return 0;
        }
        value = value << 4 | digit;
    }
    *p = at;
    *out = value;
    return at > start;
}

/* 0x and hexadecimal digits. */
static inline int ax_parse_address(const char **p, const char *end, uint64_t *out)
{
    if (end - *p < 3 || (*p)[0] != '0' || ((*p)[1] | 0x20) != 'x') {
        return 0;
    }
    *p += 2;
    return ax_parse_hex_digits(p, end, out);
}

#endif
