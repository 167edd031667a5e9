/* trace: the ordered events of one run, as columns of equal length.
 *
 *     event      0      1      2      3      4      5
 *     op         alloc  alloc  free   alloc  realloc destroy
 *     object     0      1      0      2      1      AX_NO_OBJECT
 *     size_bytes 48     8      0      48     16     0          request size; 0 for free and destroy
 *     thread     0      0      1      0      0      0          dense
 *     arena      0      0      0      1      0      0          optional; dense
 *
 * The k-th allocation makes object k, so ids are dense and the number of objects is the number of
 * allocations. A realloc keeps its object. A destroy (only where there is an arena column) ends an
 * arena and every object that still lives in it; the arena's number may be used again afterwards.
 * In a free or realloc the arena is the one that owns the object.
 *
 * The core borrows the columns (they may be a mapped file) and trusts none of their values: whoever
 * walks them checks ids as it goes, so a file that changes under us cannot make us write astray.
 */
#ifndef AX_TRACE_H
#define AX_TRACE_H

#include <stddef.h>
#include <stdint.h>

#include "status.h"

enum ax_op { AX_OP_ALLOC = 0, AX_OP_FREE = 1, AX_OP_REALLOC = 2, AX_OP_DESTROY = 3, AX_OPS = 4 };

#define AX_NO_OBJECT UINT64_MAX /* in a u32 column: UINT32_MAX */

typedef struct ax_trace_view {
    size_t events;
    const uint8_t *op;
    const void *object; /* u32 or u64, see object_is_u64 */
    const uint64_t *size_bytes;
    const uint32_t *thread;   /* NULL: one thread */
    const uint32_t *key;      /* NULL: unknown */
    const uint32_t *arena;    /* NULL: one arena */
    const uint64_t *time_ns;  /* NULL: unknown */
    int object_is_u64;
} ax_trace_view;

static inline uint64_t ax_trace_object(const ax_trace_view *t, size_t i)
{
    return t->object_is_u64 ? ((const uint64_t *)t->object)[i] : ((const uint32_t *)t->object)[i];
}

#endif
