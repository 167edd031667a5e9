/* Today's designs on the same heap: each is told the size it must hold. */
#include "codepolicy.h"

#define LIST 0
#define WILDERNESS 511 /* the bin of blocks that no request has cut yet */

static uint64_t round_up(uint64_t n, uint64_t granule)
{
    return (n + granule - 1) / granule * granule;
}

static inline uint64_t rounded(const ax_codeheap *heap, uint64_t size_bytes)
{
    const uint64_t least = heap->params.min_payload_bytes;
    const uint64_t wanted = size_bytes > least ? size_bytes : least;
    /* A division costs as much as the rest of an alloc. */
    if (heap->granule_mask) {
        return (wanted + heap->granule_mask) & ~heap->granule_mask;
    }
    return round_up(wanted, heap->params.granule_bytes);
}

static uint64_t least(const ax_codeheap *heap)
{
    return heap->params.granule_bytes;
}

static uint64_t all(const ax_codeheap *heap)
{
    (void)heap;
    return 0;
}

static uint64_t chunk_for(const ax_codeheap *heap, uint64_t size_bytes)
{
    const uint64_t chunk = heap->params.chunk_bytes;
    uint64_t wanted = rounded(heap, size_bytes) + 2 * (uint64_t)heap->params.header_bytes;
    return wanted > chunk ? wanted : chunk;
}

static void nothing(ax_codeheap *heap, uint32_t block)
{
    (void)heap;
    (void)block;
}

/* A free block that is too small is on none. */
static void leave_list(ax_codeheap *heap, uint32_t block)
{
    if (heap->blocks[block].listed) {
        ax_code_unlink(heap, block);
    }
}

/* Joins a free block that is on no list with its free neighbours, which leave theirs. */
static uint32_t join_both(ax_codeheap *heap, uint32_t block)
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
static int worth_cutting(const ax_codeheap *heap, uint32_t found, uint64_t wanted, uint64_t rest)
{
    const uint64_t listed = heap->policy->least(heap);
    rest = rest > listed ? rest : listed;
    return ax_block_payload(heap, found) >= wanted + heap->params.header_bytes + (rest ? rest : 1);
}

/* The high `wanted` bytes of a free block; the low rest stays where it is listed. */
static uint32_t cut_high(ax_codeheap *heap, uint32_t found, uint64_t wanted)
{
    return ax_code_cut(heap, found, heap->blocks[found].end - wanted - heap->params.header_bytes);
}

/* The low `wanted` bytes; returns the high rest, which is on no list. */
static uint32_t cut_low(ax_codeheap *heap, uint32_t found, uint64_t wanted)
{
    return ax_code_cut(heap, found, heap->blocks[found].start + heap->params.header_bytes + wanted);
}

static void unlist(ax_codeheap *heap, uint32_t block)
{
    ax_code_unlink(heap, block);
}

/* --- first fit: sljit. Cuts the high end where the rest is worth it, joins both sides
 * -------------- */

static int use_high(ax_codeheap *heap, uint32_t found, uint64_t wanted, uint64_t size_bytes,
                    uint32_t *block)
{
    int status = prepare(heap, found);
    if (status != AX_OK) {
        return status;
    }
    if (worth_cutting(heap, found, wanted, heap->params.min_rest_bytes)) {
        found = cut_high(heap, found, wanted);
    } else {
        ax_code_unlink(heap, found);
    }
    ax_code_use(heap, found, size_bytes);
    *block = found;
    return AX_OK;
}

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

/* --- best fit: HotSpot. The list is in the order of addresses; an exact fit ends the search; rests
 * too small to be a block stay with the block
 * ------------------------------------------------------ */

static int alloc_best_fit(ax_codeheap *heap, uint64_t size_bytes, uint32_t *block)
{
    const uint64_t wanted = rounded(heap, size_bytes);
    uint32_t best = AX_NO_BLOCK;
    uint64_t best_payload = UINT64_MAX;
    for (uint32_t i = heap->bin_head[LIST]; i != AX_NO_BLOCK && best_payload != wanted;
         i = heap->blocks[i].next) {
        uint64_t payload = ax_block_payload(heap, i);
        heap->counters.list_scan_steps++;
        if (payload >= wanted && payload < best_payload) {
            best = i;
            best_payload = payload;
        }
    }
    return best == AX_NO_BLOCK ? AX_CODE_AGAIN : use_high(heap, best, wanted, size_bytes, block);
}

/* Puts a block on the list behind the last one of a lower address. */
static void list_by_address(ax_codeheap *heap, uint32_t block)
{
    uint32_t before = AX_NO_BLOCK;
    uint32_t i = heap->bin_head[LIST];
    while (i != AX_NO_BLOCK && heap->blocks[i].start < heap->blocks[block].start) {
        before = i;
        i = heap->blocks[i].next;
        heap->counters.list_scan_steps++;
    }
    if (before == AX_NO_BLOCK) {
        ax_code_push(heap, LIST, block);
        return;
    }
    ax_block *b = &heap->blocks[block];
    b->bin = LIST;
    b->listed = 1;
    b->prev = before;
    b->next = i;
    heap->blocks[before].next = block;
    if (i != AX_NO_BLOCK) {
        heap->blocks[i].prev = block;
    }
}

static void give_by_address(ax_codeheap *heap, uint32_t block)
{
    block = join_both(heap, block);
    if (ax_block_payload(heap, block) >= least(heap)) {
        list_by_address(heap, block);
    }
}

/* --- bitmap: asmjit. Granules; the search goes on where the last one ended, in chunks of the
 * size's pool; chunks grow
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
static uint64_t bitmap_chunk(const ax_codeheap *heap, uint64_t size_bytes)
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

/* The first free block from `from` on to the end of its chunk that holds `wanted` bytes. */
static uint32_t search(ax_codeheap *heap, uint32_t from, uint64_t wanted)
{
    for (uint32_t i = from; i != AX_NO_BLOCK; i = heap->blocks[i].higher) {
        heap->counters.list_scan_steps++;
        if (heap->blocks[i].is_free && ax_block_payload(heap, i) >= wanted) {
            return i;
        }
    }
    return AX_NO_BLOCK;
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

static int alloc_bitmap(ax_codeheap *heap, uint64_t size_bytes, uint32_t *block)
{
    const uint64_t wanted = rounded(heap, size_bytes);
    const uint32_t pool = pool_of(heap, wanted) + 1;
    uint32_t found = AX_NO_BLOCK;
    uint32_t cursor = heap->cursor;
    if (cursor != AX_NO_BLOCK && heap->chunks[heap->blocks[cursor].chunk].pool == pool) {
        found = search(heap, cursor, wanted);
    }
    for (uint32_t c = heap->newest; found == AX_NO_BLOCK && c != AX_NO_CHUNK;
         c = heap->chunks[c].older) {
        /* A new chunk belongs to no pool yet. */
        if (heap->chunks[c].pool == pool || heap->chunks[c].pool == 0) {
            found = search(heap, heap->chunks[c].first, wanted);
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

static void give_unlisted(ax_codeheap *heap, uint32_t block)
{
    (void)join_both(heap, block);
}

/* --- pack: Linux's bpf_prog_pack. Chunks of one size, oldest first, from the low end; what is
 * larger than a pack has pages of its own
 * ------------------------------------------------------------------- */

static int alloc_pack(ax_codeheap *heap, uint64_t size_bytes, uint32_t *block)
{
    const uint64_t wanted = rounded(heap, size_bytes);
    uint32_t oldest = heap->newest;
    while (oldest != AX_NO_CHUNK && heap->chunks[oldest].older != AX_NO_CHUNK) {
        oldest = heap->chunks[oldest].older;
    }
    for (uint32_t c = oldest; c != AX_NO_CHUNK; c = heap->chunks[c].younger) {
        uint32_t found = search(heap, heap->chunks[c].first, wanted);
        if (found != AX_NO_BLOCK) {
            return use_low(heap, found, wanted, size_bytes, block);
        }
    }
    return AX_CODE_AGAIN;
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
    ax_code_push(heap, ax_code_bin_of(ax_block_payload(heap, block)), block);
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
    if (b->end - b->start < wanted + heap->least_rest) {
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
                        .least = least,
                        .chunk_bytes = chunk_for,
                        .alloc = alloc_best_fit,
                        .give = give_by_address,
                        .fresh = list_by_address,
                        .unlist = unlist},
    DESIGN(BITMAP) = {.name = "bitmap",
                      .sized = 1,
                      .listing = AX_LISTED_NEVER,
                      .granule_bytes = 64,
                      .least = least,
                      .chunk_bytes = bitmap_chunk,
                      .alloc = alloc_bitmap,
                      .give = give_unlisted,
                      .fresh = nothing,
                      .unlist = unlist},
    DESIGN(PACK) = {.name = "pack",
                    .sized = 1,
                    .listing = AX_LISTED_NEVER,
                    .granule_bytes = 64,
                    .least = least,
                    .chunk_bytes = chunk_for,
                    .alloc = alloc_pack,
                    .give = give_unlisted,
                    .fresh = nothing,
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
