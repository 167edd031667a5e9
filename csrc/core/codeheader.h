/* codeheader: the headers of a live code heap, as they stand in its chunks.
 *
 *     offset  0     4       8       12      16           header_bytes
 *             | end | lower | flags | check | cc cc cc ... |  payload
 *
 *     end     where the block ends, from the start of its chunk; 0: the terminator
 *     lower   where the header below begins; 0xffffffff: there is none
 *     flags   1: free, 2: the terminator
 *     check   mixed from the three and from where the header itself begins
 *     fill    0xcc up to header_bytes: on x86 a trap, should code run into it
 *
 * Words are little-endian; of a header of less than 16 bytes the first bytes are there. Every byte
 * is determined by the records (ax_block), whose mirror the headers are: nothing is ever decided by
 * what they say, so that code which writes over one cannot lead the allocator astray, and a check
 * that compares can name what was written over.
 *
 * Only livecode asks for them (heap->in_band). A replay counts what the designs would write, and
 * writes nothing.
 *
 * Free changes headers in chunks that are executable (hazard (a) of the history). Here these are
 * due: written when the chunk is next made writable, which the heap does anyway before it cuts a
 * block there. So headers cost no call of the system, and cannot fail. The check passes over those
 * that are due.
 */
#ifndef AX_CODEHEADER_H
#define AX_CODEHEADER_H

#include "codeheap.h"

/* All of these but the first are for heaps with headers in band only. */

/* A block has become free: its header is written, or, in a model, counted if its chunk is
 * executable and the design would write it all the same. For heaps with header_bytes. */
void ax_codeheader_freed(ax_codeheap *heap, uint32_t block);

/* What a header says has changed: that of a block, or that of what stands above it, the next block
 * or the terminator. */
void ax_codeheader_write(ax_codeheap *heap, uint32_t block);
void ax_codeheader_write_above(ax_codeheap *heap, uint32_t block);

/* The chunk is writable again: the headers that are due. */
void ax_codeheader_catch_up(ax_codeheap *heap, uint32_t chunk);

/* Compares every header that is not due with what the records say, in a heap whose records are
 * right. */
int ax_codeheader_check(const ax_codeheap *heap, ax_detail *detail);

#endif
