/* idmap: a map from 64-bit ids (addresses, thread numbers, sizes) to what belongs to them.
 *
 *     slots    | id ... | id ... | 0  ... | id ... | ...      a power of two; id 0: an empty slot
 *               <------>
 *              slot_bytes
 *
 * A slot is a struct that begins with the uint64_t id; what follows is the user's. ax_idmap_slot
 * has one 64-bit value there, a set is a map whose slots are nothing but the id.
 *
 * Open addressing, linear probing, at most half full; a removal moves later entries back, so there
 * are no tombstones and a map that is emptied is as fast as a new one. Ids that differ only in bits
 * 4 and 5 (objects side by side in memory) are neighbours. Id 0 cannot be stored: callers whose ids
 * start at 0 store id + 1.
 */
#ifndef AX_IDMAP_H
#define AX_IDMAP_H

#include "grow.h"

typedef struct ax_idmap_slot {
    uint64_t id;
    uint64_t value;
} ax_idmap_slot;

typedef struct ax_idmap {
    unsigned char *slots;
    size_t capacity; /* 0 or a power of two */
    size_t used;
    size_t slot_bytes;
} ax_idmap;

/* The slot of an id, or NULL. All but the id may be written to until the map is next changed. */
void *ax_idmap_find(const ax_idmap *map, uint64_t id);

/* The slot at a place below the capacity, or NULL where that is empty. */
void *ax_idmap_at(const ax_idmap *map, size_t place);

/* Makes room for one more entry of `slot_bytes` bytes, the same for all of a map. AX_ERR_NOMEM and
 * AX_ERR_OVERFLOW leave the map as it was. */
int ax_idmap_reserve(ax_idmap *map, size_t slot_bytes, ax_seam *books);

/* Adds an id that is not there, after ax_idmap_reserve. The rest of its slot is not set. */
void *ax_idmap_add(ax_idmap *map, uint64_t id);

void ax_idmap_remove(ax_idmap *map, void *slot);

void ax_idmap_free(ax_idmap *map, ax_seam *books);

#endif
