#include "arena.h"

#include <string.h>

#include "policy.h"

void ax_arena_params_default(ax_arena_params *params)
{
    *params = (ax_arena_params){
        .shape = {.chunk_bytes = 8192, .header_bytes = 24, .alignment_bytes = 8},
        .list_header_bytes = 8,
        .pointer_bytes = 8,
        .large_capacity = 500,
        .policy = AX_POLICY_BYTE_CUT,
        .retain_bytes = 2048,
        .retain_capacity = 500,
        .window_episodes = 4,
        .padding_entries = 0,
        .metered = 1,
        .poison = 1,
        .check_poison = 0,
        .tick_operations = 1000,
        .idle_operations = 1000,
        .budget_bytes = 65536,
        .recycle_below_bytes = 400,
    };
}

/* The address in the middle of a page that is never mapped, minus one so that it is odd: any use of
 * it faults. 64-bit: above the canonical addresses of x86-64. */
uint64_t ax_poison_word(uint64_t page_bytes, uint32_t pointer_bytes)
{
    uint64_t base = pointer_bytes == 8 ? UINT64_C(0x7FFFFFFFF0DEAFFF) : UINT64_C(0xF0DEAFFF);
    return (base & ~(page_bytes - 1)) + page_bytes / 2 - 1;
}

int ax_arenas_init(ax_arenas *set, const ax_arena_params *params, ax_seam *seam, ax_seam *books,
                   ax_detail *detail)
{
    const ax_policy *policy = ax_policy_get(params->policy);
    memset(set, 0, sizeof *set);
    if (!policy) {
        return ax_fail(detail, AX_ERR_RANGE, "policy", params->policy, 0, AX_POLICIES - 1, 0);
    }
    int status = ax_pool_shape_check(&params->shape, seam->backing, detail);
    if (status == AX_OK) {
        status =
            ax_ladder_init(&set->ladder, params->list_header_bytes, params->pointer_bytes, detail);
    }
    if (status == AX_OK && policy->check) {
        status = policy->check(params, detail);
    }
    if (status != AX_OK) {
        return status;
    }
    if (seam->backing == AX_BACKING_REAL) {
        if (params->pointer_bytes != 8) {
            return ax_fail(detail, AX_ERR_RANGE, "pointer_bytes of an arena on real memory",
                           params->pointer_bytes, 8, 8, 0);
        }
        if (params->list_header_bytes % 8 != 0) {
            return ax_fail(detail, AX_ERR_RANGE,
                           "list_header_bytes (a multiple of 8 on real memory)",
                           params->list_header_bytes, 0, 64, 0);
        }
    }
    set->policy = policy;
    set->seam = seam;
    set->books = books;
    set->params = *params;
    set->large_capacity = params->large_capacity;
    set->wake_at = AX_NO_DEADLINE;
    set->oldest = set->youngest = AX_NO_LIST;
    set->free_list_slot = set->free_arena_slot = AX_NO_LIST;
    set->stored = seam->backing == AX_BACKING_REAL;
    set->by_size = (uint32_t)policy->intrusive;
    int poisons = set->stored && (params->poison || params->check_poison);
    if (policy->intrusive || poisons) {
        set->path = AX_PATH_FULL;
    } else if (params->metered || !set->stored || !policy->keep_capacity) {
        set->path = AX_PATH_COUNTED;
    } else {
        set->path = AX_PATH_LEAN;
        uint32_t keep = policy->keep_capacity(set);
        set->watch_capacity = keep < set->large_capacity ? keep : set->large_capacity;
    }
    set->poison_word = ax_poison_word(ax_page_bytes(), params->pointer_bytes);
    if (policy->start) {
        policy->start(set);
    }
    return AX_OK;
}

void ax_arenas_release(ax_arenas *set)
{
    for (uint32_t i = 0; i < set->arenas_used; i++) {
        if (set->arenas[i].life) {
            ax_arenas_close(set, i);
        }
    }
    if (set->books) {
        ax_keymap_release(&set->keys, set->books);
        ax_grow_free(set->books, &set->lists, &set->lists_room, sizeof *set->lists);
        ax_grow_free(set->books, &set->arenas, &set->arenas_room, sizeof *set->arenas);
    }
    set->lists_used = set->arenas_used = 0;
}

int ax_arenas_open(ax_arenas *set, uint32_t *arena)
{
    uint32_t index = set->free_arena_slot;
    if (set->lives == UINT32_MAX) {
        return AX_ERR_OVERFLOW;
    }
    if (index != AX_NO_LIST) {
        set->free_arena_slot = set->arenas[index].first_list;
    } else {
        int status = set->arenas_used < AX_MOST_LISTS ? AX_OK : AX_ERR_OVERFLOW;
        if (status == AX_OK) {
            status = ax_grow_array(set->books, &set->arenas, &set->arenas_room,
                                   (size_t)set->arenas_used + 1, sizeof *set->arenas);
        }
        if (status != AX_OK) {
            return status;
        }
        index = set->arenas_used++;
    }
    memset(&set->arenas[index], 0, sizeof(ax_arena));
    set->arenas[index].first_list = AX_NO_LIST;
    set->arenas[index].life = ++set->lives;
    set->arenas_alive++;
    *arena = index;
    return AX_OK;
}

static void close_list(ax_arenas *set, uint32_t index)
{
    ax_list *list = &set->lists[index];
    if (list->pooled) {
        set->policy->on_refill(set, list);
    }
    if (!set->policy->intrusive) {
        set->length_entries -= set->path == AX_PATH_LEAN ? 0 : list->entries.len;
        set->capacity_entries -= list->entries.capacity;
        if (list->entries.rung) {
            ax_seam_free(set->seam, list->entries.buffer - set->ladder.header_bytes,
                         set->ladder.bytes[list->entries.rung]);
            set->counters.list_frees_at_close++;
        }
    }
    if (set->params.policy == AX_POLICY_PEAK_WINDOW) {
        size_t episodes = set->params.window_episodes;
        ax_grow_free(set->books, &list->own.window.peaks, &episodes, sizeof(uint32_t));
    }
    set->counters.closed_pops += list->pops;
    set->counters.closed_pops_large += list->pops_large;
    set->counters.closed_bumps += list->bumps;
    set->counters.closed_transitions += list->transitions;
    set->counters.closed_peaks_sum += list->peaks_sum;
    memset(list, 0, sizeof *list);
    list->next_in_arena = set->free_list_slot;
    set->free_list_slot = index;
}

void ax_arenas_close(ax_arenas *set, uint32_t arena)
{
    ax_arena *a = &set->arenas[arena];
    for (uint32_t i = a->first_list; i != AX_NO_LIST;) {
        uint32_t next = set->lists[i].next_in_arena;
        close_list(set, i);
        i = next;
    }
    ax_pool_release(&a->pool, set->seam);
    a->life = 0;
    a->first_list = set->free_arena_slot;
    set->free_arena_slot = arena;
    set->arenas_alive--;
    set->counters.arenas_closed++;
}

int ax_arenas_add_list(ax_arenas *set, uint32_t arena, uint32_t key, uint64_t entry_bytes,
                       uint32_t *list)
{
    int status = AX_OK;
    uint32_t *peaks = NULL;
    uint32_t index = set->free_list_slot;
    if (index == AX_NO_LIST) {
        status = set->lists_used < AX_MOST_LISTS ? AX_OK : AX_ERR_OVERFLOW;
        if (status == AX_OK) {
            status = ax_grow_array(set->books, &set->lists, &set->lists_room,
                                   (size_t)set->lists_used + 1, sizeof *set->lists);
        }
    }
    if (status == AX_OK && set->params.policy == AX_POLICY_PEAK_WINDOW) {
        status = ax_grow_zeroed(set->books, &peaks, set->params.window_episodes, sizeof *peaks);
    }
    if (status != AX_OK) {
        return status;
    }
    if (index == AX_NO_LIST) {
        index = set->lists_used++;
    } else {
        set->free_list_slot = set->lists[index].next_in_arena;
    }
    ax_arena *owner = &set->arenas[arena];
    set->lists[index] = (ax_list){
        .arena = arena,
        .key = key,
        .entry_bytes = entry_bytes,
        .next_in_arena = owner->first_list,
        .life = owner->life,
    };
    if (peaks) {
        set->lists[index].own.window.peaks = peaks;
    }
    owner->first_list = index;
    *list = index;
    return AX_OK;
}

static int list_alive(const void *owner, uint32_t list, uint32_t life)
{
    const ax_arenas *set = owner;
    return set->lists[list].life == life;
}

int ax_arenas_make_list(ax_arenas *set, uint32_t arena, uint32_t key, uint64_t size_bytes,
                        uint32_t *list, ax_detail *detail)
{
    uint64_t a = set->params.shape.alignment_bytes;
    if (size_bytes == 0 || size_bytes > (UINT64_C(1) << 40)) {
        return ax_fail(detail, AX_ERR_RANGE, "size_bytes", size_bytes, 1, UINT64_C(1) << 40, 0);
    }
    uint64_t entry_bytes = (size_bytes + a - 1) & ~(a - 1);
    uint64_t size = set->by_size ? entry_bytes : 0;
    uint32_t name = set->by_size ? 0 : key;
    uint32_t life = set->arenas[arena].life;
    uint32_t found = ax_keymap_find(&set->keys, life, name, size);
    if (found != AX_NO_LIST) {
        if (set->lists[found].bumps) {
            return ax_fail(detail, AX_ERR_WRONG_SIZE, NULL, size_bytes,
                           set->lists[found].entry_bytes, 0, key);
        }
        /* No object came of the request that made the list: the key is still free to choose. */
        set->lists[found].entry_bytes = entry_bytes;
        *list = found;
        return AX_OK;
    }
    int status = ax_keymap_reserve(&set->keys, set->books, list_alive, set);
    if (status == AX_OK) {
        status = ax_arenas_add_list(set, arena, name, entry_bytes, list);
    }
    if (status == AX_OK) {
        ax_keymap_insert(&set->keys, life, name, size, *list);
    }
    return status;
}

/* --- growth, emptying, shrinking
 * ------------------------------------------------------------------ */

int ax_arena_make_room(ax_arenas *set, ax_list *list)
{
    ax_ptrlist *entries = &list->entries;
    if (entries->len < entries->capacity) {
        if (list->pooled) {
            set->policy->on_refill(set, list);
        }
        return AX_OK;
    }
    uint32_t before = entries->capacity;
    uint32_t rung = entries->rung;
    int status = ax_ptrlist_set_rung(entries, &set->ladder, set->seam, rung + 1);
    if (status != AX_OK) {
        return status;
    }
    if (rung == 0) {
        set->counters.list_mallocs++;
    } else {
        set->counters.list_reallocs++;
        set->counters.list_bytes_moved +=
            set->ladder.header_bytes + (uint64_t)entries->len * set->ladder.pointer_bytes;
    }
    set->capacity_entries += entries->capacity - before;
    return AX_OK;
}

void ax_list_shrink(ax_arenas *set, ax_list *list, uint32_t rung)
{
    uint32_t before = list->entries.capacity;
    if (ax_ptrlist_set_rung(&list->entries, &set->ladder, set->seam, rung) != AX_OK) {
        return;
    }
    if (rung == 0) {
        set->counters.list_frees++;
    } else {
        set->counters.list_reallocs++;
        set->counters.list_bytes_moved +=
            set->ladder.header_bytes + (uint64_t)list->entries.len * set->ladder.pointer_bytes;
    }
    set->capacity_entries -= before - list->entries.capacity;
}

void ax_arena_emptied(ax_arenas *set, ax_list *list)
{
    list->transitions++;
    list->peaks_sum += list->peak;
    if (set->policy->intrusive) {
        set->counters.histogram_peak[ax_ladder_rung(&set->ladder, list->peak)]++;
    } else {
        uint32_t rung = list->entries.rung;
        set->counters.histogram_buffer[rung]++;
        /* Usually the peak is what made the buffer; a tick may have shrunk it since, an earlier
         * episode may have needed more. */
        while (set->ladder.capacity[rung] < list->peak) {
            rung++;
        }
        while (rung > 1 && set->ladder.capacity[rung - 1] >= list->peak) {
            rung--;
        }
        set->counters.histogram_peak[rung]++;
    }
    set->policy->on_empty(set, list);
    list->peak = 0;
}

void ax_arena_wake(ax_arenas *set)
{
    set->policy->on_wake(set);
}

/* --- the two calls, out of line
 * ------------------------------------------------------------------- */

int ax_arena_alloc_any(ax_arenas *set, uint32_t index, uint64_t *address, ax_detail *detail)
{
    ax_list *list = &set->lists[index];
    if (set->path == AX_PATH_LEAN && list->entries.len != 0) {
        uint32_t len = list->entries.len - 1;
        *address = ax_ptrlist_entries(&list->entries)[len];
        list->entries.len = len;
        list->pops++;
        list->pops_large += list->entries.capacity > set->large_capacity;
        if (len == 0) {
            set->policy->on_empty(set, list);
        }
        return AX_OK;
    }
    return ax_arena_alloc_inline(set, index, address, detail);
}

int ax_arena_free_any(ax_arenas *set, uint32_t index, uint64_t address)
{
    ax_list *list = &set->lists[index];
    if (set->path == AX_PATH_LEAN) {
        int status = ax_arena_make_room(set, list);
        if (status == AX_OK) {
            ax_ptrlist_entries(&list->entries)[list->entries.len++] = address;
        }
        return status;
    }
    return ax_arena_free_inline(set, index, address);
}

/* --- the full path: poison and intrusive lists
 * ---------------------------------------------------- */

static void poison(const ax_arenas *set, const ax_list *list, uint64_t address)
{
    uint64_t *words = ax_at(address);
    for (uint64_t i = 0; i < list->entry_bytes / sizeof *words; i++) {
        words[i] = set->poison_word;
    }
}

/* left: entries on the list below this object. */
static int poison_check(const ax_arenas *set, const ax_list *list, uint64_t address, uint32_t left,
                        ax_detail *detail)
{
    const uint64_t *words = ax_at(address);
    uint64_t from = 0;
    if (set->policy->intrusive) {
        /* Word 0 is the link to the next free object: no pattern, but it must lead to one. */
        const ax_pool *pool = &set->arenas[list->arena].pool;
        const int leads = words[0] % set->params.shape.alignment_bytes == 0 &&
                          ax_pool_owns(pool, &set->params.shape, words[0], list->entry_bytes);
        if (left == 0 ? words[0] != 0 : !leads) {
            return ax_fail(detail, AX_ERR_POISON, "the link in a free object was overwritten",
                           words[0], 0, address, 0);
        }
        from = 1;
    }
    for (uint64_t i = from; i < list->entry_bytes / sizeof *words; i++) {
        if (words[i] != set->poison_word) {
            return ax_fail(detail, AX_ERR_POISON, NULL, words[i], set->poison_word, address,
                           i * sizeof *words);
        }
    }
    return AX_OK;
}

int ax_arena_pop(ax_arenas *set, ax_list *list, uint64_t *address, ax_detail *detail)
{
    ax_ptrlist *entries = &list->entries;
    int intrusive = set->policy->intrusive;
    uint64_t taken = 0;
    if (set->stored) {
        taken = intrusive ? entries->buffer : ax_ptrlist_entries(entries)[entries->len - 1];
        int status = set->params.check_poison
                         ? poison_check(set, list, taken, entries->len - 1, detail)
                         : AX_OK;
        if (status != AX_OK) {
            return status;
        }
    }
    if (!intrusive) {
        *address = ax_arena_pop_counted(set, list);
        return AX_OK;
    }
    if (set->stored) {
        memcpy(&entries->buffer, ax_at(taken), sizeof entries->buffer);
    }
    entries->len--;
    list->pops++;
    if (entries->len == 0) {
        ax_arena_emptied(set, list);
    }
    *address = taken;
    return AX_OK;
}

int ax_arena_push(ax_arenas *set, ax_list *list, uint64_t address)
{
    ax_ptrlist *entries = &list->entries;
    int intrusive = set->policy->intrusive;
    int poisons = set->stored && (set->params.poison || set->params.check_poison);
    if (!intrusive) {
        int status = ax_arena_push_counted(set, list, address);
        if (status == AX_OK && poisons) {
            poison(set, list, address);
        }
        return status;
    }
    if (entries->len == UINT32_MAX) {
        return AX_ERR_OVERFLOW;
    }
    if (poisons) {
        poison(set, list, address);
    }
    if (list->entry_bytes >= set->params.recycle_below_bytes) {
        list->own.leaked++;
        return AX_OK;
    }
    if (set->stored) {
        memcpy(ax_at(address), &entries->buffer, sizeof entries->buffer);
        entries->buffer = address;
    }
    entries->len++;
    list->peak = entries->len > list->peak ? entries->len : list->peak;
    return AX_OK;
}

/* --- totals and check
 * ----------------------------------------------------------------------------- */

void ax_arenas_totals(const ax_arenas *set, ax_arena_totals *out)
{
    const ax_arena_counters *c = &set->counters;
    *out = (ax_arena_totals){
        .pops = c->closed_pops,
        .pops_large = c->closed_pops_large,
        .bumps = c->closed_bumps,
        .transitions = c->closed_transitions,
        .peaks_sum = c->closed_peaks_sum,
    };
    for (uint32_t i = 0; i < set->lists_used; i++) {
        const ax_list *list = &set->lists[i];
        if (list->life == 0) {
            continue;
        }
        out->lists++;
        out->pops += list->pops;
        out->pops_large += list->pops_large;
        out->bumps += list->bumps;
        out->transitions += list->transitions;
        out->peaks_sum += list->peaks_sum;
        out->freelist_objects += list->entries.len;
        out->freelist_bytes += list->entries.len * list->entry_bytes;
        uint64_t leaked = set->policy->intrusive ? list->own.leaked : 0;
        out->leaked_objects += leaked;
        out->leaked_bytes += leaked * list->entry_bytes;
        out->lists_with_buffer += list->entries.rung != 0;
        out->list_buffer_bytes += set->ladder.bytes[list->entries.rung];
    }
    for (uint32_t i = 0; i < set->arenas_used; i++) {
        const ax_arena *arena = &set->arenas[i];
        if (arena->life == 0) {
            continue;
        }
        out->chunks += arena->pool.chunks;
        out->oversize_chunks += arena->pool.oversize_chunks;
        out->chunk_bytes += arena->pool.chunk_bytes_held;
        out->chunk_header_bytes += arena->pool.headers_bytes;
        out->bumped_bytes += arena->pool.bumped_bytes;
        out->slop_bytes += arena->pool.slop_bytes;
        out->unused_tail_bytes += arena->pool.end - arena->pool.offset;
    }
}

static int check_entries(const ax_arenas *set, uint32_t index, ax_detail *detail)
{
    const ax_list *list = &set->lists[index];
    const ax_pool *pool = &set->arenas[list->arena].pool;
    int intrusive = set->policy->intrusive;
    uint64_t address = list->entries.buffer;
    for (uint32_t i = 0; i < list->entries.len; i++) {
        if (!intrusive) {
            address = ax_ptrlist_entries(&list->entries)[i];
        }
        if (!ax_pool_owns(pool, &set->params.shape, address, list->entry_bytes)) {
            return ax_fail(detail, AX_ERR_CORRUPT, "a free list holds an address outside its arena",
                           address, 0, 0, index);
        }
        if (set->params.check_poison) {
            const uint32_t left = intrusive ? list->entries.len - 1 - i : i;
            int status = poison_check(set, list, address, left, detail);
            if (status != AX_OK) {
                return status;
            }
        }
        if (intrusive) {
            memcpy(&address, ax_at(address), sizeof address);
        }
    }
    if (intrusive && address != 0) {
        return ax_fail(detail, AX_ERR_CORRUPT, "an intrusive list does not end", address, 0, 0,
                       index);
    }
    return AX_OK;
}

static int check_list(const ax_arenas *set, uint32_t index, ax_detail *detail)
{
    const ax_list *list = &set->lists[index];
    const ax_ptrlist *e = &list->entries;
    if (list->arena >= set->arenas_used || set->arenas[list->arena].life != list->life) {
        return ax_fail(detail, AX_ERR_CORRUPT, "a list belongs to no living arena", list->life, 0,
                       0, index);
    }
    if (set->policy->intrusive
            ? e->rung != 0
            : e->rung >= set->ladder.rungs || e->capacity != set->ladder.capacity[e->rung] ||
                  e->len > e->capacity) {
        return ax_fail(detail, AX_ERR_CORRUPT, "length and capacity of a list", e->len, e->capacity,
                       0, index);
    }
    if (set->path != AX_PATH_LEAN && ((e->len == 0) != (list->peak == 0) || list->peak < e->len)) {
        return ax_fail(detail, AX_ERR_CORRUPT, "peak of a list's episode", list->peak, e->len, 0,
                       index);
    }
    if (list->peaks_sum > list->pops) {
        return ax_fail(detail, AX_ERR_CORRUPT, "sum of episode peaks above pops", list->peaks_sum,
                       list->pops, 0, index);
    }
    if (list->pooled && (e->len != 0 || e->rung == 0)) {
        return ax_fail(detail, AX_ERR_CORRUPT, "a list in use is booked as empty", e->len, 0, 0,
                       index);
    }
    return set->stored ? check_entries(set, index, detail) : AX_OK;
}

int ax_arenas_check(const ax_arenas *set, ax_detail *detail)
{
    uint64_t length = 0;
    uint64_t capacity = 0;
    uint64_t bumped = 0;
    uint64_t pooled = 0;
    for (uint32_t i = 0; i < set->lists_used; i++) {
        const ax_list *list = &set->lists[i];
        if (list->life == 0) {
            continue;
        }
        int status = check_list(set, i, detail);
        if (status != AX_OK) {
            return status;
        }
        if (!set->policy->intrusive) {
            length += list->entries.len;
            capacity += list->entries.capacity;
        }
        bumped += list->bumps * list->entry_bytes;
        pooled += list->pooled ? set->ladder.bytes[list->entries.rung] : 0;
    }
    if (set->path == AX_PATH_LEAN) {
        length = set->length_entries; /* not kept there */
    }
    if (length != set->length_entries || capacity != set->capacity_entries) {
        return ax_fail(detail, AX_ERR_CORRUPT, "sums over the lists (length)", set->length_entries,
                       length, 0, 0);
    }
    if (set->params.policy == AX_POLICY_BUDGET &&
        (pooled != set->pooled_bytes || pooled > set->params.budget_bytes)) {
        return ax_fail(detail, AX_ERR_CORRUPT, "bytes in the budget", set->pooled_bytes, pooled, 0,
                       0);
    }
    if (set->wake_at <= set->operations) {
        return ax_fail(detail, AX_ERR_CORRUPT, "a deadline was missed", set->operations,
                       set->wake_at, 0, 0);
    }
    for (uint32_t i = 0; i < set->arenas_used; i++) {
        const ax_arena *arena = &set->arenas[i];
        if (arena->life) {
            int status = ax_pool_check(&arena->pool, &set->params.shape, set->seam, detail);
            if (status != AX_OK) {
                return status;
            }
            bumped -= arena->pool.bumped_bytes;
        }
    }
    if (bumped != 0) {
        return ax_fail(detail, AX_ERR_CORRUPT, "objects of the lists and bytes of the pools differ",
                       bumped, 0, 0, 0);
    }
    return AX_OK;
}
