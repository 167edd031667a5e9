#include "curve.h"

#include <string.h>

#include "keymap.h"

#define NOTHING_YET UINT64_MAX

/* A table that is made with the curve and never grows. */
typedef struct table {
    void *pointer;
    size_t items;
    size_t item_bytes;
} table;

enum { TABLES = 11 };

static void tables_of(ax_curve *curve, table tables[TABLES])
{
    const size_t n = curve->thresholds;
    const table all[TABLES] = {
        {&curve->retain_bytes, n, sizeof(uint64_t)},
        {&curve->m, n, sizeof(uint64_t)},
        {&curve->capacity, n, sizeof(uint64_t)},
        {&curve->peak, n, sizeof(uint64_t)},
        {&curve->pops_large, n, sizeof(uint64_t)},
        {&curve->frees_at_close, n, sizeof(uint64_t)},
        {&curve->capacity_events, n, sizeof(uint64_t)},
        {&curve->capacity_ns, n, sizeof(ax_u128)},
        {&curve->grown, (n + 1) * AX_RUNGS, sizeof(uint64_t)},
        {&curve->buffer, n * AX_RUNGS, sizeof(uint64_t)},
        {&curve->released, (n + 1) * AX_RUNGS, sizeof(uint64_t)},
    };
    memcpy(tables, all, sizeof all);
}

int ax_curve_init(ax_curve *curve, const ax_ladder *ladder, uint32_t large_capacity,
                  const uint64_t *retain_bytes, uint32_t thresholds, ax_seam *books)
{
    memset(curve, 0, sizeof *curve);
    curve->ladder = ladder;
    curve->books = books;
    curve->thresholds = thresholds;
    curve->free_slot = AX_NO_LIST;
    int status = AX_OK;
    table tables[TABLES];
    tables_of(curve, tables);
    for (int i = 0; i < TABLES && status == AX_OK; i++) {
        status = ax_grow_zeroed(books, tables[i].pointer, tables[i].items, tables[i].item_bytes);
    }
    if (status != AX_OK) {
        ax_curve_release(curve);
        return status;
    }
    for (uint32_t j = 0; j < thresholds; j++) {
        curve->retain_bytes[j] = retain_bytes[j];
        curve->m[j] = NOTHING_YET;
    }
    for (uint32_t r = 1; r < ladder->rungs; r++) {
        while (curve->release_prefix[r] < thresholds &&
               retain_bytes[curve->release_prefix[r]] < ladder->bytes[r]) {
            curve->release_prefix[r]++;
        }
    }
    while (curve->large_rung < ladder->rungs &&
           ladder->capacity[curve->large_rung] <= large_capacity) {
        curve->large_rung++;
    }
    return AX_OK;
}

void ax_curve_release(ax_curve *curve)
{
    ax_seam *books = curve->books;
    if (!books) {
        return;
    }
    table tables[TABLES];
    tables_of(curve, tables);
    for (int i = 0; i < TABLES; i++) {
        ax_grow_free(books, tables[i].pointer, &tables[i].items, tables[i].item_bytes);
    }
    ax_grow_free(books, &curve->lists, &curve->lists_room, sizeof *curve->lists);
    ax_grow_free(books, &curve->rung, &curve->rung_room, sizeof *curve->rung);
    ax_grow_free(books, &curve->transitions_mark, &curve->transitions_room,
                 sizeof *curve->transitions_mark);
    ax_grow_free(books, &curve->pops_mark, &curve->pops_room, sizeof *curve->pops_mark);
    memset(curve, 0, sizeof *curve);
}

/* Makes the four tables of the lists hold so many; where one is refused, those before it may have
 * grown. */
static int hold_lists(ax_curve *curve, size_t lists)
{
    ax_seam *books = curve->books;
    if (lists > AX_MOST_LISTS) {
        return AX_ERR_OVERFLOW;
    }
    const size_t marks = lists * curve->thresholds;
    int status =
        ax_grow_array(books, &curve->lists, &curve->lists_room, lists, sizeof *curve->lists);
    if (status == AX_OK) {
        status = ax_grow_array(books, &curve->rung, &curve->rung_room, marks, sizeof *curve->rung);
    }
    if (status == AX_OK) {
        status = ax_grow_array(books, &curve->transitions_mark, &curve->transitions_room, marks,
                               sizeof *curve->transitions_mark);
    }
    if (status == AX_OK) {
        status = ax_grow_array(books, &curve->pops_mark, &curve->pops_room, marks,
                               sizeof *curve->pops_mark);
    }
    return status;
}

int ax_curve_add_list(ax_curve *curve, uint32_t arena, uint32_t key, uint64_t entry_bytes,
                      uint32_t life, uint32_t *list)
{
    uint32_t index = curve->free_slot;
    if (index != AX_NO_LIST) {
        curve->free_slot = curve->lists[index].next_in_arena;
    } else {
        int status = hold_lists(curve, (size_t)curve->lists_used + 1);
        if (status != AX_OK) {
            return status;
        }
        index = curve->lists_used++;
    }
    uint64_t first = (uint64_t)index * curve->thresholds;
    memset(&curve->rung[first], 0, curve->thresholds);
    curve->lists[index] = (ax_curve_list){
        .entry_bytes = entry_bytes,
        .arena = arena,
        .key = key,
        .next_in_arena = AX_NO_LIST,
        .life = life,
    };
    *list = index;
    return AX_OK;
}

/* The capacities of thresholds 0..prefix-1 are about to change by `change` entries each. */
static inline void change_prefix(ax_curve *curve, uint32_t prefix, uint64_t change, ax_weight now)
{
    uint64_t lowest = curve->lowest;
    uint64_t events = change * now.events;
    ax_u128 ns = (ax_u128)(__int128)(int64_t)change * now.ns;
    for (uint32_t j = 0; j < prefix; j++) {
        if (curve->m[j] < lowest) {
            lowest = curve->m[j];
        }
        curve->m[j] = NOTHING_YET;
        uint64_t overhead = curve->capacity[j] - lowest;
        if (overhead > curve->peak[j]) {
            curve->peak[j] = overhead;
        }
        curve->capacity[j] += change;
        curve->capacity_events[j] += events;
        curve->capacity_ns[j] += ns;
    }
    if (prefix < curve->thresholds && lowest < curve->m[prefix]) {
        curve->m[prefix] = lowest;
    }
    curve->lowest = curve->length;
}

int ax_curve_grow(ax_curve *curve, ax_curve_list *list, ax_weight now)
{
    uint64_t first = (uint64_t)(list - curve->lists) * curve->thresholds;
    uint8_t *rung = &curve->rung[first];
    uint64_t *transitions_mark = &curve->transitions_mark[first];
    uint32_t from = rung[0];
    uint32_t to = from + 1;
    if (to >= curve->ladder->rungs) {
        return AX_ERR_OVERFLOW;
    }
    uint32_t prefix = 0;
    while (prefix < curve->thresholds && rung[prefix] == from) {
        curve->buffer[prefix * AX_RUNGS + from] += list->transitions - transitions_mark[prefix];
        transitions_mark[prefix] = list->transitions;
        rung[prefix] = (uint8_t)to;
        prefix++;
    }
    if (to == curve->large_rung) {
        for (uint32_t j = 0; j < prefix; j++) {
            curve->pops_mark[first + j] = list->pops;
        }
    }
    curve->grown[prefix * AX_RUNGS + to]++;
    list->limit = curve->ladder->capacity[to];
    change_prefix(curve, prefix, list->limit - (uint64_t)curve->ladder->capacity[from], now);
    return AX_OK;
}

void ax_curve_emptied(ax_curve *curve, ax_curve_list *list, ax_weight now)
{
    uint64_t first = (uint64_t)(list - curve->lists) * curve->thresholds;
    uint8_t *rung = &curve->rung[first];
    uint32_t from = rung[0];
    uint32_t prefix = curve->release_prefix[from];
    list->transitions++;
    curve->released[prefix * AX_RUNGS + from]++;
    for (uint32_t j = 0; j < prefix; j++) {
        rung[j] = 0;
    }
    if (from >= curve->large_rung) {
        for (uint32_t j = 0; j < prefix; j++) {
            curve->pops_large[j] += list->pops - curve->pops_mark[first + j];
        }
    }
    list->limit = 0;
    change_prefix(curve, prefix, -(uint64_t)curve->ladder->capacity[from], now);
}

/* Adds to the results what a list's thresholds have not settled yet. */
static void settle(ax_curve *curve, uint32_t index)
{
    const ax_curve_list *list = &curve->lists[index];
    uint64_t first = (uint64_t)index * curve->thresholds;
    for (uint32_t j = 0; j < curve->thresholds; j++) {
        uint32_t rung = curve->rung[first + j];
        curve->buffer[j * AX_RUNGS + rung] +=
            list->transitions - curve->transitions_mark[first + j];
        if (rung && rung >= curve->large_rung) {
            curve->pops_large[j] += list->pops - curve->pops_mark[first + j];
        }
    }
}

void ax_curve_drop_list(ax_curve *curve, uint32_t index, ax_weight now)
{
    ax_curve_list *list = &curve->lists[index];
    uint64_t first = (uint64_t)index * curve->thresholds;
    settle(curve, index);
    /* The thresholds change by different amounts; none is left out, so the prefix is all of them.
     */
    change_prefix(curve, curve->thresholds, 0, now);
    for (uint32_t j = 0; j < curve->thresholds; j++) {
        uint32_t rung = curve->rung[first + j];
        uint64_t entries = curve->ladder->capacity[rung];
        curve->capacity[j] -= entries;
        curve->capacity_events[j] -= entries * now.events;
        curve->capacity_ns[j] -= (ax_u128)entries * now.ns;
        curve->frees_at_close[j] += rung != 0;
    }
    curve->length -= list->len;
    curve->length_events -= list->len * now.events;
    curve->length_ns -= (ax_u128)list->len * now.ns;
    curve->lowest = curve->length;
    curve->closed_transitions += list->transitions;
    curve->pops += list->pops;
    memset(list, 0, sizeof *list);
    list->next_in_arena = curve->free_slot;
    curve->free_slot = index;
}

void ax_curve_finish(ax_curve *curve)
{
    for (uint32_t i = 0; i < curve->lists_used; i++) {
        if (curve->lists[i].life) {
            settle(curve, i);
            curve->pops += curve->lists[i].pops;
        }
    }
    change_prefix(curve, curve->thresholds, 0, (ax_weight){0, 0});
    /* From counts by the length n of a prefix to counts by threshold: j is in those with n > j. */
    for (uint32_t n = curve->thresholds; n-- > 1;) {
        for (uint32_t r = 0; r < AX_RUNGS; r++) {
            curve->grown[n * AX_RUNGS + r] += curve->grown[(n + 1) * AX_RUNGS + r];
            curve->released[n * AX_RUNGS + r] += curve->released[(n + 1) * AX_RUNGS + r];
        }
    }
}

void ax_curve_get(const ax_curve *curve, uint32_t j, ax_curve_row *row)
{
    const ax_ladder *ladder = curve->ladder;
    memset(row, 0, sizeof *row);
    row->pops_large = curve->pops_large[j];
    row->list_frees_at_close = curve->frees_at_close[j];
    for (uint32_t i = 0; i < curve->lists_used; i++) {
        if (curve->lists[i].life) {
            row->buffer_bytes_end +=
                ladder->bytes[curve->rung[(uint64_t)i * curve->thresholds + j]];
        }
    }
    row->capacity_end = curve->capacity[j];
    row->overhead_peak_entries = curve->peak[j];
    row->capacity_events = curve->capacity_events[j];
    row->capacity_ns = curve->capacity_ns[j];
    for (uint32_t r = 1; r < ladder->rungs; r++) {
        const uint64_t grown = curve->grown[(j + 1) * AX_RUNGS + r];
        const uint64_t released = curve->released[(j + 1) * AX_RUNGS + r];
        if (r == 1) {
            row->list_mallocs = grown;
        } else {
            row->list_reallocs += grown;
            row->list_bytes_moved +=
                grown *
                (ladder->header_bytes + (uint64_t)ladder->capacity[r - 1] * ladder->pointer_bytes);
        }
        row->list_frees += released;
        row->histogram_buffer[r] = curve->buffer[j * AX_RUNGS + r] + released;
    }
}
