/* ptrlist: a growable array of pointers, and the ladder of buffer sizes it climbs.
 *
 *     buffer   [ header_bytes | entry 0 | entry 1 | ... | entry len-1 |   unused   ]
 *               <------------------------ bytes of the rung ----------------------->
 *
 *     rung      0     1    2    3    4     5     6     7      8     ...   20       21      22
 *     bytes     -     16   32   64   128   256   512   1024   2048  ...   8 MiB    9 MiB   11 MiB
 *     capacity  0     1    3    7    15    31    63    127    255   ...                        (8,
 * 8) bytes     -     12   16   32   64    128   256   512    1024  ...                        (8,
 * 4)
 *
 * The first buffer is exactly as large as one entry needs; below 8 MiB the next is the power of two
 * that holds one entry more; from 8 MiB on it is an eighth larger, rounded up to MiB. Since a list
 * grows by one entry at a time every buffer is a rung of this one ladder, and a rung is a small
 * number. Requests of 2 GiB and more are refused (twice the request must fit 32 bits).
 *
 * Header and pointer width are parameters: a 32-bit layout (pointer_bytes 4) is only counted, never
 * stored; with the real backing entries are uint64_t.
 */
#ifndef AX_PTRLIST_H
#define AX_PTRLIST_H

#include "pages.h"

#define AX_RUNGS 128 /* rung 0 is "no buffer" */

/* Lists (and arenas) are numbered in 32 bits, below this: number + 1 fits too, and so does more
 * than one value that is none of them. */
#define AX_MOST_LISTS (UINT32_MAX / 2)

typedef struct ax_ladder {
    uint32_t header_bytes;
    uint32_t pointer_bytes;
    uint32_t rungs; /* the highest rung is rungs - 1 */
    uint64_t bytes[AX_RUNGS];
    uint32_t capacity[AX_RUNGS];
} ax_ladder;

typedef struct ax_ptrlist {
    uint64_t buffer;   /* address of entry 0, behind the header */
    uint32_t len;      /* entries in use */
    uint32_t capacity; /* entries there is room for; ladder->capacity[rung] */
    uint32_t rung;
} ax_ptrlist;

/* header_bytes 0..64, pointer_bytes 4 or 8. */
int ax_ladder_init(ax_ladder *ladder, uint32_t header_bytes, uint32_t pointer_bytes,
                   ax_detail *detail);

/* The lowest rung with room for `entries`; ladder->rungs if there is none. */
uint32_t ax_ladder_rung(const ax_ladder *ladder, uint32_t entries);

static inline uint64_t *ax_ptrlist_entries(const ax_ptrlist *list)
{
    return ax_at(list->buffer);
}

/* Moves the buffer to another rung that still holds all entries; rung 0 (only when empty) frees it.
 * On failure the list is as before. */
int ax_ptrlist_set_rung(ax_ptrlist *list, const ax_ladder *ladder, ax_seam *seam, uint32_t rung);

#endif
