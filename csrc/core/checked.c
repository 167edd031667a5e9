#include "checked.h"

#include <string.h>

#include "policy.h"

int ax_checked_open(ax_checked *arena, ax_arenas *set)
{
    memset(arena, 0, sizeof *arena);
    arena->set = set;
    int status = ax_arenas_open(set, &arena->arena);
    arena->open = status == AX_OK;
    return status;
}

int ax_checked_close(ax_checked *arena, ax_detail *detail)
{
    if (!arena->open) {
        return AX_OK;
    }
    if (arena->exports) {
        return ax_fail(detail, AX_ERR_EXPORTED,
                       "cannot close: a view still shows the arena's memory", arena->exports, 0, 0,
                       0);
    }
    ax_arenas_close(arena->set, arena->arena);
    ax_idmap_free(&arena->objects, arena->set->books);
    arena->live_objects = arena->live_bytes = arena->live_request_bytes = 0;
    arena->open = 0;
    return AX_OK;
}

static int closed(ax_detail *detail)
{
    return ax_fail(detail, AX_ERR_CLOSED, "arena is closed", 0, 0, 0, 0);
}

int ax_checked_alloc(ax_checked *arena, uint32_t key, uint64_t size_bytes, uint64_t *address,
                     uint32_t *generation, ax_detail *detail)
{
    if (!arena->open) {
        return closed(detail);
    }
    uint32_t list;
    uint64_t given;
    int status = ax_arenas_list(arena->set, arena->arena, key, size_bytes, &list, detail);
    if (status == AX_OK) {
        status = ax_idmap_reserve(&arena->objects, sizeof(ax_object), arena->set->books);
    }
    if (status == AX_OK) {
        status = ax_arena_alloc(arena->set, list, &given, detail);
    }
    if (status != AX_OK) {
        return status;
    }
    ax_object *object = ax_idmap_find(&arena->objects, given);
    if (!object) {
        object = ax_idmap_add(&arena->objects, given);
        *object = (ax_object){.address = given};
    }
    object->generation++;
    object->request_bytes = size_bytes;
    object->list = list;
    object->key = key;
    object->live = 1;
    arena->live_objects++;
    arena->live_bytes += arena->set->lists[list].entry_bytes;
    arena->live_request_bytes += size_bytes;
    *address = given;
    *generation = object->generation;
    return AX_OK;
}

int ax_checked_find(const ax_checked *arena, uint64_t address, uint32_t generation,
                    ax_object **object, ax_detail *detail)
{
    if (!arena->open) {
        return closed(detail);
    }
    ax_object *found = ax_idmap_find(&arena->objects, address);
    if (!found) {
        return ax_fail(detail, AX_ERR_FOREIGN, NULL, address, 0, 0, 0);
    }
    if (found->generation != generation) {
        return ax_fail(detail, AX_ERR_STALE, NULL, address, found->generation, 0, generation);
    }
    if (!found->live) {
        return ax_fail(detail, AX_ERR_DOUBLE_FREE, NULL, address, 0, 0, 0);
    }
    *object = found;
    return AX_OK;
}

int ax_checked_free(ax_checked *arena, uint32_t key, uint64_t address, uint32_t generation,
                    ax_detail *detail)
{
    ax_object *object;
    int status = ax_checked_find(arena, address, generation, &object, detail);
    if (status != AX_OK) {
        return status;
    }
    if (object->key != key) {
        return ax_fail(detail, AX_ERR_WRONG_KEY, NULL, address, object->key, 0, key);
    }
    if (object->exports) {
        return ax_fail(detail, AX_ERR_EXPORTED, "cannot free: a view still shows the object",
                       object->exports, 0, 0, 0);
    }
    status = ax_arena_free(arena->set, object->list, address);
    if (status != AX_OK) {
        return status;
    }
    object->live = 0;
    arena->live_objects--;
    arena->live_bytes -= arena->set->lists[object->list].entry_bytes;
    arena->live_request_bytes -= object->request_bytes;
    return AX_OK;
}

void ax_checked_export(ax_checked *arena, ax_object *object)
{
    object->exports++;
    arena->exports++;
}

void ax_checked_unexport(ax_checked *arena, uint64_t address)
{
    ax_object *object = ax_idmap_find(&arena->objects, address);
    object->exports--;
    arena->exports--;
}

int ax_checked_check(const ax_checked *arena, ax_detail *detail)
{
    if (!arena->open) {
        return closed(detail);
    }
    const ax_arenas *set = arena->set;
    uint64_t live = 0;
    uint64_t bytes = 0;
    uint64_t free_objects = 0;
    uint64_t names = 0; /* the free objects' less those on the lists; it ends at 0 */
    for (size_t i = 0; i < arena->objects.capacity; i++) {
        const ax_object *object = ax_idmap_at(&arena->objects, i);
        if (!object) {
            continue;
        }
        if (object->live) {
            live++;
            bytes += set->lists[object->list].entry_bytes;
        } else {
            free_objects++;
            names += ax_mix(object->address);
        }
    }
    uint64_t listed = 0;
    for (uint32_t i = 0; i < set->lists_used; i++) {
        const ax_list *list = &set->lists[i];
        if (list->life && list->arena == arena->arena) {
            listed += list->entries.len + (set->policy->intrusive ? list->own.leaked : 0);
            for (uint32_t k = 0; set->stored && !set->policy->intrusive && k < list->entries.len;
                 k++) {
                const uint64_t address = ax_ptrlist_entries(&list->entries)[k];
                const ax_object *object = ax_idmap_find(&arena->objects, address);
                if (!object || object->live || object->list != i) {
                    return ax_fail(detail, AX_ERR_CORRUPT,
                                   "a free list holds an object that is not free or not its own",
                                   address, 0, 0, i);
                }
                names -= ax_mix(address);
            }
        }
    }
    if (live != arena->live_objects || bytes != arena->live_bytes) {
        return ax_fail(detail, AX_ERR_CORRUPT, "live objects", arena->live_objects, live, 0, 0);
    }
    if (listed != free_objects) {
        return ax_fail(detail, AX_ERR_CORRUPT, "objects on the free lists", listed, free_objects, 0,
                       0);
    }
    if (names != 0 && set->stored && !set->policy->intrusive) {
        return ax_fail(detail, AX_ERR_CORRUPT, "a free list holds an object twice", names, 0, 0, 0);
    }
    return ax_arenas_check(set, detail);
}
