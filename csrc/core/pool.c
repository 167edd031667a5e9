#include "pool.h"

#include <string.h>

/* What the real backing keeps at the start of each chunk. */
typedef struct chunk_header {
    uint64_t next;
    uint64_t bytes;
    uint64_t reserved; /* the layouts under study keep three words here */
} chunk_header;

_Static_assert(sizeof(chunk_header) == AX_POOL_MIN_HEADER, "the header is three words");

#define LARGEST_CHUNK (UINT64_C(1) << 40)

static uint64_t first_offset(const ax_pool_shape *shape)
{
    uint64_t a = shape->alignment_bytes;
    return (shape->header_bytes + a - 1) & ~(a - 1);
}

uint64_t ax_pool_payload(const ax_pool_shape *shape)
{
    return (shape->chunk_bytes - first_offset(shape)) & ~(uint64_t)(shape->alignment_bytes - 1);
}

int ax_pool_shape_check(const ax_pool_shape *shape, enum ax_backing backing, ax_detail *detail)
{
    uint32_t a = shape->alignment_bytes;
    uint32_t least_a = backing == AX_BACKING_REAL ? 8 : 4;
    if ((a != 4 && a != 8 && a != 16) || a < least_a) {
        return ax_fail(detail, AX_ERR_RANGE, "alignment_bytes (a power of two)", a, least_a, 16, 0);
    }
    uint32_t least = backing == AX_BACKING_REAL ? AX_POOL_MIN_HEADER : 0;
    if (shape->header_bytes < least || shape->header_bytes > 4096) {
        return ax_fail(detail, AX_ERR_RANGE, "chunk_header_bytes", shape->header_bytes, least, 4096,
                       0);
    }
    uint64_t smallest = first_offset(shape) + a;
    if (shape->chunk_bytes < smallest || shape->chunk_bytes > LARGEST_CHUNK) {
        return ax_fail(detail, AX_ERR_RANGE, "chunk_bytes", shape->chunk_bytes, smallest,
                       LARGEST_CHUNK, 0);
    }
    return AX_OK;
}

int ax_pool_new_chunk(ax_pool *pool, const ax_pool_shape *shape, ax_seam *seam, uint64_t bytes,
                      uint64_t *address)
{
    uint64_t first = first_offset(shape);
    uint64_t payload = ax_pool_payload(shape);
    int standard = bytes <= payload;
    if (!standard && bytes > LARGEST_CHUNK) {
        return AX_ERR_NOMEM;
    }
    uint64_t chunk_bytes = standard ? shape->chunk_bytes : first + bytes;
    uint64_t base;
    int status = ax_seam_malloc(seam, chunk_bytes, &base);
    if (status != AX_OK) {
        return status;
    }
    if (seam->backing == AX_BACKING_REAL) {
        *(chunk_header *)ax_at(base) = (chunk_header){pool->newest, chunk_bytes, 0};
        pool->newest = base;
    }
    pool->chunks++;
    pool->chunk_bytes_held += chunk_bytes;
    pool->headers_bytes += first;
    if (standard) {
        pool->slop_bytes += pool->end - pool->offset;
        pool->offset = base + first + bytes;
        pool->end = base + chunk_bytes;
    } else {
        pool->oversize_chunks++;
    }
    pool->bumps++;
    pool->bumped_bytes += bytes;
    *address = base + first;
    return AX_OK;
}

void ax_pool_release(ax_pool *pool, ax_seam *seam)
{
    if (seam->backing == AX_BACKING_REAL) {
        while (pool->newest) {
            chunk_header header = *(const chunk_header *)ax_at(pool->newest);
            ax_seam_free(seam, pool->newest, header.bytes);
            pool->newest = header.next;
        }
    } else if (pool->chunks) {
        /* Only the sum is known here, and only the sum is counted. */
        seam->calls[AX_CALL_FREE] += pool->chunks - 1;
        ax_seam_free(seam, 0, pool->chunk_bytes_held);
    }
    memset(pool, 0, sizeof *pool);
}

int ax_pool_check(const ax_pool *pool, const ax_pool_shape *shape, const ax_seam *seam,
                  ax_detail *detail)
{
    uint64_t parts =
        pool->headers_bytes + pool->bumped_bytes + pool->slop_bytes + (pool->end - pool->offset);
    if (pool->offset > pool->end || parts != pool->chunk_bytes_held) {
        return ax_fail(detail, AX_ERR_CORRUPT, "parts of the chunks do not add up", parts,
                       pool->chunk_bytes_held, 0, pool->chunks);
    }
    if (pool->headers_bytes != pool->chunks * first_offset(shape)) {
        return ax_fail(detail, AX_ERR_CORRUPT, "bytes of chunk headers", pool->headers_bytes,
                       pool->chunks * first_offset(shape), 0, pool->chunks);
    }
    if (seam->backing == AX_BACKING_REAL) {
        uint64_t chunks = 0;
        uint64_t bytes = 0;
        for (uint64_t c = pool->newest; c && chunks <= pool->chunks; chunks++) {
            const chunk_header *header = ax_at(c);
            bytes += header->bytes;
            c = header->next;
        }
        if (chunks != pool->chunks || bytes != pool->chunk_bytes_held) {
            return ax_fail(detail, AX_ERR_CORRUPT, "chunks in the chain", chunks, pool->chunks, 0,
                           bytes);
        }
    }
    return AX_OK;
}

int ax_pool_owns(const ax_pool *pool, const ax_pool_shape *shape, uint64_t address, uint64_t bytes)
{
    uint64_t first = first_offset(shape);
    for (uint64_t c = pool->newest; c;) {
        const chunk_header *header = ax_at(c);
        if (address >= c + first && address < c + header->bytes &&
            bytes <= c + header->bytes - address) {
            return 1;
        }
        c = header->next;
    }
    return 0;
}
