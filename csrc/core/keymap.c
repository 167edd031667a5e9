#include "keymap.h"

static void insert_into(ax_keymap_slot *slots, uint64_t mask, ax_keymap_slot entry)
{
    uint64_t i = ax_keymap_hash(entry.life, entry.key, entry.size) & mask;
    while (slots[i].list != AX_NO_LIST) {
        i = (i + 1) & mask;
    }
    slots[i] = entry;
}

int ax_keymap_reserve(ax_keymap *map, ax_seam *books, ax_keymap_alive alive, const void *owner)
{
    if (2 * (map->used + 1) <= map->capacity) {
        return AX_OK;
    }
    uint64_t kept = 0;
    for (uint64_t i = 0; i < map->capacity; i++) {
        const ax_keymap_slot *slot = &map->slots[i];
        kept += slot->list != AX_NO_LIST && alive(owner, slot->list, slot->life);
    }
    size_t capacity = 64;
    while (capacity < 4 * (kept + 1)) {
        capacity *= 2;
    }
    ax_keymap grown = {.used = kept};
    int status = ax_grow_to(books, &grown.slots, &grown.capacity, capacity, sizeof(ax_keymap_slot));
    if (status != AX_OK) {
        return status;
    }
    for (uint64_t i = 0; i < capacity; i++) {
        grown.slots[i] = (ax_keymap_slot){.list = AX_NO_LIST};
    }
    for (uint64_t i = 0; i < map->capacity; i++) {
        const ax_keymap_slot *slot = &map->slots[i];
        if (slot->list != AX_NO_LIST && alive(owner, slot->list, slot->life)) {
            insert_into(grown.slots, capacity - 1, *slot);
        }
    }
    ax_keymap_release(map, books);
    *map = grown;
    return AX_OK;
}

void ax_keymap_insert(ax_keymap *map, uint32_t life, uint32_t key, uint64_t size, uint32_t list)
{
    insert_into(map->slots, map->capacity - 1, (ax_keymap_slot){size, life, key, list, 0});
    map->used++;
}

void ax_keymap_release(ax_keymap *map, ax_seam *books)
{
    ax_grow_free(books, &map->slots, &map->capacity, sizeof(ax_keymap_slot));
    *map = (ax_keymap){0};
}
