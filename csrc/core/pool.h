/* pool: bump allocation out of chunks that are only given back all together.
 *
 *     chunk   [ header | object | object | ... | offset ->      tail ]
 *
 * A request that fits between offset and the chunk's end moves offset. Otherwise a new chunk is
 * asked for: a standard one (chunk_bytes, header included) becomes current and the old one's tail
 * is never looked at again (slop); a request larger than a standard payload gets a chunk of exactly
 * its size, and the current one stays.
 *
 *     chunk_bytes_held = headers_bytes + bumped_bytes + slop_bytes + (end - offset)
 */
#ifndef AX_POOL_H
#define AX_POOL_H

#include "pages.h"

typedef struct ax_pool_shape {
    uint64_t chunk_bytes;     /* of a standard chunk, header included */
    uint32_t header_bytes;    /* at the start of each chunk */
    uint32_t alignment_bytes; /* of objects: 4, 8 or 16 */
} ax_pool_shape;

typedef struct ax_pool {
    uint64_t offset; /* addresses in the current chunk; equal when there is none */
    uint64_t end;
    uint64_t newest; /* real backing: head of the chain through the chunk headers */
    uint64_t chunks;
    uint64_t oversize_chunks;
    uint64_t chunk_bytes_held;
    uint64_t headers_bytes; /* rounded up to the alignment */
    uint64_t bumps;
    uint64_t bumped_bytes;
    uint64_t slop_bytes;
} ax_pool;

/* The smallest header that the real backing needs for its chain. */
#define AX_POOL_MIN_HEADER 24

int ax_pool_shape_check(const ax_pool_shape *shape, enum ax_backing backing, ax_detail *detail);

/* Bytes of objects that a standard chunk holds. */
uint64_t ax_pool_payload(const ax_pool_shape *shape);

int ax_pool_new_chunk(ax_pool *pool, const ax_pool_shape *shape, ax_seam *seam, uint64_t bytes,
                      uint64_t *address);

/* bytes must be a multiple of the alignment and not 0. On failure nothing has changed. */
static inline int ax_pool_bump(ax_pool *pool, const ax_pool_shape *shape, ax_seam *seam,
                               uint64_t bytes, uint64_t *address)
{
    if (bytes > pool->end - pool->offset) {
        return ax_pool_new_chunk(pool, shape, seam, bytes, address);
    }
    *address = pool->offset;
    pool->offset += bytes;
    pool->bumps++;
    pool->bumped_bytes += bytes;
    return AX_OK;
}

/* Gives every chunk back and leaves an empty pool whose counters start anew. */
void ax_pool_release(ax_pool *pool, ax_seam *seam);

/* Whether the parts add up and the chain (real backing) has them all. */
int ax_pool_check(const ax_pool *pool, const ax_pool_shape *shape, const ax_seam *seam,
                  ax_detail *detail);

/* Whether [address, address + bytes) lies in the objects of one of the chunks. Real backing only.
 */
int ax_pool_owns(const ax_pool *pool, const ax_pool_shape *shape, uint64_t address, uint64_t bytes);

#endif
