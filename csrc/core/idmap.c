#include "idmap.h"

#include <string.h>

/* Bits 4 and 5 choose the place inside a group of four slots, all others choose the group. */
static size_t home_of(uint64_t id, size_t mask)
{
    uint64_t hash = (id & ~(uint64_t)0x30) * UINT64_C(0x9E3779B97F4A7C15);
    hash ^= hash >> 32;
    hash *= UINT64_C(0xD6E8FEB86659FD93);
    return (size_t)(((hash >> 32) << 2) + ((id >> 4) & 3)) & mask;
}

static unsigned char *slot_at(const ax_idmap *map, size_t place)
{
    return map->slots + place * map->slot_bytes;
}

static uint64_t id_of(const unsigned char *slot)
{
    uint64_t id;
    memcpy(&id, slot, sizeof id);
    return id;
}

static void copy_slot(const ax_idmap *map, unsigned char *to, const unsigned char *from)
{
    if (map->slot_bytes == sizeof(ax_idmap_slot)) {
        memcpy(to, from, sizeof(ax_idmap_slot)); /* the usual size, without a call */
    } else {
        memcpy(to, from, map->slot_bytes);
    }
}

void *ax_idmap_find(const ax_idmap *map, uint64_t id)
{
    if (map->capacity == 0 || id == 0) {
        return NULL;
    }
    const size_t mask = map->capacity - 1;
    for (size_t at = home_of(id, mask);; at = (at + 1) & mask) {
        unsigned char *slot = slot_at(map, at);
        const uint64_t found = id_of(slot);
        if (found == id) {
            return slot;
        }
        if (found == 0) {
            return NULL;
        }
    }
}

void *ax_idmap_at(const ax_idmap *map, size_t place)
{
    unsigned char *slot = slot_at(map, place);
    return id_of(slot) ? slot : NULL;
}

void *ax_idmap_add(ax_idmap *map, uint64_t id)
{
    const size_t mask = map->capacity - 1;
    size_t at = home_of(id, mask);
    while (id_of(slot_at(map, at)) != 0) {
        at = (at + 1) & mask;
    }
    unsigned char *slot = slot_at(map, at);
    memcpy(slot, &id, sizeof id);
    map->used++;
    return slot;
}

int ax_idmap_reserve(ax_idmap *map, size_t slot_bytes, ax_seam *books)
{
    if (map->used < map->capacity / 2) {
        return AX_OK;
    }
    if (map->capacity > SIZE_MAX / 4) {
        return AX_ERR_OVERFLOW;
    }
    ax_idmap larger = {.capacity = map->capacity ? map->capacity * 2 : 64,
                       .slot_bytes = slot_bytes};
    const int status = ax_grow_zeroed(books, &larger.slots, larger.capacity, slot_bytes);
    if (status != AX_OK) {
        return status;
    }
    for (size_t i = 0; i < map->capacity; i++) {
        const unsigned char *slot = ax_idmap_at(map, i);
        if (slot) {
            copy_slot(map, ax_idmap_add(&larger, id_of(slot)), slot);
        }
    }
    ax_idmap_free(map, books);
    *map = larger;
    return AX_OK;
}

void ax_idmap_remove(ax_idmap *map, void *slot)
{
    const size_t mask = map->capacity - 1;
    const uint64_t none = 0;
    unsigned char *hole = slot;
    size_t hole_at = (size_t)(hole - map->slots) / map->slot_bytes;
    for (size_t at = (hole_at + 1) & mask;; at = (at + 1) & mask) {
        const unsigned char *next = slot_at(map, at);
        const uint64_t id = id_of(next);
        if (id == 0) {
            break;
        }
        /* An entry may move back to the hole unless its home lies after the hole. */
        const size_t distance = (at - home_of(id, mask)) & mask;
        if (distance >= ((at - hole_at) & mask)) {
            copy_slot(map, hole, next);
            hole = slot_at(map, at);
            hole_at = at;
        }
    }
    memcpy(hole, &none, sizeof none);
    map->used--;
}

void ax_idmap_free(ax_idmap *map, ax_seam *books)
{
    ax_grow_free(books, &map->slots, &map->capacity, map->slot_bytes);
    *map = (ax_idmap){0};
}
