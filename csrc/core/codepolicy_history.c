/* The designs of bug 601724's history. None of them is told a size; the caller fills a block from
 * its high end and gives the rest back. All keep one list of free blocks, newest first, linked one
 * way. */
#include "codepolicy.h"

#define LIST 0
#define WHOLE UINT64_MAX

static uint64_t least(const ax_codeheap *heap)
{
    return heap->params.min_payload_bytes;
}

static void fresh(ax_codeheap *heap, uint32_t block)
{
    ax_code_push(heap, LIST, block);
}

static void fresh_unlisted(ax_codeheap *heap, uint32_t block)
{
    (void)heap;
    (void)block;
}

static void unlist(ax_codeheap *heap, uint32_t block)
{
    (void)ax_code_unlink_walking(heap, block);
}

/* The code of the day relied on never freeing a single method: nobody asks whether the chunks of
 * these headers may be written to. */
static void give(ax_codeheap *heap, uint32_t block)
{
    const int lists = heap->policy->listing == AX_LISTED_BY_SIZE;
    int listed = 0;
    uint32_t lower = heap->blocks[block].lower;
    ax_code_note_header_write(heap, block);
    if (lower != AX_NO_BLOCK && heap->blocks[lower].is_free) {
        /* It keeps its place on the list. */
        listed = heap->blocks[lower].listed;
        ax_code_join(heap, lower);
        block = lower;
    }
    uint32_t higher = heap->blocks[block].higher;
    if (higher != AX_NO_BLOCK && heap->blocks[higher].is_free) {
        if (heap->blocks[higher].listed) {
            uint32_t before = ax_code_unlink_walking(heap, higher);
            if (before != AX_NO_BLOCK && heap->blocks[before].chunk != heap->blocks[block].chunk) {
                ax_code_note_header_write(heap, before);
            }
        }
        ax_code_join(heap, block);
    }
    ax_code_raise_bound(heap, block);
    if (lists && !listed && ax_block_payload(heap, block) >= least(heap)) {
        ax_code_push(heap, LIST, block);
    }
}

/* V1: the first free block with enough payload, chunks newest first, blocks high to low. What is
 * known to have none is passed in one, but all its blocks are counted. */
static int alloc_scan(ax_codeheap *heap, uint64_t size_bytes, uint32_t *block)
{
    (void)size_bytes;
    for (uint32_t c = heap->newest; c != AX_NO_CHUNK; c = heap->chunks[c].older) {
        ax_code_chunk *chunk = &heap->chunks[c];
        if (chunk->bound < least(heap)) {
            heap->counters.list_scan_steps += chunk->blocks;
            continue;
        }
        for (uint32_t i = chunk->last; i != AX_NO_BLOCK; i = heap->blocks[i].lower) {
            heap->counters.list_scan_steps++;
            if (heap->blocks[i].is_free && ax_block_payload(heap, i) >= least(heap)) {
                int status = ax_codeheap_mark_write(heap, c);
                if (status == AX_OK) {
                    ax_code_use(heap, i, 0);
                    *block = i;
                }
                return status;
            }
        }
        chunk->bound = least(heap) - 1;
    }
    return AX_CODE_AGAIN;
}

/* Takes the high `consume` bytes of the newest listed block; the low rest keeps its place, whatever
 * is left of it: what a policy's arithmetic gets wrong (a block of no bytes, too) is for the check
 * to find. */
static int take(ax_codeheap *heap, uint64_t consume, uint32_t *block)
{
    uint32_t head = heap->bin_head[LIST];
    int status = ax_code_reserve(heap, 1);
    if (status == AX_OK) {
        status = ax_codeheap_mark_write(heap, heap->blocks[head].chunk);
    }
    if (status != AX_OK) {
        return status;
    }
    if (consume == WHOLE) {
        ax_code_unlink(heap, head);
        *block = head;
    } else {
        *block = ax_code_cut(heap, head, heap->blocks[head].end - consume);
    }
    ax_code_use(heap, *block, 0);
    return AX_OK;
}

/* V2 to V6: the whole of the newest listed block. */
static int alloc_whole(ax_codeheap *heap, uint64_t size_bytes, uint32_t *block)
{
    (void)size_bytes;
    return heap->bin_head[LIST] == AX_NO_BLOCK ? AX_CODE_AGAIN : take(heap, WHOLE, block);
}

/* V7, what landed: exactly the limit, or, where the rest would be too small, a tiny block. */
static int alloc_byte_limit(ax_codeheap *heap, uint64_t size_bytes, uint32_t *block)
{
    const uint64_t limit = heap->params.byte_limit;
    const uint64_t header = heap->params.header_bytes;
    (void)size_bytes;
    if (heap->bin_head[LIST] == AX_NO_BLOCK) {
        return AX_CODE_AGAIN;
    }
    uint64_t payload = ax_block_payload(heap, heap->bin_head[LIST]);
    if (limit == 0 || payload <= limit) {
        return take(heap, WHOLE, block);
    }
    int fits = payload >= limit + 2 * header + least(heap);
    return take(heap, header + (fits ? limit : least(heap)), block);
}

/* The attachment of comment 17: where the rest would be too small, half of what was wanted. */
static int alloc_halving(ax_codeheap *heap, uint64_t size_bytes, uint32_t *block)
{
    const uint64_t limit = heap->params.byte_limit;
    const uint64_t header = heap->params.header_bytes;
    (void)size_bytes;
    if (heap->bin_head[LIST] == AX_NO_BLOCK) {
        return AX_CODE_AGAIN;
    }
    uint64_t payload = ax_block_payload(heap, heap->bin_head[LIST]);
    if (limit == 0 || payload <= limit) {
        return take(heap, WHOLE, block);
    }
    uint64_t consume = limit + header;
    if (payload < consume + least(heap)) {
        consume /= 2;
        if (heap->params.policy == AX_CODE_HALVING_PAYLOAD) {
            consume += header; /* half is meant as payload, and has a header besides */
        }
    }
    return take(heap, consume, block);
}

uint64_t ax_code_least_limit(uint32_t policy, uint64_t header, uint64_t least_bytes)
{
    const uint64_t h = header;
    const uint64_t m = least_bytes;
    const uint64_t one = h + 2 * m - 1; /* two payloads and a header do not fit in less */
    switch (policy) {
    case AX_CODE_BYTE_LIMIT:
        return one;
    case AX_CODE_HALVING:
        return one + 1;
    case AX_CODE_HALVING_PAYLOAD:
        /* Half of limit and header must be M, and what it leaves must be, too. */
        return h ? (3 * h + 2 * m - 3 > one ? 3 * h + 2 * m - 3 : one) : 2 * m;
    default:
        return 0;
    }
}

static int check_partitions(const ax_code_params *params, ax_detail *detail)
{
    if (params->partitions < 1 || params->partitions > 65536) {
        return ax_fail(detail, AX_ERR_RANGE, "partitions", params->partitions, 1, 65536, 0);
    }
    return AX_OK;
}

#define HISTORY                                                                             \
    .least = least, .give = give, .unlist = unlist, .header_bytes = 40, .granule_bytes = 1, \
    .min_rest_bytes = 0

const ax_code_policy ax_code_history[] = {
    [AX_CODE_SCAN] = {.name = "scan",
                      .listing = AX_LISTED_NEVER,
                      .alloc = alloc_scan,
                      .fresh = fresh_unlisted,
                      HISTORY},
    [AX_CODE_WHOLE_BLOCK] = {.name = "whole_block", .alloc = alloc_whole, .fresh = fresh, HISTORY},
    [AX_CODE_PARTITION] = {.name = "partition",
                           .alloc = alloc_whole,
                           .fresh = fresh,
                           .check = check_partitions,
                           HISTORY},
    [AX_CODE_HALVING] = {.name = "halving", .alloc = alloc_halving, .fresh = fresh, HISTORY},
    [AX_CODE_HALVING_PAYLOAD] = {.name = "halving_payload",
                                 .alloc = alloc_halving,
                                 .fresh = fresh,
                                 HISTORY},
    [AX_CODE_BYTE_LIMIT] = {.name = "byte_limit",
                            .alloc = alloc_byte_limit,
                            .fresh = fresh,
                            HISTORY},
};
