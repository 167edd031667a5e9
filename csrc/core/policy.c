#include "policy.h"

/* The design that frees a list's buffer at each emptying: Firefox before bug 1375331. */
static void release_on_empty(ax_arenas *set, ax_list *list)
{
    ax_list_shrink(set, list, 0);
}

/* A cut by the size of the buffer, header included: the spirit of the fix, 2048 bytes in Firefox.
 */
static void byte_cut_on_empty(ax_arenas *set, ax_list *list)
{
    if (set->ladder.bytes[list->entries.rung] > set->params.retain_bytes) {
        ax_list_shrink(set, list, 0);
    }
}

static uint32_t byte_cut_keeps(const ax_arenas *set)
{
    uint32_t rung = 0;
    while (rung + 1 < set->ladder.rungs &&
           set->ladder.bytes[rung + 1] <= set->params.retain_bytes) {
        rung++;
    }
    return set->ladder.capacity[rung];
}

/* A cut by capacity in entries: the letter of the fix, 500 in Firefox. The same as the byte cut at
 * 2048 with 8-byte pointers; with 4-byte pointers a 2048-byte buffer holds 510 entries and goes. */
static void capacity_cut_on_empty(ax_arenas *set, ax_list *list)
{
    if (list->entries.capacity > set->params.retain_capacity) {
        ax_list_shrink(set, list, 0);
    }
}

static uint32_t capacity_cut_keeps(const ax_arenas *set)
{
    return set->params.retain_capacity;
}

static uint32_t keep_none(const ax_arenas *set)
{
    (void)set;
    return 0;
}

static uint32_t keep_all(const ax_arenas *set)
{
    (void)set;
    return UINT32_MAX;
}

static void keep_on_empty(ax_arenas *set, ax_list *list)
{
    (void)set;
    (void)list;
}

static int peak_window_check(const ax_arena_params *params, ax_detail *detail)
{
    if (params->window_episodes < 1 || params->window_episodes > AX_MAX_WINDOW) {
        return ax_fail(detail, AX_ERR_RANGE, "window_episodes", params->window_episodes, 1,
                       AX_MAX_WINDOW, 0);
    }
    return AX_OK;
}

/* Keep room for the highest of the last k episodes' peaks, this one's among them, plus padding. */
static void peak_window_on_empty(ax_arenas *set, ax_list *list)
{
    uint32_t k = set->params.window_episodes;
    list->own.window.peaks[list->own.window.next] = list->peak;
    list->own.window.next = (list->own.window.next + 1) % k;
    uint64_t most = 0;
    for (uint32_t i = 0; i < k; i++) {
        uint32_t peak = list->own.window.peaks[i];
        most = peak > most ? peak : most;
    }
    most += set->params.padding_entries;
    uint32_t rung =
        most <= UINT32_MAX ? ax_ladder_rung(&set->ladder, (uint32_t)most) : set->ladder.rungs;
    if (rung < list->entries.rung) {
        ax_list_shrink(set, list, rung);
    }
}

static int low_water_check(const ax_arena_params *params, ax_detail *detail)
{
    if (params->tick_operations < 1) {
        return ax_fail(detail, AX_ERR_RANGE, "tick_operations", params->tick_operations, 1,
                       UINT64_MAX, 0);
    }
    return AX_OK;
}

static void low_water_start(ax_arenas *set)
{
    set->wake_at = set->params.tick_operations;
}

/* The rung nearest to `wanted` entries that holds `used`; of two equally near ones the higher. */
static uint32_t nearest_rung(const ax_ladder *ladder, uint32_t wanted, uint32_t used)
{
    uint32_t above = ax_ladder_rung(ladder, wanted);
    if (above == 0 || ladder->capacity[above] == wanted || ladder->capacity[above - 1] < used) {
        return above;
    }
    uint32_t below = above - 1;
    return wanted - ladder->capacity[below] < ladder->capacity[above] - wanted ? below : above;
}

/* What a list had room for and did not use since the last tick is its low-water mark; half of it
 * (at least one entry) goes back, to the nearest size there is. */
static void low_water_on_wake(ax_arenas *set)
{
    for (uint32_t i = 0; i < set->lists_used; i++) {
        ax_list *list = &set->lists[i];
        if (list->life == 0 || list->entries.rung == 0) {
            continue;
        }
        uint32_t unused = list->entries.capacity - list->own.high;
        uint32_t wanted = list->entries.capacity - (unused - unused / 2);
        uint32_t rung = nearest_rung(&set->ladder, wanted, list->own.high);
        if (rung < list->entries.rung) {
            ax_list_shrink(set, list, rung);
        }
        list->own.high = list->entries.len;
    }
    uint64_t tick = set->params.tick_operations;
    set->wake_at =
        set->operations > AX_NO_DEADLINE - tick ? AX_NO_DEADLINE : set->operations + tick;
}

static uint64_t age_deadline(const ax_arenas *set)
{
    if (set->oldest == AX_NO_LIST) {
        return AX_NO_DEADLINE;
    }
    uint64_t since = set->lists[set->oldest].own.age.empty_since;
    uint64_t idle = set->params.idle_operations;
    return since > AX_NO_DEADLINE - idle ? AX_NO_DEADLINE : since + idle;
}

static void age_on_empty(ax_arenas *set, ax_list *list)
{
    uint32_t index = (uint32_t)(list - set->lists);
    list->pooled = 1;
    list->own.age.empty_since = set->operations + 1; /* the running operation's number */
    list->own.age.younger = AX_NO_LIST;
    list->own.age.older = set->youngest;
    if (set->youngest == AX_NO_LIST) {
        set->oldest = index;
    } else {
        set->lists[set->youngest].own.age.younger = index;
    }
    set->youngest = index;
    set->wake_at = age_deadline(set);
}

static void age_on_refill(ax_arenas *set, ax_list *list)
{
    if (!list->pooled) {
        return;
    }
    list->pooled = 0;
    if (list->own.age.older == AX_NO_LIST) {
        set->oldest = list->own.age.younger;
    } else {
        set->lists[list->own.age.older].own.age.younger = list->own.age.younger;
    }
    if (list->own.age.younger == AX_NO_LIST) {
        set->youngest = list->own.age.older;
    } else {
        set->lists[list->own.age.younger].own.age.older = list->own.age.older;
    }
    set->wake_at = age_deadline(set);
}

static void age_on_wake(ax_arenas *set)
{
    while (set->oldest != AX_NO_LIST &&
           set->operations - set->lists[set->oldest].own.age.empty_since >=
               set->params.idle_operations) {
        ax_list *list = &set->lists[set->oldest];
        age_on_refill(set, list);
        ax_list_shrink(set, list, 0);
    }
    set->wake_at = age_deadline(set);
}

/* Admission by a budget over the buffers of all empty lists of all arenas. */
static void budget_on_empty(ax_arenas *set, ax_list *list)
{
    uint64_t bytes = set->ladder.bytes[list->entries.rung];
    if (bytes <= set->params.budget_bytes &&
        set->pooled_bytes <= set->params.budget_bytes - bytes) {
        list->pooled = 1;
        set->pooled_bytes += bytes;
    } else {
        ax_list_shrink(set, list, 0);
    }
}

static void budget_on_refill(ax_arenas *set, ax_list *list)
{
    if (list->pooled) {
        list->pooled = 0;
        set->pooled_bytes -= set->ladder.bytes[list->entries.rung];
    }
}

static const ax_policy policies[AX_POLICIES] = {
    [AX_POLICY_RELEASE] = {.name = "release",
                           .keep_capacity = keep_none,
                           .on_empty = release_on_empty},
    [AX_POLICY_BYTE_CUT] = {.name = "byte_cut",
                            .keep_capacity = byte_cut_keeps,
                            .on_empty = byte_cut_on_empty},
    [AX_POLICY_CAPACITY_CUT] = {.name = "capacity_cut",
                                .keep_capacity = capacity_cut_keeps,
                                .on_empty = capacity_cut_on_empty},
    [AX_POLICY_KEEP_ALL] = {.name = "keep_all",
                            .keep_capacity = keep_all,
                            .on_empty = keep_on_empty},
    [AX_POLICY_INTRUSIVE] = {.name = "intrusive", .intrusive = 1, .on_empty = keep_on_empty},
    [AX_POLICY_PEAK_WINDOW] = {.name = "peak_window",
                               .check = peak_window_check,
                               .on_empty = peak_window_on_empty},
    [AX_POLICY_LOW_WATER] = {.name = "low_water",
                             .check = low_water_check,
                             .start = low_water_start,
                             .on_empty = keep_on_empty,
                             .on_wake = low_water_on_wake},
    [AX_POLICY_AGE] = {.name = "age",
                       .on_empty = age_on_empty,
                       .on_refill = age_on_refill,
                       .on_wake = age_on_wake},
    [AX_POLICY_BUDGET] = {.name = "budget",
                          .on_empty = budget_on_empty,
                          .on_refill = budget_on_refill},
};

const ax_policy *ax_policy_get(uint32_t policy)
{
    return policy < AX_POLICIES ? &policies[policy] : NULL;
}

const char *ax_policy_name(uint32_t policy)
{
    return policy < AX_POLICIES ? policies[policy].name : NULL;
}
