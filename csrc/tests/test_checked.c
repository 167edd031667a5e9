/* checked: every misuse is refused and changes nothing; every refusal of the backing is survived.
 */
#include "check.h"

#include <string.h>

#include "../core/checked.h"

#define ARENAS 20
#define LIVE 400

typedef struct thing {
    uint32_t arena;
    uint32_t key;
    uint64_t size;
    uint64_t address;
    uint32_t generation;
    uint8_t fill;
} thing;

typedef struct world {
    ax_seam seam;
    ax_seam books;
    ax_arenas set;
    ax_checked arenas[ARENAS];
    thing live[LIVE];
    uint32_t alive;
    uint8_t fills;
    uint64_t refusals;
} world;

/* Large, and known by address: there is one. */
static world w;

/* Which of the arena's paths is taken: poison takes the full one, no meters the lean one. */
static enum ax_path path = AX_PATH_FULL;

static void begin(enum ax_policy_id policy)
{
    memset(&w, 0, sizeof w);
    ax_arena_params params;
    ax_arena_params_default(&params);
    params.policy = policy;
    params.shape.chunk_bytes = 256;
    params.retain_bytes = 64;
    params.retain_capacity = 7;
    params.window_episodes = 2;
    params.tick_operations = 7;
    params.idle_operations = 9;
    params.budget_bytes = 200;
    params.recycle_below_bytes = 100;
    params.poison = params.check_poison = path == AX_PATH_FULL;
    params.metered = path != AX_PATH_LEAN;
    ax_seam_init(&w.seam, AX_BACKING_REAL);
    ax_seam_init(&w.books, AX_BACKING_REAL);
    CHECK(ax_arenas_init(&w.set, &params, &w.seam, &w.books, NULL) == AX_OK);
    CHECK(w.set.path == path || policy >= AX_POLICY_INTRUSIVE);
}

static void content(void)
{
    for (uint32_t i = 0; i < ARENAS; i++) {
        if (w.arenas[i].open) {
            CHECK(ax_checked_check(&w.arenas[i], NULL) == AX_OK);
        }
    }
    unsigned long wrong = 0;
    for (uint32_t i = 0; i < w.alive; i++) {
        const uint8_t *bytes = ax_at(w.live[i].address);
        for (uint64_t k = 0; k < w.live[i].size; k++) {
            wrong += bytes[k] != w.live[i].fill;
        }
    }
    CHECK(wrong == 0);
}

static void end(void)
{
    content();
    for (uint32_t i = 0; i < ARENAS; i++) {
        CHECK(ax_checked_close(&w.arenas[i], NULL) == AX_OK);
        CHECK(ax_checked_close(&w.arenas[i], NULL) == AX_OK); /* twice is nothing */
    }
    ax_arenas_release(&w.set);
    CHECK(w.seam.bytes_held == 0 && w.books.bytes_held == 0);
    CHECK(w.seam.calls[AX_CALL_MALLOC] == w.seam.calls[AX_CALL_FREE]);
    CHECK(w.books.calls[AX_CALL_MALLOC] == w.books.calls[AX_CALL_FREE]);
}

/* Everything that a refused call must leave as it was; the lists may have got a new, empty one. */
typedef struct picture {
    ax_arena_totals totals;
    ax_arena_counters counters;
    uint64_t operations, length, capacity, peak, pooled, held;
    uint64_t live_objects, live_bytes, request_bytes, exports;
} picture;

static picture look(const ax_checked *arena)
{
    picture p;
    memset(&p, 0, sizeof p);
    ax_arenas_totals(&w.set, &p.totals);
    p.totals.lists = 0;
    p.counters = w.set.counters;
    p.operations = w.set.operations;
    p.length = w.set.length_entries;
    p.capacity = w.set.capacity_entries;
    p.peak = w.set.overhead_peak_entries;
    p.pooled = w.set.pooled_bytes;
    p.held = w.seam.bytes_held;
    p.live_objects = arena->live_objects;
    p.live_bytes = arena->live_bytes;
    p.request_bytes = arena->live_request_bytes;
    p.exports = arena->exports;
    return p;
}

static int same(const ax_checked *arena, const picture *before)
{
    picture now = look(arena);
    return memcmp(&now, before, sizeof now) == 0;
}

/* What the backing refused is asked for again: it refuses one call only. */
static int refused(int status, const ax_checked *arena, const picture *before)
{
    if (status == AX_OK) {
        return 0;
    }
    CHECK(status == AX_ERR_NOMEM);
    CHECK(same(arena, before));
    content();
    w.refusals++;
    return 1;
}

static void open_one(uint32_t arena)
{
    picture before = look(&w.arenas[arena]);
    int status = ax_checked_open(&w.arenas[arena], &w.set);
    if (refused(status, &w.arenas[arena], &before)) {
        CHECK(!w.arenas[arena].open);
        CHECK(ax_checked_open(&w.arenas[arena], &w.set) == AX_OK);
    }
}

static void alloc_one(uint32_t arena, uint32_t key, uint64_t size)
{
    ax_checked *a = &w.arenas[arena];
    thing *t = &w.live[w.alive];
    *t = (thing){.arena = arena, .key = key, .size = size, .fill = ++w.fills};
    picture before = look(a);
    int status = ax_checked_alloc(a, key, size, &t->address, &t->generation, NULL);
    if (refused(status, a, &before)) {
        CHECK(t->address == 0 && t->generation == 0);
        CHECK(ax_checked_alloc(a, key, size, &t->address, &t->generation, NULL) == AX_OK);
    }
    memset(ax_at(t->address), t->fill, size);
    w.alive++;
}

static thing free_one(uint32_t which)
{
    thing t = w.live[which];
    ax_checked *a = &w.arenas[t.arena];
    picture before = look(a);
    int status = ax_checked_free(a, t.key, t.address, t.generation, NULL);
    if (refused(status, a, &before)) {
        CHECK(ax_checked_free(a, t.key, t.address, t.generation, NULL) == AX_OK);
    }
    CHECK(ax_checked_free(a, t.key, t.address, t.generation, NULL) == AX_ERR_DOUBLE_FREE);
    w.live[which] = w.live[--w.alive];
    return t;
}

static void close_one(uint32_t arena)
{
    for (uint32_t i = 0; i < w.alive;) {
        if (w.live[i].arena == arena) {
            w.live[i] = w.live[--w.alive];
        } else {
            i++;
        }
    }
    CHECK(ax_checked_close(&w.arenas[arena], NULL) == AX_OK);
}

/* Chunks, oversize chunks, lists that grow and shrink and empty, more keys, arenas and objects than
 * the first tables hold, arenas that close in the middle. Returns how it ended. */
static picture workload(enum ax_policy_id policy, uint64_t seam_n, uint64_t books_n)
{
    static const uint64_t sizes[] = {8, 24, 48, 300};
    begin(policy);
    w.seam.fail_at = seam_n;
    w.books.fail_at = books_n;
    uint64_t random = 7;
    for (uint32_t i = 0; i < 18; i++) {
        open_one(i);
        alloc_one(i, 0, sizes[0]);
        alloc_one(i, 1, sizes[1]);
    }
    for (uint32_t round = 0; round < 4; round++) {
        uint32_t arena = round % 2;
        uint32_t key = round % 4;
        uint32_t n = round == 0 ? 40 : 9;
        for (uint32_t i = 0; i < n; i++) {
            alloc_one(arena, key, sizes[key]);
        }
        for (uint32_t i = 0; i < n; i++) {
            free_one(w.alive - 1);
        }
        content();
        for (uint32_t i = 0; i < n; i++) { /* empties the list */
            alloc_one(arena, key, sizes[key]);
        }
        for (uint32_t i = 0; i < 12; i++) {
            uint64_t r = next_random(&random);
            if (r % 2) {
                alloc_one(2 + (r >> 8) % 4, (r >> 16) % 4, sizes[(r >> 16) % 4]);
            } else {
                free_one((uint32_t)((r >> 8) % w.alive));
            }
        }
        close_one(2 + round);
        open_one(2 + round);
    }
    content();
    picture p = look(&w.arenas[0]);
    end();
    return p;
}

static void test_every_refusal(enum ax_policy_id policy)
{
    picture smooth = workload(policy, 0, 0);
    CHECK(w.refusals == 0);
    uint64_t attempts[2] = {w.seam.attempts, w.books.attempts};
    CHECK(attempts[0] > 50 && attempts[1] > 20);
    /* A shrink that the backing refuses is no failure of the call; all others are. */
    int shrinks = policy == AX_POLICY_PEAK_WINDOW || policy == AX_POLICY_LOW_WATER;
    for (int books = 0; books < 2; books++) {
        for (uint64_t n = 1; n <= attempts[books]; n++) {
            picture p = workload(policy, books ? 0 : n, books ? n : 0);
            const ax_seam *seam = books ? &w.books : &w.seam;
            CHECK(seam->failed[AX_CALL_MALLOC] + seam->failed[AX_CALL_REALLOC] == 1);
            CHECK(w.refusals == 1 || (shrinks && !books && seam->failed[AX_CALL_REALLOC] == 1));
            CHECK(w.refusals == 0 || memcmp(&p, &smooth, sizeof p) == 0);
            CHECK(p.totals.bumps == smooth.totals.bumps && p.totals.pops == smooth.totals.pops);
        }
    }
}

/* --- misuse */

static void test_misuse(enum ax_policy_id policy)
{
    begin(policy);
    open_one(0);
    open_one(1);
    ax_checked *a = &w.arenas[0];
    ax_detail d = {0};
    ax_object *object = NULL;
    CHECK(ax_checked_free(a, 1, 4096, 1, &d) == AX_ERR_FOREIGN && d.value == 4096);
    alloc_one(0, 1, 41);
    alloc_one(0, 1, 41);
    thing t = w.live[0];
    picture before = look(a);

    CHECK(ax_checked_free(a, 1, 0, 1, &d) == AX_ERR_FOREIGN);
    CHECK(ax_checked_free(a, 1, t.address + 8, 1, &d) == AX_ERR_FOREIGN); /* inside an object */
    CHECK(ax_checked_free(&w.arenas[1], 1, t.address, t.generation, &d) == AX_ERR_FOREIGN);
    CHECK(ax_checked_free(a, 2, t.address, t.generation, &d) == AX_ERR_WRONG_KEY);
    CHECK(d.value == t.address && d.low == 1 && d.where == 2);
    CHECK(ax_checked_free(a, 1, t.address, t.generation + 1, &d) == AX_ERR_STALE);
    CHECK(d.value == t.address && d.low == t.generation && d.where == t.generation + 1);
    CHECK(ax_checked_find(a, t.address, t.generation + 1, &object, &d) == AX_ERR_STALE);
    CHECK(object == NULL && same(a, &before));
    content();
    if (policy != AX_POLICY_INTRUSIVE) {
        uint64_t address = 3;
        uint32_t generation = 4;
        CHECK(ax_checked_alloc(a, 1, 49, &address, &generation, &d) == AX_ERR_WRONG_SIZE);
        CHECK(ax_checked_alloc(a, 1, 0, &address, &generation, &d) == AX_ERR_RANGE);
        CHECK(address == 3 && generation == 4 && same(a, &before));
    }

    t = free_one(0);
    before = look(a);
    CHECK(ax_checked_find(a, t.address, t.generation, &object, &d) == AX_ERR_DOUBLE_FREE);
    CHECK(ax_checked_free(a, 2, t.address, t.generation, &d) == AX_ERR_DOUBLE_FREE);
    CHECK(ax_checked_free(a, 1, t.address, t.generation - 1, &d) == AX_ERR_STALE);
    CHECK(same(a, &before));
    alloc_one(0, 1, 44); /* the same memory, another generation and request */
    CHECK(w.live[1].address == t.address && w.live[1].generation == t.generation + 1);
    CHECK(ax_checked_free(a, 1, t.address, t.generation, &d) == AX_ERR_STALE);
    CHECK(ax_checked_find(a, t.address, t.generation + 1, &object, &d) == AX_OK);
    CHECK(object->request_bytes == 44 && object->key == 1);
    CHECK(a->live_objects == 2 && a->live_bytes == 96 && a->live_request_bytes == 85);

    close_one(0);
    CHECK(ax_checked_alloc(a, 1, 8, &t.address, &t.generation, &d) == AX_ERR_CLOSED);
    CHECK(ax_checked_free(a, 1, t.address, t.generation, &d) == AX_ERR_CLOSED);
    CHECK(ax_checked_find(a, t.address, t.generation, &object, &d) == AX_ERR_CLOSED);
    CHECK(ax_checked_check(a, &d) == AX_ERR_CLOSED);
    end();
}

static void test_exports(void)
{
    begin(AX_POLICY_BYTE_CUT);
    open_one(0);
    ax_checked *a = &w.arenas[0];
    alloc_one(0, 1, 8);
    alloc_one(0, 1, 8);
    thing t = w.live[0];
    ax_object *object = NULL;
    ax_detail d = {0};
    CHECK(ax_checked_find(a, t.address, t.generation, &object, NULL) == AX_OK);
    ax_checked_export(a, object);
    ax_checked_export(a, object);
    picture before = look(a);
    CHECK(ax_checked_free(a, 1, t.address, t.generation, &d) == AX_ERR_EXPORTED && d.value == 2);
    CHECK(ax_checked_close(a, &d) == AX_ERR_EXPORTED && d.value == 2);
    CHECK(a->open && same(a, &before));
    content();
    free_one(1); /* of the other object it says nothing */
    for (uint32_t i = 0; i < 100; i++) {
        alloc_one(0, 1, 8); /* the records move; the export stays with its object */
    }
    ax_checked_unexport(a, t.address);
    CHECK(ax_checked_free(a, 1, t.address, t.generation, &d) == AX_ERR_EXPORTED && d.value == 1);
    ax_checked_unexport(a, t.address);
    CHECK(a->exports == 0);
    free_one(0);
    end();
}

/* A key gets its size from the first object, not from a request that was refused. */
static void test_refused_first_size(void)
{
    begin(AX_POLICY_BYTE_CUT);
    open_one(0);
    w.seam.fail_at = w.seam.attempts + 1;
    uint64_t address;
    uint32_t generation;
    CHECK(ax_checked_alloc(&w.arenas[0], 1, 8, &address, &generation, NULL) == AX_ERR_NOMEM);
    alloc_one(0, 1, 48);
    CHECK(ax_checked_alloc(&w.arenas[0], 1, 8, &address, &generation, NULL) == AX_ERR_WRONG_SIZE);
    end();
}

/* --- what the check sees */

#define DEMAND(field, wrong, text)                            \
    do {                                                      \
        ax_detail found = {0};                                \
        const uint64_t kept = (uint64_t)(field);              \
        (field) = (__typeof__(field))(wrong);                 \
        CHECK(ax_checked_check(a, &found) == AX_ERR_CORRUPT); \
        CHECK(found.what &&strcmp(found.what, text) == 0);    \
        (field) = (__typeof__(field))kept;                    \
        content();                                            \
    } while (0)

static void test_corruption(void)
{
    begin(AX_POLICY_KEEP_ALL);
    open_one(0);
    ax_checked *a = &w.arenas[0];
    for (uint32_t i = 0; i < 4; i++) {
        alloc_one(0, 1, 40);
        alloc_one(0, 2, 40);
    }
    thing gone = free_one(7);
    thing also = free_one(5);
    CHECK(gone.key == 2 && also.key == 2);
    thing t = w.live[0];
    ax_object *live = NULL;
    CHECK(ax_checked_find(a, t.address, t.generation, &live, NULL) == AX_OK);
    ax_object *dead = NULL;
    for (size_t i = 0; i < a->objects.capacity; i++) {
        ax_object *object = ax_idmap_at(&a->objects, i);
        dead = object && object->address == gone.address ? object : dead;
    }
    static const char listed[] = "a free list holds an object that is not free or not its own";
    DEMAND(dead->live, 1, listed);
    DEMAND(dead->list, live->list, listed);
    DEMAND(dead->address, 64, listed);
    uint64_t *entries = ax_ptrlist_entries(&w.set.lists[dead->list].entries);
    DEMAND(entries[0], t.address, listed);
    DEMAND(entries[0], t.address + 8, listed);
    DEMAND(a->live_objects, 7, "live objects");
    DEMAND(a->live_bytes, a->live_bytes + 8, "live objects");
    /* A live object that is taken for dead: neither list nor owner has it. */
    ax_detail detail = {0};
    a->live_objects--;
    a->live_bytes -= 40;
    live->live = 0;
    CHECK(ax_checked_check(a, &detail) == AX_ERR_CORRUPT);
    CHECK(detail.what && strcmp(detail.what, "objects on the free lists") == 0);
    live->live = 1;
    a->live_objects++;
    a->live_bytes += 40;
    content();
    DEMAND(entries[0], entries[1], "a free list holds an object twice");
    DEMAND(w.set.length_entries, 9, "sums over the lists (length)");
    end();
}

int main(void)
{
    for (uint32_t policy = 0; policy < AX_POLICIES; policy++) {
        test_every_refusal(policy);
        test_misuse(policy);
        path = AX_PATH_COUNTED;
        test_every_refusal(policy);
        path = AX_PATH_LEAN;
        if (policy < AX_POLICY_INTRUSIVE) { /* the others have no lean path */
            test_every_refusal(policy);
        }
        path = AX_PATH_FULL;
    }
    test_exports();
    test_refused_first_size();
    test_corruption();
    return check_report();
}
