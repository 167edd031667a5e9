/* rawlog: what records mean, the order across threads, damage, failing memory, mutated files. */
#include "check.h"

#include <string.h>

#include "../core/readers/rawlog.h"

#define MOST_BYTES (AX_RAWLOG_HEADER_BYTES + 8 * AX_RAWLOG_GRANULE)

/* ---- files made by hand -----------------------------------------------------------------------
 */

typedef struct file {
    unsigned char bytes[MOST_BYTES];
    size_t length;
    size_t window; /* where the last one begins */
    size_t at;     /* behind its last record */
    uint64_t stamp;
    int fails; /* reads after which one fails; 0: none */
} file;

static file made;

static int read_file(void *source, uint64_t offset, void *to, size_t bytes, size_t *got)
{
    file *f = source;
    if (f->fails && --f->fails == 0) {
        return AX_ERR_STATE;
    }
    const size_t there = offset < f->length ? f->length - (size_t)offset : 0;
    *got = bytes < there ? bytes : there;
    if (*got) {
        memcpy(to, f->bytes + offset, *got);
    }
    return AX_OK;
}

static ax_rawlog_header *header(void)
{
    return (ax_rawlog_header *)(void *)made.bytes;
}

static void begin_file(uint64_t flags)
{
    memset(&made, 0, sizeof made);
    ax_rawlog_header *h = header();
    h->magic = AX_RAWLOG_MAGIC;
    h->version = AX_RAWLOG_VERSION;
    h->header_bytes = AX_RAWLOG_HEADER_BYTES;
    h->flags = flags;
    h->clock = AX_RAWLOG_MONOTONIC;
    h->next = made.length = AX_RAWLOG_HEADER_BYTES;
}

static void add_window(uint32_t thread, uint64_t base)
{
    made.window = made.length;
    made.length += AX_RAWLOG_GRANULE;
    header()->next = made.length;
    const ax_rawlog_window head = {.magic = AX_RAWLOG_WINDOW_MAGIC,
                                   .bytes = AX_RAWLOG_GRANULE,
                                   .thread = thread,
                                   .base_stamp = base};
    memcpy(made.bytes + made.window, &head, sizeof head);
    made.at = made.window + sizeof head;
    made.stamp = base;
}

static void add_word(uint64_t word)
{
    memcpy(made.bytes + made.at, &word, sizeof word);
    made.at += sizeof word;
}

static void add(unsigned kind, uint64_t stamp, uint64_t address, uint64_t size)
{
    add_word(kind | address << AX_RAWLOG_ADDRESS_SHIFT);
    add_word((stamp - made.stamp) | size << 32);
    made.stamp = stamp;
}

static void add_wide(unsigned kind, uint64_t stamp, uint64_t address, uint64_t size,
                     uint64_t alignment)
{
    add_word(kind | AX_RAWLOG_WIDE);
    add_word(alignment);
    add_word(stamp);
    add_word(size);
    add_word(address);
    made.stamp = stamp;
}

/* ---- reading them -----------------------------------------------------------------------------
 */

static int finish(ax_rawlog *log, size_t step)
{
    int status = AX_OK;
    while (status == AX_OK && log->state == AX_RAWLOG_MERGING) {
        status = ax_rawlog_step(log, step);
    }
    return status;
}

static int read_all(ax_rawlog *log, int skip, size_t step)
{
    const int status = ax_rawlog_begin(log, read_file, &made, made.length, skip);
    return status == AX_OK ? finish(log, step) : status;
}

static void release(ax_rawlog *log)
{
    ax_rawlog_free(log);
    CHECK(log->books.bytes_held == 0);
    CHECK(log->books.calls[AX_CALL_MALLOC] == log->books.calls[AX_CALL_FREE]);
}

static const void *column(const ax_rawlog *log, int table, const char *name)
{
    const ax_rawlog_table *t = &log->tables[table];
    for (int i = 0; i < t->columns; i++) {
        if (strcmp(t->column[i].name, name) == 0) {
            return t->column[i].array;
        }
    }
    return NULL;
}

static int is_valid(const ax_rawlog *log)
{
    const ax_trace_view view = {.events = log->tables[AX_TABLE_EVENTS].rows,
                                .op = column(log, AX_TABLE_EVENTS, "op"),
                                .object = column(log, AX_TABLE_EVENTS, "object"),
                                .size_bytes = column(log, AX_TABLE_EVENTS, "size_bytes"),
                                .thread = column(log, AX_TABLE_EVENTS, "thread"),
                                .time_ns = column(log, AX_TABLE_EVENTS, "time_ns")};
    return ax_trace_validate(&view, NULL) == AX_OK;
}

static int same(const ax_rawlog *log, const char *name, const void *expected, size_t bytes)
{
    return memcmp(column(log, AX_TABLE_EVENTS, name), expected, bytes) == 0;
}

/* ---- tests ------------------------------------------------------------------------------------
 */

/* Two threads, clocks that differ, a realloc that another one overtakes, wide records. */
static void make_two_threads(void)
{
    begin_file(AX_RAWLOG_SITES);
    add_window(0, 100);
    add(AX_RAWLOG_THREAD, 100, 0, 70);
    add(AX_RAWLOG_MALLOC, 110, 0x1000, 8);
    add_word(0xAAA); /* the call site */
    add_wide(AX_RAWLOG_POSIX_MEMALIGN, 120, UINT64_C(1) << 50, 16, 24);
    add_word(0xBBB);
    add(AX_RAWLOG_REALLOC_BEGIN, 130, 0x1000, 32);
    add(AX_RAWLOG_REALLOC_END, 150, 0x2000, 0);
    add_word(0xAAA);
    add_window(1, 105);
    add(AX_RAWLOG_THREAD, 105, 1, 71);
    add(AX_RAWLOG_FREE, 106, UINT64_C(0x9000), 0); /* from before */
    add(AX_RAWLOG_MALLOC, 140, 0x1000, 64);
    add_word(0xBBB);
    add(AX_RAWLOG_FREE, 149, 0x2000, 0); /* before its realloc has ended, by this clock */
    add(AX_RAWLOG_FREE, 160, 0x1000, 0);
}

static void test_two_threads(void)
{
    static const uint8_t op[] = {0, 0, 0, 2, 1, 1};
    static const uint32_t object[] = {0, 1, 2, 0, 0, 2};
    static const uint64_t size[] = {8, 16, 64, 32, 0, 0};
    static const uint32_t thread[] = {0, 0, 1, 0, 1, 1};
    static const uint32_t key[] = {0, 1, 1, 0, 0, 1};
    static const uint8_t align[] = {0, 5, 0, 0, 0, 0};
    static const uint64_t time[] = {110, 120, 140, 150, 150, 160};
    make_two_threads();
    for (size_t step = 1; step < 20; step++) {
        ax_rawlog log;
        CHECK(read_all(&log, 0, step) == AX_OK);
        CHECK(log.tables[AX_TABLE_EVENTS].rows == 6);
        CHECK(same(&log, "op", op, sizeof op) && same(&log, "object", object, sizeof object));
        CHECK(same(&log, "size_bytes", size, sizeof size));
        CHECK(same(&log, "thread", thread, sizeof thread) && same(&log, "key", key, sizeof key));
        CHECK(same(&log, "align_log2", align, sizeof align));
        CHECK(same(&log, "time_ns", time, sizeof time));
        CHECK(log.counts[AX_RAWLOG_ORDER_REPAIRS] == 1);
        CHECK(log.counts[AX_RAWLOG_FREES_OF_UNKNOWN] == 1);
        CHECK(log.counts[AX_RAWLOG_FREES_INFERRED] == 0);
        CHECK(log.sites_found == 2 && log.sites[0] == 0xAAA && log.sites[1] == 0xBBB);
        CHECK(log.tids_found == 2 && log.tids[0] == 70 && log.tids[1] == 71);
        CHECK(log.tables[AX_TABLE_REALLOC_BEGIN].rows == 1);
        CHECK(log.tables[AX_TABLE_ASKED_ALIGN].rows == 1);
        CHECK(is_valid(&log));
        CHECK(ax_rawlog_step(&log, 1) == AX_ERR_STATE);
        release(&log);
    }
}

static void test_torn(void)
{
    ax_rawlog log;
    begin_file(0);
    made.length += AX_RAWLOG_GRANULE; /* taken, never written */
    add_window(0, 1);
    add(AX_RAWLOG_MALLOC, 2, 0x1000, 8);
    add(AX_RAWLOG_MALLOC, 3, 0x2000, 8);
    made.at -= 16;
    add_word(0); /* word 0 is written last */
    CHECK(read_all(&log, 0, 100) == AX_OK);
    CHECK(log.tables[AX_TABLE_EVENTS].rows == 1);
    CHECK(log.counts[AX_RAWLOG_WINDOWS_UNUSED] == 1 && log.counts[AX_RAWLOG_WINDOWS] == 1);
    release(&log);

    /* The file ends in the middle of the window; a record at its very end. */
    made.length = made.window + 64 + 16;
    CHECK(read_all(&log, 0, 100) == AX_ERR_SYNTAX && log.detail.where == made.window);
    release(&log);
    CHECK(read_all(&log, 1, 100) == AX_OK);
    CHECK(log.tables[AX_TABLE_EVENTS].rows == 1);
    CHECK(log.counts[AX_RAWLOG_DROPPED_TRUNCATED] == 1);
    release(&log);
    made.length--;
    CHECK(read_all(&log, 1, 100) == AX_OK && log.tables[AX_TABLE_EVENTS].rows == 0);
    release(&log);
}

/* A window that is full to its last byte, and one whose last record would cross its end. */
static void test_full(void)
{
    ax_rawlog log;
    begin_file(0);
    add_window(0, 1);
    uint64_t stamp = 1;
    while (made.at < made.length) {
        add(AX_RAWLOG_MALLOC, stamp, 0x1000 * stamp, 8);
        stamp++;
    }
    CHECK(read_all(&log, 0, 7) == AX_OK);
    CHECK(log.tables[AX_TABLE_EVENTS].rows == stamp - 1 && is_valid(&log));
    release(&log);
    uint64_t word;
    memcpy(&word, made.bytes + made.length - 16, sizeof word);
    word |= AX_RAWLOG_WIDE;
    word &= 255;
    memcpy(made.bytes + made.length - 16, &word, sizeof word);
    CHECK(read_all(&log, 0, 7) == AX_ERR_SYNTAX && log.detail.where == made.length - 16);
    release(&log);
    CHECK(read_all(&log, 1, 7) == AX_OK && log.tables[AX_TABLE_EVENTS].rows == stamp - 2);
    CHECK(log.counts[AX_RAWLOG_DROPPED_DAMAGED] == 1);
    release(&log);
}

static void test_clock(void)
{
    ax_rawlog log;
    begin_file(0);
    ax_rawlog_header *h = header();
    h->clock = AX_RAWLOG_TSC;
    h->stamp0 = 1000;
    h->mono0_ns = 50;
    h->stamp1 = 1000 + 400;
    h->mono1_ns = 50 + 100;
    add_window(0, 1000);
    CHECK(read_all(&log, 0, 1) == AX_OK);
    CHECK(ax_rawlog_clock_span_ns(&log) == 100);
    CHECK(ax_rawlog_ns(&log, 999) == 0 && ax_rawlog_ns(&log, 1008) == 2);
    CHECK(ax_rawlog_ns(&log, UINT64_MAX) > UINT64_MAX / 5);
    ax_rawlog_set_rate(&log, 3.0);
    CHECK(ax_rawlog_ns(&log, 1008) == 24);
    /* Nonsense becomes one to one. */
    ax_rawlog_set_rate(&log, 1e300);
    CHECK(ax_rawlog_ns(&log, 1008) == 8);
    ax_rawlog_set_rate(&log, -1);
    CHECK(ax_rawlog_ns(&log, UINT64_MAX) == UINT64_MAX - 1000 || ax_rawlog_ns(&log, 1008) == 8);
    release(&log);
}

static void test_refusals(void)
{
    ax_rawlog log;
    made.length = 0;
    CHECK(read_all(&log, 1, 1) == AX_ERR_SYNTAX);
    release(&log);
    begin_file(0);
    made.length = sizeof(ax_rawlog_header) - 1;
    CHECK(read_all(&log, 1, 1) == AX_ERR_SYNTAX);
    release(&log);
    begin_file(0);
    header()->version++;
    CHECK(read_all(&log, 1, 1) == AX_ERR_SYNTAX);
    release(&log);
    begin_file(0);
    header()->clock = 9;
    CHECK(read_all(&log, 1, 1) == AX_ERR_SYNTAX);
    release(&log);
    for (int i = 0; i <= AX_RAWLOG_COUNTS; i++) {
        CHECK((ax_rawlog_count_name(i) != NULL) == (i < AX_RAWLOG_COUNTS));
    }
}

/* Each read of the file may fail, and each request for memory. */
static void test_failures(void)
{
    ax_rawlog log;
    make_two_threads();
    int reads = 0;
    for (int status = AX_ERR_STATE; status != AX_OK; reads++) {
        made.fails = reads + 1;
        status = read_all(&log, 0, 100);
        CHECK(status == AX_OK || status == AX_ERR_STATE);
        release(&log);
        made.fails = 0;
    }
    CHECK(reads > 3);
    uint64_t refused = 0;
    for (int status = AX_ERR_NOMEM; status == AX_ERR_NOMEM; refused++) {
        CHECK(ax_rawlog_begin(&log, read_file, &made, made.length, 0) == AX_OK);
        log.books.fail_at = log.books.attempts + refused + 1;
        status = finish(&log, 100);
        CHECK(status == AX_OK || status == AX_ERR_NOMEM);
        release(&log);
    }
    CHECK(refused > 10);
}

/* Threads that wait for each other in every way, more of them than may wait at a time. */
static void test_many_wait(void)
{
    ax_rawlog log;
    begin_file(0);
    for (uint32_t thread = 0; thread < 7; thread++) {
        add_window(thread, 100);
        add(AX_RAWLOG_THREAD, 100, thread, thread);
        for (uint64_t i = 0; i < 100; i++) {
            add(i % 2 ? AX_RAWLOG_MALLOC : AX_RAWLOG_FREE, 100 + i,
                0x1000 * (1 + (i * 7 + thread) % 13), 8);
        }
    }
    CHECK(read_all(&log, 0, 3) == AX_OK);
    CHECK(is_valid(&log));
    CHECK(log.counts[AX_RAWLOG_RECORDS] == 7 * 101);
    release(&log);
}

/* Whatever the bytes: an answer, a valid trace where it is AX_OK, and no byte left. */
static void test_mutations(void)
{
    uint64_t random = 20;
    static const uint64_t odd[] = {0,
                                   1,
                                   63,
                                   64,
                                   127,
                                   128,
                                   255,
                                   UINT64_MAX,
                                   AX_RAWLOG_WINDOW_MAGIC,
                                   AX_RAWLOG_MAPS_MAGIC,
                                   UINT64_C(1) << 63,
                                   AX_RAWLOG_GRANULE};
    for (int round = 0; round < 400; round++) {
        ax_rawlog log;
        make_two_threads();
        add_window(2, 90);
        add(AX_RAWLOG_THREAD, 90, 2, 72);
        for (int i = 0; i < 40; i++) {
            const uint64_t r = next_random(&random);
            static const unsigned kinds[] = {2, 2, 2, 3, 16, 16, 20, 21, 24, 33, 40, 1};
            add(kinds[r % 12], made.stamp + (r >> 8) % 30, 0x1000 * ((r >> 16) % 5), (r >> 24) % 9);
        }
        for (uint64_t n = next_random(&random) % 6; n > 0; n--) {
            const uint64_t r = next_random(&random);
            const size_t window = (r >> 8) % 4;
            const size_t start =
                window ? AX_RAWLOG_HEADER_BYTES + (window - 1) * AX_RAWLOG_GRANULE : 0;
            const size_t at = start + (r >> 16) % 90 * 8;
            const uint64_t word = r & 1 ? odd[(r >> 32) % 12] : next_random(&random);
            memcpy(made.bytes + at, &word, sizeof word);
        }
        if (next_random(&random) % 4 == 0) {
            made.length -= next_random(&random) % (2 * AX_RAWLOG_GRANULE);
        }
        const int skip = round & 1;
        const int status = read_all(&log, skip, 1 + next_random(&random) % 50);
        CHECK(status == AX_OK || status == AX_ERR_SYNTAX);
        CHECK(status != AX_OK || is_valid(&log));
        release(&log);
    }
}

int main(void)
{
    test_two_threads();
    test_torn();
    test_full();
    test_clock();
    test_refusals();
    test_failures();
    test_many_wait();
    test_mutations();
    return check_report();
}
