/* rawlog: what the recorder wrote, from the file to the columns of a trace.
 *
 *     file     | header | window | window | window | ...          csrc/preload/rawlog.h
 *                           |        |        |
 *     streams            one a window, its records in the order in which they were written
 *                            \       |       /
 *     merge                   by stamp, held back by addresses
 *                                    |
 *     tables      events, and beside them: realloc_begin, failed, asked_align,
 *                             usable_size, maps
 *
 * A window is read from start to end through a small buffer of its own, opened when its first stamp
 * is due, so that the memory is that of the tables, of the map of what is live, and of one buffer
 * for each window that is being read at a time.
 *
 * The order. Records are taken by their stamps; equal stamps in the order of the windows. Clocks of
 * two processors may differ by a little, so the addresses have the last word: an allocation at an
 * address that is live waits until the free has come that another thread must have made before, and
 * a free of an address that is not live waits for its allocation. Whoever waits holds back its own
 * thread only, and only while the others are within AX_RAWLOG_WAIT_* ticks of it; a free only where
 * its allocation is in sight. A wait that ended
 * well is counted (order_repairs). One that did not:
 *
 * - the object that was live is taken as freed (frees_inferred): its free was lost, or was made
 *   where the recorder could not see it;
 * - a free of what nobody allocated is left out, and counted: objects from before the recording, or
 *   of the parent of a process that was forked. A realloc of such an object makes a new one.
 *
 * A realloc is one event, where it ended; when it began is in realloc_begin, also where the event
 * is a free or an alloc, and in failed. From where it began its old address is free for others, as
 * it may be in the program. One that failed brings its object back to the old address; one that
 * never ended did not happen. A realloc to nothing is a free.
 *
 * Stamps become nanoseconds by the pairs of stamp and clock in the file: 0 is where the recording
 * began. They never decrease (times_raised counts where they would have).
 *
 * The file is not trusted: every number is checked, and what is damaged is refused with its offset,
 * or under `skip` left out and counted. All memory goes through the seam `books`.
 */
#ifndef AX_RAWLOG_READER_H
#define AX_RAWLOG_READER_H

#include "../../preload/rawlog.h"
#include "../idmap.h"
#include "../trace.h"

/* Reads at an offset; *got is less than asked only at the end of the file. Not AX_OK: the file
 * could not be read. */
typedef int (*ax_rawlog_reading)(void *source, uint64_t offset, void *to, size_t bytes,
                                 size_t *got);

/* How long (in ticks of the log's clock) an allocation waits for a free, and a free for an
 * allocation. The first is a contradiction else, the second usual in a process that was forked. */
#define AX_RAWLOG_WAIT_FREE (UINT64_C(1) << 20)
#define AX_RAWLOG_WAIT_ALLOC (UINT64_C(1) << 16)

/* Those from AX_RAWLOG_DROPPED_TRUNCATED on are losses of the file. */
enum ax_rawlog_count {
    AX_RAWLOG_RECORDS = 0,
    AX_RAWLOG_WINDOWS,
    AX_RAWLOG_WINDOWS_UNUSED, /* taken, but their owner died before it wrote */
    AX_RAWLOG_FREES_OF_NULL,
    AX_RAWLOG_REALLOCS_OF_NULL,
    AX_RAWLOG_REALLOCS_TO_NULL, /* frees by a realloc */
    AX_RAWLOG_FAILED_ALLOCS,
    AX_RAWLOG_FAILED_REALLOCS,
    AX_RAWLOG_FAILED_MAPS, /* left out */
    AX_RAWLOG_FREES_OF_UNKNOWN,
    AX_RAWLOG_DELETES_OF_UNKNOWN,
    AX_RAWLOG_REALLOCS_OF_UNKNOWN,       /* became allocs */
    AX_RAWLOG_REALLOCS_OF_UNKNOWN_FREED, /* or nothing: they freed, or failed */
    AX_RAWLOG_USABLE_SIZES_OF_UNKNOWN,   /* left out */
    AX_RAWLOG_REALLOCS_UNFINISHED,
    AX_RAWLOG_REALLOC_ENDS_ALONE, /* became allocs of what is at the address now */
    AX_RAWLOG_ORDER_REPAIRS,
    AX_RAWLOG_FREES_INFERRED,
    AX_RAWLOG_TIMES_RAISED,
    AX_RAWLOG_ALIGNMENTS_RAISED,
    AX_RAWLOG_FORKS,
    AX_RAWLOG_LOST,              /* events that the recorder could not write */
    AX_RAWLOG_RECORDS_AFTER_CUT, /* seen behind the cut, where a stream was left */
    AX_RAWLOG_DROPPED_TRUNCATED, /* windows that end behind the end of the file */
    AX_RAWLOG_DROPPED_DAMAGED,   /* windows, from the record that no recorder writes */
    AX_RAWLOG_COUNTS
};

const char *ax_rawlog_count_name(int count);

enum ax_rawlog_tables {
    AX_TABLE_EVENTS,
    AX_TABLE_REALLOC_BEGIN,
    AX_TABLE_FAILED,
    AX_TABLE_ASKED_ALIGN,
    AX_TABLE_USABLE_SIZE,
    AX_TABLE_MAPS,
    AX_TABLES
};

#define AX_RAWLOG_MOST_COLUMNS 10

typedef struct ax_rawlog_column {
    const char *name;
    size_t item_bytes; /* 1, 4 or 8 */
    size_t capacity;
    void *array;
} ax_rawlog_column;

typedef struct ax_rawlog_table {
    const char *name;
    size_t rows;
    size_t capacity;
    int columns;
    ax_rawlog_column column[AX_RAWLOG_MOST_COLUMNS];
} ax_rawlog_table;

/* A record, as it was written. */
typedef struct ax_rawlog_record {
    uint64_t stamp;
    uint64_t address;
    uint64_t size;
    uint64_t alignment; /* as asked, 0 where none was */
    uint64_t site;
    uint64_t extra[2];
    uint8_t kind;
    uint8_t failed;
} ax_rawlog_record;

/* A window in the file, and the stamp with which it begins. */
typedef struct ax_rawlog_place {
    uint64_t offset;
    uint64_t stamp;
    uint32_t bytes;
    uint32_t thread;
} ax_rawlog_place;

/* A window that is being read; the record at hand has not been taken yet. */
typedef struct ax_rawlog_stream {
    struct ax_rawlog_stream *next_unused;
    uint64_t key;    /* the record's stamp, never less than that of the one before it */
    uint64_t window; /* its offset, which decides between equal keys */
    uint64_t stamp;  /* that the next record's is counted from */
    uint64_t at;     /* where the next record is */
    uint64_t end;
    uint64_t wait_until;   /* where held: the key of others that ends the wait ... */
    uint64_t wait_address; /* ... for this address; 0: for the thread */
    uint32_t thread;       /* its place among the threads */
    uint8_t wait_live;     /* to become live, or not live */
    uint8_t waited;        /* in vain: take the record as it is */
    ax_rawlog_record record;
    size_t begin, filled; /* of the buffer; byte `begin` is the file's `at` */
    unsigned char *buffer;
} ax_rawlog_stream;

typedef struct ax_rawlog_thread {
    uint64_t tid;   /* the system's; 0 unknown */
    uint32_t dense; /* UINT32_MAX before its first event */
    uint8_t in_realloc;
    uint8_t call;
    uint8_t known; /* whether the object of the realloc is */
    uint32_t object;
    uint32_t site;
    uint64_t old_address;
    uint64_t size;
    uint64_t stamp; /* when the realloc began */
} ax_rawlog_thread;

enum ax_rawlog_state { AX_RAWLOG_MERGING = 0, AX_RAWLOG_FINISHED = 1, AX_RAWLOG_REFUSED = 2 };

#define AX_RAWLOG_MOST_HELD 64

typedef struct ax_rawlog {
    ax_seam books;
    ax_rawlog_reading read;
    void *source;
    uint64_t file_bytes;
    int skip;
    enum ax_rawlog_state state;
    ax_rawlog_header header;
    uint64_t counts[AX_RAWLOG_COUNTS];

    ax_rawlog_place *windows; /* by stamp */
    size_t windows_found, windows_capacity, windows_opened;
    ax_rawlog_place *texts; /* of memory maps, in the order of the file */
    size_t texts_found, texts_capacity;
    uint64_t bytes_total, bytes_done; /* of windows */

    uint64_t first_stamp, first_ns, last_stamp, last_ns; /* of the clock */
    double ns_per_tick;

    ax_rawlog_stream **heap; /* the next record first */
    size_t heap_used, heap_capacity;
    ax_rawlog_stream *held[AX_RAWLOG_MOST_HELD];
    size_t held_used;
    ax_rawlog_stream *unused;

    ax_idmap thread_places; /* number in the log + 1 -> place */
    ax_rawlog_thread *threads;
    size_t threads_found, threads_capacity;
    uint64_t *tids; /* of dense threads */
    size_t tids_found, tids_capacity;

    ax_idmap live; /* address -> object | site << 32 */
    uint64_t objects;
    ax_idmap site_places; /* return address -> number */
    uint64_t *sites;
    size_t sites_found, sites_capacity;
    uint64_t time_ns;      /* of the last record */
    uint64_t looked_ahead; /* records, in all */

    ax_rawlog_table tables[AX_TABLES];
    ax_detail detail; /* where = offset in the file */
} ax_rawlog;

/* Reads the header and finds the windows. AX_ERR_SYNTAX (no raw log, another version, truncated),
 * AX_ERR_NOMEM, or what `read` answered. After any answer the log is to be freed. */
int ax_rawlog_begin(ax_rawlog *log, ax_rawlog_reading read, void *source, uint64_t file_bytes,
                    int skip);

/* How many nanoseconds lie between the first and the last pair of stamp and clock in the file. */
uint64_t ax_rawlog_clock_span_ns(const ax_rawlog *log);

/* Sets the rate of the clock, measured elsewhere; before the first step. */
void ax_rawlog_set_rate(ax_rawlog *log, double ns_per_tick);

/* The nanoseconds since the recording began of a stamp. */
uint64_t ax_rawlog_ns(const ax_rawlog *log, uint64_t stamp);

/* Takes at most `records` further records; state is AX_RAWLOG_FINISHED when there are no more.
 * AX_ERR_SYNTAX, AX_ERR_OVERFLOW (more objects than 32 bits number), AX_ERR_NOMEM, AX_ERR_STATE
 * (finished or refused already), or what `read` answered. */
int ax_rawlog_step(ax_rawlog *log, size_t records);

void ax_rawlog_free(ax_rawlog *log);

/* ---- between the two files of this room -------------------------------------------------------
 */

/* Whether another thread may be about to bring an address to life, with a stamp up to `until`: 0 or
 * 1, or a status. Looks at what follows in their windows, as far as it is worth it. */
int ax_rawlog_may_come(ax_rawlog *log, const ax_rawlog_stream *stream, uint64_t address,
                       uint64_t until);

/* Answers of ax_rawlog_take beside statuses. */
enum { AX_RAWLOG_TAKEN = 0, AX_RAWLOG_HELD = 1 };
/* Takes the record at hand of a stream: events, asides, counts. */
int ax_rawlog_take(ax_rawlog *log, ax_rawlog_stream *stream, int may_wait);
void ax_rawlog_end_events(ax_rawlog *log);

int ax_rawlog_make_tables(ax_rawlog *log);
void ax_rawlog_free_tables(ax_rawlog *log);

#endif
