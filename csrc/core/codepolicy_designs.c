/* Today's designs on the same heap: each is told the size it must hold. */
#include "codepolicy_sized.h"

#define LIST 0
#define WILDERNESS 511 /* the bin of blocks that no request has cut yet */

static uint64_t all(const ax_codeheap *heap)
{
    (void)heap;
    return 0;
}

/* --- first fit: sljit. Cuts the high end where the rest is worth it, joins both sides
 * -------------- */

static int alloc_first_fit(ax_codeheap *heap, uint64_t size_bytes, uint32_t *block)
{
    const uint64_t wanted = rounded(heap, size_bytes);
    for (uint32_t i = heap->bin_head[LIST]; i != AX_NO_BLOCK; i = heap->blocks[i].next) {
        heap->counters.list_scan_steps++;
        if (ax_block_payload(heap, i) >= wanted) {
            return use_high(heap, i, wanted, size_bytes, block);
        }
    }
    return AX_CODE_AGAIN;
}

static void give_to_list(ax_codeheap *heap, uint32_t block)
{
    block = join_both(heap, block);
    if (ax_block_payload(heap, block) >= least(heap)) {
        ax_code_push(heap, LIST, block);
    }
}

static void fresh_to_list(ax_codeheap *heap, uint32_t block)
{
    ax_code_push(heap, LIST, block);
}

/* --- buckets: powers of two, reused by their own size only, never joined
 * ----------------------------- */

static uint32_t log2_up(uint64_t n)
{
    uint32_t bits = 0;
    while ((UINT64_C(1) << bits) < n) {
        bits++;
    }
    return bits;
}

static uint64_t bucket_chunk(const ax_codeheap *heap, uint64_t size_bytes)
{
    uint64_t wanted = (UINT64_C(1) << log2_up(rounded(heap, size_bytes))) +
                      2 * (uint64_t)heap->params.header_bytes;
    return wanted > heap->params.chunk_bytes ? wanted : heap->params.chunk_bytes;
}

static int alloc_buckets(ax_codeheap *heap, uint64_t size_bytes, uint32_t *block)
{
    const uint32_t bucket = log2_up(rounded(heap, size_bytes));
    const uint64_t wanted = UINT64_C(1) << bucket;
    uint32_t found = heap->bin_head[bucket];
    if (found == AX_NO_BLOCK) {
        found = heap->bin_head[WILDERNESS];
        while (found != AX_NO_BLOCK && ax_block_payload(heap, found) < wanted) {
            found = heap->blocks[found].next;
            heap->counters.list_scan_steps++;
        }
    }
    if (found == AX_NO_BLOCK) {
        return AX_CODE_AGAIN;
    }
    int status = prepare(heap, found);
    if (status == AX_OK) {
        uint32_t bin = heap->blocks[found].bin;
        ax_code_unlink(heap, found);
        if (bin == WILDERNESS && worth_cutting(heap, found, wanted, heap->params.granule_bytes)) {
            ax_code_push(heap, WILDERNESS, cut_low(heap, found, wanted));
        }
        ax_code_use(heap, found, size_bytes);
        *block = found;
    }
    return status;
}

static void give_to_bucket(ax_codeheap *heap, uint32_t block)
{
    uint32_t bucket = log2_up(ax_block_payload(heap, block) + 1) - 1; /* rounded down */
    ax_code_push(heap, bucket, block);
}

static void fresh_wilderness(ax_codeheap *heap, uint32_t block)
{
    ax_code_push(heap, WILDERNESS, block);
}

/* --- bump: LuaJIT. From the high end of the newest chunk down; nothing is freed but everything
 * ------ */

static int alloc_bump(ax_codeheap *heap, uint64_t size_bytes, uint32_t *block)
{
    const uint64_t wanted = rounded(heap, size_bytes);
    uint32_t found = heap->bin_head[WILDERNESS];
    if (found == AX_NO_BLOCK || ax_block_payload(heap, found) < wanted) {
        if (heap->mapped_bytes &&
            heap->mapped_bytes + heap->params.chunk_bytes > heap->params.max_code_bytes) {
            /* Counted before: a chunk that the system does not take back has lost its code too. */
            heap->counters.flushes++;
            int status = ax_codeheap_reset(heap);
            if (status != AX_OK) {
                return status;
            }
        }
        return AX_CODE_AGAIN;
    }
    int status = prepare(heap, found);
    if (status != AX_OK) {
        return status;
    }
    if (worth_cutting(heap, found, wanted, heap->params.granule_bytes)) {
        found = cut_high(heap, found, wanted);
    } else {
        ax_code_unlink(heap, found);
    }
    ax_code_use(heap, found, size_bytes);
    *block = found;
    return AX_OK;
}

static void give_nothing(ax_codeheap *heap, uint32_t block)
{
    (void)heap;
    (void)block;
}

/* --- segregated: constant time, whatever the heap looks like. The bins, the victim and the latest
 * are explained in codepolicy.h, where most of an alloc and of a free is
 * --------------------------------------------------------------------------------------------- */

#define VICTIM AX_CODE_VICTIM
#define LATEST AX_CODE_LATEST

static void put_in_bin(ax_codeheap *heap, uint32_t block)
{
    const uint64_t payload = ax_block_payload(heap, block);
    heap->least_binned = payload < heap->least_binned ? payload : heap->least_binned;
    ax_code_push(heap, ax_code_bin_of(payload), block);
}

/* The lower edge of the lowest bin that holds something. */
static inline uint64_t least_of_bins(const ax_codeheap *heap)
{
    for (uint32_t at = 0; at < AX_CODE_SIZE_BINS / 64; at++) {
        if (heap->bin_map[at]) {
            const uint32_t bin = at * 64 + (uint32_t)__builtin_ctzll(heap->bin_map[at]);
            return bin < 8 ? bin : (UINT64_C(8) + bin % 8) << (bin / 8 - 1);
        }
    }
    return UINT64_MAX;
}

static inline void settle_latest(ax_codeheap *heap)
{
    const uint32_t latest = heap->bin_head[LATEST];
    if (latest != AX_NO_BLOCK) {
        heap->bin_head[LATEST] = AX_NO_BLOCK; /* it is alone there */
        heap->bin_map[LATEST / 64] &= ~(UINT64_C(1) << (LATEST % 64));
        put_in_bin(heap, latest);
    }
}

/* Lists the rest of a cut, or what a new chunk is, where no part of it was on a list. */
static void put_rest(ax_codeheap *heap, uint32_t block)
{
    const uint32_t victim = heap->bin_head[VICTIM];
    if (victim == AX_NO_BLOCK) {
        ax_code_push(heap, VICTIM, block);
    } else if (ax_block_payload(heap, block) > ax_block_payload(heap, victim)) {
        ax_code_unlink(heap, victim);
        put_in_bin(heap, victim);
        ax_code_push(heap, VICTIM, block);
    } else {
        put_in_bin(heap, block);
    }
}

static int alloc_segregated(ax_codeheap *heap, uint64_t size_bytes, uint32_t *block)
{
    const uint64_t wanted = rounded(heap, size_bytes);
    settle_latest(heap);
    heap->least_binned = least_of_bins(heap);
    const uint32_t bin = ax_code_find_bin(heap, wanted);
    uint32_t found = heap->bin_head[VICTIM];
    const uint64_t largest = found == AX_NO_BLOCK ? 0 : ax_block_payload(heap, found);
    if (largest < wanted || (bin < AX_CODE_SIZE_BINS && bin < ax_code_bin_of(largest))) {
        if (bin == AX_CODE_SIZE_BINS) {
            return AX_CODE_AGAIN;
        }
        found = heap->bin_head[bin];
    }
    int status = prepare(heap, found);
    if (status != AX_OK) {
        return status;
    }
    const ax_block *b = &heap->blocks[found];
    const uint64_t at = b->start + heap->params.header_bytes + wanted;
    if (b->end < at + heap->least_rest) {
        ax_code_unlink(heap, found);
    } else if (b->bin == VICTIM) {
        *block = ax_code_cut_and_use(heap, found, at, size_bytes);
        return AX_OK;
    } else {
        ax_code_unlink(heap, found);
        put_rest(heap, ax_code_cut(heap, found, at));
    }
    ax_code_use(heap, found, size_bytes);
    *block = found;
    return AX_OK;
}

/* The victim stays what it is, whichever side it is on; the latest is such a block again. */
static void give_segregated(ax_codeheap *heap, uint32_t block)
{
    const uint32_t victim = heap->bin_head[VICTIM];
    const uint32_t lower = heap->blocks[block].lower;
    const uint32_t higher = heap->blocks[block].higher;
    int to_victim = 0;
    if (ax_code_is_free(heap, higher)) {
        to_victim = higher == victim;
        if (to_victim) {
            block = ax_code_join_into_higher(heap, block);
        } else {
            leave_list(heap, higher);
            ax_code_join(heap, block);
        }
    }
    if (ax_code_is_free(heap, lower)) {
        if (to_victim) {
            leave_list(heap, lower);
            block = ax_code_join_into_higher(heap, lower);
        } else {
            to_victim = lower == victim;
            ax_code_join(heap, lower);
            if (!to_victim) {
                leave_list(heap, lower);
            }
            block = lower;
        }
    }
    if (!to_victim) {
        settle_latest(heap);
        if (ax_block_payload(heap, block) >= least(heap)) {
            ax_code_push(heap, LATEST, block);
        }
    }
}

/* --- blocks for programs that do not know yet how much they need
 * ---------------------------------- */

static uint64_t room_of_chunk(const ax_codeheap *heap)
{
    return heap->params.chunk_bytes - 2 * (uint64_t)heap->params.header_bytes;
}

static uint64_t largest_bucket(const ax_codeheap *heap)
{
    return UINT64_C(1) << ax_code_top_bit(room_of_chunk(heap));
}

uint64_t ax_code_rounded(const ax_codeheap *heap, uint64_t size_bytes)
{
    return rounded(heap, size_bytes);
}

uint64_t ax_code_largest(const ax_codeheap *heap)
{
    const uint64_t granule = heap->params.granule_bytes;
    const uint64_t room = heap->policy->largest ? heap->policy->largest(heap) : room_of_chunk(heap);
    if (heap->policy->whole_granules) {
        return room;
    }
    return room < granule ? granule : room / granule * granule;
}

#define DESIGN(policy) [AX_CODE_##policy - AX_CODE_FIRST_FIT]

const ax_code_policy ax_code_designs[] = {
    DESIGN(FIRST_FIT) = {.name = "first_fit",
                         .sized = 1,
                         .header_bytes = 16,
                         .granule_bytes = 8,
                         .min_rest_bytes = 64,
                         .least = least,
                         .chunk_bytes = chunk_for,
                         .alloc = alloc_first_fit,
                         .give = give_to_list,
                         .fresh = fresh_to_list,
                         .unlist = unlist},
    DESIGN(BEST_FIT) = {.name = "best_fit",
                        .sized = 1,
                        .header_bytes = 16,
                        .granule_bytes = 128,
                        .min_rest_bytes = 768,
                        .indexed = 1,
                        .whole_granules = 1,
                        .rounded = ax_code_segments,
                        .largest = ax_code_largest_segments,
                        .least = least,
                        .chunk_bytes = chunk_for,
                        .alloc = ax_code_alloc_best_fit,
                        .give = ax_code_give_by_address,
                        .fresh = ax_code_list_by_address,
                        .unlist = ax_code_unlist_by_address},
    DESIGN(BITMAP) = {.name = "bitmap",
                      .sized = 1,
                      .listing = AX_LISTED_NEVER,
                      .granule_bytes = 64,
                      .keeps_one_chunk = 1,
                      .least = least,
                      .chunk_bytes = ax_code_bitmap_chunk,
                      .alloc = ax_code_alloc_bitmap,
                      .give = ax_code_give_unlisted,
                      .unlist = unlist},
    DESIGN(PACK) = {.name = "pack",
                    .sized = 1,
                    .listing = AX_LISTED_NEVER,
                    .granule_bytes = 64,
                    .own_pages = 1,
                    .least = least,
                    .chunk_bytes = chunk_for,
                    .alloc = ax_code_alloc_pack,
                    .give = ax_code_give_unlisted,
                    .unlist = unlist},
    DESIGN(BUCKETS) = {.name = "buckets",
                       .sized = 1,
                       .never_joins = 1,
                       .listing = AX_LISTED_ITS_WAY,
                       .granule_bytes = 64,
                       .least = all,
                       .chunk_bytes = bucket_chunk,
                       .largest = largest_bucket,
                       .alloc = alloc_buckets,
                       .give = give_to_bucket,
                       .fresh = fresh_wilderness,
                       .unlist = unlist},
    DESIGN(BUMP) = {.name = "bump",
                    .sized = 1,
                    .never_joins = 1,
                    .listing = AX_LISTED_ITS_WAY,
                    .granule_bytes = 16,
                    .least = all,
                    .chunk_bytes = chunk_for,
                    .alloc = alloc_bump,
                    .give = give_nothing,
                    .fresh = fresh_wilderness,
                    .unlist = unlist},
    DESIGN(SEGREGATED) = {.name = "segregated",
                          .sized = 1,
                          .granule_bytes = 16,
                          .min_rest_bytes = 64,
                          .least = least,
                          .chunk_bytes = chunk_for,
                          .alloc = alloc_segregated,
                          .give = give_segregated,
                          .fresh = put_rest,
                          .unlist = unlist},
};
