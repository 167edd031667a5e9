/* replay_code: what a trace may not hold, every refusal of the system and of the books, the row. */
#include "check.h"

#include <string.h>

#include "../core/replay_code.h"

enum { A = AX_OP_ALLOC, F = AX_OP_FREE, R = AX_OP_REALLOC };

#define ROOM 400
typedef struct columns {
    size_t n;
    uint64_t objects;
    uint8_t op[ROOM];
    uint32_t object[ROOM];
    uint64_t size[ROOM];
} columns;

static columns c;
static ax_code_replay r;

static void event(uint8_t op, uint32_t object, uint64_t size)
{
    c.op[c.n] = op;
    c.object[c.n] = object;
    c.size[c.n++] = size;
    if (op == A && object >= c.objects) {
        c.objects = object + 1;
    }
}

static ax_code_replay_options options_of(uint32_t policy)
{
    ax_code_replay_options options = {
        .backing = AX_BACKING_MODELLED, .objects = c.objects, .jump_bytes = 8, .hot_methods = 4};
    ax_code_params_default(&options.params);
    options.params.policy = policy;
    options.params.chunk_bytes = 4096;
    options.params.byte_limit = 512;
    options.params.keep_bytes = 0;
    options.params.max_code_bytes = 8192;
    return options;
}

static int begin(const ax_code_replay_options *options, ax_detail *detail)
{
    ax_trace_view view = {.events = c.n, .op = c.op, .object = c.object, .size_bytes = c.size};
    return ax_code_replay_begin(&r, &view, options, detail);
}

static void end(void)
{
    ax_code_replay_end(&r);
    CHECK(r.seam.mapped_bytes == 0 && r.books.mapped_bytes == 0 && r.books.bytes_held == 0);
}

static void random_trace(uint64_t random)
{
    uint32_t live[ROOM];
    uint32_t alive = 0;
    memset(&c, 0, sizeof c);
    while (c.n < ROOM) {
        uint64_t next = next_random(&random);
        uint64_t size = (next >> 8) % 7 == 0 ? (next >> 16) % 9000 : (next >> 16) % 900;
        uint32_t *one = &live[alive ? (next >> 40) % alive : 0];
        if (alive && next % 8 < 3) {
            event(F, *one, 0);
            *one = live[--alive];
        } else if (alive && next % 8 == 3) {
            event(R, *one, size);
        } else {
            live[alive++] = (uint32_t)c.objects;
            event(A, (uint32_t)c.objects, size);
        }
    }
}

static void test_refusals(void)
{
    random_trace(3);
    for (uint32_t policy = 0; policy < AX_CODE_POLICIES; policy++) {
        ax_code_replay_options options = options_of(policy);
        size_t left;
        ax_detail detail = {0};
        CHECK(begin(&options, &detail) == AX_OK);
        CHECK(ax_code_replay_step(&r, SIZE_MAX, UINT64_MAX, &left, &detail) == AX_OK && left == 0);
        CHECK(ax_codeheap_check(&r.heap, &detail) == AX_OK);
        const uint64_t before = 2; /* calls of begin itself to the books */
        const uint64_t calls = r.seam.attempts;
        const uint64_t books = r.books.attempts - before;
        end();
        for (uint64_t n = 1; n <= calls + books; n++) {
            options.fail_at = n <= calls ? n : 0;
            CHECK(begin(&options, &detail) == AX_OK);
            r.books.fail_at = n <= calls ? 0 : before + n - calls;
            int status = ax_code_replay_step(&r, SIZE_MAX, UINT64_MAX, &left, &detail);
            /* Retention keeps what the system does not take back. */
            CHECK(status == AX_ERR_NOMEM || (status == AX_OK && r.seam.failed[AX_CALL_UNMAP] == 1));
            CHECK(ax_codeheap_check(&r.heap, &detail) == AX_OK);
            ax_code_row row;
            CHECK(ax_code_replay_row(&r, &row) == (status == AX_OK ? AX_OK : AX_ERR_STATE));
            /* It stays ended. */
            CHECK(ax_code_replay_step(&r, 1, UINT64_MAX, &left, &detail) == status);
            end();
        }
    }
}

/* Slices of any length, in events or in work, count the same. */
static void test_slices(void)
{
    random_trace(4);
    for (uint32_t policy = 0; policy < AX_CODE_POLICIES; policy++) {
        const ax_code_replay_options options = options_of(policy);
        ax_code_row rows[3];
        for (size_t slice = 0; slice < 3; slice++) {
            size_t left = 1;
            CHECK(begin(&options, NULL) == AX_OK);
            while (left) {
                CHECK(ax_code_replay_step(&r, slice == 1 ? 7 : SIZE_MAX,
                                          slice == 2 ? 50 : UINT64_MAX, &left, NULL) == AX_OK);
            }
            memset(&rows[slice], 0, sizeof rows[slice]);
            CHECK(ax_code_replay_row(&r, &rows[slice]) == AX_OK);
            end();
        }
        CHECK(memcmp(&rows[0], &rows[1], sizeof rows[0]) == 0);
        CHECK(memcmp(&rows[0], &rows[2], sizeof rows[0]) == 0);
    }
}

#define WORK 5000

/* A step ends by the work that its events make. */
static void test_work(void)
{
    memset(&c, 0, sizeof c);
    for (uint32_t i = 0; i < ROOM; i++) {
        event(A, i, 100);
    }
    c.objects = ROOM;
    const ax_code_replay_options options = options_of(AX_CODE_PACK);
    size_t left = ROOM;
    CHECK(begin(&options, NULL) == AX_OK);
    while (left) {
        const size_t before = left;
        const uint64_t steps = r.heap.counters.list_scan_steps;
        CHECK(ax_code_replay_step(&r, SIZE_MAX, WORK, &left, NULL) == AX_OK && left < before);
        CHECK(left == 0 || before - left <= WORK / AX_CODE_EVENT_WORK);
        CHECK(r.heap.counters.list_scan_steps - steps < WORK + ROOM);
    }
    CHECK(r.heap.counters.list_scan_steps > 10 * WORK);
    size_t still;
    CHECK(ax_code_replay_step(&r, SIZE_MAX, 0, &still, NULL) == AX_OK && still == 0);
    end();
}

/* A trace that nobody has validated. */
static void test_wrong_events(void)
{
    static const struct {
        uint8_t op;
        uint32_t object;
        int status;
    } wrong[] = {
        {7, 0, AX_ERR_EVENT_OP},   {AX_OP_DESTROY, 0, AX_ERR_EVENT_OP}, {A, 9, AX_ERR_EVENT_OBJECT},
        {F, 1, AX_ERR_EVENT_DEAD}, {R, 1, AX_ERR_EVENT_DEAD},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        memset(&c, 0, sizeof c);
        event(A, 0, 100);
        event(A, 1, 100);
        event(F, 1, 0);
        event(wrong[i].op, wrong[i].object, 100);
        c.objects = 2;
        const ax_code_replay_options options = options_of(AX_CODE_SEGREGATED);
        ax_detail detail = {0};
        size_t left;
        CHECK(begin(&options, &detail) == AX_OK);
        CHECK(ax_code_replay_step(&r, SIZE_MAX, UINT64_MAX, &left, &detail) == wrong[i].status);
        CHECK(detail.where == 3 && left == 1);
        end();
    }
}

static void test_wrong_options(void)
{
    random_trace(5);
    ax_code_replay_options options = options_of(AX_CODE_SCAN);
    ax_detail detail = {0};
    options.jump_bytes = options.params.min_payload_bytes;
    CHECK(begin(&options, &detail) == AX_ERR_RANGE && strstr(detail.what, "jump_bytes"));
    end();
    options.jump_bytes--;
    CHECK(begin(&options, &detail) == AX_OK);
    end();
    options.hot_methods = (1u << 20) + 1;
    CHECK(begin(&options, &detail) == AX_ERR_RANGE && strstr(detail.what, "hot_methods"));
    options.hot_methods = 0;
    options.objects = UINT64_MAX;
    CHECK(begin(&options, &detail) == AX_ERR_OVERFLOW);
    options.objects = 1;
    options.params.policy = AX_CODE_POLICIES;
    CHECK(begin(&options, &detail) == AX_ERR_RANGE && strstr(detail.what, "policy"));
    end();
}

/* One method of three blocks, by hand. */
static void test_row(void)
{
    memset(&c, 0, sizeof c);
    event(A, 0, 1200);
    ax_code_replay_options options = options_of(AX_CODE_BYTE_LIMIT);
    ax_code_row row;
    size_t left;
    CHECK(begin(&options, NULL) == AX_OK);
    CHECK(ax_code_replay_row(&r, &row) == AX_ERR_STATE);
    CHECK(ax_code_replay_step(&r, 1, UINT64_MAX, &left, NULL) == AX_OK && left == 0);
    CHECK(ax_code_replay_row(&r, &row) == AX_OK);
    /* Two whole blocks of 512, of which 8 are the jump; 192 of the third, at its high end. */
    CHECK(row.methods == 1 && row.chunk_maps == 1 && row.protect_calls == 1);
    CHECK(row.counters.splits == 4 && row.counters.coalesces == 1);
    CHECK(row.code_bytes_end == 504 + 504 + 192 && row.internal_fragmentation == 16);
    CHECK(row.blocks_end == 4 && row.header_bytes == 5 * 40);
    CHECK(row.free_bytes == 4096 - 200 - 1216 && row.largest_free_block == row.free_bytes);
    CHECK(row.hot_pages[0] == 1 && row.counters.pages_flipped == 1);
    CHECK(row.mapped_bytes_mean == 4096.0 && row.wastage_bytes_mean == 4096.0 - 1200.0);
    end();
    c.n = 0;
    CHECK(begin(&options, NULL) == AX_OK);
    CHECK(ax_code_replay_row(&r, &row) == AX_OK && row.methods == 0 && row.chunk_maps == 0);
    end();
}

int main(void)
{
    test_refusals();
    test_slices();
    test_work();
    test_wrong_events();
    test_wrong_options();
    test_row();
    return check_report();
}
