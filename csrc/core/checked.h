/* checked: an arena whose objects are handed out as (address, generation), so that every misuse of
 * a handle is found before it touches the arena: foreign addresses, double frees, stale handles,
 * wrong keys, memory that somebody still looks at.
 *
 *     address ──map──▶ ax_object { generation, live, key, list, request_bytes, exports
 * }
 *
 * One record for each address the arena ever handed out; the generation counts how often. The set
 * must be of the real backing.
 */
#ifndef AX_CHECKED_H
#define AX_CHECKED_H

#include "arena.h"
#include "idmap.h"

typedef struct ax_object {
    uint64_t address; /* the id of the slot */
    uint64_t request_bytes;
    uint32_t list;
    uint32_t key;
    uint32_t generation;
    uint32_t exports; /* views that show it */
    uint32_t live;
} ax_object;

typedef struct ax_checked {
    ax_arenas *set; /* borrowed */
    uint32_t arena;
    uint32_t open;
    ax_idmap objects; /* of ax_object */
    uint64_t exports;
    uint64_t live_objects;
    uint64_t live_bytes; /* as the arena rounds them */
    uint64_t live_request_bytes;
} ax_checked;

int ax_checked_open(ax_checked *arena, ax_arenas *set);
/* AX_ERR_EXPORTED while a view is out. Closing twice is nothing. */
int ax_checked_close(ax_checked *arena, ax_detail *detail);

int ax_checked_alloc(ax_checked *arena, uint32_t key, uint64_t size_bytes, uint64_t *address,
                     uint32_t *generation, ax_detail *detail);
int ax_checked_free(ax_checked *arena, uint32_t key, uint64_t address, uint32_t generation,
                    ax_detail *detail);

/* The record of a live object, to look at it. The pointer holds until the next call. */
int ax_checked_find(const ax_checked *arena, uint64_t address, uint32_t generation,
                    ax_object **object, ax_detail *detail);
void ax_checked_export(ax_checked *arena, ax_object *object);
/* The address must be one that is exported. */
void ax_checked_unexport(ax_checked *arena, uint64_t address);

int ax_checked_check(const ax_checked *arena, ax_detail *detail);

#endif
