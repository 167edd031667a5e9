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

/* The newest listed block, or, above the limit, its high end: what the design consumes of it. */
static inline int alloc_limited(ax_codeheap *heap, uint32_t *block,
                                uint64_t (*consumed)(const ax_codeheap *, uint64_t payload))
{
    const uint32_t head = heap->bin_head[LIST];
    if (head == AX_NO_BLOCK) {
        return AX_CODE_AGAIN;
    }
    const uint64_t payload = ax_block_payload(heap, head);
    const uint64_t limit = heap->params.byte_limit;
    return take(heap, limit && payload > limit ? consumed(heap, payload) : WHOLE, block);
}

/* Exactly the limit, or, where the rest would be too small, a tiny block. */
static uint64_t limit_or_tiny(const ax_codeheap *heap, uint64_t payload)
{
    const uint64_t limit = heap->params.byte_limit;
    const uint64_t header = heap->params.header_bytes;
    return header + (payload >= limit + 2 * header + least(heap) ? limit : least(heap));
}

static int alloc_byte_limit(ax_codeheap *heap, uint64_t size_bytes, uint32_t *block)
{
    (void)size_bytes;
    return alloc_limited(heap, block, limit_or_tiny);
}

/* Where the rest would be too small, half of what was wanted. */
static uint64_t limit_or_half(const ax_codeheap *heap, uint64_t payload)
{
    const uint64_t header = heap->params.header_bytes;
    const uint64_t wanted = heap->params.byte_limit + header;
    if (payload >= wanted + least(heap)) {
        return wanted;
    }
    /* In the other reading half is meant as payload, and has a header besides. */
    return wanted / 2 + (heap->params.policy == AX_CODE_HALVING_PAYLOAD ? header : 0);
}

static int alloc_halving(ax_codeheap *heap, uint64_t size_bytes, uint32_t *block)
{
    (void)size_bytes;
    return alloc_limited(heap, block, limit_or_half);
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

/* Version numbers are those of nanojit's public history; comments are those of bug 601724. */
const ax_code_policy ax_code_history[] = {
    /* V1, May 2009: doubly linked neighbours, coalescing, no list of free blocks. Before the bug.
     */
    [AX_CODE_SCAN] = {.name = "scan", .listing = AX_LISTED_NEVER, .alloc = alloc_scan, HISTORY},
    /* V2 to V6, July 2009 to November 2010: a list of free blocks, of which the newest is handed
     * out whole. V6, the bug's first part (comments 8 to 12, 16, 19), lists a new chunk's block,
     * too, and changes nothing else. */
    [AX_CODE_WHOLE_BLOCK] = {.name = "whole_block", .alloc = alloc_whole, .fresh = fresh, HISTORY},
    /* Comments 1 to 3, rejected and never landed: one request is several chunks. */
    [AX_CODE_PARTITION] = {.name = "partition",
                           .alloc = alloc_whole,
                           .fresh = fresh,
                           .check = check_partitions,
                           HISTORY},
    /* The patch of comment 13, never landed, as comment 17 describes it: limit and header are
     * halved. Wrong with a limit below H + 2M. */
    [AX_CODE_HALVING] = {.name = "halving", .alloc = alloc_halving, .fresh = fresh, HISTORY},
    /* The same as comment 17 calculates with it: half is payload. Wrong below 3H + 2M - 3. */
    [AX_CODE_HALVING_PAYLOAD] = {.name = "halving_payload",
                                 .alloc = alloc_halving,
                                 .fresh = fresh,
                                 HISTORY},
    /* V7, January 2011, which landed under bug 614126: the limit of comment 17, with another way
     * out where the rest is too small. Right from H + 2M - 1. */
    [AX_CODE_BYTE_LIMIT] = {.name = "byte_limit",
                            .alloc = alloc_byte_limit,
                            .fresh = fresh,
                            HISTORY},
};
