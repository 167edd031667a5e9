#include "idmap.h"

/* Bits 4 and 5 choose the place inside a group of four slots, all others choose the group. */
static size_t home_of(uint64_t id, size_t mask)
{
    uint64_t hash = (id & ~(uint64_t)0x30) * UINT64_C(0x9E3779B97F4A7C15);
    hash ^= hash >> 32;
    hash *= UINT64_C(0xD6E8FEB86659FD93);
    return (size_t)(((hash >> 32) << 2) + ((id >> 4) & 3)) & mask;
}

ax_idmap_slot *ax_idmap_find(const ax_idmap *map, uint64_t id)
{
    if (map->capacity == 0 || id == 0) {
        return NULL;
    }
    const size_t mask = map->capacity - 1;
    size_t at = home_of(id, mask);
    while (map->slots[at].id != id) {
        if (map->slots[at].id == 0) {
            return NULL;
        }
        at = (at + 1) & mask;
    }
    return &map->slots[at];
}

void ax_idmap_add(ax_idmap *map, uint64_t id, uint64_t value)
{
    const size_t mask = map->capacity - 1;
    size_t at = home_of(id, mask);
    while (map->slots[at].id != 0) {
        at = (at + 1) & mask;
    }
    map->slots[at] = (ax_idmap_slot){id, value};
    map->used++;
}

int ax_idmap_reserve(ax_idmap *map, ax_seam *books)
{
    if (map->used < map->capacity / 2) {
        return AX_OK;
    }
    if (map->capacity > SIZE_MAX / 4 / sizeof(ax_idmap_slot)) {
        return AX_ERR_OVERFLOW;
    }
    ax_idmap larger = {.capacity = map->capacity ? map->capacity * 2 : 64};
    const int status = ax_grow_zeroed(books, &larger.slots, larger.capacity, sizeof(ax_idmap_slot));
    if (status != AX_OK) {
        return status;
    }
    for (size_t i = 0; i < map->capacity; i++) {
        if (map->slots[i].id != 0) {
            ax_idmap_add(&larger, map->slots[i].id, map->slots[i].value);
        }
    }
    ax_idmap_free(map, books);
    *map = larger;
    return AX_OK;
}

void ax_idmap_remove(ax_idmap *map, ax_idmap_slot *slot)
{
    const size_t mask = map->capacity - 1;
    size_t hole = (size_t)(slot - map->slots);
    for (size_t at = (hole + 1) & mask; map->slots[at].id != 0; at = (at + 1) & mask) {
        /* An entry may move back to the hole unless its home lies after the hole. */
        const size_t distance = (at - home_of(map->slots[at].id, mask)) & mask;
        if (distance >= ((at - hole) & mask)) {
            map->slots[hole] = map->slots[at];
            hole = at;
        }
    }
    map->slots[hole].id = 0;
    map->used--;
}

void ax_idmap_free(ax_idmap *map, ax_seam *books)
{
    ax_grow_free(books, &map->slots, &map->capacity, sizeof(ax_idmap_slot));
    *map = (ax_idmap){0};
}
