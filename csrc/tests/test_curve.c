/* curve: one pass answers what the arena answers for each byte cut by itself, counter by counter.
 */
#include "check.h"

#include <string.h>

#include "../core/arena.h"
#include "../core/curve.h"

#define MIB (UINT64_C(1) << 20)

enum { TAKE, GIVE, CLOSE };

typedef struct event {
    uint8_t kind;
    uint8_t which; /* list; of a CLOSE: arena */
    uint64_t time_ns;
} event;

/* `lists` lists, list i in arena i % arenas. */
typedef struct string {
    event *events;
    uint64_t n;
    uint32_t lists;
    uint32_t arenas;
    uint64_t thresholds[8];
    uint32_t cuts;
    ax_arena_params params;
} string;

/* What is compared, from either side. */
typedef struct answer {
    uint64_t pops, pops_large, transitions, mallocs, reallocs, frees, frees_at_close, moved;
    uint64_t buffer_bytes_end, capacity_end, overhead_peak, overhead_events;
    uint64_t overhead_ns[2];
    uint64_t histogram_peak[AX_RUNGS], histogram_buffer[AX_RUNGS];
} answer;

static void put_ns(answer *a, ax_u128 ns)
{
    a->overhead_ns[0] = (uint64_t)ns;
    a->overhead_ns[1] = (uint64_t)(ns >> 64);
}

static answer by_arena(const string *s, uint32_t cut)
{
    ax_seam seam;
    ax_seam books;
    ax_seam_init(&seam, AX_BACKING_MODELLED);
    ax_seam_init(&books, AX_BACKING_REAL);
    ax_arena_params params = s->params;
    params.policy = AX_POLICY_BYTE_CUT;
    params.retain_bytes = s->thresholds[cut];
    ax_arenas set;
    CHECK(ax_arenas_init(&set, &params, &seam, &books, NULL) == AX_OK);
    uint32_t arenas[8];
    uint32_t lists[8];
    uint64_t address;
    answer a;
    memset(&a, 0, sizeof a);
    for (uint32_t i = 0; i < s->arenas; i++) {
        CHECK(ax_arenas_open(&set, &arenas[i]) == AX_OK);
    }
    for (uint32_t i = 0; i < s->lists; i++) {
        CHECK(ax_arenas_add_list(&set, arenas[i % s->arenas], i, 8, &lists[i]) == AX_OK);
    }
    unsigned long failed = 0;
    ax_u128 ns = 0;
    for (uint64_t i = 0; i < s->n; i++) {
        const event *e = &s->events[i];
        if (e->kind == TAKE) {
            failed += ax_arena_alloc(&set, lists[e->which], &address, NULL) != AX_OK;
        } else if (e->kind == GIVE) {
            failed += ax_arena_free(&set, lists[e->which], 0) != AX_OK;
        } else {
            ax_arenas_close(&set, arenas[e->which]);
            CHECK(ax_arenas_open(&set, &arenas[e->which]) == AX_OK);
            for (uint32_t k = e->which; k < s->lists; k += s->arenas) {
                CHECK(ax_arenas_add_list(&set, arenas[e->which], k, 8, &lists[k]) == AX_OK);
            }
        }
        uint64_t overhead = set.capacity_entries - set.length_entries;
        a.overhead_events += overhead;
        if (i + 1 < s->n) {
            ns += (ax_u128)overhead * (s->events[i + 1].time_ns - e->time_ns);
        }
    }
    CHECK(failed == 0);
    put_ns(&a, ns);
    ax_arena_totals t;
    ax_arenas_totals(&set, &t);
    a.pops = t.pops;
    a.pops_large = t.pops_large;
    a.transitions = t.transitions;
    a.mallocs = set.counters.list_mallocs;
    a.reallocs = set.counters.list_reallocs;
    a.frees = set.counters.list_frees;
    a.frees_at_close = set.counters.list_frees_at_close;
    a.moved = set.counters.list_bytes_moved;
    a.buffer_bytes_end = t.list_buffer_bytes;
    a.capacity_end = set.capacity_entries;
    a.overhead_peak = set.overhead_peak_entries;
    memcpy(a.histogram_peak, set.counters.histogram_peak, sizeof a.histogram_peak);
    memcpy(a.histogram_buffer, set.counters.histogram_buffer, sizeof a.histogram_buffer);
    ax_arenas_release(&set);
    CHECK(seam.bytes_held == 0 && books.bytes_held == 0);
    return a;
}

static void by_curve(const string *s, answer *out)
{
    ax_seam books;
    ax_seam_init(&books, AX_BACKING_REAL);
    ax_ladder ladder;
    CHECK(ax_ladder_init(&ladder, s->params.list_header_bytes, s->params.pointer_bytes, NULL) ==
          AX_OK);
    ax_curve curve;
    CHECK(ax_curve_init(&curve, &ladder, s->params.large_capacity, s->thresholds, s->cuts,
                        &books) == AX_OK);
    uint32_t lists[8];
    uint32_t life = 1;
    for (uint32_t i = 0; i < s->lists; i++) {
        CHECK(ax_curve_add_list(&curve, i % s->arenas, i, 8, life, &lists[i]) == AX_OK);
    }
    uint64_t end_ns = s->n ? s->events[s->n - 1].time_ns : 0;
    unsigned long failed = 0;
    for (uint64_t i = 0; i < s->n; i++) {
        const event *e = &s->events[i];
        ax_weight now = {s->n - i, end_ns - e->time_ns};
        if (e->kind == CLOSE) {
            life++;
            for (uint32_t k = e->which; k < s->lists; k += s->arenas) {
                ax_curve_drop_list(&curve, lists[k], now);
            }
            for (uint32_t k = e->which; k < s->lists; k += s->arenas) {
                CHECK(ax_curve_add_list(&curve, e->which, k, 8, life, &lists[k]) == AX_OK);
            }
        } else if (e->kind == GIVE) {
            failed += ax_curve_push(&curve, &curve.lists[lists[e->which]], now) != AX_OK;
        } else if (curve.lists[lists[e->which]].len) {
            ax_curve_pop(&curve, &curve.lists[lists[e->which]], now);
        }
    }
    CHECK(failed == 0);
    ax_curve_finish(&curve);
    uint64_t transitions = curve.closed_transitions;
    for (uint32_t i = 0; i < curve.lists_used; i++) {
        transitions += curve.lists[i].life ? curve.lists[i].transitions : 0;
    }
    ax_curve_row peaks;
    ax_curve_get(&curve, 0, &peaks);
    for (uint32_t j = 0; j < s->cuts; j++) {
        ax_curve_row row;
        ax_curve_get(&curve, j, &row);
        answer *a = &out[j];
        memset(a, 0, sizeof *a);
        a->pops = curve.pops;
        a->pops_large = row.pops_large;
        a->transitions = transitions;
        a->mallocs = row.list_mallocs;
        a->reallocs = row.list_reallocs;
        a->frees = row.list_frees;
        a->frees_at_close = row.list_frees_at_close;
        a->moved = row.list_bytes_moved;
        a->buffer_bytes_end = row.buffer_bytes_end;
        a->capacity_end = row.capacity_end;
        a->overhead_peak = row.overhead_peak_entries;
        a->overhead_events = row.capacity_events - curve.length_events;
        put_ns(a, row.capacity_ns - curve.length_ns);
        memcpy(a->histogram_peak, peaks.histogram_buffer, sizeof a->histogram_peak);
        memcpy(a->histogram_buffer, row.histogram_buffer, sizeof a->histogram_buffer);
    }
    ax_curve_release(&curve);
    ax_curve_release(&curve); /* twice is nothing */
    CHECK(books.bytes_held == 0);
    CHECK(books.calls[AX_CALL_MALLOC] == books.calls[AX_CALL_FREE]);
}

/* Says which counters differ, for whoever has to find out why. */
static void tell(const string *s, uint64_t number, uint32_t cut, const answer *a, const answer *b)
{
    const uint64_t *x = (const uint64_t *)a;
    const uint64_t *y = (const uint64_t *)b;
    for (size_t i = 0; i < sizeof *a / sizeof *x; i++) {
        if (x[i] != y[i]) {
            fprintf(stderr, "string %llu, cut %llu: number %zu is %llu in the arena, %llu here\n",
                    (unsigned long long)number, (unsigned long long)s->thresholds[cut], i,
                    (unsigned long long)x[i], (unsigned long long)y[i]);
            return;
        }
    }
}

static void compare(const string *s, uint64_t number)
{
    answer curve[8];
    by_curve(s, curve);
    for (uint32_t j = 0; j < s->cuts; j++) {
        answer arena = by_arena(s, j);
        int equal = memcmp(&arena, &curve[j], sizeof arena) == 0;
        CHECK(equal);
        if (!equal) {
            tell(s, number, j, &arena, &curve[j]);
            return;
        }
    }
}

static event *filled(string *s, uint64_t room)
{
    s->events = calloc(room, sizeof *s->events);
    if (!s->events) {
        abort();
    }
    return s->events;
}

/* 0, and up to seven more around the rungs that lists of `most` entries reach; infinity at times.
 */
static void choose_thresholds(string *s, uint64_t *random, uint32_t most)
{
    ax_ladder ladder;
    CHECK(ax_ladder_init(&ladder, s->params.list_header_bytes, s->params.pointer_bytes, NULL) ==
          AX_OK);
    uint32_t top = ax_ladder_rung(&ladder, most);
    s->cuts = 1;
    s->thresholds[0] = 0;
    uint64_t wanted = next_random(random) % 8;
    for (uint32_t r = 1; r <= top && s->cuts <= wanted; r++) {
        uint64_t near = ladder.bytes[r] - 1 + next_random(random) % 3;
        if (next_random(random) % 2 && near > s->thresholds[s->cuts - 1]) {
            s->thresholds[s->cuts++] = near;
        }
    }
    if (s->cuts < 8 && next_random(random) % 2) {
        s->thresholds[s->cuts++] = UINT64_MAX;
    }
}

static void choose_layout(string *s, uint64_t *random)
{
    static const uint32_t headers[] = {0, 8, 8, 16, 20};
    static const uint32_t large[] = {0, 1, 3, 7, 500, UINT32_MAX};
    ax_arena_params_default(&s->params);
    s->params.list_header_bytes = headers[next_random(random) % 5];
    s->params.pointer_bytes = next_random(random) % 4 ? 8 : 4;
    s->params.large_capacity = large[next_random(random) % 6];
    s->arenas = 1 + (uint32_t)(next_random(random) % 3);
    s->lists = s->arenas + (uint32_t)(next_random(random) % 4);
}

/* Lists that swing between empty and a height that changes, single steps, and deaths of arenas. */
static void random_string(uint64_t number, uint32_t most, uint64_t length)
{
    uint64_t random = number * 7919 + most;
    string s = {0};
    choose_layout(&s, &random);
    choose_thresholds(&s, &random, most);
    event *e = filled(&s, length + 2 * most + 1);
    uint64_t time = 0;
    while (s.n < length) {
        uint64_t r = next_random(&random);
        uint8_t which = (uint8_t)((r >> 8) % s.lists);
        uint64_t height = r % 16 < 4 ? 1 : 1 + (r >> 16) % most;
        uint8_t kind = r % 16 == 15 ? CLOSE : r % 16 < 8 ? GIVE : TAKE;
        if (kind == CLOSE) {
            which = (uint8_t)(which % s.arenas);
            height = 1;
        }
        for (uint64_t k = 0; k < height; k++) {
            time += (r >> 40) % 5;
            e[s.n++] = (event){kind, which, time};
        }
    }
    compare(&s, number);
    free(s.events);
}

/* Past eight million bytes: the ladder climbs by eighths there. */
static void test_long_list(void)
{
    string s = {.lists = 1, .arenas = 1, .cuts = 4};
    ax_arena_params_default(&s.params);
    uint64_t thresholds[] = {0, 8 * MIB, 9 * MIB - 1, 9 * MIB};
    memcpy(s.thresholds, thresholds, sizeof thresholds);
    static const uint32_t peaks[] = {1048575, 1048576, 3};
    event *e = filled(&s, 2 * (1048575 + 1048576 + 3));
    for (int i = 0; i < 3; i++) {
        for (uint32_t k = 0; k < 2 * peaks[i]; k++) {
            e[s.n++] = (event){k < peaks[i] ? GIVE : TAKE, 0, s.n};
        }
    }
    compare(&s, 0);
    answer curve[8];
    by_curve(&s, curve);
    CHECK(curve[0].frees == 3 && curve[1].frees == 1 && curve[2].frees == 1);
    CHECK(curve[3].frees == 0 && curve[3].buffer_bytes_end == 9 * MIB);
    CHECK(curve[1].buffer_bytes_end == 32 && curve[3].histogram_buffer[21] == 2);
    free(s.events);
}

/* Events by hand: two episodes of peaks 4 and 3 under cuts of 0, 32 and 64. */
static void test_by_hand(void)
{
    string s = {.lists = 1, .arenas = 1, .cuts = 3, .thresholds = {0, 32, 64}};
    ax_arena_params_default(&s.params);
    s.params.large_capacity = 3;
    event *e = filled(&s, 14);
    static const char kinds[] = "++++----+++---";
    for (s.n = 0; s.n < 14; s.n++) {
        e[s.n] = (event){kinds[s.n] == '+' ? GIVE : TAKE, 0, 10 * s.n};
    }
    answer a[8];
    by_curve(&s, a);
    CHECK(a[0].mallocs == 2 && a[0].reallocs == 3 && a[0].frees == 2);
    CHECK(a[1].mallocs == 2 && a[1].reallocs == 3 && a[1].frees == 1);
    CHECK(a[2].mallocs == 1 && a[2].reallocs == 2 && a[2].frees == 0);
    CHECK(a[0].moved == 16 + 32 + 16 && a[2].moved == 16 + 32);
    CHECK(a[0].pops == 7 && a[0].pops_large == 4 && a[2].pops_large == 7);
    CHECK(a[0].overhead_peak == 6 && a[1].overhead_peak == 6 && a[2].overhead_peak == 7);
    CHECK(a[0].capacity_end == 0 && a[1].capacity_end == 3 && a[2].capacity_end == 7);
    CHECK(a[0].overhead_events == (0 + 1 + 0 + 3) + (4 + 5 + 6 + 0) + (0 + 1 + 0) + (1 + 2 + 0));
    CHECK(a[2].overhead_events == (0 + 1 + 0 + 3) + (4 + 5 + 6 + 7) + (6 + 5 + 4) + (5 + 6 + 7));
    CHECK(a[2].overhead_ns[0] == 10 * (a[2].overhead_events - 7));
    CHECK(a[2].histogram_peak[3] == 1 && a[2].histogram_peak[2] == 1);
    CHECK(a[2].histogram_buffer[3] == 2 && a[1].histogram_buffer[2] == 1);
    compare(&s, 0);
    s.n = 0;
    compare(&s, 0); /* nothing at all */
    free(s.events);
}

/* Each refusal of the books: nothing lost, nothing leaked, and the next attempt succeeds. */
static void test_refusals(void)
{
    static const uint64_t thresholds[] = {0, 100};
    ax_ladder ladder;
    ax_seam books;
    ax_curve curve;
    CHECK(ax_ladder_init(&ladder, 8, 8, NULL) == AX_OK);
    uint64_t attempts = 0;
    for (uint64_t n = 1; n <= attempts + 1; n++) {
        ax_seam_init(&books, AX_BACKING_REAL);
        books.fail_at = n;
        int status = ax_curve_init(&curve, &ladder, 500, thresholds, 2, &books);
        CHECK(status == (n <= 11 ? AX_ERR_NOMEM : AX_OK));
        attempts = 11;
        if (status != AX_OK) {
            CHECK(books.bytes_held == 0);
            ax_curve_release(&curve);
        }
    }
    uint64_t refused = 0;
    for (uint32_t i = 0; i < 200; i++) {
        uint32_t list = AX_NO_LIST;
        /* Each of the four tables that has to grow is refused in turn; the next attempt begins
         * behind those that have grown. */
        books.fail_at = books.attempts + 1;
        while (ax_curve_add_list(&curve, 0, i, 8, 1, &list) != AX_OK) {
            CHECK(list == AX_NO_LIST && curve.lists_used == i);
            refused++;
            books.fail_at = books.attempts + 2;
        }
        books.fail_at = 0;
        CHECK(list == i);
        CHECK(ax_curve_push(&curve, &curve.lists[list], (ax_weight){1, 0}) == AX_OK);
    }
    CHECK(books.failed[AX_CALL_MALLOC] == 4 && books.failed[AX_CALL_REALLOC] == refused - 4);
    CHECK(refused > 4 * 4);
    for (uint32_t i = 0; i < 200; i++) {
        CHECK(curve.lists[i].len == 1 && curve.lists[i].key == i);
        CHECK(curve.rung[2 * i] == 1 && curve.rung[2 * i + 1] == 1);
    }
    CHECK(curve.length == 200 && curve.capacity[0] == 200);

    /* The end of the ladder. */
    ladder.rungs = 3;
    ax_curve_list *first = &curve.lists[0];
    CHECK(ax_curve_push(&curve, first, (ax_weight){1, 0}) == AX_OK);
    CHECK(ax_curve_push(&curve, first, (ax_weight){1, 0}) == AX_OK);
    CHECK(first->len == 3 && curve.length == 202);
    CHECK(ax_curve_push(&curve, first, (ax_weight){1, 0}) == AX_ERR_OVERFLOW);
    CHECK(first->len == 3 && curve.length == 202 && curve.capacity[1] == 202);
    ax_curve_release(&curve);
    CHECK(books.bytes_held == 0);
}

int main(void)
{
    test_by_hand();
    for (uint64_t number = 0; number < 3000; number++) {
        random_string(number, number % 3 ? 9 : 40, 60 + number % 100);
    }
    for (uint64_t number = 0; number < 12; number++) {
        random_string(number, 700, 6000);
    }
    test_long_list();
    test_refusals();
    return check_report();
}
