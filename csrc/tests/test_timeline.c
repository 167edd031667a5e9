/* timeline: edges, rows, sums that overflow, a trace that changed, failing memory. */
#include "check.h"

#include <string.h>

#include "../core/timeline.h"

enum { A = AX_OP_ALLOC, F = AX_OP_FREE, R = AX_OP_REALLOC, D = AX_OP_DESTROY };

static const uint8_t ops[] = {A, A, F, R, A, D, A};
static const uint32_t objects[] = {0, 1, 0, 1, 2, UINT32_MAX, 3};
static const uint64_t sizes[] = {10, 20, 0, 5, 7, 0, 1};
static const uint32_t arenas[] = {0, 0, 0, 0, 1, 0, 0};

static ax_trace_view small_view(void)
{
    return (ax_trace_view){
        .events = 7, .op = ops, .object = objects, .size_bytes = sizes, .arena = arenas};
}

static int begun(const uint64_t *edges, size_t rows)
{
    const ax_trace_view view = small_view();
    ax_timeline t;
    const int status = ax_timeline_begin(&t, &view, edges, rows, NULL);
    ax_timeline_finish(&t);
    CHECK(t.books.bytes_held == 0);
    return status;
}

static void test_edges(void)
{
    CHECK(begun((uint64_t[]){0, 7}, 1) == AX_OK);
    CHECK(begun((uint64_t[]){0, 0, 3, 3, 7, 7}, 5) == AX_OK);
    CHECK(begun((uint64_t[]){1, 7}, 1) == AX_ERR_RANGE);
    CHECK(begun((uint64_t[]){0, 6}, 1) == AX_ERR_RANGE);
    CHECK(begun((uint64_t[]){0, 8}, 1) == AX_ERR_RANGE);
    CHECK(begun((uint64_t[]){0, 5, 4, 7}, 3) == AX_ERR_RANGE);
    CHECK(begun((uint64_t[]){0}, 0) == AX_ERR_RANGE);
}

static void test_rows(void)
{
    const ax_trace_view view = small_view();
    ax_timeline t;
    CHECK(ax_timeline_begin(&t, &view, (uint64_t[]){0, 2, 2, 5, 7}, 4, NULL) == AX_OK);
    for (size_t done = 1; done <= 7; done++) {
        CHECK(ax_timeline_step(&t, 1, NULL) == AX_OK);
        CHECK(t.next == done);
    }
    CHECK(ax_timeline_step(&t, 100, NULL) == AX_OK);
    const ax_timeline_row *r = t.out;
    CHECK(r[0].allocs == 2 && r[0].allocated_bytes == 30 && r[0].live_bytes == 30);
    CHECK(r[0].least_live_bytes == 10 && r[0].most_live_objects == 2 && r[0].most_bytes_event == 1);
    CHECK(r[1].allocs == 0 && r[1].live_bytes == 30 && r[1].most_live_bytes == 30);
    CHECK(r[1].most_bytes_event == AX_NO_OBJECT);
    CHECK(r[2].frees == 1 && r[2].reallocs == 1 && r[2].allocs == 1 && r[2].live_bytes == 12);
    CHECK(r[2].least_live_bytes == 5 && r[2].least_live_objects == 1);
    CHECK(r[2].most_live_bytes == 20 && r[2].most_bytes_event == 2);
    /* The end of arena 0 takes the object of 5 bytes along. */
    CHECK(r[3].destroys == 1 && r[3].least_live_bytes == 7 && r[3].live_bytes == 8);
    ax_timeline_finish(&t);
    CHECK(t.books.bytes_held == 0);
}

static void expect_refusal(const ax_trace_view *view, int status, uint64_t where)
{
    ax_timeline t;
    ax_detail detail = {0};
    const uint64_t edges[] = {0, view->events};
    CHECK(ax_timeline_begin(&t, view, edges, 1, NULL) == AX_OK);
    CHECK(ax_timeline_step(&t, SIZE_MAX, &detail) == status);
    CHECK(detail.where == where);
    CHECK(ax_timeline_step(&t, 1, NULL) == AX_ERR_STATE);
    ax_timeline_finish(&t);
    CHECK(t.books.bytes_held == 0);
}

static void test_refusals(void)
{
    ax_trace_view view = {.events = 2,
                          .op = (uint8_t[]){A, A},
                          .object = (uint32_t[]){0, 1},
                          .size_bytes = (uint64_t[]){UINT64_MAX, 1}};
    expect_refusal(&view, AX_ERR_OVERFLOW, 1);
    view.op = (uint8_t[]){A, R};
    view.object = (uint32_t[]){0, 0};
    expect_refusal(&view, AX_ERR_OVERFLOW, 1);
    view.size_bytes = (uint64_t[]){1, 1};
    view.object = (uint32_t[]){0, 1};
    expect_refusal(&view, AX_ERR_EVENT_OBJECT, 1);
    view.op = (uint8_t[]){A, A};
    view.object = (uint32_t[]){0, 2};
    expect_refusal(&view, AX_ERR_EVENT_ORDER, 1);
    view.op = (uint8_t[]){A, 9};
    view.object = (uint32_t[]){0, 0};
    expect_refusal(&view, AX_ERR_EVENT_OP, 1);
}

enum { LARGE = 2000 };

static void test_failing_memory(void)
{
    static uint8_t op[LARGE];
    static uint32_t object[LARGE], arena[LARGE];
    static uint64_t size[LARGE];
    for (uint32_t i = 0; i < LARGE; i++) {
        object[i] = i;
        arena[i] = i % 100;
        size[i] = i;
    }
    const ax_trace_view view = {
        .events = LARGE, .op = op, .object = object, .size_bytes = size, .arena = arena};
    const uint64_t edges[] = {0, 1000, LARGE};
    ax_timeline t;
    CHECK(ax_timeline_begin(&t, &view, edges, 2, NULL) == AX_OK);
    const uint64_t begun_with = t.books.attempts;
    CHECK(ax_timeline_step(&t, SIZE_MAX, NULL) == AX_OK);
    const uint64_t attempts = t.books.attempts - begun_with;
    CHECK(attempts > 10);
    ax_timeline_finish(&t);
    for (uint64_t n = 1; n <= attempts; n++) {
        CHECK(ax_timeline_begin(&t, &view, edges, 2, NULL) == AX_OK);
        t.books.fail_at = begun_with + n;
        CHECK(ax_timeline_step(&t, SIZE_MAX, NULL) == AX_ERR_NOMEM);
        CHECK(ax_timeline_step(&t, SIZE_MAX, NULL) == AX_ERR_STATE);
        ax_timeline_finish(&t);
        CHECK(t.books.bytes_held == 0);
    }
}

int main(void)
{
    test_edges();
    test_rows();
    test_refusals();
    test_failing_memory();
    return check_report();
}
