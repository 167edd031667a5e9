/* arena: a set of arenas under one retention policy. Each arena is a pool and, per key, the list of
 * its freed objects.
 *
 *     ax_arenas ─┬─ params, policy, ladder, counters, operation clock      shared by all
 *                ├─ arena 0 ── pool (chunks)
 *                ├─ arena 1 ── pool
 *                └─ lists    [ arena, key, entry_bytes | buffer ─▶ [hdr| p p p . . . . ] ]
 *                                                                       len ^     ^ capacity
 *
 * alloc takes the newest entry of the key's list (LIFO) or, where the list is empty, the pool's
 * next bytes. free appends to the list. When a pop leaves a list empty the policy decides what
 * becomes of its buffer; that is the only decision there is. Objects go back to the pool's chunks
 * never, and chunks to the system only when their arena dies.
 *
 * One operation is one successful alloc or free; the operation clock counts them over all arenas of
 * the set. After each operation the policy is woken if the clock has reached its deadline.
 *
 * Modelled backing: nothing is stored, addresses are 0 for objects taken from a list; everything
 * that is counted is counted by the same code.
 */
#ifndef AX_ARENA_H
#define AX_ARENA_H

#include "keymap.h"
#include "pool.h"
#include "ptrlist.h"

enum ax_policy_id {
    AX_POLICY_RELEASE,
    AX_POLICY_BYTE_CUT,
    AX_POLICY_CAPACITY_CUT,
    AX_POLICY_KEEP_ALL,
    AX_POLICY_INTRUSIVE,
    AX_POLICY_PEAK_WINDOW,
    AX_POLICY_LOW_WATER,
    AX_POLICY_AGE,
    AX_POLICY_BUDGET,
    AX_POLICIES
};

#define AX_NO_DEADLINE UINT64_MAX
#define AX_MAX_WINDOW 64

typedef struct ax_arena_params {
    ax_pool_shape shape;
    uint32_t list_header_bytes;
    uint32_t pointer_bytes;
    uint32_t large_capacity;  /* pops from a list with more capacity than this are counted apart */
    uint32_t policy;          /* enum ax_policy_id */
    uint64_t retain_bytes;    /* byte_cut: keep buffers of at most this; UINT64_MAX: all */
    uint32_t retain_capacity; /* capacity_cut: keep buffers of at most this many entries */
    uint32_t window_episodes; /* peak_window: episodes looked back on, 1..AX_MAX_WINDOW */
    uint32_t padding_entries; /* peak_window: kept beyond the highest of those peaks */
    int metered;              /* count transitions, peaks and operations; see ax_path */
    int poison;               /* real backing: overwrite objects at free */
    int check_poison;         /* and look at them again before reuse */
    uint64_t tick_operations; /* low_water: operations between ticks */
    uint64_t idle_operations; /* age: operations that an empty list keeps its buffer */
    uint64_t budget_bytes;    /* budget: all buffers of empty lists together */
    uint64_t recycle_below_bytes; /* intrusive: objects of this size and more are never reused */
} ax_arena_params;

typedef struct ax_list {
    ax_ptrlist entries; /* intrusive: buffer is the newest object, capacity unused */
    uint32_t peak;      /* of the running episode: since the list was last empty */
    uint32_t arena;
    uint32_t key;
    uint32_t next_in_arena;
    uint32_t life;   /* of its arena; 0: the slot is free */
    uint32_t pooled; /* age, budget: stands in the queue, counts in the budget */
    uint64_t entry_bytes;
    uint64_t pops;
    uint64_t pops_large;
    uint64_t bumps; /* objects that came from the pool */
    uint64_t transitions;
    uint64_t peaks_sum; /* over finished episodes */
    union {             /* what the set's one policy remembers */
        struct {
            uint64_t empty_since; /* operation that emptied it */
            uint32_t older, younger;
        } age; /* queue of empty lists with a buffer */
        struct {
            uint32_t *peaks; /* the last ones, a ring */
            uint32_t next;
        } window;
        uint32_t high;   /* low_water: most entries since the last tick */
        uint64_t leaked; /* intrusive: frees of objects too large to recycle */
    } own;
} ax_list;

typedef struct ax_arena {
    ax_pool pool;
    uint32_t first_list;
    uint32_t life; /* 0: closed */
} ax_arena;

typedef struct ax_arena_counters {
    uint64_t list_mallocs;
    uint64_t list_reallocs; /* growth and shrinking of a buffer that stays */
    uint64_t list_frees;    /* at an emptying or a tick; not at the death of an arena */
    uint64_t list_frees_at_close;
    uint64_t list_bytes_moved; /* header and entries in use at each realloc */
    uint64_t arenas_closed;
    uint64_t closed_pops; /* of lists that died with their arena; likewise below */
    uint64_t closed_pops_large;
    uint64_t closed_bumps;
    uint64_t closed_transitions;
    uint64_t closed_peaks_sum;
    uint64_t histogram_peak[AX_RUNGS];   /* transitions by the rung that the episode's peak needs */
    uint64_t histogram_buffer[AX_RUNGS]; /* transitions by the rung of the buffer at that moment */
} ax_arena_counters;

struct ax_policy;

/* Which code an operation takes. The lean path is an allocator's own: it keeps the lists and counts
 * pops, bumps and calls to the backing. What is counted besides (transitions, histograms, episode
 * peaks, peak overhead, operations) and the policies that look at every operation need the counted
 * path. Poison and intrusive lists take the full one. */
enum ax_path { AX_PATH_LEAN, AX_PATH_COUNTED, AX_PATH_FULL };

typedef struct ax_arenas {
    /* hot */
    ax_list *lists;
    uint32_t path;           /* enum ax_path */
    uint32_t watch_capacity; /* lean: up to this an emptied buffer is kept and no pop is large */
    uint64_t length_entries; /* over all lists */
    uint64_t capacity_entries;
    uint64_t overhead_peak_entries; /* of capacity - length */
    uint64_t operations;
    uint64_t wake_at;
    uint32_t large_capacity;
    uint32_t stored;  /* entries and objects are real */
    uint32_t by_size; /* intrusive: lists belong to sizes */
    /* the rest */
    const struct ax_policy *policy;
    ax_seam *seam;  /* chunks and buffers: the churn under study */
    ax_seam *books; /* our own tables */
    ax_arena *arenas;
    ax_keymap keys;
    size_t lists_room, arenas_room;
    uint32_t lists_used, free_list_slot;
    uint32_t arenas_used, free_arena_slot;
    uint32_t arenas_alive, lives;
    uint32_t oldest, youngest; /* age */
    uint64_t pooled_bytes;     /* budget */
    uint64_t poison_word;
    ax_arena_params params;
    ax_ladder ladder;
    ax_arena_counters counters;
} ax_arenas;

void ax_arena_params_default(ax_arena_params *params);
const char *ax_policy_name(uint32_t policy); /* NULL past the last */
uint64_t ax_poison_word(uint64_t page_bytes, uint32_t pointer_bytes);

/* The seams stay the caller's and must outlive the set. */
int ax_arenas_init(ax_arenas *set, const ax_arena_params *params, ax_seam *seam, ax_seam *books,
                   ax_detail *detail);
void ax_arenas_release(ax_arenas *set);

int ax_arenas_open(ax_arenas *set, uint32_t *arena);
void ax_arenas_close(ax_arenas *set, uint32_t arena);

/* Makes the list of a key, or says why there cannot be one: the rest of ax_arenas_list. */
int ax_arenas_make_list(ax_arenas *set, uint32_t arena, uint32_t key, uint64_t size_bytes,
                        uint32_t *list, ax_detail *detail);

/* The list of a key, made if there is none. size_bytes is rounded up to the alignment; a key that
 * comes with another size than its objects have is AX_ERR_WRONG_SIZE. Intrusive lists belong to
 * sizes, not to keys. */
static inline int ax_arenas_list(ax_arenas *set, uint32_t arena, uint32_t key, uint64_t size_bytes,
                                 uint32_t *list, ax_detail *detail)
{
    uint64_t a = set->params.shape.alignment_bytes;
    uint64_t entry_bytes = (size_bytes + a - 1) & ~(a - 1);
    uint32_t found = set->by_size
                         ? ax_keymap_find(&set->keys, set->arenas[arena].life, 0, entry_bytes)
                         : ax_keymap_find(&set->keys, set->arenas[arena].life, key, 0);
    if (found != AX_NO_LIST && set->lists[found].entry_bytes == entry_bytes) {
        *list = found;
        return AX_OK;
    }
    return ax_arenas_make_list(set, arena, key, size_bytes, list, detail);
}

/* A new list without entry in the key map, for callers that keep their own. */
int ax_arenas_add_list(ax_arenas *set, uint32_t arena, uint32_t key, uint64_t entry_bytes,
                       uint32_t *list);

int ax_arenas_check(const ax_arenas *set, ax_detail *detail);

/* Totals over all lists, alive and closed, in one walk. */
typedef struct ax_arena_totals {
    uint64_t pops, pops_large, bumps, transitions, peaks_sum;
    uint64_t freelist_bytes, freelist_objects, lists, lists_with_buffer, list_buffer_bytes;
    uint64_t leaked_objects, leaked_bytes;
    uint64_t chunks, oversize_chunks, chunk_bytes, chunk_header_bytes, bumped_bytes, slop_bytes,
        unused_tail_bytes;
} ax_arena_totals;
void ax_arenas_totals(const ax_arenas *set, ax_arena_totals *out);

/* The parts of the two calls below that are not worth inlining. */
int ax_arena_pop(ax_arenas *set, ax_list *list, uint64_t *address, ax_detail *detail);
int ax_arena_push(ax_arenas *set, ax_list *list, uint64_t address);
int ax_arena_make_room(ax_arenas *set, ax_list *list);
void ax_arena_emptied(ax_arenas *set, ax_list *list);
void ax_arena_wake(ax_arenas *set);

static inline void ax_arena_operation_done(ax_arenas *set)
{
    if (++set->operations >= set->wake_at) {
        ax_arena_wake(set);
    }
}

static inline void ax_arena_note_overhead(ax_arenas *set)
{
    uint64_t overhead = set->capacity_entries - set->length_entries;
    if (overhead > set->overhead_peak_entries) {
        set->overhead_peak_entries = overhead;
    }
}

/* Takes the newest entry of a list of pointers and counts all there is to count. */
static inline uint64_t ax_arena_pop_counted(ax_arenas *set, ax_list *list)
{
    uint32_t len = list->entries.len - 1;
    uint64_t taken = set->stored ? ax_ptrlist_entries(&list->entries)[len] : 0;
    list->pops++;
    list->pops_large += list->entries.capacity > set->large_capacity;
    list->entries.len = len;
    set->length_entries--;
    if (len == 0) {
        ax_arena_emptied(set, list);
    }
    ax_arena_note_overhead(set);
    return taken;
}

static inline int ax_arena_push_counted(ax_arenas *set, ax_list *list, uint64_t address)
{
    uint32_t len = list->entries.len;
    if (len == list->entries.capacity || len == 0) {
        int status = ax_arena_make_room(set, list);
        if (status != AX_OK) {
            return status;
        }
    }
    if (set->stored) {
        ax_ptrlist_entries(&list->entries)[len] = address;
    }
    len++;
    list->entries.len = len;
    set->length_entries++;
    list->peak = len > list->peak ? len : list->peak;
    if (set->params.policy == AX_POLICY_LOW_WATER && len > list->own.high) {
        list->own.high = len;
    }
    ax_arena_note_overhead(set);
    return AX_OK;
}

/* The two calls on any path, for a caller that knows it is not the lean one and wants them inline.
 */
static inline int ax_arena_alloc_inline(ax_arenas *set, uint32_t index, uint64_t *address,
                                        ax_detail *detail)
{
    ax_list *list = &set->lists[index];
    if (list->entries.len == 0) {
        int status = ax_pool_bump(&set->arenas[list->arena].pool, &set->params.shape, set->seam,
                                  list->entry_bytes, address);
        if (status != AX_OK) {
            return status;
        }
        list->bumps++;
    } else if (set->path != AX_PATH_FULL) {
        *address = ax_arena_pop_counted(set, list);
    } else {
        int status = ax_arena_pop(set, list, address, detail);
        if (status != AX_OK) {
            return status;
        }
    }
    ax_arena_operation_done(set);
    return AX_OK;
}

static inline int ax_arena_free_inline(ax_arenas *set, uint32_t index, uint64_t address)
{
    ax_list *list = &set->lists[index];
    int status = set->path != AX_PATH_FULL ? ax_arena_push_counted(set, list, address)
                                           : ax_arena_push(set, list, address);
    if (status == AX_OK) {
        ax_arena_operation_done(set);
    }
    return status;
}

int ax_arena_alloc_any(ax_arenas *set, uint32_t index, uint64_t *address, ax_detail *detail);
int ax_arena_free_any(ax_arenas *set, uint32_t index, uint64_t address);

/* On failure nothing has changed. detail tells about AX_ERR_POISON. */
static inline int ax_arena_alloc(ax_arenas *set, uint32_t index, uint64_t *address,
                                 ax_detail *detail)
{
    ax_list *list = &set->lists[index];
    uint32_t len = list->entries.len;
    uint32_t capacity = list->entries.capacity;
    /* Off the lean path watch_capacity is 0, and what has no buffer has capacity 0: both go on. */
    if (len == 0 || capacity - 1 >= set->watch_capacity) {
        return ax_arena_alloc_any(set, index, address, detail);
    }
    len--;
    *address = ax_ptrlist_entries(&list->entries)[len];
    list->entries.len = len;
    list->pops++;
    return AX_OK;
}

/* The address must be an object of this list that is not free: what checks that is room `checked`.
 */
static inline int ax_arena_free(ax_arenas *set, uint32_t index, uint64_t address)
{
    ax_list *list = &set->lists[index];
    uint32_t len = list->entries.len;
    if (set->path != AX_PATH_LEAN || len == list->entries.capacity) {
        return ax_arena_free_any(set, index, address);
    }
    ax_ptrlist_entries(&list->entries)[len] = address;
    list->entries.len = len + 1;
    return AX_OK;
}

#endif
