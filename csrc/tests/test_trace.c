/* trace and what it stands on: every rule of the check, the totals, failing memory. */
#include "check.h"

#include <string.h>

#include "../core/trace.h"

enum { A = AX_OP_ALLOC, F = AX_OP_FREE, R = AX_OP_REALLOC, D = AX_OP_DESTROY };

#define NONE32 UINT32_MAX

/* A trace of n events; columns that are NULL stay out. */
static ax_trace_view view_of(size_t n, const uint8_t *op, const uint32_t *object,
                             const uint64_t *size_bytes)
{
    return (ax_trace_view){.events = n, .op = op, .object = object, .size_bytes = size_bytes};
}

static const uint64_t zeros[16];

static void expect(const ax_trace_view *view, int status, uint64_t where, uint64_t found)
{
    ax_detail detail = {0};
    CHECK(ax_trace_validate(view, &detail) == status);
    if (status != AX_OK) {
        CHECK(detail.where == where);
        CHECK(detail.value == found);
        CHECK(detail.what != NULL);
    }
    /* The summary walks by the same rules. */
    ax_trace_summary summary;
    ax_trace_summary_begin(&summary, view);
    CHECK(ax_trace_summary_step(&summary, SIZE_MAX, &detail) == status);
    if (status != AX_OK) {
        CHECK(ax_trace_summary_step(&summary, 1, &detail) == AX_ERR_STATE);
    }
    ax_trace_summary_finish(&summary);
    CHECK(ax_trace_validate(view, NULL) == status);
}

static void test_rules(void)
{
    ax_trace_view v;
    v = view_of(0, NULL, NULL, NULL);
    expect(&v, AX_OK, 0, 0);
    v = view_of(4, (uint8_t[]){A, R, F, A}, (uint32_t[]){0, 0, 0, 1}, zeros);
    expect(&v, AX_OK, 0, 0);
    v = view_of(2, (uint8_t[]){A, 4}, (uint32_t[]){0, 0}, zeros);
    expect(&v, AX_ERR_EVENT_OP, 1, 4);
    v = view_of(2, (uint8_t[]){A, 255}, (uint32_t[]){0, 0}, zeros);
    expect(&v, AX_ERR_EVENT_OP, 1, 255);
    v = view_of(2, (uint8_t[]){A, A}, (uint32_t[]){0, 2}, zeros);
    expect(&v, AX_ERR_EVENT_ORDER, 1, 2);
    v = view_of(2, (uint8_t[]){A, A}, (uint32_t[]){0, 0}, zeros);
    expect(&v, AX_ERR_EVENT_ORDER, 1, 0);
    v = view_of(1, (uint8_t[]){F}, (uint32_t[]){0}, zeros);
    expect(&v, AX_ERR_EVENT_OBJECT, 0, 0);
    v = view_of(2, (uint8_t[]){A, R}, (uint32_t[]){0, NONE32}, zeros);
    expect(&v, AX_ERR_EVENT_OBJECT, 1, NONE32);
    v = view_of(3, (uint8_t[]){A, F, F}, (uint32_t[]){0, 0, 0}, zeros);
    expect(&v, AX_ERR_EVENT_DEAD, 2, 0);
    v = view_of(3, (uint8_t[]){A, F, R}, (uint32_t[]){0, 0, 0}, zeros);
    expect(&v, AX_ERR_EVENT_DEAD, 2, 0);
    v = view_of(1, (uint8_t[]){D}, (uint32_t[]){NONE32}, zeros);
    expect(&v, AX_ERR_EVENT_ARENA, 0, D);
}

static void test_times(void)
{
    ax_trace_view v = view_of(3, (uint8_t[]){A, A, A}, (uint32_t[]){0, 1, 2}, zeros);
    v.time_ns = (uint64_t[]){5, 5, UINT64_MAX};
    expect(&v, AX_OK, 0, 0);
    v.time_ns = (uint64_t[]){5, 6, 4};
    expect(&v, AX_ERR_EVENT_TIME, 2, 4);
}

static void test_arenas(void)
{
    /* Arena 7 ends twice and is used again; arena 3 lives on. */
    ax_trace_view v =
        view_of(7, (uint8_t[]){A, A, D, A, F, D, D},
                (uint32_t[]){0, 1, NONE32, 2, 1, NONE32, NONE32}, (uint64_t[16]){10, 20, 0, 40});
    v.arena = (uint32_t[]){7, 3, 7, 7, 3, 7, 9};
    expect(&v, AX_OK, 0, 0);

    v = view_of(3, (uint8_t[]){A, D, F}, (uint32_t[]){0, NONE32, 0}, zeros);
    v.arena = (uint32_t[]){7, 7, 7};
    expect(&v, AX_ERR_EVENT_DEAD, 2, 0);
    /* The number of the arena is used again; the object of its first lifetime stays dead. */
    v = view_of(4, (uint8_t[]){A, D, A, R}, (uint32_t[]){0, NONE32, 1, 0}, zeros);
    v.arena = (uint32_t[]){7, 7, 7, 7};
    expect(&v, AX_ERR_EVENT_DEAD, 3, 0);
    v = view_of(2, (uint8_t[]){A, F}, (uint32_t[]){0, 0}, zeros);
    v.arena = (uint32_t[]){7, UINT32_MAX};
    expect(&v, AX_ERR_EVENT_ARENA, 1, UINT32_MAX);
    v = view_of(2, (uint8_t[]){A, D}, (uint32_t[]){0, 0}, zeros);
    v.arena = (uint32_t[]){7, 7};
    expect(&v, AX_ERR_EVENT_OBJECT, 1, 0);

    const uint64_t wide[] = {0, AX_NO_OBJECT};
    v = view_of(2, (uint8_t[]){A, D}, NULL, zeros);
    v.object = wide;
    v.object_is_u64 = 1;
    v.arena = (uint32_t[]){UINT32_MAX, UINT32_MAX};
    expect(&v, AX_OK, 0, 0);
}

static void test_totals(void)
{
    ax_trace_view v =
        view_of(8, (uint8_t[]){A, A, R, F, A, D, A, F}, (uint32_t[]){0, 1, 0, 0, 2, NONE32, 3, 1},
                (uint64_t[]){100, 50, 300, 0, 7, 0, 50, 0});
    v.arena = (uint32_t[]){0, 1, 0, 0, 0, 0, 0, 1};
    v.thread = (uint32_t[]){0, 0, 1, 1, 0, 0, 0, 9};
    v.key = (uint32_t[]){4, 4, 4, 4, 5, 6, 4, 4};
    v.time_ns = (uint64_t[]){10, 11, 12, 13, 14, 15, 16, 20};
    for (size_t step = 1; step <= v.events; step++) {
        ax_trace_summary s;
        ax_detail detail;
        ax_trace_summary_begin(&s, &v);
        while (s.check.next < v.events) {
            CHECK(ax_trace_summary_step(&s, step, &detail) == AX_OK);
        }
        const ax_trace_totals t = s.totals;
        CHECK(t.by_op[A] == 4 && t.by_op[F] == 2 && t.by_op[R] == 1 && t.by_op[D] == 1);
        CHECK(t.objects == 4);
        CHECK(t.live_bytes == 50 && t.live_objects == 1);
        CHECK(t.peak_live_bytes == 350 && t.peak_live_objects == 2 && t.peak_event == 2);
        CHECK(t.most_live_objects == 2);
        CHECK(t.allocated_bytes == 507 && t.largest_size_bytes == 300 && t.distinct_sizes == 4);
        CHECK(t.threads == 3 && t.arenas == 2 && t.keys == 2);
        CHECK(t.cross_thread_frees == 1);
        CHECK(t.first_time_ns == 10 && t.last_time_ns == 20);
        ax_trace_summary_finish(&s);
    }
}

static void test_sums_that_overflow(void)
{
    const uint64_t half = UINT64_C(1) << 63;
    ax_detail detail;
    ax_trace_summary s;
    ax_trace_view v = view_of(2, (uint8_t[]){A, A}, (uint32_t[]){0, 1}, (uint64_t[]){half, half});
    CHECK(ax_trace_validate(&v, &detail) == AX_OK);
    ax_trace_summary_begin(&s, &v);
    CHECK(ax_trace_summary_step(&s, SIZE_MAX, &detail) == AX_ERR_OVERFLOW);
    CHECK(detail.where == 1 && detail.value == half);
    ax_trace_summary_finish(&s);
    /* Never live together, but allocated in all. */
    v = view_of(3, (uint8_t[]){A, F, A}, (uint32_t[]){0, 0, 1}, (uint64_t[]){half, 0, half});
    ax_trace_summary_begin(&s, &v);
    CHECK(ax_trace_summary_step(&s, SIZE_MAX, &detail) == AX_ERR_OVERFLOW);
    CHECK(detail.where == 2);
    ax_trace_summary_finish(&s);
}

enum { LARGE = 5000 };

typedef struct large_trace {
    uint8_t op[LARGE];
    uint32_t object[LARGE];
    uint64_t size_bytes[LARGE];
    uint32_t arena[LARGE];
    uint32_t thread[LARGE];
    ax_trace_view view;
} large_trace;

/* Random and valid: allocs, frees and reallocs in 50 arenas, some of which end. */
static void make_large(large_trace *t)
{
    static uint32_t live[LARGE], owner[LARGE];
    size_t lives = 0;
    uint32_t objects = 0;
    uint64_t random = 1;
    for (size_t i = 0; i < LARGE; i++) {
        const uint64_t r = next_random(&random);
        const size_t pick = lives ? (size_t)(r >> 32) % lives : 0;
        t->thread[i] = (uint32_t)(r >> 20) % 5;
        t->size_bytes[i] = (r >> 8) % 4096;
        if (lives == 0 || r % 8 < 4) {
            t->op[i] = A;
            t->arena[i] = owner[objects] = (uint32_t)(r >> 40) % 50;
            live[lives++] = t->object[i] = objects++;
        } else if (r % 64 == 5) {
            t->op[i] = D;
            t->object[i] = NONE32;
            t->arena[i] = owner[live[pick]];
            for (size_t k = lives; k-- > 0;) {
                if (owner[live[k]] == t->arena[i]) {
                    live[k] = live[--lives];
                }
            }
        } else {
            t->op[i] = r % 8 < 6 ? R : F;
            t->object[i] = live[pick];
            t->arena[i] = owner[live[pick]];
            if (t->op[i] == F) {
                live[pick] = live[--lives];
            }
        }
    }
    t->view = view_of(LARGE, t->op, t->object, t->size_bytes);
    t->view.arena = t->arena;
    t->view.thread = t->thread;
    t->view.key = t->thread;
}

static void test_failing_memory(void)
{
    static large_trace t;
    make_large(&t);
    ax_trace_check check;
    ax_trace_check_begin(&check, &t.view);
    ax_detail detail;
    CHECK(ax_trace_check_step(&check, LARGE, &detail) == AX_OK);
    uint64_t attempts = check.books.attempts;
    CHECK(attempts > 20);
    ax_trace_check_finish(&check);
    CHECK(check.books.bytes_held == 0);
    for (uint64_t n = 1; n <= attempts; n++) {
        ax_trace_check_begin(&check, &t.view);
        check.books.fail_at = n;
        CHECK(ax_trace_check_step(&check, LARGE, &detail) == AX_ERR_NOMEM);
        /* A check goes on where it stood. */
        CHECK(ax_trace_check_step(&check, LARGE, &detail) == AX_OK);
        CHECK(check.next == LARGE);
        ax_trace_check_finish(&check);
        CHECK(check.books.bytes_held == 0);
    }
    ax_trace_summary summary;
    ax_trace_summary_begin(&summary, &t.view);
    CHECK(ax_trace_summary_step(&summary, LARGE, &detail) == AX_OK);
    attempts = summary.check.books.attempts;
    ax_trace_summary_finish(&summary);
    CHECK(summary.check.books.bytes_held == 0);
    for (uint64_t n = 1; n <= attempts; n++) {
        ax_trace_summary_begin(&summary, &t.view);
        summary.check.books.fail_at = n;
        CHECK(ax_trace_summary_step(&summary, LARGE, &detail) == AX_ERR_NOMEM);
        CHECK(ax_trace_summary_step(&summary, LARGE, &detail) == AX_ERR_STATE);
        ax_trace_summary_finish(&summary);
        CHECK(summary.check.books.bytes_held == 0);
    }
}

int main(void)
{
    test_rules();
    test_times();
    test_arenas();
    test_totals();
    test_sums_that_overflow();
    test_failing_memory();
    return check_report();
}
