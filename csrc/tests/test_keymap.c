/* keymap: what was put in is found under exactly its name, and the dead make room. */
#include "check.h"

#include "../core/keymap.h"

/* Lists are alive where their life is at least the one that `owner` points at. */
static int alive_from(const void *owner, uint32_t list, uint32_t life)
{
    (void)list;
    return life >= *(const uint32_t *)owner;
}

static void put(ax_keymap *map, ax_seam *books, uint32_t alive, uint32_t life, uint32_t key,
                uint64_t size, uint32_t list)
{
    CHECK(ax_keymap_reserve(map, books, alive_from, &alive) == AX_OK);
    ax_keymap_insert(map, life, key, size, list);
}

static void test_names(void)
{
    ax_seam books;
    ax_seam_init(&books, AX_BACKING_REAL);
    ax_keymap map = {0};
    CHECK(ax_keymap_find(&map, 1, 2, 3) == AX_NO_LIST);
    put(&map, &books, 0, 1, 2, 3, 10);
    put(&map, &books, 0, 1, 2, 4, 11);
    put(&map, &books, 0, 1, 3, 3, 12);
    put(&map, &books, 0, 2, 2, 3, 13);
    CHECK(ax_keymap_find(&map, 1, 2, 3) == 10);
    CHECK(ax_keymap_find(&map, 1, 2, 4) == 11);
    CHECK(ax_keymap_find(&map, 1, 3, 3) == 12);
    CHECK(ax_keymap_find(&map, 2, 2, 3) == 13);
    CHECK(ax_keymap_find(&map, 2, 3, 3) == AX_NO_LIST);
    CHECK(ax_keymap_find(&map, 3, 2, 3) == AX_NO_LIST);
    CHECK(ax_keymap_find(&map, 2, 2, 4) == AX_NO_LIST);
    ax_keymap_release(&map, &books);
    CHECK(map.capacity == 0 && ax_keymap_find(&map, 1, 2, 3) == AX_NO_LIST);
    ax_keymap_release(&map, &books);
    CHECK(books.bytes_held == 0);
}

/* Three names that differ in one part only and start at the same slot: each part is compared. */
static void test_collisions(void)
{
    ax_seam books;
    ax_seam_init(&books, AX_BACKING_REAL);
    for (int part = 0; part < 3; part++) {
        ax_keymap map = {0};
        uint64_t home = ax_keymap_hash(1, 1, 8) & 63;
        uint32_t found = 0;
        put(&map, &books, 0, 1, 1, 8, 100);
        for (uint32_t i = 2; found < 3; i++) {
            uint32_t life = part == 0 ? i : 1;
            uint32_t key = part == 1 ? i : 1;
            uint64_t size = part == 2 ? 8 * i : 8;
            if ((ax_keymap_hash(life, key, size) & 63) != home) {
                continue;
            }
            CHECK(ax_keymap_find(&map, life, key, size) == AX_NO_LIST);
            put(&map, &books, 0, life, key, size, i);
            CHECK(ax_keymap_find(&map, life, key, size) == i);
            CHECK(ax_keymap_find(&map, 1, 1, 8) == 100);
            found++;
        }
        ax_keymap_release(&map, &books);
    }
    CHECK(books.bytes_held == 0);
}

static void test_growth_and_the_dead(void)
{
    ax_seam books;
    ax_seam_init(&books, AX_BACKING_REAL);
    ax_keymap map = {0};
    uint32_t alive = 0;
    /* Many arenas come and go, 20 lists each, three of them alive at a time. */
    uint64_t most = 0;
    for (uint32_t life = 1; life <= 300; life++) {
        alive = life > 2 ? life - 2 : 1;
        for (uint32_t key = 0; key < 20; key++) {
            put(&map, &books, alive, life, key, 8 * key, life * 20 + key);
        }
        for (uint32_t l = alive; l <= life; l++) {
            for (uint32_t key = 0; key < 20; key++) {
                CHECK(ax_keymap_find(&map, l, key, 8 * key) == l * 20 + key);
                CHECK(ax_keymap_find(&map, l, key, 8 * key + 8) == AX_NO_LIST);
            }
        }
        most = map.capacity > most ? map.capacity : most;
        CHECK(2 * map.used <= map.capacity);
        CHECK(books.bytes_held == map.capacity * sizeof(ax_keymap_slot));
    }
    CHECK(most <= 512); /* 60 lists live, whatever has been */
    ax_keymap_release(&map, &books);
    CHECK(books.bytes_held == 0);
}

static void test_refusal(void)
{
    ax_seam books;
    ax_seam_init(&books, AX_BACKING_REAL);
    ax_keymap map = {0};
    uint32_t alive = 0;
    for (uint32_t key = 0; key < 1000; key++) {
        books.fail_at = books.attempts + 1;
        int status = ax_keymap_reserve(&map, &books, alive_from, &alive);
        CHECK(status == AX_OK || status == AX_ERR_NOMEM);
        if (status != AX_OK) {
            CHECK(map.used == key);
            for (uint32_t k = 0; k < key; k++) {
                CHECK(ax_keymap_find(&map, 7, k, 16) == k);
            }
            CHECK(ax_keymap_reserve(&map, &books, alive_from, &alive) == AX_OK);
        }
        ax_keymap_insert(&map, 7, key, 16, key);
    }
    CHECK(books.failed[AX_CALL_MALLOC] == books.calls[AX_CALL_MALLOC]);
    for (uint32_t k = 0; k < 1000; k++) {
        CHECK(ax_keymap_find(&map, 7, k, 16) == k);
    }
    ax_keymap_release(&map, &books);
    CHECK(books.bytes_held == 0);
    CHECK(books.calls[AX_CALL_FREE] == books.calls[AX_CALL_MALLOC]);
}

int main(void)
{
    test_names();
    test_collisions();
    test_growth_and_the_dead();
    test_refusal();
    return check_report();
}
