/* readers: each kind of line, each violation, any chunking, failing memory, and mutated text. */
#include "check.h"

#include <string.h>

#include "../core/readers/reader.h"

/* Feeds all of it to a reader that was just begun. */
static int feed_all(ax_reader *reader, const char *text, size_t length, size_t chunk)
{
    int status = AX_OK;
    for (size_t at = 0; at < length && status == AX_OK; at += chunk) {
        status = ax_reader_feed(reader, text + at, length - at < chunk ? length - at : chunk);
    }
    return status == AX_OK ? ax_reader_finish(reader) : status;
}

static int read_all(ax_reader *reader, int format, int skip, const char *text, size_t length,
                    size_t chunk)
{
    const int status = ax_reader_begin(reader, format, skip);
    return status == AX_OK ? feed_all(reader, text, length, chunk) : status;
}

static int read_text(ax_reader *reader, int format, int skip, const char *text)
{
    const size_t length = strlen(text);
    return read_all(reader, format, skip, text, length, length + 1);
}

/* Frees it, and holds its books to what was freed. */
static void release(ax_reader *reader)
{
    ax_reader_free(reader);
    CHECK(reader->books.bytes_held == 0);
    CHECK(reader->books.calls[AX_CALL_MALLOC] == reader->books.calls[AX_CALL_FREE]);
}

/* The bytes of columns that are as long as they are. */
static uint64_t column_bytes(const ax_reader *reader)
{
    const ax_read_columns *c = &reader->columns;
    return c->events *
           (sizeof *c->op + sizeof *c->object + sizeof *c->size_bytes +
            (c->thread ? sizeof *c->thread : 0) + (c->time_ns ? sizeof *c->time_ns : 0) +
            (c->align_log2 ? sizeof *c->align_log2 : 0) + (c->call ? sizeof *c->call : 0));
}

/* The columns are those of a valid trace. */
static int is_valid(const ax_reader *reader)
{
    const ax_read_columns *c = &reader->columns;
    const ax_trace_view view = {.events = c->events,
                                .op = c->op,
                                .object = c->object,
                                .size_bytes = c->size_bytes,
                                .thread = c->thread,
                                .time_ns = c->time_ns};
    return ax_trace_validate(&view, NULL) == AX_OK;
}

static const char aosp_text[] = "7: malloc 0x10 48\n"
                                "7: calloc 0x20 3 5\r\n"
                                "\n"
                                "9: memalign 0x30 24 100\n"
                                "  9:\trealloc 0x40  0x10 64 \n"
                                "7: realloc 0x50 0x0 1\n"
                                "7: realloc 0x0 0x20 0\n"
                                "7: realloc 0x0 0x50 99\n"
                                "7: realloc 0x50 0x50 2\n"
                                "7: malloc 0x0 18446744073709551615\n"
                                "7: calloc 0x0 18446744073709551615 2\n"
                                "7: memalign 0x0 8 1\n"
                                "8: free 0x0\n"
                                "8: thread_done 0x0\n"
                                "9: free 0x40\n"
                                "11: malloc 0xFFFFFFFFFFFFFFFF 0";

static void test_aosp(void)
{
    static const uint8_t op[] = {0, 0, 0, 2, 0, 1, 2, 1, 0};
    static const uint32_t object[] = {0, 1, 2, 0, 3, 1, 3, 0, 4};
    static const uint64_t size[] = {48, 15, 100, 64, 1, 0, 2, 0, 0};
    static const uint32_t thread[] = {0, 0, 1, 1, 0, 0, 0, 1, 2};
    static const uint8_t align[] = {0, 0, 5, 0, 0, 0, 0, 0, 0};
    static const uint8_t call[] = {1, 2, 7, 3, 3, 3, 3, 11, 1};
    for (size_t chunk = 1; chunk < sizeof aosp_text; chunk++) {
        ax_reader r;
        CHECK(read_all(&r, AX_READ_AOSP, 0, aosp_text, sizeof aosp_text - 1, chunk) == AX_OK);
        CHECK(r.columns.events == 9);
        CHECK(memcmp(r.columns.op, op, sizeof op) == 0);
        CHECK(memcmp(r.columns.object, object, sizeof object) == 0);
        CHECK(memcmp(r.columns.size_bytes, size, sizeof size) == 0);
        CHECK(memcmp(r.columns.thread, thread, sizeof thread) == 0);
        CHECK(memcmp(r.columns.align_log2, align, sizeof align) == 0);
        CHECK(memcmp(r.columns.call, call, sizeof call) == 0);
        CHECK(r.columns.time_ns == NULL);
        CHECK(r.threads.used == 3 && r.tids[0] == 7 && r.tids[1] == 9 && r.tids[2] == 11);
        CHECK(r.counts[AX_READ_LINES] == 16);
        CHECK(r.counts[AX_READ_REALLOCS_OF_NULL] == 1);
        CHECK(r.counts[AX_READ_REALLOCS_TO_NULL] == 1);
        CHECK(r.counts[AX_READ_FAILED_ALLOCS] == 3);
        CHECK(r.counts[AX_READ_FAILED_REALLOCS] == 1);
        CHECK(r.counts[AX_READ_FREES_OF_NULL] == 1);
        CHECK(r.counts[AX_READ_THREADS_DONE] == 1);
        CHECK(r.counts[AX_READ_ALIGNMENTS_RAISED] == 1);
        CHECK(is_valid(&r));
        CHECK(ax_reader_feed(&r, "x", 1) == AX_ERR_STATE);
        CHECK(ax_reader_finish(&r) == AX_ERR_STATE);
        release(&r);
    }
}

static void test_aosp_times(void)
{
    ax_reader r;
    CHECK(read_text(&r, AX_READ_AOSP, 0,
                    "1: malloc 0x10 8 100 110\n"
                    "2: malloc 0x20 8 90 120\n"
                    "2: thread_done 0x0 130\n"
                    "1: free 0x10 140 150\n") == AX_OK);
    CHECK(r.columns.events == 3);
    CHECK(r.columns.time_ns[0] == 100 && r.columns.time_ns[1] == 100 &&
          r.columns.time_ns[2] == 140);
    CHECK(r.counts[AX_READ_TIMES_RAISED] == 1);
    CHECK(is_valid(&r));
    release(&r);
}

static const char mtrace_text[] = "= Start\n"
                                  "@ ./t:[0x11a0] + 0x10 0xa\n"
                                  "@ a b (c + 0x1 2):(main+0x5)[0x11b5] < 0x10\n"
                                  "@ ./t:[0x11b5] > 0x20 0x186a0\n"
                                  "+ 0x30 0\n"
                                  "@ ./t:[0x1] ! 0x30 0x7fffffff\n"
                                  "+ (nil) 0x10\n"
                                  "- 0x20\n"
                                  "= End\n"
                                  "any text\n"
                                  "= Start\n"
                                  "- 0x30\n"
                                  "= End\n";

static void test_mtrace(void)
{
    static const uint8_t op[] = {0, 2, 0, 1, 1};
    static const uint32_t object[] = {0, 0, 1, 0, 1};
    static const uint64_t size[] = {10, 100000, 0, 0, 0};
    for (size_t chunk = 1; chunk < sizeof mtrace_text; chunk++) {
        ax_reader r;
        CHECK(read_all(&r, AX_READ_MTRACE, 0, mtrace_text, sizeof mtrace_text - 1, chunk) == AX_OK);
        CHECK(r.columns.events == 5);
        CHECK(memcmp(r.columns.op, op, sizeof op) == 0);
        CHECK(memcmp(r.columns.object, object, sizeof object) == 0);
        CHECK(memcmp(r.columns.size_bytes, size, sizeof size) == 0);
        CHECK(!r.columns.thread && !r.columns.time_ns && !r.columns.align_log2 && !r.columns.call);
        CHECK(r.counts[AX_READ_FAILED_ALLOCS] == 1);
        CHECK(r.counts[AX_READ_FAILED_REALLOCS] == 1);
        CHECK(r.counts[AX_READ_LINES_AFTER_END] == 1);
        CHECK(is_valid(&r));
        release(&r);
    }
}

/* The last line of a text is refused with `status`, or dropped as `kind` and nothing else. */
static void refuses(int format, const char *text, int status, enum ax_read_count kind)
{
    ax_reader r;
    uint64_t line = 1;
    for (const char *p = text; *p; p++) {
        line += *p == '\n';
    }
    CHECK(read_text(&r, format, 0, text) == status);
    CHECK(r.detail.where == line && r.detail.what != NULL);
    CHECK(ax_reader_feed(&r, "\n", 1) == AX_ERR_STATE);
    CHECK(ax_reader_finish(&r) == AX_ERR_STATE);
    release(&r);
    CHECK(read_text(&r, format, 1, text) == AX_OK);
    for (int i = AX_DROPPED_SYNTAX; i < AX_READ_COUNTS; i++) {
        CHECK(r.counts[i] == (i == (int)kind));
    }
    CHECK(is_valid(&r));
    release(&r);
}

static void test_refusals(void)
{
    static const char *const bad_aosp[] = {
        "malloc 0x10 5",
        "1 malloc 0x10 5",
        ": malloc 0x10 5",
        "-1: malloc 0x10 5",
        "4294967296: malloc 0x10 5",
        "99999999999999999999: malloc 0x10 5",
        "1:",
        "1: mallo 0x10 5",
        "1: mallocs 0x10 5",
        "1: malloc",
        "1: malloc 10 5",
        "1: malloc 0x 5",
        "1: malloc 0x10",
        "1: malloc 0x10g 5",
        "1: malloc 0x1ffffffffffffffff 5",
        "1: malloc 0x10 -5",
        "1: malloc 0x10 5x",
        "1: malloc 0x10 0x5",
        "1: malloc 0x10 18446744073709551616",
        "1: malloc 0x10 5 1",
        "1: malloc 0x10 5 1 2 3",
        "1: malloc 0x10 5 2 1",
        "1: malloc 0x10 5 x y",
        "1: calloc 0x10 5",
        "1: memalign 0x10 5",
        "1: memalign 0x10 9223372036854775809 5",
        "1: realloc 0x10 5",
        "1: realloc 0x10 0x0",
        "1: free",
        "1: free 0x10 0x20",
        "1: thread_done",
        "1: thread_done 0x0 1 2",
        "1: malloc 0x10 5 1 2\n1: malloc 0x20 5",
        "1: malloc 0x10 5\n1: malloc 0x20 5 1 2",
    };
    static const char *const bad_mtrace[] = {
        "+ 0x10",
        "+ 0x10 0x10 5 ?",
        "+ 0x10 0x1ffffffffffffffff",
        "- 0x10 -",
        "0x10",
        "* 0x10 5",
        "where + 0x10 5",
        "@ + ",
        "= Stop",
        "+ x 5",
        "+ 0x10 0x",
        "(nil)",
    };
    for (size_t i = 0; i < sizeof bad_aosp / sizeof *bad_aosp; i++) {
        refuses(AX_READ_AOSP, bad_aosp[i], AX_ERR_SYNTAX, AX_DROPPED_SYNTAX);
    }
    for (size_t i = 0; i < sizeof bad_mtrace / sizeof *bad_mtrace; i++) {
        refuses(AX_READ_MTRACE, bad_mtrace[i], AX_ERR_SYNTAX, AX_DROPPED_SYNTAX);
    }
    refuses(AX_READ_AOSP, "1: malloc 0x10 5\n1: malloc 0x10 6", AX_ERR_EVENT_OBJECT,
            AX_DROPPED_ALLOC_OF_LIVE);
    refuses(AX_READ_AOSP, "1: free 0x10", AX_ERR_EVENT_OBJECT, AX_DROPPED_FREE_OF_UNKNOWN);
    refuses(AX_READ_AOSP, "1: malloc 0x10 5\n1: free 0x10\n1: free 0x10", AX_ERR_EVENT_OBJECT,
            AX_DROPPED_FREE_OF_UNKNOWN);
    refuses(AX_READ_AOSP, "1: realloc 0x10 0x20 5", AX_ERR_EVENT_OBJECT,
            AX_DROPPED_REALLOC_OF_UNKNOWN);
    refuses(AX_READ_AOSP, "1: malloc 0x10 5\n1: malloc 0x20 5\n1: realloc 0x10 0x20 5",
            AX_ERR_EVENT_OBJECT, AX_DROPPED_REALLOC_TO_LIVE);
    refuses(AX_READ_AOSP, "1: calloc 0x10 4294967296 4294967296", AX_ERR_OVERFLOW,
            AX_DROPPED_SIZE_OVERFLOW);
    refuses(AX_READ_MTRACE, "+ 0x10 5\n< 0x10\n- 0x10", AX_ERR_SYNTAX, AX_DROPPED_REALLOC_UNPAIRED);
    refuses(AX_READ_MTRACE, "+ 0x10 5\n< 0x10\n= End", AX_ERR_SYNTAX, AX_DROPPED_REALLOC_UNPAIRED);
    refuses(AX_READ_MTRACE, "> 0x10 5", AX_ERR_SYNTAX, AX_DROPPED_REALLOC_UNPAIRED);
    refuses(AX_READ_MTRACE, "+ 0x10 5\n< 0x10", AX_ERR_SYNTAX, AX_DROPPED_REALLOC_UNPAIRED);
    refuses(AX_READ_MTRACE, "= Start\n- 0x10", AX_ERR_EVENT_OBJECT, AX_DROPPED_FREE_OF_UNKNOWN);
    ax_reader r;
    CHECK(ax_reader_begin(&r, AX_READ_FORMATS, 0) == AX_ERR_RANGE);
    CHECK(ax_reader_begin(&r, -1, 0) == AX_ERR_RANGE);
}

static void test_excerpt(void)
{
    ax_reader r;
    char text[300];
    CHECK(read_text(&r, AX_READ_AOSP, 0, "1: malloc 0x10 5\n1: \x01\xff ok") == AX_ERR_SYNTAX);
    CHECK(strcmp(r.excerpt, "1: ?? ok") == 0);
    release(&r);
    memset(text, 'y', sizeof text);
    text[sizeof text - 1] = 0;
    CHECK(read_text(&r, AX_READ_AOSP, 0, text) == AX_ERR_SYNTAX);
    CHECK(strlen(r.excerpt) == AX_EXCERPT_BYTES);
    CHECK(strcmp(r.excerpt + AX_EXCERPT_BYTES - 4, "y...") == 0);
    release(&r);
}

/* Lines around the limit, the end of the line in the same chunk or not. */
static void test_long_lines(void)
{
    static char text[3 * AX_LINE_BYTES];
    for (size_t extra = 0; extra < 5; extra++) {
        for (int variant = 0; variant < 4; variant++) {
            const size_t length = AX_LINE_BYTES + extra;
            const int with_return = variant & 1;
            const size_t chunk = variant & 2 ? 1000 : sizeof text;
            size_t n = 0;
            memset(text, ' ', length);
            memcpy(text, "1: malloc 0x10 5", 16);
            n = length;
            if (with_return) {
                text[n++] = '\r';
            }
            text[n++] = '\n';
            memcpy(text + n, "1: malloc 0x20 6", 16);
            n += 16;
            ax_reader r;
            CHECK(read_all(&r, AX_READ_AOSP, 1, text, n, chunk) == AX_OK);
            CHECK(r.counts[AX_DROPPED_SYNTAX] == (extra > 0));
            CHECK(r.columns.events == (extra > 0 ? 1 : 2));
            CHECK(r.counts[AX_READ_LINES] == 2);
            release(&r);
            CHECK(read_all(&r, AX_READ_AOSP, 0, text, n, chunk) ==
                  (extra > 0 ? AX_ERR_SYNTAX : AX_OK));
            CHECK(extra == 0 || r.detail.where == 1);
            release(&r);
        }
    }
    /* A line without end is refused before it is fed as a whole. */
    ax_reader r;
    memset(text, 'z', sizeof text);
    ax_reader_begin(&r, AX_READ_MTRACE, 0);
    int status = AX_OK;
    size_t fed = 0;
    for (; status == AX_OK && fed < 10000; fed++) {
        status = ax_reader_feed(&r, text, 100);
    }
    CHECK(status == AX_ERR_SYNTAX && fed * 100 < AX_LINE_BYTES + 200);
    release(&r);
}

/* `lines` lines: allocations with alignments and times, threads enough to grow everything. */
static size_t make_text(char *text, size_t room, int lines)
{
    size_t n = 0;
    for (int i = 0; i < lines; i++) {
        n += (size_t)snprintf(text + n, room - n,
                              i % 3 == 2 ? "%d: memalign 0x%x 64 %d %d %d\n"
                                         : "%d: malloc 0x%x %d %d %d\n",
                              i % 97, 16 * (i + 1), i, i, i + 5);
    }
    return n;
}

static void test_failing_memory(void)
{
    static char text[40000];
    const size_t length = make_text(text, sizeof text, 500);
    ax_reader r;
    CHECK(read_all(&r, AX_READ_AOSP, 0, text, length, 777) == AX_OK);
    const uint64_t attempts = r.books.attempts;
    CHECK(attempts > 40 && r.books.bytes_held > column_bytes(&r));
    release(&r);
    uint64_t refused = 0;
    for (uint64_t n = 1; n <= attempts; n++) {
        CHECK(ax_reader_begin(&r, AX_READ_AOSP, 0) == AX_OK);
        r.books.fail_at = n;
        const int status = feed_all(&r, text, length, 777);
        CHECK(r.books.failed[AX_CALL_MALLOC] + r.books.failed[AX_CALL_REALLOC] == 1);
        if (status == AX_ERR_NOMEM) {
            CHECK(ax_reader_feed(&r, text, length) == AX_ERR_STATE);
            refused++;
        } else {
            /* Giving back room failed: the column stays larger, which is no error. */
            CHECK(status == AX_OK && r.columns.events == 500 && n > attempts - 7);
        }
        release(&r);
    }
    CHECK(refused == attempts - 7);
}

/* What outlives the reading is the columns, as long as they are, and who has them may free them. */
static void test_memory_at_the_end(void)
{
    static char text[40000];
    const size_t length = make_text(text, sizeof text, 500);
    ax_reader r;
    ax_seam other;
    ax_seam_init(&other, AX_BACKING_REAL);
    CHECK(read_all(&r, AX_READ_AOSP, 0, text, length, 777) == AX_OK);
    CHECK(r.carry == NULL && r.live.slots == NULL);
    CHECK(r.books.bytes_held == column_bytes(&r) + r.tids_capacity * sizeof *r.tids +
                                    r.threads.capacity * r.threads.slot_bytes);
    const uint64_t held = r.books.bytes_held;
    uint64_t *sizes = r.columns.size_bytes;
    size_t capacity = r.columns.capacity.size_bytes;
    CHECK(capacity == 500);
    ax_seam_hand_over(&r.books, &other, capacity * sizeof *sizes);
    r.columns.size_bytes = NULL;
    r.columns.capacity.size_bytes = 0;
    CHECK(r.books.bytes_held + other.bytes_held == held && other.bytes_held == 500 * 8);
    ax_reader_free(&r);
    CHECK(r.books.bytes_held == 0 && sizes[499] == 499);
    ax_grow_free(&other, &sizes, &capacity, sizeof *sizes);
    CHECK(other.bytes_held == 0 && other.calls[AX_CALL_FREE] == 1 && sizes == NULL);
}

/* Text with bytes changed, removed and doubled: never more than a refusal, the same in any chunks,
 * and under skip always a valid trace. */
static void test_mutated(int format, const char *text, size_t length, uint64_t random)
{
    char mutated[1024];
    for (int round = 0; round < 3000; round++) {
        size_t n = 0;
        for (size_t i = 0; i < length; i++) {
            const uint64_t r = next_random(&random);
            mutated[n++] = text[i];
            if (r % 64 == 0) {
                mutated[n - 1] = (char)(r >> 32);
            } else if (r % 64 == 1) {
                n--;
            } else if (r % 64 == 2) {
                mutated[n++] = text[(r >> 32) % length];
            }
        }
        ax_reader one, other;
        const size_t chunk = 1 + next_random(&random) % 40;
        CHECK(read_all(&one, format, 1, mutated, n, n + 1) == AX_OK);
        CHECK(read_all(&other, format, 1, mutated, n, chunk) == AX_OK);
        CHECK(is_valid(&one));
        CHECK(memcmp(one.counts, other.counts, sizeof one.counts) == 0);
        CHECK(one.columns.events == other.columns.events);
        CHECK(one.columns.events == 0 ||
              memcmp(one.columns.op, other.columns.op, one.columns.events) == 0);
        release(&one);
        release(&other);
        const int status = read_all(&one, format, 0, mutated, n, n + 1);
        CHECK(read_all(&other, format, 0, mutated, n, chunk) == status);
        CHECK(one.detail.where == other.detail.where);
        CHECK(strcmp(one.excerpt, other.excerpt) == 0);
        release(&one);
        release(&other);
    }
}

int main(void)
{
    test_aosp();
    test_aosp_times();
    test_mtrace();
    test_refusals();
    test_excerpt();
    test_long_lines();
    test_failing_memory();
    test_memory_at_the_end();
    test_mutated(AX_READ_AOSP, aosp_text, sizeof aosp_text - 1, 3);
    test_mutated(AX_READ_MTRACE, mtrace_text, sizeof mtrace_text - 1, 4);
    CHECK(ax_read_count_name(-1) == NULL && ax_read_count_name(AX_READ_COUNTS) == NULL);
    for (int i = 0; i < AX_READ_COUNTS; i++) {
        CHECK(ax_read_count_name(i) != NULL);
    }
    return check_report();
}
