/* The lean path of the arena against the counted one: the same objects in the same order, the same
 * calls to the backing, for every policy that may take it. */
#include "check.h"

#include <string.h>

#include "../core/arena.h"

#define KEYS 5
#define OBJECTS 8192

typedef struct side {
    ax_seam seam, books;
    ax_arenas set;
    uint32_t arena;
    uint32_t list[KEYS];
    uint64_t address[OBJECTS]; /* by the order in which the chunks handed them out */
    uint32_t objects;
} side;

static side lean, counted;

static void start(side *s, enum ax_policy_id policy, uint64_t retain_bytes, int metered)
{
    ax_arena_params params;
    ax_arena_params_default(&params);
    params.policy = policy;
    params.retain_bytes = retain_bytes;
    params.retain_capacity = (uint32_t)(retain_bytes / 8);
    params.large_capacity = 20;
    params.poison = 0;
    params.metered = metered;
    memset(s, 0, sizeof *s);
    ax_seam_init(&s->seam, AX_BACKING_REAL);
    ax_seam_init(&s->books, AX_BACKING_REAL);
    CHECK(ax_arenas_init(&s->set, &params, &s->seam, &s->books, NULL) == AX_OK);
    CHECK(s->set.path == (metered ? AX_PATH_COUNTED : AX_PATH_LEAN));
    CHECK(ax_arenas_open(&s->set, &s->arena) == AX_OK);
    for (uint32_t k = 0; k < KEYS; k++) {
        CHECK(ax_arenas_list(&s->set, s->arena, k, 8 + 8 * k, &s->list[k], NULL) == AX_OK);
    }
}

/* Allocates; the answer is the object's number, new ones are counted up. */
static uint32_t take(side *s, uint32_t key)
{
    uint64_t address = 0;
    CHECK(ax_arena_alloc(&s->set, s->list[key], &address, NULL) == AX_OK);
    uint32_t number = 0;
    while (number < s->objects && s->address[number] != address) {
        number++;
    }
    if (number == s->objects) {
        s->address[s->objects++] = address;
    }
    return number;
}

static void compare(void)
{
    ax_arena_totals a, b;
    ax_arenas_totals(&lean.set, &a);
    ax_arenas_totals(&counted.set, &b);
    CHECK(a.pops == b.pops && a.pops_large == b.pops_large && a.bumps == b.bumps);
    CHECK(a.freelist_objects == b.freelist_objects && a.freelist_bytes == b.freelist_bytes);
    CHECK(a.list_buffer_bytes == b.list_buffer_bytes);
    const ax_arena_counters *x = &lean.set.counters;
    const ax_arena_counters *y = &counted.set.counters;
    CHECK(x->list_mallocs == y->list_mallocs && x->list_reallocs == y->list_reallocs);
    CHECK(x->list_frees == y->list_frees && x->list_bytes_moved == y->list_bytes_moved);
    CHECK(memcmp(lean.seam.calls, counted.seam.calls, sizeof lean.seam.calls) == 0);
    CHECK(ax_arenas_check(&lean.set, NULL) == AX_OK);
}

static void drive(enum ax_policy_id policy, uint64_t retain_bytes, uint64_t seed)
{
    static uint32_t live[KEYS][OBJECTS];
    uint32_t count[KEYS] = {0};
    start(&lean, policy, retain_bytes, 0);
    start(&counted, policy, retain_bytes, 1);
    uint64_t x = seed;
    for (int step = 0; step < 400; step++) {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        uint32_t key = (uint32_t)(x % KEYS);
        uint32_t times = 1 + (uint32_t)(x >> 32) % 40;
        for (uint32_t i = 0; i < times && count[key] < OBJECTS / KEYS; i++) {
            if (x >> 63) {
                uint32_t number = take(&lean, key);
                CHECK(number == take(&counted, key));
                live[key][count[key]++] = number;
            } else if (count[key]) {
                uint32_t number = live[key][--count[key]];
                CHECK(ax_arena_free(&lean.set, lean.list[key], lean.address[number]) == AX_OK);
                CHECK(ax_arena_free(&counted.set, counted.list[key], counted.address[number]) ==
                      AX_OK);
            }
        }
        compare();
    }
    /* A refused buffer leaves the list as it was, on this path too. */
    lean.seam.fail_at = lean.seam.attempts + 1;
    uint32_t before = lean.set.lists[lean.list[0]].entries.len;
    int status = AX_OK;
    while (status == AX_OK && count[0]) {
        before = lean.set.lists[lean.list[0]].entries.len;
        status = ax_arena_free(&lean.set, lean.list[0], lean.address[live[0][--count[0]]]);
    }
    CHECK(status == AX_OK ||
          (status == AX_ERR_NOMEM && lean.set.lists[lean.list[0]].entries.len == before));
    CHECK(ax_arenas_check(&lean.set, NULL) == AX_OK);
    ax_arenas_release(&lean.set);
    ax_arenas_release(&counted.set);
    CHECK(lean.seam.bytes_held == 0 && lean.books.bytes_held == 0);
}

int main(void)
{
    static const uint64_t cuts[] = {0, 16, 64, 256, 2048, UINT64_MAX};
    for (size_t i = 0; i < sizeof cuts / sizeof cuts[0]; i++) {
        drive(AX_POLICY_BYTE_CUT, cuts[i], 88172645463325252u + i);
        drive(AX_POLICY_CAPACITY_CUT, cuts[i], 362436069u + i);
    }
    drive(AX_POLICY_RELEASE, 0, 521288629u);
    drive(AX_POLICY_KEEP_ALL, 0, 123456789u);
    return check_report();
}
