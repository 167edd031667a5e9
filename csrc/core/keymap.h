/* keymap: (arena, key, size) -> list number. Open addressing, linear probing, at most half full.
 *
 * Entries of dead arenas are not removed; they are dropped when the table grows, so it stays as
 * large as the lists that live (times four) however many arenas come and go.
 */
#ifndef AX_KEYMAP_H
#define AX_KEYMAP_H

#include "grow.h"

#define AX_NO_LIST UINT32_MAX

typedef struct ax_keymap_slot {
    uint64_t size;
    uint32_t life; /* of the arena: a number never used again */
    uint32_t key;
    uint32_t list; /* AX_NO_LIST: the slot is free */
    uint32_t unused;
} ax_keymap_slot;

typedef struct ax_keymap {
    ax_keymap_slot *slots;
    size_t capacity; /* a power of two, or 0 */
    uint64_t used;
} ax_keymap;

typedef int (*ax_keymap_alive)(const void *owner, uint32_t list, uint32_t life);

static inline uint64_t ax_mix(uint64_t x)
{
    x ^= x >> 32;
    x *= UINT64_C(0x9E3779B97F4A7C15);
    return x ^ (x >> 29);
}

static inline uint64_t ax_keymap_hash(uint32_t life, uint32_t key, uint64_t size)
{
    return ax_mix(size ^ ((uint64_t)key << 24) ^ ((uint64_t)life << 44));
}

static inline uint32_t ax_keymap_find(const ax_keymap *map, uint32_t life, uint32_t key,
                                      uint64_t size)
{
    if (map->capacity == 0) {
        return AX_NO_LIST;
    }
    uint64_t mask = map->capacity - 1;
    for (uint64_t i = ax_keymap_hash(life, key, size) & mask;; i = (i + 1) & mask) {
        const ax_keymap_slot *slot = &map->slots[i];
        if (slot->list == AX_NO_LIST ||
            (slot->size == size && slot->key == key && slot->life == life)) {
            return slot->list;
        }
    }
}

/* Makes room for one more, so that the insertion after it cannot fail. */
int ax_keymap_reserve(ax_keymap *map, ax_seam *books, ax_keymap_alive alive, const void *owner);
void ax_keymap_insert(ax_keymap *map, uint32_t life, uint32_t key, uint64_t size, uint32_t list);
void ax_keymap_release(ax_keymap *map, ax_seam *books);

#endif
