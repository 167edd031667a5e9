/* codepolicy: how a code heap finds, cuts, lists and gives back blocks. One entry per design.
 *
 *     alloc   a used block out of a listed one, or AX_CODE_AGAIN: no block will do, ask for a chunk
 *     give    a block has become free and is to be joined and listed
 *     fresh   a new chunk stands there as one free block that nobody has listed; NULL: nor will
 *     unlist  a listed block is about to go: its chunk is given back
 */
#ifndef AX_CODEPOLICY_H
#define AX_CODEPOLICY_H

#include "codeheader.h"
#include "codeheap.h"

#define AX_CODE_AGAIN 1 /* not a status: leaves the heap as it is */
#define AX_CODE_LARGEST_CHUNK (UINT64_C(1) << 32)

/* Not part of a function that is called for each block: without it that one saves no registers. */
#define AX_APART __attribute__((noinline))

/* Which free blocks stand on a list: those of at least `least` bytes, none, or as the design will.
 */
enum ax_listing { AX_LISTED_BY_SIZE, AX_LISTED_NEVER, AX_LISTED_ITS_WAY };

typedef struct ax_code_policy {
    const char *name;
    int sized;       /* takes the size of a request */
    int never_joins; /* free neighbours stay apart */
    enum ax_listing listing;
    uint32_t header_bytes, granule_bytes, min_rest_bytes; /* of the design */
    int keeps_one_chunk; /* of those that are empty (in each pool), if keep_chunks does not say */
    int own_pages;       /* what is larger than a chunk is alone in its own, which is never kept */
    int indexed;         /* keeps its list by address, and an index of it */
    int whole_granules;  /* granules and min_rest_bytes are those of blocks with their header */
    /* Payload of the block for a request; NULL: granules, and min_payload_bytes at least. */
    uint64_t (*rounded)(const ax_codeheap *heap, uint64_t size_bytes);
    /* Payload below which a free block is not listed. */
    uint64_t (*least)(const ax_codeheap *heap);
    /* Of a new chunk for a request; NULL: what the parameter says. */
    uint64_t (*chunk_bytes)(const ax_codeheap *heap, uint64_t size_bytes);
    /* Of sized designs: the largest payload for which one of chunk_bytes is enough, where that is
     * not all of it. */
    uint64_t (*largest)(const ax_codeheap *heap);
    int (*alloc)(ax_codeheap *heap, uint64_t size_bytes, uint32_t *block);
    void (*give)(ax_codeheap *heap, uint32_t block);
    void (*fresh)(ax_codeheap *heap, uint32_t block);
    void (*unlist)(ax_codeheap *heap, uint32_t block);
    int (*check)(const ax_code_params *params, ax_detail *detail);
} ax_code_policy;

const ax_code_policy *ax_code_policy_get(uint32_t policy);
extern const ax_code_policy ax_code_history[]; /* AX_CODE_SCAN .. AX_CODE_BYTE_LIMIT */
extern const ax_code_policy ax_code_designs[]; /* AX_CODE_FIRST_FIT .. AX_CODE_SEGREGATED */

/* Whether two chunks, the lower one first, are one VMA. Protection keys make none: their permission
 * is the thread's, not the pages'. */
int ax_code_same_vma(const ax_codeheap *heap, uint32_t low, uint32_t high);

/* What a sized design makes of a request; the largest that needs no larger chunk than others. */
uint64_t ax_code_rounded(const ax_codeheap *heap, uint64_t size_bytes);
uint64_t ax_code_largest(const ax_codeheap *heap);
/* The smallest byte limit with which both pieces of every split are large enough; 0: the policy has
 * no limit. Found by going through all of them, see docs/code.md. */
uint64_t ax_code_least_limit(uint32_t policy, uint64_t header, uint64_t least);

/* --- tools of the policies. Inline, since an alloc is made of them and of little else
 * ------------------------------------------------------------------------------ */

int ax_code_more_records(ax_codeheap *heap, uint32_t n);

/* Room for n more records, so that the cuts after it cannot fail. */
static inline int ax_code_reserve(ax_codeheap *heap, uint32_t n)
{
    return heap->records_room - heap->blocks_used >= n ? AX_OK : ax_code_more_records(heap, n);
}

/* The chunk is writable after it. */
static inline int ax_code_open(ax_codeheap *heap, uint32_t block)
{
    const uint32_t chunk = heap->blocks[block].chunk;
    return heap->chunks[chunk].exec ? ax_codeheap_mark_write(heap, chunk) : AX_OK;
}

/* A record of a free block that is on no list, or of a used one. Field by field: a record that is
 * put together elsewhere and copied waits for its own bytes. */
static inline uint32_t ax_code_new_record(ax_codeheap *heap, uint64_t start, uint64_t end,
                                          uint32_t chunk, uint32_t lower, uint32_t higher, int used)
{
    uint32_t index = heap->free_record;
    ax_block *b;
    if (index != AX_NO_BLOCK) {
        b = &heap->blocks[index];
        heap->free_record = b->next;
    } else {
        index = heap->blocks_used++;
        b = &heap->blocks[index];
        b->generation = 0;
    }
    b->start = start;
    b->end = end;
    b->code_bytes = 0;
    b->chunk = chunk;
    b->lower = lower;
    b->higher = higher;
    b->next = AX_NO_BLOCK;
    b->is_free = !used;
    b->listed = 0;
    b->alive = 1;
    b->sealed = 0;
    b->header_due = 0;
    /* A handle of an earlier life must not fit. */
    b->generation += (uint32_t)used;
    return index;
}

static inline void ax_code_drop_record(ax_codeheap *heap, uint32_t block)
{
    heap->blocks[block].is_free = 1;
    heap->blocks[block].alive = 0;
    heap->blocks[block].next = heap->free_record;
    heap->free_record = block;
}

/* Cuts a block at `at`: the new record is the high part; neither is listed by this. Reserve first.
 */
static inline uint32_t ax_code_cut(ax_codeheap *heap, uint32_t block, uint64_t at)
{
    ax_block *b = &heap->blocks[block];
    const uint32_t above = b->higher;
    const uint32_t high = ax_code_new_record(heap, at, b->end, b->chunk, block, above, 0);
    ax_code_chunk *chunk = &heap->chunks[b->chunk];
    if (above != AX_NO_BLOCK) {
        heap->blocks[above].lower = high;
    } else {
        chunk->last = high;
    }
    chunk->blocks++;
    b->higher = high;
    b->end = at;
    heap->counters.splits++;
    if (heap->in_band) {
        ax_codeheader_write(heap, block);
        ax_codeheader_write(heap, high);
        ax_codeheader_write_above(heap, high);
    }
    return high;
}

/* What the heap and the chunk know of a block that is becoming a used one, and a free one. */
static inline void ax_code_count_used(ax_codeheap *heap, ax_code_chunk *chunk, uint64_t code_bytes)
{
    if (chunk->used_blocks++ == 0) {
        heap->empty_bytes -= chunk->bytes;
        heap->empty_chunks--;
    }
    heap->code_bytes += code_bytes;
}

static inline void ax_code_count_unused(ax_codeheap *heap, ax_code_chunk *chunk,
                                        uint64_t code_bytes)
{
    heap->code_bytes -= code_bytes;
    if (--chunk->used_blocks == 0) {
        heap->empty_bytes += chunk->bytes;
        heap->empty_chunks++;
        if (heap->params.keep_operations) {
            chunk->empty_since = ax_code_operations(heap) + 1;
        }
    }
}

/* Cuts a free block, too, but the new record is the low part, and a used block: the high part keeps
 * its place on a list. No headers. */
static inline uint32_t ax_code_cut_and_use_bare(ax_codeheap *heap, uint32_t block, uint64_t at,
                                                uint64_t code_bytes)
{
    ax_block *b = &heap->blocks[block];
    const uint64_t start = b->start;
    const uint32_t below = b->lower;
    ax_code_chunk *chunk = &heap->chunks[b->chunk];
    const uint32_t low = ax_code_new_record(heap, start, at, b->chunk, below, block, 1);
    heap->blocks[low].code_bytes = code_bytes;
    if (below != AX_NO_BLOCK) {
        heap->blocks[below].higher = low;
    } else {
        chunk->first = low;
    }
    b->lower = low;
    b->start = at;
    heap->counters.splits++;
    ax_code_count_used(heap, chunk, code_bytes);
    return low;
}

static inline uint32_t ax_code_cut_and_use(ax_codeheap *heap, uint32_t block, uint64_t at,
                                           uint64_t code_bytes)
{
    const uint32_t low = ax_code_cut_and_use_bare(heap, block, at, code_bytes);
    if (heap->in_band) {
        ax_codeheader_write(heap, low);
        ax_codeheader_write(heap, block);
        ax_codeheader_write_above(heap, block);
    }
    return low;
}

/* Joins a block with its higher neighbour, whose record goes. No headers. */
static inline void ax_code_join_bare(ax_codeheap *heap, uint32_t block)
{
    ax_block *b = &heap->blocks[block];
    const uint32_t gone = b->higher;
    const ax_block *g = &heap->blocks[gone];
    b->end = g->end;
    b->higher = g->higher;
    if (b->higher != AX_NO_BLOCK) {
        heap->blocks[b->higher].lower = block;
    } else {
        heap->chunks[b->chunk].last = block;
    }
    ax_code_drop_record(heap, gone);
    heap->counters.coalesces++;
}

static inline void ax_code_join(ax_codeheap *heap, uint32_t block)
{
    ax_code_join_bare(heap, block);
    heap->chunks[heap->blocks[block].chunk].blocks--;
    if (heap->in_band) {
        ax_codeheader_write(heap, block);
        ax_codeheader_write_above(heap, block);
    }
}

/* The same, but its own record goes, and the neighbour keeps its place on a list. */
static inline uint32_t ax_code_join_into_higher_bare(ax_codeheap *heap, uint32_t block)
{
    const ax_block *b = &heap->blocks[block];
    const uint32_t higher = b->higher;
    ax_block *h = &heap->blocks[higher];
    h->start = b->start;
    h->lower = b->lower;
    if (h->lower != AX_NO_BLOCK) {
        heap->blocks[h->lower].higher = higher;
    } else {
        heap->chunks[h->chunk].first = higher;
    }
    ax_code_drop_record(heap, block);
    heap->counters.coalesces++;
    return higher;
}

static inline uint32_t ax_code_join_into_higher(ax_codeheap *heap, uint32_t block)
{
    const uint32_t higher = ax_code_join_into_higher_bare(heap, block);
    if (heap->in_band) {
        ax_codeheader_write(heap, higher);
        ax_codeheader_write_above(heap, higher);
    }
    return higher;
}

/* From free to used, and the bytes that the program has of it. */
static inline void ax_code_use(ax_codeheap *heap, uint32_t block, uint64_t code_bytes)
{
    ax_block *b = &heap->blocks[block];
    b->is_free = 0;
    b->sealed = 0;
    b->generation++;
    b->next = AX_NO_BLOCK;
    b->code_bytes = code_bytes;
    ax_code_count_used(heap, &heap->chunks[b->chunk], code_bytes);
    if (heap->in_band) {
        ax_codeheader_write(heap, block);
    }
}

static inline void ax_code_unuse(ax_codeheap *heap, uint32_t block)
{
    ax_block *b = &heap->blocks[block];
    ax_code_count_unused(heap, &heap->chunks[b->chunk], b->code_bytes);
    b->code_bytes = 0;
    b->is_free = 1;
    b->next = AX_NO_BLOCK;
}

static inline int ax_code_is_free(const ax_codeheap *heap, uint32_t block)
{
    return block != AX_NO_BLOCK && heap->blocks[block].is_free;
}

/* A header is written by a free that has not asked whether its chunk may be written to: under
 * enforced W^X each of these faults in a chunk that is executable. Not in a live heap, where such a
 * header is due (codeheader.h), nor where headers are elsewhere. */
static inline void ax_code_note_header_write(ax_codeheap *heap, uint32_t block)
{
    if (heap->params.header_bytes && !heap->in_band) {
        heap->counters.unmarked_header_writes += heap->chunks[heap->blocks[block].chunk].exec;
    }
}

/* A block has become free, or larger. */
static inline void ax_code_raise_bound(ax_codeheap *heap, uint32_t block)
{
    ax_code_chunk *chunk = &heap->chunks[heap->blocks[block].chunk];
    const uint64_t payload = ax_block_payload(heap, block);
    chunk->bound = payload > chunk->bound ? payload : chunk->bound;
}

/* A list of free blocks: newest first. */
static inline void ax_code_push(ax_codeheap *heap, uint32_t bin, uint32_t block)
{
    ax_block *b = &heap->blocks[block];
    b->bin = bin;
    b->prev = AX_NO_BLOCK;
    b->next = heap->bin_head[bin];
    b->listed = 1;
    if (b->next != AX_NO_BLOCK) {
        heap->blocks[b->next].prev = block;
    }
    heap->bin_head[bin] = block;
    heap->bin_map[bin / 64] |= UINT64_C(1) << (bin % 64);
}

static inline void ax_code_unlink(ax_codeheap *heap, uint32_t block)
{
    ax_block *b = &heap->blocks[block];
    if (b->prev != AX_NO_BLOCK) {
        heap->blocks[b->prev].next = b->next;
    } else {
        heap->bin_head[b->bin] = b->next;
        if (b->next == AX_NO_BLOCK) {
            heap->bin_map[b->bin / 64] &= ~(UINT64_C(1) << (b->bin % 64));
        }
    }
    if (b->next != AX_NO_BLOCK) {
        heap->blocks[b->next].prev = b->prev;
    }
    b->next = b->prev = AX_NO_BLOCK;
    b->listed = 0;
}

/* The same, found by walking from the head as a singly linked list must; counts the steps. Returns
 * the predecessor, or AX_NO_BLOCK. */
uint32_t ax_code_unlink_walking(ax_codeheap *heap, uint32_t block);

/* --- the bins of segregated, and what is done without asking the policy
 *
 * Bins by size, eight to a doubling, and a map of those that hold something (two-level segregated
 * fit). Two blocks are in none of them, so that what widens or narrows them touches no list,
 * whatever their size becomes:
 *
 *     the victim   the largest rest of a cut, which the next allocs are cut from where no bin has a
 *                  closer fit, and which frees beside it widen
 *     the latest   what the last free left, where that is not the victim. Frees in the order of
 *                  addresses widen it. The next alloc that asks the policy, and a free elsewhere,
 *                  put it into its bin first: nobody can tell that it has not been there before.
 *
 * Nearly every alloc only cuts the victim, nearly every free joins one of the two. That is here, so
 * that it is part of the caller, and it says nothing that the policy would not say, too: with
 * quick = 0 the same comes out. Without quick (headers, a reach, a retention) everything else that
 * is to be done is.
 * ------------------------------------------------------------------------------ */

#define AX_CODE_SIZE_BINS 256 /* a chunk has at most 2^32 bytes */
#define AX_CODE_LATEST 509    /* bins of their own: a search for a size does not see them */
#define AX_CODE_VICTIM 510

static inline uint32_t ax_code_top_bit(uint64_t n)
{
    return 63 ^ (uint32_t)__builtin_clzll(n); /* one instruction where there is one for this */
}

/* The bin whose blocks have at least the size that its number says. */
static inline uint32_t ax_code_bin_of(uint64_t payload)
{
    if (payload < 8) {
        return (uint32_t)payload;
    }
    /* The three bits behind the top one; that one, an eighth, is counted twice. */
    const uint32_t top = ax_code_top_bit(payload);
    return (top - 2) * 8 + (uint32_t)(payload >> (top - 3)) - 8;
}

/* The first bin of which any block holds `wanted` bytes, or AX_CODE_SIZE_BINS. */
static inline uint32_t ax_code_find_bin(const ax_codeheap *heap, uint64_t wanted)
{
    const uint64_t *map = heap->bin_map;
    /* The first one whose lower edge is not below `wanted`. */
    const uint32_t bin = ax_code_bin_of(wanted - 1) + 1;
    uint32_t at = bin / 64;
    uint64_t word = map[at] & (~UINT64_C(0) << (bin % 64));
    while (word == 0 && ++at < AX_CODE_SIZE_BINS / 64) {
        word = map[at];
    }
    return word ? at * 64 + (uint32_t)__builtin_ctzll(word) : AX_CODE_SIZE_BINS;
}

/* Whether a bin has a closer fit than a block of `largest` bytes. */
static inline int ax_code_closer(const ax_codeheap *heap, uint64_t wanted, uint64_t largest)
{
    if (largest <= heap->least_binned) {
        return 0;
    }
    const uint32_t bin = ax_code_find_bin(heap, wanted);
    return bin < AX_CODE_SIZE_BINS && bin < ax_code_bin_of(largest);
}

/* The low end of the victim as a used block, or AX_NO_BLOCK where more is to be thought of. */
static inline uint32_t ax_code_cut_victim(ax_codeheap *heap, uint64_t size_bytes)
{
    const uint32_t victim = heap->bin_head[AX_CODE_VICTIM];
    if (!heap->quick || victim == AX_NO_BLOCK || heap->bin_head[AX_CODE_LATEST] != AX_NO_BLOCK ||
        heap->free_record == AX_NO_BLOCK) {
        return AX_NO_BLOCK;
    }
    const ax_block *v = &heap->blocks[victim];
    const uint64_t bytes = v->end - v->start;
    const uint64_t least = heap->params.min_payload_bytes;
    const uint64_t wanted =
        ((size_bytes > least ? size_bytes : least) + heap->granule_mask) & ~heap->granule_mask;
    if (size_bytes > bytes || bytes < wanted + heap->least_rest || heap->chunks[v->chunk].exec ||
        ax_code_closer(heap, wanted, bytes)) {
        return AX_NO_BLOCK;
    }
    heap->counters.allocs++;
    return ax_code_cut_and_use_bare(heap, victim, v->start + wanted, size_bytes);
}

/* ax_codeheap_alloc, where the victim alone does not do. */
int ax_code_alloc_by_policy(ax_codeheap *heap, uint64_t size_bytes, uint32_t *block);
/* ax_codeheap_free of a block that is known to be a used one, with all that may be to be done. */
void ax_code_free_slowly(ax_codeheap *heap, uint32_t block);

/* The same, quick. */
static inline void ax_code_free_used(ax_codeheap *heap, uint32_t block)
{
    if (!heap->quick) {
        ax_code_free_slowly(heap, block);
        return;
    }
    ax_block *b = &heap->blocks[block];
    const uint32_t lower = b->lower;
    const uint32_t higher = b->higher;
    ax_code_count_unused(heap, &heap->chunks[b->chunk], b->code_bytes);
    heap->counters.frees++;
    if (higher == heap->bin_head[AX_CODE_VICTIM] && higher != AX_NO_BLOCK &&
        !ax_code_is_free(heap, lower)) {
        (void)ax_code_join_into_higher_bare(heap, block);
    } else if (lower == heap->bin_head[AX_CODE_LATEST] && lower != AX_NO_BLOCK &&
               !ax_code_is_free(heap, higher)) {
        ax_code_join_bare(heap, lower);
    } else {
        b->code_bytes = 0;
        b->is_free = 1;
        b->next = AX_NO_BLOCK;
        heap->policy->give(heap, block);
    }
}

#endif
