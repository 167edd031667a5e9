/* timeline: a trace in intervals, and in each what happened and how high and low the heap stood.
 *
 *     edges   0         3    3              8       the caller's, never decreasing
 *     rows    |  row 0  | 1  |    row 2     |       row r: events edges[r] .. edges[r + 1] - 1
 *
 * The least and the most of a row are over the states after each of its events; a row without
 * events has the state before it. So the most of all rows is the peak of the trace, exactly,
 * however few rows there are.
 *
 * The trace was checked when it was made. This walk is twice as fast as the summary since it
 * does not check again; it bounds every id that it uses, so that a mapped file which changed under
 * us gives wrong numbers or a refusal and nothing worse.
 */
#ifndef AX_TIMELINE_H
#define AX_TIMELINE_H

#include "trace.h"

typedef struct ax_timeline_row {
    uint64_t allocs;
    uint64_t frees;
    uint64_t reallocs;
    uint64_t destroys;
    uint64_t allocated_bytes; /* request sizes of allocs and reallocs */
    uint64_t live_objects;    /* after the last event */
    uint64_t live_bytes;
    uint64_t least_live_objects;
    uint64_t most_live_objects;
    uint64_t least_live_bytes;
    uint64_t most_live_bytes;
    uint64_t most_bytes_event; /* the first after which live_bytes was the most; AX_NO_OBJECT where
                                  there was no event */
} ax_timeline_row;

typedef struct ax_timeline {
    ax_trace_view trace;
    ax_seam books;
    size_t next;
    size_t row;  /* that the next event belongs to, or an earlier one */
    size_t rows; /* edges less one */
    uint64_t *edges;
    size_t edge_capacity;
    ax_timeline_row *out;
    size_t out_capacity;
    uint64_t objects;
    uint64_t live_objects;
    uint64_t live_bytes;
    uint64_t *object_size;
    size_t object_size_capacity;
    ax_idmap shares; /* arena + 1 -> what lives in it */
    int refused;
} ax_timeline;

/* Borrows the columns and copies the edges, of which there must be rows + 1: AX_ERR_RANGE where
 * they do not begin with 0, end with the events, or decrease. Finish it in any case. */
int ax_timeline_begin(ax_timeline *timeline, const ax_trace_view *trace, const uint64_t *edges,
                      size_t rows, ax_detail *detail);

/* At most `events` further events. AX_ERR_OVERFLOW where a sum of sizes does not fit 64 bits;
 * after a refusal a further step answers AX_ERR_STATE. When next == trace.events the rows are
 * complete. */
int ax_timeline_step(ax_timeline *timeline, size_t events, ax_detail *detail);

void ax_timeline_finish(ax_timeline *timeline);

#endif
