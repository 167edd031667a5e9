/* idmap: a map from 64-bit ids (addresses, thread numbers, sizes) to 64-bit values.
 *
 *     slots    | id value | id value | 0      | id value | ...      a power of two; id 0 is an
 * empty slot
 *
 * Open addressing, linear probing, at most half full; a removal moves later entries back, so there
 * are no tombstones and a map that is emptied is as fast as a new one. Ids that differ only in bits
 * 4 and 5 (objects side by side in memory) share a cache line. Id 0 cannot be stored: callers whose
 * ids start at 0 store id + 1.
 */
#ifndef AX_IDMAP_H
#define AX_IDMAP_H

#include <stddef.h>
#include <stdint.h>

#include "grow.h"

typedef struct ax_idmap_slot {
    uint64_t id;
    uint64_t value;
} ax_idmap_slot;

typedef struct ax_idmap {
    ax_idmap_slot *slots;
    size_t capacity; /* 0 or a power of two */
    size_t used;
} ax_idmap;

/* The slot of an id, or NULL. It may be written to until the map is next changed. */
ax_idmap_slot *ax_idmap_find(const ax_idmap *map, uint64_t id);

/* Makes room for one more entry. AX_ERR_NOMEM and AX_ERR_OVERFLOW leave the map as it was. */
int ax_idmap_reserve(ax_idmap *map, ax_seam *books);

/* Adds an id that is not there, after ax_idmap_reserve. */
void ax_idmap_add(ax_idmap *map, uint64_t id, uint64_t value);

void ax_idmap_remove(ax_idmap *map, ax_idmap_slot *slot);

void ax_idmap_free(ax_idmap *map, ax_seam *books);

#endif
