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
    uint64_t capacity = 64;
    while (capacity < 4 * (kept + 1)) {
        capacity *= 2;
    }
    uint64_t address;
    int status = ax_seam_malloc(books, capacity * sizeof(ax_keymap_slot), &address);
    if (status != AX_OK) {
        return status;
    }
    ax_keymap_slot *slots = ax_at(address);
    for (uint64_t i = 0; i < capacity; i++) {
        slots[i] = (ax_keymap_slot){0, 0, 0, AX_NO_LIST, 0};
    }
    for (uint64_t i = 0; i < map->capacity; i++) {
        const ax_keymap_slot *slot = &map->slots[i];
        if (slot->list != AX_NO_LIST && alive(owner, slot->list, slot->life)) {
            insert_into(slots, capacity - 1, *slot);
        }
    }
    ax_keymap_release(map, books);
    *map = (ax_keymap){slots, capacity, kept};
    return AX_OK;
}

void ax_keymap_insert(ax_keymap *map, uint32_t life, uint32_t key, uint64_t size, uint32_t list)
{
    insert_into(map->slots, map->capacity - 1, (ax_keymap_slot){size, life, key, list, 0});
    map->used++;
}

void ax_keymap_release(ax_keymap *map, ax_seam *books)
{
    if (map->slots) {
        ax_seam_free(books, (uint64_t)(uintptr_t)map->slots,
                     map->capacity * sizeof(ax_keymap_slot));
    }
    *map = (ax_keymap){0};
}
