/* writer: lines of each format, any buffer, events that no trace has, failing memory. */
#include "check.h"

#include <string.h>

#include "../core/writers/writer.h"

enum { MOST_EVENTS = 400, TEXT_BYTES = 1 << 17 };

typedef struct columns {
    size_t events;
    uint8_t op[MOST_EVENTS];
    uint32_t object[MOST_EVENTS];
    uint64_t size[MOST_EVENTS];
    uint64_t time[MOST_EVENTS];
    uint32_t thread[MOST_EVENTS];
    uint8_t align_log2[MOST_EVENTS];
    uint8_t call[MOST_EVENTS];
} columns;

static ax_write_source source_of(const columns *c)
{
    return (ax_write_source){
        .trace = {.events = c->events,
                  .op = c->op,
                  .object = c->object,
                  .size_bytes = c->size,
                  .thread = c->thread,
                  .time_ns = c->time},
        .align_log2 = c->align_log2,
        .call = c->call,
        .fields = "zsota",
    };
}

static void add(columns *c, uint8_t op, uint32_t object, uint64_t size)
{
    const size_t i = c->events++;
    c->op[i] = op;
    c->object[i] = object;
    c->size[i] = size;
    c->time[i] = i;
}

/* A trace of any valid events. */
static void fill(columns *c, uint64_t seed)
{
    uint32_t live[MOST_EVENTS];
    uint32_t alive = 0, made = 0;
    memset(c, 0, sizeof *c);
    while (c->events < MOST_EVENTS) {
        const uint64_t r = next_random(&seed);
        const size_t i = c->events;
        if (alive == 0 || r % 5 < 2) {
            live[alive++] = made;
            add(c, AX_OP_ALLOC, made++, r >> (r % 64));
            c->align_log2[i] = (uint8_t)(r % 3 ? 0 : (r >> 8) % 64);
        } else if (r % 5 < 3) {
            add(c, AX_OP_REALLOC, live[(r >> 8) % alive], r >> 32);
        } else {
            const uint32_t at = (uint32_t)((r >> 8) % alive);
            add(c, AX_OP_FREE, live[at], 0);
            live[at] = live[--alive];
        }
        c->thread[i] = (uint32_t)(r >> 40) % 3;
        c->call[i] = (uint8_t)((r >> 50) % AX_MADE_BY);
        c->time[i] = UINT64_MAX - MOST_EVENTS + i;
    }
}

/* Writes all through a buffer of `capacity` bytes, and holds the books to what was freed. */
static size_t write_all(const ax_write_source *source, int format, size_t capacity, char *text)
{
    ax_writer writer;
    size_t total = 0, length = 0;
    CHECK(ax_writer_begin(&writer, format, source, NULL) == AX_OK);
    while (writer.next < source->trace.events) {
        const size_t before = writer.next;
        CHECK(ax_writer_step(&writer, SIZE_MAX, text + total, capacity, &length, NULL) == AX_OK);
        CHECK(length <= capacity && writer.next > before);
        total += length;
    }
    CHECK(ax_writer_step(&writer, 1, text + total, capacity, &length, NULL) == AX_OK);
    CHECK(length == 0);
    ax_writer_free(&writer);
    CHECK(writer.books.bytes_held == 0);
    text[total] = 0;
    return total;
}

static void test_lines(void)
{
    static char text[TEXT_BYTES];
    columns c = {0};
    const uint64_t ends[] = {2, 4};
    const uint32_t tids[] = {70, 80};
    add(&c, AX_OP_ALLOC, 0, 10);
    add(&c, AX_OP_ALLOC, 1, 20);
    add(&c, AX_OP_FREE, 0, 0);
    add(&c, AX_OP_ALLOC, 2, UINT64_MAX);
    add(&c, AX_OP_REALLOC, 1, 30);
    c.thread[1] = c.thread[3] = c.thread[4] = 1;
    c.align_log2[1] = 6;
    c.call[3] = AX_MADE_BY_CALLOC;
    ax_write_source source = source_of(&c);
    source.thread_ends = ends;
    source.thread_end_count = 2;
    source.tids = tids;
    source.tid_count = 2;
    write_all(&source, AX_WRITE_AOSP, AX_WRITE_EVENT_BYTES, text);
    CHECK(strcmp(text, "70: malloc 0x10 10 0 0\n"
                       "80: memalign 0xc0 64 20 1 1\n"
                       "70: free 0x10 2 2\n"
                       "70: thread_done 0x0 2\n"
                       "80: calloc 0x10 1 18446744073709551615 3 3\n"
                       "80: realloc 0xc0 0xc0 30 4 4\n"
                       "80: thread_done 0x0 4\n") == 0);
    write_all(&source, AX_WRITE_CSV, AX_WRITE_EVENT_BYTES, text);
    CHECK(strstr(text, "alloc,0,0,10,0,0,unknown\nalloc,1,1,20,6,1,unknown\nfree,") == text);
    source.fields = "saz";
    write_all(&source, AX_WRITE_C, AX_WRITE_EVENT_BYTES, text);
    CHECK(strcmp(text,
                 "{0,0,10},\n{1,6,20},\n{0,0,0},\n{0,0,18446744073709551615u},\n{1,0,30},\n") == 0);
}

/* The same text through the smallest buffer and a large one; no line is longer than said. */
static void test_any_buffer(void)
{
    static char whole[TEXT_BYTES], pieces[TEXT_BYTES];
    static columns c;
    for (uint64_t seed = 0; seed < 20; seed++) {
        fill(&c, seed);
        const ax_write_source source = source_of(&c);
        for (int format = 0; format < AX_WRITE_FORMATS; format++) {
            const size_t length = write_all(&source, format, TEXT_BYTES - 1, whole);
            CHECK(length == write_all(&source, format, AX_WRITE_EVENT_BYTES, pieces));
            CHECK(memcmp(whole, pieces, length) == 0);
        }
    }
}

static void test_refusals(void)
{
    static const struct {
        uint8_t op;
        uint32_t object;
        int status;
    } cases[] = {
        {AX_OP_ALLOC, 2, AX_ERR_EVENT_ORDER},
        {AX_OP_FREE, 1, AX_ERR_EVENT_OBJECT},
        {AX_OP_REALLOC, 9, AX_ERR_EVENT_OBJECT},
        {AX_OP_DESTROY, 0, AX_ERR_EVENT_OP},
        {200, 0, AX_ERR_EVENT_OP},
    };
    char text[4 * AX_WRITE_EVENT_BYTES];
    ax_writer writer;
    ax_detail detail;
    size_t length;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        columns c = {0};
        add(&c, AX_OP_ALLOC, 0, 1);
        add(&c, cases[i].op, cases[i].object, 1);
        const ax_write_source source = source_of(&c);
        CHECK(ax_writer_begin(&writer, AX_WRITE_AOSP, &source, NULL) == AX_OK);
        CHECK(ax_writer_step(&writer, 9, text, sizeof text, &length, &detail) == cases[i].status);
        CHECK(detail.where == 1 && writer.next == 1 && length > 0);
        ax_writer_free(&writer);
        CHECK(writer.books.bytes_held == 0);
    }
    columns c = {0};
    ax_write_source source = source_of(&c);
    CHECK(ax_writer_begin(&writer, AX_WRITE_FORMATS, &source, NULL) == AX_ERR_RANGE);
    source.fields = "zz_";
    CHECK(ax_writer_begin(&writer, AX_WRITE_C, &source, NULL) == AX_ERR_RANGE);
    source.fields = NULL;
    CHECK(ax_writer_begin(&writer, AX_WRITE_C, &source, NULL) == AX_ERR_RANGE);
    CHECK(ax_call_name(AX_MADE_BY) == NULL && ax_call_name(-1) == NULL);
}

/* Each call for memory fails once: the event is refused, nothing is lost, and it goes on. */
static void test_failing_memory(void)
{
    static char whole[TEXT_BYTES], text[TEXT_BYTES];
    static columns c;
    fill(&c, 99);
    const ax_write_source source = source_of(&c);
    const size_t expected = write_all(&source, AX_WRITE_AOSP, TEXT_BYTES - 1, whole);
    int failed = 0;
    for (uint64_t n = 1; n < 100; n++) {
        ax_writer writer;
        size_t total = 0, length;
        CHECK(ax_writer_begin(&writer, AX_WRITE_AOSP, &source, NULL) == AX_OK);
        writer.books.fail_at = n;
        while (writer.next < c.events) {
            const int status =
                ax_writer_step(&writer, SIZE_MAX, text + total, TEXT_BYTES - total, &length, NULL);
            CHECK(status == AX_OK || status == AX_ERR_NOMEM);
            failed += status == AX_ERR_NOMEM;
            total += length;
        }
        CHECK(total == expected && memcmp(text, whole, total) == 0);
        ax_writer_free(&writer);
        CHECK(writer.books.bytes_held == 0);
    }
    CHECK(failed > 3 && failed < 99);
}

int main(void)
{
    test_lines();
    test_any_buffer();
    test_refusals();
    test_failing_memory();
    return check_report();
}
