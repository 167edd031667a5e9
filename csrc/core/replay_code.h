/* replay_code: a trace of compiled methods driven through a code heap.
 *
 * A design that is told sizes gets each method as one block. The historical designs are not: a
 * method of s bytes takes blocks and fills each from its high end, less jump_bytes for the jump to
 * the next,
 *
 *     need = s
 *     repeat   take a block; room = payload - jump_bytes
 *              room < need:  the whole block is kept, need -= room
 *              else:         [start, end - need) goes back with add_remainder; done
 *
 * and frees its blocks in the order of its list. After each method its chunks become executable.
 */
#ifndef AX_REPLAY_CODE_H
#define AX_REPLAY_CODE_H

#include "codeheap.h"
#include "trace.h"

typedef unsigned __int128 ax_code_u128;

#define AX_CODE_EVENT_WORK 16
#define AX_CODE_CALL_WORK 256
/* A few hundredths of a second. */
#define AX_CODE_STEP_WORK (UINT64_C(1) << 21)

/* Pages of these sizes are counted under recent code. */
#define AX_HOT_SIZES 3

typedef struct ax_code_range {
    uint64_t start, end;
    uint64_t method;
} ax_code_range;

typedef struct ax_code_replay {
    ax_trace_view trace; /* borrowed */
    size_t at;
    int status;
    ax_detail detail;
    uint64_t objects;
    uint32_t jump_bytes;
    uint32_t hot_methods;
    uint64_t *word;        /* per object: flushes << 32 | (first block + 1); 0: dead */
    ax_code_range *recent; /* a ring */
    uint64_t recent_room, recent_next;
    uint64_t methods;
    uint64_t undersized_blocks; /* handed out with less payload than the least */
    uint64_t code_bytes_peak, largest_wastage;
    ax_code_u128 mapped_events; /* sums over events */
    ax_code_u128 wastage_events;
    ax_codeheap heap;
    ax_seam seam;
    ax_seam books;
} ax_code_replay;

typedef struct ax_code_replay_options {
    ax_code_params params;
    enum ax_backing backing;
    uint64_t objects;
    uint32_t jump_bytes;
    uint32_t hot_methods;
    uint64_t fail_at;
} ax_code_replay_options;

int ax_code_replay_begin(ax_code_replay *replay, const ax_trace_view *trace,
                         const ax_code_replay_options *options, ax_detail *detail);
/* Replays at most so many events more, and ends before that once they have made so much work, so
 * that the caller comes to hear of a cancellation however slow a policy is. Work is counted, not
 * timed: a step of a search is 1, an event AX_CODE_EVENT_WORK, a system call AX_CODE_CALL_WORK. An
 * event is not interrupted. */
int ax_code_replay_step(ax_code_replay *replay, size_t events, uint64_t work, size_t *left,
                        ax_detail *detail);
void ax_code_replay_end(ax_code_replay *replay);

typedef struct ax_code_row {
    uint64_t methods, chunk_maps, chunk_unmaps, protect_calls, file_calls;
    uint64_t mapped_bytes_end, mapped_bytes_peak, code_bytes_end, code_bytes_peak;
    double mapped_bytes_mean, wastage_bytes_mean, pages_flipped_per_method;
    uint64_t wastage_bytes_peak;
    uint64_t header_bytes, dead_bytes, free_bytes, largest_free_block;
    uint64_t internal_fragmentation, external_fragmentation;
    uint64_t blocks_end, chunks_end;
    uint64_t undersized_blocks;
    uint64_t hot_pages[AX_HOT_SIZES];
    ax_code_counters counters;
} ax_code_row;

int ax_code_replay_row(const ax_code_replay *replay, ax_code_row *out);

#endif
