/* curve: all byte-cut thresholds of an arena in one pass.
 *
 * Which object a free list hands out does not depend on how much of its buffer is kept, so lengths
 * are common to all thresholds T_0 < T_1 < ... and only the buffers differ. Three facts make one
 * pass cheap:
 *
 *  - A buffer of threshold j is never smaller than that of a lower threshold, and buffers are rungs
 * of one ladder: the state of a list is a rising staircase of rungs.
 *  - A free needs a larger buffer only in those thresholds that stand on the lowest step, a prefix
 *    j < J; all of them climb from the same rung to the next.
 *  - When a list empties after an episode with peak rung p, exactly the thresholds with T_j <
 * bytes(p) give their buffer back, again a prefix, and all of them stand on p (identities I2 and
 * I4).
 *
 * So the usual event touches one length, and the rare one touches a prefix. T_0 = 0 is always
 * carried along: its staircase is the running episode's peak.
 *
 *        rung
 *         ^            . . . . . . .
 *         |            .            keep all
 *         |      . . . .
 *         |      .  2048
 *         |. . . .
 *         |  0
 *         +--------------------------> j
 *
 * What is summed over time needs no work in between: a change by d at event i of N adds d * (N - i)
 * to the sum over events (and d * (t_end - t_i) to the sum over time). The peak of the overhead is
 * the largest of (capacity - smallest length in a stretch of constant capacity); those smallest
 * lengths are kept per prefix, m[j] = the minimum since the last change that reached j but not j
 * + 1.
 */
#ifndef AX_CURVE_H
#define AX_CURVE_H

#include "grow.h"
#include "ptrlist.h"

typedef unsigned __int128 ax_u128;

typedef struct ax_curve_list {
    uint32_t len;
    uint32_t limit; /* capacity of the lowest step: a free at this length changes something */
    uint64_t entry_bytes;
    uint64_t pops;
    uint64_t transitions;
    uint64_t bumps;
    uint32_t arena;
    uint32_t key;
    uint32_t next_in_arena;
    uint32_t life; /* 0: the slot is free */
} ax_curve_list;

typedef struct ax_curve {
    ax_curve_list *lists;
    uint64_t length; /* entries over all lists */
    uint64_t lowest; /* of length, since the last change of any capacity */
    uint64_t pops;
    uint64_t length_events; /* sum over events of length */
    ax_u128 length_ns;
    /* per threshold, index 0 is T = 0 */
    uint32_t thresholds;
    uint32_t lists_used, free_slot;
    uint64_t *retain_bytes;
    uint64_t *m;
    uint64_t *capacity; /* entries over all lists */
    uint64_t *peak;     /* of capacity - length */
    uint64_t *pops_large;
    uint64_t *frees_at_close;
    uint64_t *capacity_events;
    ax_u128 *capacity_ns;
    uint64_t *grown;    /* [thresholds + 1][AX_RUNGS]: climbs to a rung, by prefix length; after
                         * ax_curve_finish by threshold + 1. Likewise released */
    uint64_t *buffer;   /* [thresholds][AX_RUNGS]: transitions by rung, those already settled */
    uint64_t *released; /* [thresholds + 1][AX_RUNGS]: releases from a rung, by prefix length */
    uint32_t release_prefix[AX_RUNGS]; /* thresholds below bytes(rung) */
    /* per list and threshold; a mark counts only while the rung is not 0 */
    uint8_t *rung;
    uint64_t *transitions_mark;
    uint64_t *pops_mark;
    size_t lists_room, rung_room, transitions_room, pops_room; /* items */
    uint32_t large_rung; /* the lowest rung with more than large_capacity entries */
    uint64_t closed_transitions;
    const ax_ladder *ladder;
    ax_seam *books;
} ax_curve;

/* When something happens: what a change at this moment weighs in the sums. */
typedef struct ax_weight {
    uint64_t events; /* N - i */
    uint64_t ns;     /* t_end - t_i; 0 where times are unknown */
} ax_weight;

/* retain_bytes must be strictly rising and start with 0. */
int ax_curve_init(ax_curve *curve, const ax_ladder *ladder, uint32_t large_capacity,
                  const uint64_t *retain_bytes, uint32_t thresholds, ax_seam *books);
void ax_curve_release(ax_curve *curve);
int ax_curve_add_list(ax_curve *curve, uint32_t arena, uint32_t key, uint64_t entry_bytes,
                      uint32_t life, uint32_t *list);
/* The list dies with its arena. */
void ax_curve_drop_list(ax_curve *curve, uint32_t list, ax_weight now);
/* Settles what is still open; call once, after the last event. */
void ax_curve_finish(ax_curve *curve);

typedef struct ax_curve_row {
    uint64_t pops_large, list_mallocs, list_reallocs, list_frees, list_frees_at_close,
        list_bytes_moved, buffer_bytes_end, capacity_end, overhead_peak_entries, capacity_events;
    ax_u128 capacity_ns;
    uint64_t histogram_buffer[AX_RUNGS];
} ax_curve_row;
void ax_curve_get(const ax_curve *curve, uint32_t threshold, ax_curve_row *row);

int ax_curve_grow(ax_curve *curve, ax_curve_list *list, ax_weight now);
void ax_curve_emptied(ax_curve *curve, ax_curve_list *list, ax_weight now);

/* A pop; the list must not be empty. */
static inline void ax_curve_pop(ax_curve *curve, ax_curve_list *list, ax_weight now)
{
    list->len--;
    list->pops++;
    curve->length--;
    curve->length_events -= now.events;
    curve->length_ns -= now.ns;
    if (list->len == 0) {
        ax_curve_emptied(curve, list, now);
    }
    if (curve->length < curve->lowest) {
        curve->lowest = curve->length;
    }
}

static inline int ax_curve_push(ax_curve *curve, ax_curve_list *list, ax_weight now)
{
    curve->length++;
    if (list->len == list->limit) {
        int status = ax_curve_grow(curve, list, now);
        if (status != AX_OK) {
            curve->length--;
            return status;
        }
    }
    list->len++;
    curve->length_events += now.events;
    curve->length_ns += now.ns;
    return AX_OK;
}

#endif
