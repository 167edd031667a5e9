/* arena and policy: the two calls, poison, what each policy does at its edges, what the check sees.
 */
#include "check.h"

#include <string.h>

#include "../core/arena.h"
#include "../core/policy.h"

typedef struct fixture {
    ax_arena_params params;
    ax_seam seam;
    ax_seam books;
    ax_arenas set;
    uint32_t arena;
    uint64_t objects[4096];
    uint32_t count;
} fixture;

/* The fixture is large and knows addresses of itself: there is one, and it does not move. */
static fixture f;

static void start_with(ax_arena_params params, enum ax_backing backing)
{
    memset(&f, 0, sizeof f);
    f.params = params;
    ax_seam_init(&f.seam, backing);
    ax_seam_init(&f.books, AX_BACKING_REAL);
    CHECK(ax_arenas_init(&f.set, &params, &f.seam, &f.books, NULL) == AX_OK);
    CHECK(ax_arenas_open(&f.set, &f.arena) == AX_OK);
}

static ax_arena_params with(enum ax_policy_id policy)
{
    ax_arena_params params;
    ax_arena_params_default(&params);
    params.policy = policy;
    params.check_poison = 1;
    return params;
}

static void start(enum ax_policy_id policy)
{
    start_with(with(policy), AX_BACKING_REAL);
}

static void content(void)
{
    ax_detail detail = {0};
    int status = ax_arenas_check(&f.set, &detail);
    CHECK(status == AX_OK);
    if (status != AX_OK) {
        fprintf(stderr, "%s\n", detail.what ? detail.what : ax_status_text(status));
    }
}

static void finish(void)
{
    content();
    ax_arenas_release(&f.set);
    CHECK(f.seam.bytes_held == 0 && f.books.bytes_held == 0);
    CHECK(f.seam.calls[AX_CALL_MALLOC] == f.seam.calls[AX_CALL_FREE]);
    CHECK(f.books.calls[AX_CALL_MALLOC] == f.books.calls[AX_CALL_FREE]);
}

static uint32_t list_of(uint32_t key, uint64_t size)
{
    uint32_t list = AX_NO_LIST;
    CHECK(ax_arenas_list(&f.set, f.arena, key, size, &list, NULL) == AX_OK);
    return list;
}

static uint64_t take(uint32_t list)
{
    uint64_t address = 0;
    CHECK(ax_arena_alloc(&f.set, list, &address, NULL) == AX_OK);
    return address;
}

static void give(uint32_t list, uint64_t address)
{
    CHECK(ax_arena_free(&f.set, list, address) == AX_OK);
}

/* n objects out of the list or the chunks, and the newest n of those back on the list. */
static void allocate(uint32_t list, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        f.objects[f.count++] = take(list);
    }
}

static void release(uint32_t list, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        give(list, f.objects[--f.count]);
    }
}

static const ax_ptrlist *entries_of(uint32_t list)
{
    return &f.set.lists[list].entries;
}

/* One episode of the list with the given peak; the objects end live. */
static void episode(uint32_t list, uint32_t peak)
{
    if (f.count < peak) {
        allocate(list, peak - f.count);
    }
    release(list, peak);
    allocate(list, peak);
    CHECK(entries_of(list)->len == 0);
}

static uint64_t buffer_bytes(uint32_t list)
{
    return f.set.ladder.bytes[entries_of(list)->rung];
}

/* --- the two calls */

static void test_newest_first(enum ax_policy_id policy)
{
    start(policy);
    uint32_t list = list_of(1, 40);
    uint64_t a = take(list);
    uint64_t b = take(list);
    uint64_t c = take(list);
    CHECK(b == a + 40 && c == b + 40);
    give(list, b);
    give(list, a);
    give(list, c);
    CHECK(take(list) == c);
    CHECK(take(list) == a);
    give(list, c);
    CHECK(take(list) == c);
    CHECK(take(list) == b);
    CHECK(take(list) == c + 40); /* nothing is free: the chunk again */
    CHECK(f.set.lists[list].pops == 4 && f.set.lists[list].bumps == 4);
    CHECK(f.set.operations == 12);
    finish();
}

static void test_keys(void)
{
    start(AX_POLICY_BYTE_CUT);
    uint32_t one = list_of(1, 33);
    uint32_t two = list_of(2, 40);
    CHECK(one != two && f.set.lists[one].entry_bytes == 40);
    CHECK(list_of(1, 40) == one && list_of(1, 34) == one);
    uint64_t a = take(one);
    give(one, a);
    CHECK(take(two) != a); /* a key never gets the memory of another, of whatever size */
    CHECK(take(one) == a);

    CHECK(list_of(3, 80) == list_of(3, 16)); /* no object has fixed its size yet */
    uint32_t none = 77;
    ax_detail detail = {0};
    CHECK(ax_arenas_list(&f.set, f.arena, 1, 41, &none, &detail) == AX_ERR_WRONG_SIZE);
    CHECK(detail.value == 41 && detail.low == 40 && detail.where == 1 && none == 77);
    CHECK(ax_arenas_list(&f.set, f.arena, 1, 32, &none, &detail) == AX_ERR_WRONG_SIZE);
    CHECK(ax_arenas_list(&f.set, f.arena, 9, 0, &none, &detail) == AX_ERR_RANGE);
    CHECK(ax_arenas_list(&f.set, f.arena, 9, (UINT64_C(1) << 40) + 1, &none, &detail) ==
          AX_ERR_RANGE);
    CHECK(strcmp(detail.what, "size_bytes") == 0 && detail.high == UINT64_C(1) << 40);
    CHECK(f.set.lists_used == 3);
    finish();
}

static void test_intrusive(void)
{
    ax_arena_params params = with(AX_POLICY_INTRUSIVE);
    params.recycle_below_bytes = 400;
    start_with(params, AX_BACKING_REAL);
    uint32_t small = list_of(1, 392);
    CHECK(list_of(2, 385) == small); /* lists belong to sizes */
    CHECK(list_of(1, 40) != small);
    uint32_t large = list_of(1, 400);
    uint64_t a = take(small);
    uint64_t b = take(large);
    give(small, a);
    give(large, b);
    content();
    CHECK(take(small) == a);
    CHECK(take(large) != b); /* of 400 bytes and more: never again */
    ax_arena_totals totals;
    ax_arenas_totals(&f.set, &totals);
    CHECK(totals.leaked_objects == 1 && totals.leaked_bytes == 400);
    CHECK(totals.pops == 1 && totals.transitions == 1);
    CHECK(totals.lists_with_buffer == 0 && totals.list_buffer_bytes == 0);
    CHECK(f.set.counters.list_mallocs == 0 && f.set.capacity_entries == 0);
    finish();
}

static void test_poison(void)
{
    CHECK(ax_poison_word(4096, 8) == UINT64_C(0x7FFFFFFFF0DEA7FF));
    CHECK(ax_poison_word(16384, 8) == UINT64_C(0x7FFFFFFFF0DE8000) + 8191);
    CHECK(ax_poison_word(65536, 8) == UINT64_C(0x7FFFFFFFF0DE7FFF));
    CHECK(ax_poison_word(4096, 4) == UINT64_C(0xF0DEA7FF));

    for (int intrusive = 0; intrusive < 2; intrusive++) {
        start(intrusive ? AX_POLICY_INTRUSIVE : AX_POLICY_BYTE_CUT);
        uint64_t wanted = ax_poison_word(ax_page_bytes(), 8);
        CHECK(f.set.poison_word == wanted);
        uint32_t list = list_of(3, 44); /* 48 */
        uint64_t a = take(list);
        uint64_t b = take(list);
        uint64_t *words = ax_at(a);
        uint64_t *after = ax_at(b);
        memset(words, 1, 48);
        memset(after, 1, 48);
        give(list, a);
        for (int i = intrusive; i < 6; i++) {
            CHECK(words[i] == wanted);
        }
        CHECK(after[0] == UINT64_C(0x0101010101010101));
        for (uint64_t i = (uint64_t)intrusive; i < 6; i++) {
            words[i] = 0xBAD;
            ax_detail detail = {0};
            uint64_t none = 5;
            uint64_t operations = f.set.operations;
            CHECK(ax_arena_alloc(&f.set, list, &none, &detail) == AX_ERR_POISON);
            CHECK(detail.value == 0xBAD && detail.low == wanted);
            CHECK(detail.high == a && detail.where == 8 * i);
            CHECK(none == 5 && f.set.lists[list].pops == 0 && f.set.operations == operations);
            CHECK(entries_of(list)->len == 1);
            CHECK(ax_arenas_check(&f.set, &detail) == AX_ERR_POISON && detail.where == 8 * i);
            words[i] = wanted;
            content();
        }
        if (intrusive) {
            /* The link of the only free object must end the list. */
            words[0] = (uint64_t)b;
            ax_detail detail = {0};
            CHECK(ax_arenas_check(&f.set, &detail) == AX_ERR_POISON && detail.value == b);
            words[0] = 0;
        }
        CHECK(take(list) == a);
        finish();
    }

    /* Written but not looked at; neither. */
    ax_arena_params params = with(AX_POLICY_BYTE_CUT);
    params.check_poison = 0;
    start_with(params, AX_BACKING_REAL);
    uint32_t list = list_of(1, 8);
    uint64_t a = take(list);
    give(list, a);
    uint64_t *word = ax_at(a);
    CHECK(*word == f.set.poison_word);
    *word = 3;
    CHECK(take(list) == a && *word == 3);
    finish();
    params.poison = 0;
    start_with(params, AX_BACKING_REAL);
    list = list_of(1, 8);
    a = take(list);
    word = ax_at(a);
    *word = 4;
    give(list, a);
    CHECK(take(list) == a && *word == 4);
    finish();
}

/* --- policies */

/* Which buffer stays after one episode whose peak fills the given rung. */
static uint64_t kept_after(ax_arena_params params, enum ax_backing backing, uint32_t rung)
{
    start_with(params, backing);
    uint32_t list = list_of(1, 8);
    episode(list, f.set.ladder.capacity[rung]);
    uint64_t bytes = buffer_bytes(list);
    CHECK(f.set.counters.list_mallocs == 1 && f.set.counters.list_reallocs == rung - 1);
    CHECK(f.set.counters.list_frees == (bytes == 0));
    CHECK(f.set.counters.histogram_peak[rung] == 1);
    CHECK(f.set.counters.histogram_buffer[rung] == 1);
    CHECK(f.set.lists[list].transitions == 1);
    CHECK(f.set.lists[list].peaks_sum == f.set.ladder.capacity[rung]);
    finish();
    return bytes;
}

static void test_cuts(void)
{
    ax_arena_params params = with(AX_POLICY_BYTE_CUT);
    for (uint32_t rung = 1; rung <= 11; rung++) {
        uint64_t bytes = UINT64_C(8) << rung;
        params.policy = AX_POLICY_BYTE_CUT;
        params.retain_bytes = bytes;
        CHECK(kept_after(params, AX_BACKING_REAL, rung) == bytes);
        params.retain_bytes = bytes - 1;
        CHECK(kept_after(params, AX_BACKING_REAL, rung) == 0);
        params.policy = AX_POLICY_CAPACITY_CUT;
        params.retain_capacity = (1u << rung) - 1;
        CHECK(kept_after(params, AX_BACKING_REAL, rung) == bytes);
        params.retain_capacity--;
        CHECK(kept_after(params, AX_BACKING_REAL, rung) == 0);
        params.policy = AX_POLICY_RELEASE;
        CHECK(kept_after(params, AX_BACKING_REAL, rung) == 0);
        params.policy = AX_POLICY_KEEP_ALL;
        CHECK(kept_after(params, AX_BACKING_REAL, rung) == bytes);
    }
    /* capacity > 500 is the same as any byte cut of 2048 to 4095 with 8-byte pointers ... */
    static const uint64_t same[] = {2048, 2049, 3000, 4095};
    for (uint32_t rung = 1; rung <= 11; rung++) {
        params.policy = AX_POLICY_CAPACITY_CUT;
        params.retain_capacity = 500;
        params.pointer_bytes = 8;
        uint64_t kept = kept_after(params, AX_BACKING_MODELLED, rung);
        CHECK(kept == (rung <= 8 ? UINT64_C(8) << rung : 0));
        params.policy = AX_POLICY_BYTE_CUT;
        for (size_t i = 0; i < sizeof same / sizeof same[0]; i++) {
            params.retain_bytes = same[i];
            CHECK(kept_after(params, AX_BACKING_MODELLED, rung) == kept);
        }
        /* ... but with 4-byte pointers a 2048-byte buffer holds 510 entries and goes. */
        params.policy = AX_POLICY_CAPACITY_CUT;
        params.pointer_bytes = 4;
        kept = kept_after(params, AX_BACKING_MODELLED, rung);
        CHECK(kept == (rung == 1 ? 12 : rung <= 8 ? UINT64_C(4) << rung : 0));
        params.policy = AX_POLICY_BYTE_CUT;
        params.retain_bytes = 2048;
        kept = kept_after(params, AX_BACKING_MODELLED, rung);
        CHECK(kept == (rung == 1 ? 12 : rung <= 9 ? UINT64_C(4) << rung : 0));
    }
}

/* Pops from a buffer with room for more than 500 are large, the one that empties it too. */
static void test_large(void)
{
    ax_arena_params params = with(AX_POLICY_BYTE_CUT);
    start_with(params, AX_BACKING_REAL);
    uint32_t list = list_of(1, 8);
    episode(list, 255);
    CHECK(f.set.lists[list].pops_large == 0);
    episode(list, 256);
    CHECK(f.set.lists[list].pops == 511 && f.set.lists[list].pops_large == 256);
    episode(list, 3); /* the list was released, and is small again */
    CHECK(f.set.lists[list].pops_large == 256 && buffer_bytes(list) == 32);
    finish();
    params.large_capacity = 3;
    start_with(params, AX_BACKING_REAL);
    list = list_of(1, 8);
    episode(list, 3);
    CHECK(f.set.lists[list].pops_large == 0);
    episode(list, 4);
    episode(list, 1);
    CHECK(f.set.lists[list].pops_large == 5);
    finish();
}

static void test_peak_window(void)
{
    ax_arena_params params = with(AX_POLICY_PEAK_WINDOW);
    params.window_episodes = 2;
    start_with(params, AX_BACKING_REAL);
    uint32_t list = list_of(1, 8);
    static const struct {
        uint32_t peak;
        uint64_t kept;
    } episodes[] = {{7, 64}, {1, 64},   {2, 32},  {3, 32}, {1, 32},
                    {1, 16}, {16, 256}, {3, 256}, {4, 64}};
    for (size_t i = 0; i < sizeof episodes / sizeof episodes[0]; i++) {
        episode(list, episodes[i].peak);
        CHECK(buffer_bytes(list) == episodes[i].kept);
    }
    CHECK(f.set.counters.list_frees == 0);
    finish();

    params.window_episodes = 1;
    params.padding_entries = 1;
    start_with(params, AX_BACKING_REAL);
    list = list_of(1, 8);
    episode(list, 15);
    CHECK(buffer_bytes(list) == 128); /* 16 would need a larger one: nothing grows here */
    episode(list, 7);
    CHECK(buffer_bytes(list) == 128);
    episode(list, 6);
    CHECK(buffer_bytes(list) == 64);
    episode(list, 1);
    CHECK(buffer_bytes(list) == 32);
    finish();

    params.padding_entries = UINT32_MAX;
    start_with(params, AX_BACKING_REAL);
    list = list_of(1, 8);
    episode(list, 15);
    episode(list, 1);
    CHECK(buffer_bytes(list) == 128);
    finish();
}

static void test_low_water(void)
{
    ax_arena_params params = with(AX_POLICY_LOW_WATER);
    params.tick_operations = 100;
    start_with(params, AX_BACKING_REAL);
    uint32_t list = list_of(1, 8);
    allocate(list, 49);
    release(list, 16); /* 256 bytes, 31 entries */
    CHECK(f.set.operations == 65 && buffer_bytes(list) == 256);
    allocate(list, 34); /* 99 operations; the high mark is 16 */
    CHECK(buffer_bytes(list) == 256 && entries_of(list)->len == 0);
    allocate(list, 1);
    /* 15 unused, 8 of them go: 23 are wanted, as near to 31 as to 15, which is too few anyway. */
    CHECK(f.set.operations == 100 && buffer_bytes(list) == 256);
    CHECK(f.set.wake_at == 200);
    /* Nothing used since: 31 unused, 15 wanted; then 7, 3, 1, 0. */
    static const uint64_t bytes[] = {128, 64, 32, 16, 0, 0};
    uint32_t other = list_of(2, 16);
    for (size_t i = 0; i < sizeof bytes / sizeof bytes[0]; i++) {
        for (uint32_t k = 0; k < 100; k++) {
            (void)take(other);
        }
        CHECK(buffer_bytes(list) == bytes[i]);
        content();
    }
    CHECK(f.set.counters.list_frees == 1 && f.set.counters.list_reallocs == 4 + 4);
    finish();

    /* Entries in use are never lost. */
    params.tick_operations = 1;
    start_with(params, AX_BACKING_REAL);
    list = list_of(1, 8);
    for (uint32_t n = 1; n < 40; n++) {
        if (f.count < n) {
            allocate(list, n - f.count);
        }
        release(list, n);
        CHECK(entries_of(list)->len >= n);
        content();
        uint64_t newest = ax_ptrlist_entries(entries_of(list))[n - 1];
        allocate(list, n);
        CHECK(f.objects[f.count - n] == newest);
        content();
    }
    finish();
}

static void test_age(void)
{
    ax_arena_params params = with(AX_POLICY_AGE);
    params.idle_operations = 10;
    start_with(params, AX_BACKING_REAL);
    uint32_t a = list_of(1, 8);
    uint32_t b = list_of(2, 8);
    uint32_t other = list_of(3, 8);
    uint64_t x = take(a);
    uint64_t y = take(b);
    give(a, x);
    give(b, y);
    CHECK(f.set.wake_at == AX_NO_DEADLINE);
    x = take(a); /* operation 5 empties a, 6 empties b */
    y = take(b);
    CHECK(f.set.wake_at == 15);
    for (int i = 0; i < 8; i++) {
        (void)take(other);
    }
    CHECK(f.set.operations == 14 && buffer_bytes(a) == 16);
    content();
    (void)take(other);
    CHECK(buffer_bytes(a) == 0 && buffer_bytes(b) == 16 && f.set.wake_at == 16);
    give(b, y); /* operation 16 uses b: it is idle no longer */
    CHECK(buffer_bytes(b) == 16 && f.set.wake_at == AX_NO_DEADLINE);
    y = take(b);
    CHECK(f.set.wake_at == 27);
    ax_arenas_close(&f.set, f.arena); /* the queue forgets lists that die */
    CHECK(f.set.wake_at == AX_NO_DEADLINE && f.set.oldest == AX_NO_LIST);
    CHECK(f.set.youngest == AX_NO_LIST && f.set.counters.list_frees_at_close == 1);
    CHECK(f.set.counters.list_frees == 1);
    finish();

    /* The middle of the queue leaves it; idle for 0 is released at once; never is never. */
    start_with(params, AX_BACKING_REAL);
    uint32_t lists[3];
    for (uint32_t i = 0; i < 3; i++) {
        lists[i] = list_of(i, 8);
        f.objects[i] = take(lists[i]);
        give(lists[i], f.objects[i]);
        (void)take(lists[i]);
    }
    CHECK(f.set.wake_at == 13);
    give(lists[1], f.objects[1]);
    CHECK(f.set.wake_at == 13 && f.set.oldest == lists[0] && f.set.youngest == lists[2]);
    give(lists[0], f.objects[0]);
    CHECK(f.set.wake_at == 19 && f.set.oldest == lists[2]);
    give(lists[2], f.objects[2]);
    CHECK(f.set.wake_at == AX_NO_DEADLINE);
    finish();
    params.idle_operations = 0;
    CHECK(kept_after(params, AX_BACKING_REAL, 3) == 0);
    params.idle_operations = UINT64_MAX;
    CHECK(kept_after(params, AX_BACKING_REAL, 3) == 64);
}

static void test_budget(void)
{
    ax_arena_params params = with(AX_POLICY_BUDGET);
    params.budget_bytes = 100;
    start_with(params, AX_BACKING_REAL);
    uint32_t a = list_of(1, 8);
    uint32_t b = list_of(2, 8);
    uint32_t c = list_of(3, 8);
    episode(a, 7); /* 64 */
    CHECK(f.set.pooled_bytes == 64 && buffer_bytes(a) == 64);
    f.count = 0;
    episode(b, 4); /* 64 more would be 128 */
    CHECK(f.set.pooled_bytes == 64 && buffer_bytes(b) == 0);
    f.count = 0;
    episode(c, 3); /* 32 more are 96 */
    CHECK(f.set.pooled_bytes == 96 && buffer_bytes(c) == 32);
    content();
    uint64_t x = f.objects[0];
    give(c, x); /* a list in use does not count */
    CHECK(f.set.pooled_bytes == 64 && buffer_bytes(c) == 32);
    (void)take(c);
    CHECK(f.set.pooled_bytes == 96);
    ax_arenas_close(&f.set, f.arena);
    CHECK(f.set.pooled_bytes == 0);
    finish();
    params.budget_bytes = 64;
    CHECK(kept_after(params, AX_BACKING_REAL, 3) == 64);
    params.budget_bytes = 63;
    CHECK(kept_after(params, AX_BACKING_REAL, 3) == 0);
    params.budget_bytes = UINT64_MAX;
    CHECK(kept_after(params, AX_BACKING_REAL, 3) == 64);
}

/* --- life of arenas, parameters */

static void test_close(void)
{
    start(AX_POLICY_KEEP_ALL);
    uint32_t list = list_of(1, 48);
    episode(list, 4);
    release(list, 2);
    uint32_t second;
    CHECK(ax_arenas_open(&f.set, &second) == AX_OK && second != f.arena);
    uint32_t here;
    CHECK(ax_arenas_list(&f.set, second, 1, 96, &here, NULL) == AX_OK); /* a name of its own */
    CHECK(here != list);
    uint64_t b = take(here);
    give(here, b);
    content();
    ax_arena_totals before;
    ax_arena_totals after;
    ax_arenas_totals(&f.set, &before);
    CHECK(before.freelist_bytes == 2 * 48 + 96 && before.freelist_objects == 3);
    CHECK(before.lists == 2 && before.lists_with_buffer == 2 && before.chunks == 2);
    CHECK(before.list_buffer_bytes == 64 + 16 && before.bumped_bytes == 4 * 48 + 96);
    ax_arenas_close(&f.set, f.arena);
    content();
    ax_arenas_totals(&f.set, &after);
    CHECK(after.pops == before.pops && after.bumps == before.bumps);
    CHECK(after.transitions == before.transitions && after.peaks_sum == before.peaks_sum);
    CHECK(after.lists == 1 && after.chunks == 1 && after.freelist_bytes == 96);
    CHECK(f.set.length_entries == 1 && f.set.capacity_entries == 1);
    CHECK(f.set.counters.list_frees_at_close == 1 && f.set.counters.arenas_closed == 1);
    CHECK(f.set.counters.list_frees == 0 && f.set.arenas_alive == 1);
    CHECK(f.seam.bytes_held == 8192 + 16);
    /* Slots are used again, names of the dead are not found. */
    uint32_t third;
    CHECK(ax_arenas_open(&f.set, &third) == AX_OK && third == f.arena);
    uint32_t again;
    CHECK(ax_arenas_list(&f.set, third, 1, 8, &again, NULL) == AX_OK && again == list);
    CHECK(f.set.lists[again].entry_bytes == 8 && f.set.lists[again].pops == 0);
    CHECK(f.set.lists_used == 2 && f.set.arenas_used == 2);
    finish();
}

static void refuse(ax_arena_params params, enum ax_backing backing, const char *what)
{
    ax_seam seam;
    ax_seam books;
    ax_seam_init(&seam, backing);
    ax_seam_init(&books, AX_BACKING_REAL);
    ax_arenas set;
    ax_detail detail = {0};
    CHECK(ax_arenas_init(&set, &params, &seam, &books, &detail) == AX_ERR_RANGE);
    CHECK(detail.what && strcmp(detail.what, what) == 0);
    ax_arenas_release(&set); /* of what never was */
    CHECK(seam.attempts == 0 && books.attempts == 0);
}

static void test_parameters(void)
{
    ax_arena_params p = with(AX_POLICY_BYTE_CUT);
    p.policy = AX_POLICIES;
    refuse(p, AX_BACKING_REAL, "policy");
    p = with(AX_POLICY_PEAK_WINDOW);
    p.window_episodes = 0;
    refuse(p, AX_BACKING_REAL, "window_episodes");
    p.window_episodes = AX_MAX_WINDOW + 1;
    refuse(p, AX_BACKING_REAL, "window_episodes");
    p = with(AX_POLICY_LOW_WATER);
    p.tick_operations = 0;
    refuse(p, AX_BACKING_REAL, "tick_operations");
    p = with(AX_POLICY_RELEASE);
    p.pointer_bytes = 4;
    refuse(p, AX_BACKING_REAL, "pointer_bytes of an arena on real memory");
    p = with(AX_POLICY_RELEASE);
    p.list_header_bytes = 12;
    refuse(p, AX_BACKING_REAL, "list_header_bytes (a multiple of 8 on real memory)");
    p.list_header_bytes = 65;
    refuse(p, AX_BACKING_MODELLED, "list_header_bytes");
    p = with(AX_POLICY_RELEASE);
    p.shape.chunk_bytes = 10;
    refuse(p, AX_BACKING_REAL, "chunk_bytes");
    for (uint32_t i = 0; i < AX_POLICIES; i++) {
        CHECK(ax_policy_name(i) && ax_policy_get(i));
        for (uint32_t k = 0; k < i; k++) {
            CHECK(strcmp(ax_policy_name(i), ax_policy_name(k)) != 0);
        }
    }
    CHECK(!ax_policy_name(AX_POLICIES) && !ax_policy_get(AX_POLICIES));
}

/* --- what the check sees */

#define DEMAND(field, wrong, text)                                 \
    do {                                                           \
        ax_detail detail = {0};                                    \
        const uint64_t kept = (uint64_t)(field);                   \
        (field) = (__typeof__(field))(wrong);                      \
        CHECK(ax_arenas_check(&f.set, &detail) == AX_ERR_CORRUPT); \
        CHECK(detail.what &&strcmp(detail.what, text) == 0);       \
        (field) = (__typeof__(field))kept;                         \
        content();                                                 \
    } while (0)

static void test_corruption(enum ax_policy_id policy)
{
    ax_arena_params params = with(policy);
    params.budget_bytes = 64;
    params.check_poison = 0; /* it would see some of this first */
    start_with(params, AX_BACKING_REAL);
    uint32_t list = list_of(1, 40);
    uint32_t empty = list_of(2, 48);
    episode(list, 5);
    release(list, 3);
    uint64_t x = take(empty);
    give(empty, x);
    x = take(empty);
    content();
    ax_list *l = &f.set.lists[list];
    ax_list *e = &f.set.lists[empty];
    DEMAND(l->arena, 1, "a list belongs to no living arena");
    DEMAND(l->life, 99, "a list belongs to no living arena");
    static const char length[] = "length and capacity of a list";
    if (policy == AX_POLICY_INTRUSIVE) {
        DEMAND(l->entries.rung, 1, length);
        uint64_t *link = ax_at(l->entries.buffer);
        DEMAND(l->entries.buffer, f.set.arenas[f.arena].pool.end - 8,
               "a free list holds an address outside its arena");
        DEMAND(*link, 64, "a free list holds an address outside its arena");
        DEMAND(l->entries.len, 2, "an intrusive list does not end");
    } else {
        DEMAND(l->entries.rung, l->entries.rung + 1, length);
        DEMAND(l->entries.rung, AX_RUNGS, length);
        DEMAND(l->entries.capacity, l->entries.capacity - 1, length);
        DEMAND(l->entries.len, l->entries.capacity + 1, length);
        uint64_t *entries = ax_ptrlist_entries(&l->entries);
        DEMAND(entries[1], 64, "a free list holds an address outside its arena");
        DEMAND(entries[2], f.set.arenas[f.arena].pool.end - 39,
               "a free list holds an address outside its arena");
        DEMAND(l->entries.len, 2, "sums over the lists (length)");
        DEMAND(f.set.length_entries, 4, "sums over the lists (length)");
        DEMAND(f.set.capacity_entries, f.set.capacity_entries + 1, "sums over the lists (length)");
    }
    DEMAND(l->peak, 0, "peak of a list's episode");
    DEMAND(l->peak, 2, "peak of a list's episode");
    DEMAND(e->peak, 1, "peak of a list's episode");
    DEMAND(l->peaks_sum, l->pops + 1, "sum of episode peaks above pops");
    DEMAND(l->pooled, 1, "a list in use is booked as empty");
    DEMAND(l->bumps, l->bumps + 1, "objects of the lists and bytes of the pools differ");
    DEMAND(l->entry_bytes, 32, "objects of the lists and bytes of the pools differ");
    DEMAND(f.set.wake_at, f.set.operations, "a deadline was missed");
    DEMAND(f.set.arenas[f.arena].pool.slop_bytes, 8, "parts of the chunks do not add up");
    if (policy == AX_POLICY_BUDGET) {
        DEMAND(f.set.pooled_bytes, 32, "bytes in the budget");
        DEMAND(e->pooled, 0, "bytes in the budget");
        DEMAND(f.set.params.budget_bytes, 15, "bytes in the budget");
    }
    if (policy == AX_POLICY_RELEASE) {
        DEMAND(e->pooled, 1, "a list in use is booked as empty"); /* without a buffer */
    }
    finish();
}

int main(void)
{
    static const enum ax_policy_id all[] = {
        AX_POLICY_RELEASE,   AX_POLICY_BYTE_CUT,  AX_POLICY_CAPACITY_CUT,
        AX_POLICY_KEEP_ALL,  AX_POLICY_INTRUSIVE, AX_POLICY_PEAK_WINDOW,
        AX_POLICY_LOW_WATER, AX_POLICY_AGE,       AX_POLICY_BUDGET,
    };
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        test_newest_first(all[i]);
        test_corruption(all[i]);
    }
    test_keys();
    test_intrusive();
    test_poison();
    test_cuts();
    test_large();
    test_peak_window();
    test_low_water();
    test_age();
    test_budget();
    test_close();
    test_parameters();
    return check_report();
}
