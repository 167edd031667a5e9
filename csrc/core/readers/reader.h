/* reader: foreign trace formats, read in pieces of any length into event columns.
 *
 *     bytes --feed--> lines --(aosp.c | mtrace.c | ...)--> alloc, free, realloc of addresses
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
 * - Where a file has several processes (ax_read_process), each has its own addresses.
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

enum ax_read_format {
    AX_READ_AOSP = 0,
    AX_READ_MTRACE,
    AX_READ_LOGALLOC,
    AX_READ_LTRACE,
    AX_READ_VALGRIND,
    AX_READ_UTRACE,
    AX_READ_WEE_ALLOC,
    AX_READ_REP,
    AX_READ_HEAPTRACK,
    AX_READ_HEAPTRACK_INTERPRETED,
    AX_READ_MINIMALLOC,
    AX_READ_MALLOC_SQL,
    AX_READ_FORMATS
};

/* The name of a format ("aosp"), NULL where there is no such format. */
const char *ax_read_format_name(int format);

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
    AX_READ_PRESENT_BYTES,
    AX_READ_USABLE_SIZES,
    AX_READ_OTHER_CALLS,
    AX_READ_OTHER_LINES,
    AX_READ_NESTED_CALLS,
    AX_READ_UNFINISHED_CALLS,
    AX_DROPPED_SYNTAX,
    AX_DROPPED_ALLOC_OF_LIVE,
    AX_DROPPED_FREE_OF_UNKNOWN,
    AX_DROPPED_REALLOC_OF_UNKNOWN,
    AX_DROPPED_REALLOC_TO_LIVE,
    AX_DROPPED_SIZE_OVERFLOW,
    AX_DROPPED_REALLOC_UNPAIRED,
    AX_DROPPED_CALL_UNPAIRED,
    AX_DROPPED_RESULT_UNSEEN,
    AX_DROPPED_COUNT_WRONG,
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
    uint32_t *key;       /* NULL where the format names no call stacks */
    uint8_t *call;       /* enum ax_made_by; NULL where the format does not name functions */
    struct {             /* the items that each has memory for */
        size_t op, object, size_bytes, thread, time_ns, align_log2, key, call;
    } capacity;
} ax_read_columns;

/* A process of the file: its addresses, while another is at hand. */
typedef struct ax_read_space {
    uint64_t pid;
    ax_idmap live;
} ax_read_space;

/* What the formats keep that need more than the line at hand. */
typedef struct ax_ltrace {
    ax_idmap pending;     /* thread number + 1 -> its call that has not returned */
    uint64_t relative_ns; /* of times that are relative: the sum so far */
} ax_ltrace;

typedef struct ax_rep {
    uint64_t header[4];
    uint64_t headers; /* lines of the header that were read */
    uint64_t requests;
} ax_rep;

typedef struct ax_heaptrack {
    uint64_t version;     /* of the file; 0: not known yet */
    uint64_t string_left; /* bytes that a string has on the lines to come */
    int into_text;        /* whether those are kept */
    struct ax_heap_info {
        uint64_t size_bytes;
        uint32_t trace;
        uint32_t top; /* the last object + 1 of this size and stack that lives, 0: none */
    } *infos;
    size_t n_infos, infos_capacity;
    uint32_t *below; /* object -> the object + 1 that is beneath in its stack */
    size_t below_capacity;
    char *text; /* the strings, back to back */
    size_t text_bytes, text_capacity;
    uint64_t *ends; /* string -> where it ends */
    size_t n_strings, ends_capacity;
    uint32_t *functions; /* instruction pointer -> the number of its function's name, 0: none */
    size_t n_ips, functions_capacity;
    uint64_t *leaves; /* trace -> its instruction pointer: raw the address, else the number */
    size_t n_traces, leaves_capacity;
    uint32_t *key_of; /* trace -> its key + 1, 0: none yet */
    size_t key_of_capacity;
    uint32_t *trace_of; /* key -> trace */
    size_t n_keys, trace_of_capacity;
} ax_heaptrack;

typedef struct ax_minimalloc {
    int header_read;
    struct ax_life {
        uint64_t lower;
        uint64_t upper;
        uint64_t size_bytes;
    } *rows;
    size_t n_rows, rows_capacity;
} ax_minimalloc;

typedef struct ax_read_rules ax_read_rules;

enum ax_reader_state { AX_READER_READING = 0, AX_READER_FINISHED = 1, AX_READER_REFUSED = 2 };

typedef struct ax_reader {
    ax_seam books;
    enum ax_read_format format;
    const ax_read_rules *rules;
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
    uint32_t *object_keys; /* object -> its key, where the format has keys */
    size_t object_keys_capacity;
    ax_read_space *spaces; /* the processes, where the format names them */
    size_t n_spaces, spaces_capacity;
    size_t space;  /* the one that `live` is of */
    ax_idmap pids; /* process number + 1 -> space */

    char *carry; /* the start of a line whose end has not been fed */
    size_t carried;
    size_t carry_capacity;
    int in_long_line; /* the rest of a line already refused as too long */
    const char *line;
    const char *line_end;

    /* The line at hand, as far as the format says. */
    uint64_t tid;
    uint64_t time_ns;
    uint32_t key; /* of the call stack */
    uint8_t call; /* enum ax_made_by: the function that the line is of */
    int timed;    /* -1 not known yet, else whether the file has times */

    int after_end;        /* mtrace: between '= End' and the next '= Start' */
    int realloc_pending;  /* mtrace: '<' seen, '>' not */
    uint64_t realloc_old; /* its address */
    ax_ltrace ltrace;
    ax_rep rep;
    ax_heaptrack heaptrack;
    ax_minimalloc minimalloc;

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

/* What a format is: a row of the one table in reader.c. `line` reads one line, without its end;
 * `finish` what the end of the file means; both answer as ax_reader_feed. */
struct ax_read_rules {
    const char *name;
    int (*line)(ax_reader *reader, const char *p, const char *end);
    int (*finish)(ax_reader *reader);   /* may be NULL */
    void (*release)(ax_reader *reader); /* may be NULL: frees what the format keeps */
    unsigned threads : 1, keys : 1, calls : 1;
    unsigned times : 1;       /* every file has them; AOSP's and ltrace's may have */
    unsigned exact_lines : 1; /* a return before the end of a line is part of it */
};

int ax_aosp_line(ax_reader *reader, const char *p, const char *end);
int ax_mtrace_line(ax_reader *reader, const char *p, const char *end);
int ax_mtrace_finish(ax_reader *reader);
int ax_logalloc_line(ax_reader *reader, const char *p, const char *end);
int ax_ltrace_line(ax_reader *reader, const char *p, const char *end);
int ax_ltrace_finish(ax_reader *reader);
void ax_ltrace_release(ax_reader *reader);
int ax_valgrind_line(ax_reader *reader, const char *p, const char *end);
int ax_utrace_line(ax_reader *reader, const char *p, const char *end);
int ax_wee_alloc_line(ax_reader *reader, const char *p, const char *end);
int ax_rep_line(ax_reader *reader, const char *p, const char *end);
int ax_rep_finish(ax_reader *reader);
int ax_heaptrack_line(ax_reader *reader, const char *p, const char *end);
int ax_heaptrack_interpreted_line(ax_reader *reader, const char *p, const char *end);
int ax_heaptrack_finish(ax_reader *reader);
void ax_heaptrack_release(ax_reader *reader);
int ax_minimalloc_line(ax_reader *reader, const char *p, const char *end);
int ax_minimalloc_finish(ax_reader *reader);
void ax_minimalloc_release(ax_reader *reader);
int ax_malloc_sql_line(ax_reader *reader, const char *p, const char *end);

/* What is at the top of the call stack of a key: *address where the file is raw, else the name of
 * the function in *p and *length, NULL where the file has none. 0 where there is no such key. For a
 * reader that is finished. */
int ax_heaptrack_name(const ax_reader *reader, size_t key, uint64_t *address, const char **p,
                      size_t *length);
size_t ax_heaptrack_keys(const ax_reader *reader);

/* Refuses the line at hand, or drops and counts it. */
int ax_read_drop(ax_reader *reader, enum ax_read_count kind, int status, const char *what);
int ax_read_syntax(ax_reader *reader, const char *expected);

/* Refuses whatever `skip` says: memory ran out, or numbers of a trace did. */
int ax_read_refuse(ax_reader *reader, int status, const char *what);

/* What follows is of this process. */
int ax_read_process(ax_reader *reader, uint64_t pid);

int ax_read_alloc(ax_reader *reader, uint64_t address, uint64_t size_bytes, uint64_t alignment);
int ax_read_free(ax_reader *reader, uint64_t address);
int ax_read_realloc(ax_reader *reader, uint64_t old_address, uint64_t new_address,
                    uint64_t size_bytes);

/* The same in two halves, for a format that says when a call began: in between, the address may be
 * given to somebody else. *object is AX_READ_NO_OBJECT after a realloc of NULL, and of what is not
 * live where that was dropped. */
#define AX_READ_NO_OBJECT UINT32_MAX
int ax_read_realloc_begin(ax_reader *reader, uint64_t old_address, uint32_t *object);
int ax_read_realloc_end(ax_reader *reader, uint64_t old_address, uint32_t object,
                        uint64_t new_address, uint64_t size_bytes);

/* For formats without addresses: a new object, *object its number, and the end of one. */
int ax_read_new(ax_reader *reader, uint64_t size_bytes, uint64_t alignment, uint32_t *object);
int ax_read_end(ax_reader *reader, uint32_t object);

/* ---- calls as programs write them (calls.c) ----------------------------------------------------
 */

#define AX_CALL_ARGUMENTS 4

typedef struct ax_written_call {
    uint8_t name;      /* enum ax_made_by, or AX_BY_OTHER, AX_BY_USABLE_SIZE */
    uint8_t arguments; /* how many there are, also where more than there is room for */
    uint64_t argument[AX_CALL_ARGUMENTS];
    uint64_t result;
} ax_written_call;

enum { AX_BY_USABLE_SIZE = 32, AX_BY_OTHER = 33 };

/* The function of a name, mangled ones of C++ included; AX_BY_OTHER where it is none of ours. */
uint8_t ax_call_by_name(const char *name, size_t length);

/* What may stand between the parentheses of the call: *p behind the opening one is moved behind the
 * closing one, or to `end`, or to the blank before '<' of "<unfinished ...>". NULL, or what was
 * expected. */
const char *ax_call_read_arguments(ax_written_call *call, const char **p, const char *end);

/* A number of a call: decimal, 0x..., #..., (nil), nil. */
int ax_call_number(const char **p, const char *end, uint64_t *out);

/* NULL where the call has all the arguments that its function needs, or what was expected. */
const char *ax_call_check(const ax_written_call *call);

/* The events of a call that returned. */
int ax_read_call(ax_reader *reader, const ax_written_call *call);

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
