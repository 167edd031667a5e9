/* codepolicy: how a code heap finds, cuts, lists and gives back blocks. One entry per design.
 *
 *     alloc   a used block out of a listed one, or AX_CODE_AGAIN: no block will do, ask for a chunk
 *     give    a block has become free and is to be joined and listed
 *     fresh   a new chunk stands there as one free block that nobody has listed
 *     unlist  a listed block is about to go: its chunk is given back
 */
#ifndef AX_CODEPOLICY_H
#define AX_CODEPOLICY_H

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

/* --- tools of the policies
 * ------------------------------------------------------------------------ */

/* Room for n more records, so that the cuts after it cannot fail. */
int ax_code_reserve(ax_codeheap *heap, uint32_t n);
/* Cuts a block at `at`: the new record is the high part; neither is listed by this. Reserve first.
 */
uint32_t ax_code_cut(ax_codeheap *heap, uint32_t block, uint64_t at);
/* Joins a block with its higher neighbour. */
void ax_code_join(ax_codeheap *heap, uint32_t block);
/* From free to used, and the bytes that the program has of it. */
void ax_code_use(ax_codeheap *heap, uint32_t block, uint64_t code_bytes);
void ax_code_unuse(ax_codeheap *heap, uint32_t block);

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
void ax_code_push(ax_codeheap *heap, uint32_t bin, uint32_t block);
void ax_code_unlink(ax_codeheap *heap, uint32_t block);
/* The same, found by walking from the head as a singly linked list must; counts the steps. Returns
 * the predecessor, or AX_NO_BLOCK. */
uint32_t ax_code_unlink_walking(ax_codeheap *heap, uint32_t block);

#endif
