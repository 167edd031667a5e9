/* codeheap: executable memory. Chunks asked of the system, cut into blocks, joined again on free,
 * and flipped between writable and executable chunk by chunk.
 *
 *     chunk   [ hdr | payload ...... | hdr | payload .. | hdr | payload ........ | terminator ]
 *               block 0 (used)         block 1 (free)     block 2 (used)           header only
 *               <------------------------- chunk_bytes ------------------------------------->
 *
 * Blocks tile their chunk: the end of one is the header of the next, the last one ends where the
 * terminator begins. What the headers say is kept out of band, in ax_block records, so that a
 * modelled heap needs no memory and a corrupted header cannot lead the allocator astray;
 * header_bytes is the room that a design's in-band headers take (0 for designs that have none).
 * A live heap writes there what the records say (codeheader.h).
 *
 * Page size, chunk size, byte limit and instruction reach are four parameters: bug 601724,
 * comment 3.
 *
 * A policy is one entry of a table (codepolicy.h): how a block is found, cut, given back and
 * listed. Everything else is here: chunks, tiling, permissions, retention of empty chunks,
 * counters, the check.
 */
#ifndef AX_CODEHEAP_H
#define AX_CODEHEAP_H

#include "grow.h"

#define AX_NO_BLOCK UINT32_MAX
#define AX_NO_CHUNK UINT32_MAX
#define AX_CODE_OWN UINT32_MAX /* a parameter: what the policy's design has */
#define AX_CODE_OWN_CHUNKS (UINT64_MAX - 1)

enum ax_code_policy_id {
    AX_CODE_SCAN,            /* V1 of the bug's history */
    AX_CODE_WHOLE_BLOCK,     /* V2 to V6 */
    AX_CODE_PARTITION,       /* comments 1 to 3, rejected */
    AX_CODE_HALVING,         /* comment 17, the header counted in what is halved */
    AX_CODE_HALVING_PAYLOAD, /* comment 17 as its reviewer reads it */
    AX_CODE_BYTE_LIMIT,      /* what landed */
    AX_CODE_FIRST_FIT,       /* sljit */
    AX_CODE_BEST_FIT,        /* HotSpot */
    AX_CODE_BITMAP,          /* asmjit */
    AX_CODE_PACK,            /* Linux bpf_prog_pack */
    AX_CODE_BUCKETS,         /* power-of-two buckets */
    AX_CODE_BUMP,            /* LuaJIT: bump down, flush all */
    AX_CODE_SEGREGATED,      /* two-level segregated fit, constant time: the default */
    AX_CODE_POLICIES
};

/* The smallest hole that add_remainder cuts, from header_bytes H and min_payload_bytes M. Comments
 * are those of bug 601724. */
enum ax_min_hole {
    AX_HOLE_MAX_M_2H, /* V1 to V6: max(M, 2H); comment 18 doubts it: leaves dead blocks, and wraps
                       */
    AX_HOLE_H_M,   /* nobody's: H + M, enough for a hole at an end; in the middle headers overlap */
    AX_HOLE_2H_M,  /* comment 18: exactly tight */
    AX_HOLE_3H_M,  /* V7, what landed (bug 614126) */
    AX_HOLE_4H_3M, /* comment 18, for the limit */
    AX_HOLES
};

enum ax_wx { AX_WX_FLIP, AX_WX_DUAL, AX_WX_RWX, AX_WX_PER_THREAD, AX_WXS };

typedef struct ax_code_params {
    uint64_t page_bytes;
    uint64_t chunk_bytes; /* a multiple of the page */
    uint64_t byte_limit;  /* largest payload that alloc returns; 0: none */
    uint32_t header_bytes;
    uint32_t min_payload_bytes;
    uint32_t pointer_bytes;
    uint32_t granule_bytes;  /* designs with sized requests round up to this */
    uint32_t min_rest_bytes; /* first fit, best fit: smaller rests stay with the block */
    uint32_t policy;
    uint32_t min_hole;
    uint32_t wx;
    uint32_t partitions;     /* partition: pieces of one chunk */
    uint64_t max_code_bytes; /* bump: flush everything beyond this */
    uint64_t reach_bytes;    /* of a jump; 0: no limit */
    uint64_t keep_bytes;     /* empty chunks kept, together; UINT64_MAX: all */
    uint64_t
        keep_operations; /* give an empty chunk back after so many operations; 0: never by age */
    /* Empty chunks kept (bitmap: of each pool); UINT64_MAX: all; AX_CODE_OWN_CHUNKS: the
     * design's number */
    uint64_t keep_chunks;
} ax_code_params;

typedef struct ax_block {
    uint64_t start;      /* of its header */
    uint64_t end;        /* of its payload: the next block's header, or the terminator */
    uint64_t code_bytes; /* what the program asked for of it */
    uint32_t chunk;
    uint32_t lower, higher; /* neighbours in the chunk */
    uint32_t next, prev;    /* free: the policy's list; used: next is the caller's code list */
    uint32_t bin;
    uint8_t is_free;
    uint8_t listed;
    uint8_t alive;       /* 0: the record is unused; is_free is 1 then */
    uint8_t sealed;      /* livecode: used, and not to be written to */
    uint8_t header_due;  /* in band: to be written when the chunk is writable again */
    uint32_t generation; /* how often the record became a used block */
} ax_block;

/* A record is one line of the cache, and found by a shift. */
_Static_assert(sizeof(ax_block) == 64, "a block record is not 64 bytes");

typedef struct ax_code_chunk {
    uint64_t base;
    uint64_t bytes;
    uint64_t pages;
    uint64_t alias; /* wx dual: the second mapping, the one that is written through */
    uint64_t empty_since;
    /* Designs that search chunks block by block (scan, bitmap, pack): no free block has more
     * payload than this. Raised by a free, put right by a search that has found nothing. */
    uint64_t bound;
    uint32_t blocks; /* of the same designs: how many there are */
    uint32_t first, last;
    uint32_t used_blocks;
    uint32_t older, younger; /* heapblocks: newest first */
    uint32_t below, above;   /* the chunks that touch it */
    uint32_t pool;           /* bitmap: 1 to 3; 0: none, or none yet */
    uint32_t open_blocks;    /* livecode: used blocks that are not sealed */
    uint8_t exec;
    uint8_t alive;
    uint8_t headers_due; /* in band: of any block, or the terminator's */
    uint8_t terminator_due;
} ax_code_chunk;

typedef struct ax_code_counters {
    uint64_t allocs, frees;
    uint64_t flips_to_write, flips_to_exec, pages_flipped;
    uint64_t splits; /* pieces cut off */
    uint64_t coalesces;
    uint64_t list_scan_steps;
    uint64_t unmarked_header_writes; /* into a chunk that is executable */
    uint64_t flushes;
    uint64_t reach_failures;
    uint64_t vma_peak;
} ax_code_counters;

struct ax_code_policy;

#define AX_CODE_BINS 512
#define AX_CODE_POOLS 4

typedef struct ax_codeheap {
    const struct ax_code_policy *policy;
    ax_seam *seam;
    ax_seam *books;
    ax_block *blocks;
    ax_code_chunk *chunks;
    uint32_t *by_address; /* chunks in the order of their base */
    size_t blocks_room, chunks_room, by_address_room;
    size_t records_room; /* blocks for which there is room here and in the index below */
    /* best_fit: the listed blocks in the order of their addresses. */
    uint64_t *index_start;
    uint32_t *index_payload, *index_block;
    size_t index_start_room, index_payload_room, index_block_room;
    uint32_t index_count;
    uint32_t blocks_used, free_record;
    uint32_t chunks_used, free_chunk_record;
    uint32_t chunks_alive;
    uint32_t newest, oldest;
    uint32_t leaving; /* chunks whose first mapping is gone and whose second the system kept */
    uint32_t cursor;  /* bitmap: where the last search ended */
    uint32_t bin_head[AX_CODE_BINS];
    uint64_t bin_map[AX_CODE_BINS / 64];
    uint64_t least_binned; /* segregated: no block in a bin of sizes has less payload */
    uint64_t code_bytes;   /* of used blocks */
    uint64_t mapped_bytes; /* of memory: a second mapping of it does not count */
    uint64_t mapped_bytes_peak;
    uint64_t empty_bytes; /* of empty chunks */
    uint32_t
        empty_chunks; /* not as wide: two that are alike are added to as a pair, which stalls */
    uint64_t vmas;
    uint64_t exec_gone; /* chunks that were executable when they left */
    uint64_t openings;  /* livecode: how often a sealed block was opened */
    /* What does not change, worked out once. */
    uint64_t granule_mask; /* granule_bytes - 1, or 0 if that is not a power of two */
    uint64_t least_rest;   /* of a cut, header and all */
    int quick;             /* an alloc and a free may be all in codepolicy.h */
    int own_pages_empty;   /* pack: a chunk of one method is empty */
    int in_band;           /* headers are written into the chunks (codeheader.h) */
    ax_code_params params;
    ax_code_counters counters;
} ax_codeheap;

void ax_code_params_default(ax_code_params *params);
const char *ax_code_policy_name(uint32_t policy);

int ax_codeheap_init(ax_codeheap *heap, const ax_code_params *params, ax_seam *seam, ax_seam *books,
                     ax_detail *detail);
/* Gives every chunk back. */
void ax_codeheap_release(ax_codeheap *heap);

/* A used block. size_bytes 0 is for designs that know no size (whole blocks, limits); they ignore
 * it. The chunk is writable then. On failure nothing has changed, but that bump, which flushes to
 * make room, has flushed. */
int ax_codeheap_alloc(ax_codeheap *heap, uint64_t size_bytes, uint32_t *block);
int ax_codeheap_free(ax_codeheap *heap, uint32_t block);

/* Gives [hole_start, hole_end) of a used block back and puts the block, or the one or two used
 * pieces that remain, at the head of a code list (linked by next; AX_NO_BLOCK ends it). */
int ax_codeheap_add_remainder(ax_codeheap *heap, uint32_t *list, uint32_t block,
                              uint64_t hole_start, uint64_t hole_end);

/* A used block keeps its low size_bytes, rounded up as its design does; what is behind them is
 * given back, if it is worth a block of its own, and stays with the block otherwise. size_bytes is
 * at most its payload. On failure nothing has changed. */
int ax_codeheap_shrink(ax_codeheap *heap, uint32_t block, uint64_t size_bytes);

/* How many bytes of a used block the program fills, where alloc was not told. */
void ax_codeheap_set_code(ax_codeheap *heap, uint32_t block, uint64_t code_bytes);

uint64_t ax_code_min_hole(uint32_t rule, uint64_t header, uint64_t least);

int ax_codeheap_mark_write(ax_codeheap *heap, uint32_t chunk);
int ax_codeheap_mark_exec(ax_codeheap *heap, uint32_t chunk);

/* Gives back all chunks, or those that are empty. Chunks that the system refuses to take stay, and
 * the same call tries them again. */
int ax_codeheap_reset(ax_codeheap *heap);
int ax_codeheap_sweep(ax_codeheap *heap);

typedef struct ax_code_totals {
    uint64_t blocks, free_blocks, listed_blocks;
    uint64_t header_bytes, free_bytes, dead_bytes, largest_free_bytes, payload_bytes, code_bytes;
} ax_code_totals;
void ax_codeheap_totals(const ax_codeheap *heap, ax_code_totals *out);
/* Whether a block is free and too small for the design to list or find. */
int ax_codeheap_is_dead(const ax_codeheap *heap, uint32_t block);

/* The properties of the specification that hold at every moment, named when broken. */
int ax_codeheap_check(const ax_codeheap *heap, ax_detail *detail);

static inline uint64_t ax_block_bytes(const ax_codeheap *heap, uint32_t block)
{
    return heap->blocks[block].end - heap->blocks[block].start;
}

static inline uint64_t ax_block_payload(const ax_codeheap *heap, uint32_t block)
{
    const ax_block *b = &heap->blocks[block];
    return b->end - b->start - heap->params.header_bytes;
}

/* Allocs and frees so far. */
static inline uint64_t ax_code_operations(const ax_codeheap *heap)
{
    return heap->counters.allocs + heap->counters.frees;
}

static inline uint64_t ax_block_address(const ax_codeheap *heap, uint32_t block)
{
    return heap->blocks[block].start + heap->params.header_bytes;
}

#endif
