/* What designs that are told a size have in common. */
#ifndef AX_CODEPOLICY_SIZED_H
#define AX_CODEPOLICY_SIZED_H

#include "codepolicy.h"

static inline uint64_t round_up(uint64_t n, uint64_t granule)
{
    return (n + granule - 1) / granule * granule;
}

/* The payload of the block for a request: a multiple of the granule. */
static inline uint64_t granules(const ax_codeheap *heap, uint64_t size_bytes)
{
    const uint64_t least = heap->params.min_payload_bytes;
    const uint64_t wanted = size_bytes > least ? size_bytes : least;
    /* A division costs as much as the rest of an alloc. */
    if (heap->granule_mask) {
        return (wanted + heap->granule_mask) & ~heap->granule_mask;
    }
    return round_up(wanted, heap->params.granule_bytes);
}

/* The same, as the design wants it. */
static inline uint64_t rounded(const ax_codeheap *heap, uint64_t size_bytes)
{
    return heap->policy->rounded ? heap->policy->rounded(heap, size_bytes)
                                 : granules(heap, size_bytes);
}

static inline uint64_t least(const ax_codeheap *heap)
{
    return heap->params.granule_bytes;
}

static inline uint64_t chunk_for(const ax_codeheap *heap, uint64_t size_bytes)
{
    const uint64_t chunk = heap->params.chunk_bytes;
    uint64_t wanted = rounded(heap, size_bytes) + 2 * (uint64_t)heap->params.header_bytes;
    return wanted > chunk ? wanted : chunk;
}

/* A free block that is too small is on none. */
static inline void leave_list(ax_codeheap *heap, uint32_t block)
{
    if (heap->blocks[block].listed) {
        ax_code_unlink(heap, block);
    }
}

/* Joins a free block that is on no list with its free neighbours, which leave theirs. */
static inline uint32_t join_both(ax_codeheap *heap, uint32_t block)
{
    const uint32_t higher = heap->blocks[block].higher;
    if (ax_code_is_free(heap, higher)) {
        leave_list(heap, higher);
        ax_code_join(heap, block);
        if (heap->cursor == higher) {
            heap->cursor = block;
        }
    }
    const uint32_t lower = heap->blocks[block].lower;
    if (ax_code_is_free(heap, lower)) {
        leave_list(heap, lower);
        ax_code_join(heap, lower);
        if (heap->cursor == block) {
            heap->cursor = lower;
        }
        block = lower;
    }
    return block;
}

/* Makes sure that what follows cannot fail. */
static inline int prepare(ax_codeheap *heap, uint32_t found)
{
    int status = ax_code_reserve(heap, 1);
    return status == AX_OK ? ax_code_open(heap, found) : status;
}

/* Whether a rest of at least `rest` bytes of payload stays when `wanted` are cut off. A rest that
 * may not be listed is none. */
static inline int worth_cutting(const ax_codeheap *heap, uint32_t found, uint64_t wanted,
                                uint64_t rest)
{
    const uint64_t listed = heap->policy->least(heap);
    rest = rest > listed ? rest : listed;
    return ax_block_payload(heap, found) >= wanted + heap->params.header_bytes + (rest ? rest : 1);
}

/* The high `wanted` bytes of a free block; the low rest stays where it is listed. */
static inline uint32_t cut_high(ax_codeheap *heap, uint32_t found, uint64_t wanted)
{
    return ax_code_cut(heap, found, heap->blocks[found].end - wanted - heap->params.header_bytes);
}

/* The low `wanted` bytes; returns the high rest, which is on no list. */
static inline uint32_t cut_low(ax_codeheap *heap, uint32_t found, uint64_t wanted)
{
    return ax_code_cut(heap, found, heap->blocks[found].start + heap->params.header_bytes + wanted);
}

static inline void unlist(ax_codeheap *heap, uint32_t block)
{
    ax_code_unlink(heap, block);
}

/* Cuts the high end off a listed block, or takes all of it. */
static inline int use_high(ax_codeheap *heap, uint32_t found, uint64_t wanted, uint64_t size_bytes,
                           uint32_t *block)
{
    int status = prepare(heap, found);
    if (status != AX_OK) {
        return status;
    }
    if (ax_block_bytes(heap, found) >= heap->params.header_bytes + wanted + heap->least_rest) {
        found = cut_high(heap, found, wanted);
    } else {
        ax_code_unlink(heap, found);
    }
    ax_code_use(heap, found, size_bytes);
    *block = found;
    return AX_OK;
}

/* best_fit, in codepolicy_bestfit.c */
uint64_t ax_code_segments(const ax_codeheap *heap, uint64_t size_bytes);
uint64_t ax_code_largest_segments(const ax_codeheap *heap);
int ax_code_alloc_best_fit(ax_codeheap *heap, uint64_t size_bytes, uint32_t *block);
void ax_code_give_by_address(ax_codeheap *heap, uint32_t block);
void ax_code_list_by_address(ax_codeheap *heap, uint32_t block);
void ax_code_unlist_by_address(ax_codeheap *heap, uint32_t block);

/* bitmap and pack, in codepolicy_bitmap.c */
uint64_t ax_code_bitmap_chunk(const ax_codeheap *heap, uint64_t size_bytes);
int ax_code_alloc_bitmap(ax_codeheap *heap, uint64_t size_bytes, uint32_t *block);
int ax_code_alloc_pack(ax_codeheap *heap, uint64_t size_bytes, uint32_t *block);
void ax_code_give_unlisted(ax_codeheap *heap, uint32_t block);

#endif
