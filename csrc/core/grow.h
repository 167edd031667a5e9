/* grow: arrays of our own, on the seam: they are counted, and a test can refuse each of their
 * calls.
 *
 * `array` is the address of any object pointer; NULL there and a capacity of 0 mean one another.
 * The seam must be of the real backing. What an allocator under study asks for (chunks, buffers of
 * free lists) does not belong here: its sizes are part of the design studied.
 */
#ifndef AX_GROW_H
#define AX_GROW_H

#include <stddef.h>

#include "pages.h"

/* The capacity that follows `capacity` and holds `needed` items of `item_bytes` bytes: at least 16,
 * then half as much again. AX_ERR_OVERFLOW where that many items have no size in bytes. */
int ax_grow_capacity(size_t capacity, size_t needed, size_t item_bytes, size_t *out);

/* Makes *array hold exactly `wanted` items, at least one. Items beyond the old capacity are not
 * set. On failure array and capacity are as before. */
int ax_grow_to(ax_seam *books, void *array, size_t *capacity, size_t wanted, size_t item_bytes);

/* Likewise at least `needed` items, so that adding one at a time costs a constant each. */
static inline int ax_grow_array(ax_seam *books, void *array, size_t *capacity, size_t needed,
                                size_t item_bytes)
{
    size_t grown = 0;
    if (needed <= *capacity) {
        return AX_OK;
    }
    const int status = ax_grow_capacity(*capacity, needed, item_bytes, &grown);
    return status == AX_OK ? ax_grow_to(books, array, capacity, grown, item_bytes) : status;
}

/* A new array of `count` items of zeroes, at least one. On failure *array is as before. */
int ax_grow_zeroed(ax_seam *books, void *array, size_t count, size_t item_bytes);

/* Frees *array where there is one, and leaves NULL and 0. */
void ax_grow_free(ax_seam *books, void *array, size_t *capacity, size_t item_bytes);

#endif
