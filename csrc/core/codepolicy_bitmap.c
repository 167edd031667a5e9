/* Designs that keep no list of free blocks, and search chunk by chunk in a map of granules. What
 * the map says, the records say: list_scan_steps counts the blocks that a search comes by.
 */
#include "codepolicy_sized.h"

/* The first free block from `from` on to the end of its chunk that holds `wanted` bytes. */
static uint32_t search(ax_codeheap *heap, uint32_t from, uint64_t wanted, uint64_t *largest)
{
    uint64_t steps = 0;
    uint32_t i = from;
    *largest = 0;
    for (; i != AX_NO_BLOCK; i = heap->blocks[i].higher) {
        steps++;
        if (heap->blocks[i].is_free) {
            const uint64_t payload = ax_block_payload(heap, i);
            if (payload >= wanted) {
                break;
            }
            *largest = payload > *largest ? payload : *largest;
        }
    }
    heap->counters.list_scan_steps += steps;
    return i;
}

/* The same in all of a chunk, of which more is known when there is none. */
static uint32_t search_chunk(ax_codeheap *heap, uint32_t chunk, uint64_t wanted)
{
    uint64_t largest;
    const uint32_t found = search(heap, heap->chunks[chunk].first, wanted, &largest);
    if (found == AX_NO_BLOCK) {
        heap->chunks[chunk].bound = largest;
    }
    return found;
}

static int use_low(ax_codeheap *heap, uint32_t found, uint64_t wanted, uint64_t size_bytes,
                   uint32_t *block)
{
    int status = prepare(heap, found);
    if (status == AX_OK) {
        if (worth_cutting(heap, found, wanted, heap->params.granule_bytes)) {
            (void)cut_low(heap, found, wanted);
        }
        ax_code_use(heap, found, size_bytes);
        *block = found;
    }
    return status;
}

void ax_code_give_unlisted(ax_codeheap *heap, uint32_t block)
{
    block = join_both(heap, block);
    ax_code_raise_bound(heap, block);
    const ax_code_chunk *chunk = &heap->chunks[heap->blocks[block].chunk];
    if (heap->policy->own_pages && chunk->used_blocks == 0 &&
        chunk->bytes > heap->params.chunk_bytes) {
        heap->own_pages_empty = 1;
    }
}

/* --- bitmap: asmjit. The search goes on where the last one ended, in chunks of the size's pool,
 * and passes those of which it is known that they have no such room; chunks grow
 * ---------------------------------------------------------------------------------- */

#define LARGEST_BASE (UINT64_C(64) << 20)

/* Sizes that are multiples of 4 or 2 granules live apart from the others. */
static uint32_t pool_of(const ax_codeheap *heap, uint64_t size_bytes)
{
    const uint64_t granule = heap->params.granule_bytes;
    return size_bytes % (4 * granule) == 0 ? 2u : size_bytes % (2 * granule) == 0 ? 1u : 0u;
}

/* Twice the newest chunk of the pool that there is, so that a pool which has given chunks back
 * starts smaller again; the first one is twice chunk_bytes. What is larger still has a multiple of
 * chunk_bytes. */
uint64_t ax_code_bitmap_chunk(const ax_codeheap *heap, uint64_t size_bytes)
{
    const uint64_t base = heap->params.chunk_bytes;
    const uint64_t wanted = rounded(heap, size_bytes);
    const uint64_t needed = wanted + 2 * (uint64_t)heap->params.header_bytes;
    const uint32_t pool = pool_of(heap, wanted) + 1;
    uint64_t bytes = base;
    for (uint32_t c = heap->newest; c != AX_NO_CHUNK; c = heap->chunks[c].older) {
        if (heap->chunks[c].pool == pool) {
            bytes = heap->chunks[c].bytes;
            break;
        }
    }
    if (bytes < LARGEST_BASE) {
        bytes = bytes * 2 < LARGEST_BASE ? bytes * 2 : LARGEST_BASE;
    }
    return needed > bytes ? round_up(needed, base) : bytes;
}

int ax_code_alloc_bitmap(ax_codeheap *heap, uint64_t size_bytes, uint32_t *block)
{
    const uint64_t wanted = rounded(heap, size_bytes);
    const uint32_t pool = pool_of(heap, wanted) + 1;
    const uint32_t cursor = heap->cursor;
    uint32_t found = AX_NO_BLOCK;
    if (cursor != AX_NO_BLOCK) {
        const ax_code_chunk *chunk = &heap->chunks[heap->blocks[cursor].chunk];
        if (chunk->pool == pool && chunk->bound >= wanted) {
            uint64_t largest;
            found = search(heap, cursor, wanted, &largest);
        }
    }
    for (uint32_t c = heap->newest; found == AX_NO_BLOCK && c != AX_NO_CHUNK;
         c = heap->chunks[c].older) {
        const ax_code_chunk *chunk = &heap->chunks[c];
        /* A new chunk belongs to no pool yet. */
        if ((chunk->pool == pool || chunk->pool == 0) && chunk->bound >= wanted) {
            found = search_chunk(heap, c, wanted);
        }
    }
    if (found == AX_NO_BLOCK) {
        return AX_CODE_AGAIN;
    }
    int status = use_low(heap, found, wanted, size_bytes, block);
    if (status == AX_OK) {
        heap->chunks[heap->blocks[found].chunk].pool = pool;
        heap->cursor = found;
    }
    return status;
}

/* --- pack: Linux's bpf_prog_pack. Chunks of one size, oldest first, from the low end; what is
 * larger than a pack has pages of its own. The original looks into every pack; what is known to
 * have no such room is passed here in one, but its blocks are counted
 * ------------------------------------------------------------------- */

int ax_code_alloc_pack(ax_codeheap *heap, uint64_t size_bytes, uint32_t *block)
{
    const uint64_t wanted = rounded(heap, size_bytes);
    const int own_pages = chunk_for(heap, size_bytes) > heap->params.chunk_bytes;
    for (uint32_t c = heap->oldest; c != AX_NO_CHUNK; c = heap->chunks[c].younger) {
        const ax_code_chunk *chunk = &heap->chunks[c];
        if (own_pages != (chunk->bytes > heap->params.chunk_bytes)) {
            continue;
        }
        if (chunk->bound < wanted) {
            heap->counters.list_scan_steps += chunk->blocks;
            continue;
        }
        const uint32_t found = search_chunk(heap, c, wanted);
        if (found != AX_NO_BLOCK) {
            return use_low(heap, found, wanted, size_bytes, block);
        }
    }
    return AX_CODE_AGAIN;
}
