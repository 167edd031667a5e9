/* livecode: a code heap on real pages, whose blocks are handed out as (block, generation), so that
 * every misuse of a handle is found before it touches the heap, and whose memory a CPU executes.
 *
 *     alloc ──▶ open ──seal──▶ sealed ──free──▶ gone
 *                ▲  └─free─▶ gone │
 *                └──────open──────┘
 *
 * An open block can be written to, a sealed one executed. How the two exclude each other is the
 * heap's wx:
 *
 *     flip   one mapping, RW or RX chunk by chunk. A chunk is executable while no block in it is
 *            open: opening the first one flips it to be written, which stops the code of its
 *            neighbours too, sealing the last one flips it back. A chunk without blocks stays as
 *            it is.
 *     dual   two mappings of the same pages, one RW and one RX: nothing flips, neighbours run on
 *     rwx    one mapping, RWX
 *
 * per_thread (protection keys) exists in the model only, as do byte limits with which a policy of
 * the history cuts blocks that are too small.
 *
 * A program that does not know yet how much it will write takes a block as it comes and shrinks it.
 * So do the policies of the history, which are told no size.
 *
 * Hazards of the historical design that are none here: (a) free changes headers, but those in a
 * chunk that is executable are written when it is next opened (codeheader.h); (b) freeing the last
 * open block of a chunk makes it executable again if other blocks live there.
 *
 * Any call of the system may be refused. Then the block is as it was, open or sealed, and so is its
 * chunk; the same call again is the retry. A sealed block whose chunk has no open block is
 * executable, always.
 */
#ifndef AX_LIVECODE_H
#define AX_LIVECODE_H

#include "codeheap.h"

typedef struct ax_code_handle {
    uint64_t address; /* where it is executed */
    uint32_t block;
    uint32_t generation;
} ax_code_handle;

typedef struct ax_livecode {
    ax_codeheap heap;
    ax_seam seam; /* chunks */
    ax_seam books;
    int open;
} ax_livecode;

/* What the heap holds right now. */
typedef struct ax_livecode_totals {
    ax_code_totals code;
    uint64_t open_blocks, sealed_blocks;
    uint64_t executable_blocks; /* sealed, in a chunk that is executable */
} ax_livecode_totals;

/* The heap must not move while it is open: it points to its own seams. */
int ax_livecode_open(ax_livecode *live, const ax_code_params *params, ax_detail *detail);
/* Gives all chunks back; closing twice is nothing. Where the system keeps one the heap stays open,
 * without what it did take. */
int ax_livecode_close(ax_livecode *live, ax_detail *detail);
/* The end, whatever the system says. */
void ax_livecode_release(ax_livecode *live);

/* An open block of exactly size_bytes. Its memory is not cleared. 0: as much as the design gives;
 * a sized one gives byte_limit or, without a limit, what a chunk of chunk_bytes holds. Policies of
 * the history take no other size. */
int ax_livecode_alloc(ax_livecode *live, uint64_t size_bytes, ax_code_handle *handle,
                      ax_detail *detail);
/* An open block keeps its low size_bytes, from 1 to what it has; what is behind them is given back,
 * if it is worth a block of its own. */
int ax_livecode_shrink(ax_livecode *live, ax_code_handle handle, uint64_t size_bytes,
                       ax_detail *detail);
/* Of a block that is alive. */
uint64_t ax_livecode_size(const ax_livecode *live, ax_code_handle handle);
int ax_livecode_write(ax_livecode *live, ax_code_handle handle, uint64_t offset, const void *code,
                      uint64_t bytes, ax_detail *detail);
/* Flushes the instruction cache, too. */
int ax_livecode_seal(ax_livecode *live, ax_code_handle handle, ax_detail *detail);
int ax_livecode_unseal(ax_livecode *live, ax_code_handle handle, ax_detail *detail);
int ax_livecode_free(ax_livecode *live, ax_code_handle handle, ax_detail *detail);

/* Whether a live block is sealed, and whether it can be executed now. */
int ax_livecode_look(const ax_livecode *live, ax_code_handle handle, int *sealed, int *executable,
                     ax_detail *detail);

int ax_livecode_totals_now(const ax_livecode *live, ax_livecode_totals *out, ax_detail *detail);
int ax_livecode_check(const ax_livecode *live, ax_detail *detail);

#endif
