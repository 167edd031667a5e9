/* idmap: a random walk with slots of each size against plain arrays; refusals change nothing. */
#include "check.h"

#include <string.h>

#include "../core/idmap.h"

enum { IDS = 3000, ROUNDS = 200000, MOST_BYTES = 48 };

/* What belongs to an id: a pattern that fills the slot behind it. */
static int holds(const unsigned char *slot, size_t slot_bytes, uint64_t id, uint8_t fill)
{
    int wrong = memcmp(slot, &id, sizeof id) != 0;
    for (size_t i = sizeof id; i < slot_bytes; i++) {
        wrong |= slot[i] != fill;
    }
    return !wrong;
}

static void random_walk(size_t slot_bytes)
{
    static uint64_t ids[IDS];
    static uint8_t fills[IDS], stored[IDS];
    ax_seam books;
    ax_seam_init(&books, AX_BACKING_REAL);
    ax_idmap map = {0};
    uint64_t random = 2;
    size_t used = 0;
    uint64_t refused = 0;
    int wrong = 0;
    memset(stored, 0, sizeof stored);
    for (size_t i = 0; i < IDS; i++) {
        /* A third like addresses side by side, a third small, a third anything. */
        ids[i] = i % 3 == 0 ? 0x7f0000000000 + 16 * i : i % 3 == 1 ? i + 1 : next_random(&random);
    }
    CHECK(ax_idmap_find(&map, 5) == NULL);
    for (size_t round = 0; round < ROUNDS; round++) {
        const uint64_t r = next_random(&random);
        const size_t i = (size_t)(r >> 16) % IDS;
        unsigned char *slot = ax_idmap_find(&map, ids[i]);
        wrong +=
            (slot != NULL) != stored[i] || (slot && !holds(slot, slot_bytes, ids[i], fills[i]));
        if (slot && r % 2) {
            ax_idmap_remove(&map, slot);
            stored[i] = 0;
            used--;
        } else if (!slot) {
            books.fail_at = books.attempts + 1;
            const size_t capacity = map.capacity;
            if (ax_idmap_reserve(&map, slot_bytes, &books) != AX_OK) {
                wrong += map.capacity != capacity || map.used != used;
                wrong += ax_idmap_reserve(&map, slot_bytes, &books) != AX_OK;
                refused++;
            }
            slot = ax_idmap_add(&map, ids[i]);
            fills[i] = (uint8_t)r;
            memset(slot + sizeof(uint64_t), fills[i], slot_bytes - sizeof(uint64_t));
            stored[i] = 1;
            used++;
        }
    }
    CHECK(wrong == 0);
    CHECK(map.used == used);
    CHECK(ax_idmap_find(&map, 0) == NULL);
    size_t seen = 0;
    for (size_t i = 0; i < map.capacity; i++) {
        seen += ax_idmap_at(&map, i) != NULL;
    }
    CHECK(seen == used);
    CHECK(refused > 4 && books.failed[AX_CALL_MALLOC] == refused);
    CHECK(books.bytes_held == map.capacity * slot_bytes);
    ax_idmap_free(&map, &books);
    CHECK(map.slots == NULL && map.capacity == 0 && map.used == 0 && books.bytes_held == 0);
    ax_idmap_free(&map, &books);
    CHECK(books.calls[AX_CALL_MALLOC] == books.calls[AX_CALL_FREE]);
}

int main(void)
{
    for (size_t slot_bytes = sizeof(uint64_t); slot_bytes <= MOST_BYTES; slot_bytes += 8) {
        random_walk(slot_bytes);
    }
    return check_report();
}
