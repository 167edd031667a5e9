/* best fit: HotSpot. Blocks are whole segments, header and all, and at least the smallest block;
 * free ones stand on a list in the order of their addresses, which is searched for the smallest
 * that is large enough. An exact fit ends the search; rests too small to be a block stay with the
 * block.
 *
 * What the design does is walk the list, and list_scan_steps counts the blocks that it would come
 * by. This keeps the addresses and payloads of the same list in arrays, too, and so searches a
 * cache line where the list is a miss for every block.
 */
#include <string.h>

#include "codepolicy_sized.h"

#define LIST 0

uint64_t ax_code_segments(const ax_codeheap *heap, uint64_t size_bytes)
{
    const ax_code_params *p = &heap->params;
    const uint64_t payload = size_bytes > p->min_payload_bytes ? size_bytes : p->min_payload_bytes;
    const uint64_t bytes = payload + p->header_bytes;
    const uint64_t least_bytes = p->min_rest_bytes;
    return round_up(bytes > least_bytes ? bytes : least_bytes, p->granule_bytes) - p->header_bytes;
}

/* Whole segments of a chunk, which has a terminator besides. */
uint64_t ax_code_largest_segments(const ax_codeheap *heap)
{
    const ax_code_params *p = &heap->params;
    const uint64_t bytes = (p->chunk_bytes - p->header_bytes) / p->granule_bytes * p->granule_bytes;
    return bytes > p->header_bytes ? bytes - p->header_bytes : 1;
}

/* --- the index
 * ------------------------------------------------------------------------------------ */

/* No request is as large as the one size that this makes smaller than it is. */
static uint32_t short_payload(const ax_codeheap *heap, uint32_t block)
{
    const uint64_t payload = ax_block_payload(heap, block);
    return payload < UINT32_MAX ? (uint32_t)payload : UINT32_MAX;
}

/* How many listed blocks start below an address. Nothing to be predicted: both ways are computed.
 */
static uint32_t rank_of(const ax_codeheap *heap, uint64_t start)
{
    const uint64_t *at = heap->index_start;
    uint32_t n = heap->index_count;
    if (n == 0) {
        return 0;
    }
    while (n > 1) {
        const uint32_t half = n / 2;
        at += at[half - 1] < start ? half : 0;
        n -= half;
    }
    return (uint32_t)(at - heap->index_start) + (*at < start);
}

static void set_place(ax_codeheap *heap, uint32_t at, uint32_t block)
{
    heap->index_start[at] = heap->blocks[block].start;
    heap->index_payload[at] = short_payload(heap, block);
    heap->index_block[at] = block;
}

/* Moves the places from `from` on to `to`. */
static void move_places(ax_codeheap *heap, uint32_t to, uint32_t from)
{
    const size_t n = heap->index_count - from;
    memmove(heap->index_start + to, heap->index_start + from, n * sizeof *heap->index_start);
    memmove(heap->index_payload + to, heap->index_payload + from, n * sizeof *heap->index_payload);
    memmove(heap->index_block + to, heap->index_block + from, n * sizeof *heap->index_block);
    heap->index_count = to + (uint32_t)n;
}

/* A block takes the place `at` on the list; the index has it there already. */
static void link_at(ax_codeheap *heap, uint32_t at, uint32_t block)
{
    const uint32_t before = at ? heap->index_block[at - 1] : AX_NO_BLOCK;
    if (before == AX_NO_BLOCK) {
        ax_code_push(heap, LIST, block);
        return;
    }
    ax_block *b = &heap->blocks[block];
    b->bin = LIST;
    b->listed = 1;
    b->prev = before;
    b->next = heap->blocks[before].next;
    heap->blocks[before].next = block;
    if (b->next != AX_NO_BLOCK) {
        heap->blocks[b->next].prev = block;
    }
}

void ax_code_list_by_address(ax_codeheap *heap, uint32_t block)
{
    const uint32_t at = rank_of(heap, heap->blocks[block].start);
    heap->counters.list_scan_steps += at;
    move_places(heap, at + 1, at);
    set_place(heap, at, block);
    link_at(heap, at, block);
}

void ax_code_unlist_by_address(ax_codeheap *heap, uint32_t block)
{
    const uint32_t at = rank_of(heap, heap->blocks[block].start);
    move_places(heap, at, at + 1);
    ax_code_unlink(heap, block);
}

/* --- the policy
 * ----------------------------------------------------------------------------------- */

int ax_code_alloc_best_fit(ax_codeheap *heap, uint64_t size_bytes, uint32_t *block)
{
    const uint32_t n = heap->index_count;
    const uint32_t *payload = heap->index_payload;
    const uint32_t wanted = (uint32_t)rounded(heap, size_bytes); /* 2^31 at most, and a segment */
    /* What is too small becomes very large, and is none of those up to the last fit. */
    const uint32_t last_fit = UINT32_MAX - wanted;
    uint32_t least_more[2] = {UINT32_MAX, UINT32_MAX};
    for (uint32_t i = 0; i + 1 < n; i += 2) {
        const uint32_t a = payload[i] - wanted;
        const uint32_t b = payload[i + 1] - wanted;
        least_more[0] = a < least_more[0] ? a : least_more[0];
        least_more[1] = b < least_more[1] ? b : least_more[1];
    }
    uint32_t more = least_more[0] < least_more[1] ? least_more[0] : least_more[1];
    if (n % 2 && payload[n - 1] - wanted < more) {
        more = payload[n - 1] - wanted;
    }
    if (n == 0 || more > last_fit) {
        heap->counters.list_scan_steps += n;
        return AX_CODE_AGAIN;
    }
    uint32_t at = 0;
    while (payload[at] - wanted != more) {
        at++;
    }
    const uint32_t found = heap->index_block[at];
    heap->counters.list_scan_steps += more == 0 ? at + 1 : n;
    const int status = use_high(heap, found, wanted, size_bytes, block);
    if (status == AX_OK && *block == found) {
        move_places(heap, at, at + 1);
    } else if (status == AX_OK) {
        heap->index_payload[at] = short_payload(heap, found);
    }
    return status;
}

/* The place of a listed neighbour becomes that of the whole. */
void ax_code_give_by_address(ax_codeheap *heap, uint32_t block)
{
    const uint32_t lower = heap->blocks[block].lower;
    const uint32_t higher = heap->blocks[block].higher;
    const int above = ax_code_is_free(heap, higher) && heap->blocks[higher].listed;
    const int below = ax_code_is_free(heap, lower) && heap->blocks[lower].listed;
    if (above && below) {
        ax_code_unlist_by_address(heap, higher);
    } else if (above) {
        const uint32_t at = rank_of(heap, heap->blocks[higher].start);
        ax_code_unlink(heap, higher);
        block = join_both(heap, block);
        set_place(heap, at, block);
        link_at(heap, at, block);
        heap->counters.list_scan_steps += at;
        return;
    }
    if (below) {
        const uint32_t at = rank_of(heap, heap->blocks[lower].start);
        if (ax_code_is_free(heap, higher)) {
            ax_code_join(heap, block);
        }
        ax_code_join(heap, lower);
        heap->index_payload[at] = short_payload(heap, lower);
        heap->counters.list_scan_steps += at;
        return;
    }
    block = join_both(heap, block);
    if (ax_block_payload(heap, block) >= least(heap)) {
        ax_code_list_by_address(heap, block);
    }
}
