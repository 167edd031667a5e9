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

/* Which free blocks stand on a list: those of at least `least` bytes, none, or as the design will.
 */
enum ax_listing { AX_LISTED_BY_SIZE, AX_LISTED_NEVER, AX_LISTED_ITS_WAY };

typedef struct ax_code_policy {
    const char *name;
    int sized;       /* takes the size of a request */
    int never_joins; /* free neighbours stay apart */
    enum ax_listing listing;
    uint32_t header_bytes, granule_bytes, min_rest_bytes; /* of the design */
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
    return heap->blocks_room - heap->blocks_used >= n ? AX_OK : ax_code_more_records(heap, n);
}

/* The chunk is writable after it. */
static inline int ax_code_open(ax_codeheap *heap, uint32_t block)
{
    const uint32_t chunk = heap->blocks[block].chunk;
    return heap->chunks[chunk].exec ? ax_codeheap_mark_write(heap, chunk) : AX_OK;
}

/* A record that says what `block` does, but for its generation. */
static inline uint32_t ax_code_new_record(ax_codeheap *heap, ax_block block)
{
    uint32_t index = heap->free_record;
    if (index != AX_NO_BLOCK) {
        heap->free_record = heap->blocks[index].next;
        /* A handle of an earlier life must not fit. */
        block.generation += heap->blocks[index].generation;
    } else {
        index = heap->blocks_used++;
    }
    block.next = block.prev = AX_NO_BLOCK;
    block.alive = 1;
    heap->blocks[index] = block;
    return index;
}

static inline void ax_code_drop_record(ax_codeheap *heap, uint32_t block)
{
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
    const uint32_t high = ax_code_new_record(heap, (ax_block){.start = at,
                                                              .end = b->end,
                                                              .chunk = b->chunk,
                                                              .lower = block,
                                                              .higher = above,
                                                              .is_free = 1});
    if (above != AX_NO_BLOCK) {
        heap->blocks[above].lower = high;
    }
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

/* What the heap and the chunk know of a block that is becoming a used one. */
static inline void ax_code_count_used(ax_codeheap *heap, uint32_t chunk, uint64_t bytes,
                                      uint64_t code_bytes)
{
    ax_code_chunk *c = &heap->chunks[chunk];
    if (c->used_blocks++ == 0) {
        heap->empty_bytes -= c->bytes;
        heap->empty_chunks--;
    }
    heap->code_bytes += code_bytes;
    heap->used_bytes += bytes;
}

/* Cuts a free block, too, but the new record is the low part, and a used block: the high part keeps
 * its place on a list. */
static inline uint32_t ax_code_cut_and_use(ax_codeheap *heap, uint32_t block, uint64_t at,
                                           uint64_t code_bytes)
{
    ax_block *b = &heap->blocks[block];
    const uint64_t start = b->start;
    const uint32_t below = b->lower;
    const uint32_t chunk = b->chunk;
    const uint32_t low = ax_code_new_record(heap, (ax_block){.start = start,
                                                             .end = at,
                                                             .code_bytes = code_bytes,
                                                             .chunk = chunk,
                                                             .lower = below,
                                                             .higher = block,
                                                             .generation = 1});
    if (below != AX_NO_BLOCK) {
        heap->blocks[below].higher = low;
    } else {
        heap->chunks[chunk].first = low;
    }
    b->lower = low;
    b->start = at;
    heap->counters.splits++;
    ax_code_count_used(heap, chunk, at - start, code_bytes);
    if (heap->in_band) {
        ax_codeheader_write(heap, low);
        ax_codeheader_write(heap, block);
        ax_codeheader_write_above(heap, block);
    }
    return low;
}

/* Joins a block with its higher neighbour, whose record goes. */
static inline void ax_code_join(ax_codeheap *heap, uint32_t block)
{
    ax_block *b = &heap->blocks[block];
    const uint32_t gone = b->higher;
    const ax_block *g = &heap->blocks[gone];
    b->end = g->end;
    b->higher = g->higher;
    if (b->higher != AX_NO_BLOCK) {
        heap->blocks[b->higher].lower = block;
    }
    if (heap->cursor == gone) {
        heap->cursor = block;
    }
    ax_code_drop_record(heap, gone);
    heap->counters.coalesces++;
    if (heap->in_band) {
        ax_codeheader_write(heap, block);
        ax_codeheader_write_above(heap, block);
    }
}

/* The same, but its own record goes, and the neighbour keeps its place on a list. */
static inline uint32_t ax_code_join_into_higher(ax_codeheap *heap, uint32_t block)
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
    if (heap->cursor == block) {
        heap->cursor = higher;
    }
    ax_code_drop_record(heap, block);
    heap->counters.coalesces++;
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
    ax_code_count_used(heap, b->chunk, b->end - b->start, code_bytes);
    if (heap->in_band) {
        ax_codeheader_write(heap, block);
    }
}

static inline void ax_code_unuse(ax_codeheap *heap, uint32_t block)
{
    ax_block *b = &heap->blocks[block];
    ax_code_chunk *chunk = &heap->chunks[b->chunk];
    heap->code_bytes -= b->code_bytes;
    heap->used_bytes -= b->end - b->start;
    b->code_bytes = 0;
    b->is_free = 1;
    b->next = AX_NO_BLOCK;
    if (--chunk->used_blocks == 0) {
        heap->empty_bytes += chunk->bytes;
        heap->empty_chunks++;
        chunk->empty_since = heap->operations + 1;
    }
}

/* Gives back the empty chunks that the retention does not keep. */
void ax_code_give_empty_back(ax_codeheap *heap);

static inline void ax_code_retain(ax_codeheap *heap)
{
    if (heap->leaving != AX_NO_CHUNK || heap->empty_bytes > heap->params.keep_bytes ||
        heap->empty_chunks > heap->params.keep_chunks ||
        (heap->params.keep_operations && heap->empty_bytes)) {
        ax_code_give_empty_back(heap);
    }
}

/* ax_codeheap_free of a block that is known to be a used one. */
static inline void ax_code_free_used(ax_codeheap *heap, uint32_t block)
{
    ax_code_unuse(heap, block);
    if (heap->params.header_bytes) {
        ax_codeheader_freed(heap, block);
    }
    heap->counters.frees++;
    heap->policy->give(heap, block);
    heap->operations++;
    ax_code_retain(heap);
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

#endif
