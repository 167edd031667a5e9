/* policy: what becomes of a free list's buffer when the list runs empty. A policy is one entry of a
 * table; everything it can vary is a field of ax_arena_params.
 *
 *     on_empty    a pop has just emptied the list
 *     on_refill   the first free into an empty list, or the death of its arena, takes it from the
 *                 policy's books
 *     on_wake     the operation clock has reached set->wake_at
 */
#ifndef AX_POLICY_H
#define AX_POLICY_H

#include "arena.h"

typedef struct ax_policy {
    const char *name;
    int intrusive;
    /* For policies that only compare an emptied buffer's capacity with a number: the number. */
    uint32_t (*keep_capacity)(const ax_arenas *set);
    int (*check)(const ax_arena_params *params, ax_detail *detail);
    void (*start)(ax_arenas *set);
    void (*on_empty)(ax_arenas *set, ax_list *list);
    void (*on_refill)(ax_arenas *set, ax_list *list);
    void (*on_wake)(ax_arenas *set);
} ax_policy;

/* NULL for a number that is not a policy's. */
const ax_policy *ax_policy_get(uint32_t policy);

/* Moves a list's buffer to a lower rung (0: gives it back) and counts it. A refusal of the backing
 * leaves the larger buffer in place: nothing is lost but the saving. */
void ax_list_shrink(ax_arenas *set, ax_list *list, uint32_t rung);

#endif
