#include "replay_arena.h"

#include <math.h>
#include <string.h>

/* Sizes up to this many alignment units are looked up directly; beyond, in the key map. */
#define DIRECT_ROOM (UINT64_C(1) << 20)

static uint64_t round_to_page(uint64_t bytes)
{
    uint64_t page = ax_page_bytes();
    return (bytes + page) & ~(page - 1); /* at least one page */
}

static int map_table(ax_seam *books, uint64_t count, uint64_t item_bytes, void *pointer)
{
    if (count > (UINT64_C(1) << 40)) {
        return AX_ERR_OVERFLOW;
    }
    uint64_t address;
    int status = ax_seam_map(books, round_to_page(count * item_bytes), &address);
    if (status == AX_OK) {
        void *p = ax_at(address);
        memcpy(pointer, &p, sizeof p);
    }
    return status;
}

static void unmap_table(ax_seam *books, const void *pointer, uint64_t count, uint64_t item_bytes)
{
    if (pointer) {
        (void)ax_seam_unmap(books, (uint64_t)(uintptr_t)pointer, round_to_page(count * item_bytes));
    }
}

/* --- giving dead words back
 * ----------------------------------------------------------------------- */

/* Words are looked at in groups of this many, a whole number of pages on every system we know. */
#define GROUP_WORDS (UINT64_C(1) << 14)
/* So often whether it is time to look. */
#define TRIM_EVENTS ((size_t)1 << 18)

static int all_dead(const uint32_t *words)
{
    uint32_t any = 0;
    for (uint64_t i = 0; i < GROUP_WORDS; i++) {
        any |= words[i];
    }
    return any == 0;
}

/* How many objects have been allocated so far: the last allocation made the last of them. */
static uint64_t allocated(const ax_replay *r)
{
    size_t start = r->at > TRIM_EVENTS ? r->at - TRIM_EVENTS : 0;
    for (size_t i = r->at; i-- > start;) {
        if (r->trace.op[i] == AX_OP_ALLOC) {
            uint64_t object = ax_trace_object(&r->trace, i);
            return object < r->objects ? object + 1 : r->objects;
        }
    }
    return r->groups * GROUP_WORDS;
}

/* Gives back the groups of words whose objects are all dead. Runs when the groups kept have
 * doubled, so that looking costs a constant per object however long some of them live. */
static void trim(ax_replay *r)
{
    uint64_t full = allocated(r) / GROUP_WORDS;
    uint64_t known = r->groups;
    if (full <= known || full - known + r->kept_groups < r->trim_at) {
        return;
    }
    memset(r->kept + known, 1, full - known);
    r->groups = full;
    r->kept_groups = 0;
    for (uint64_t g = 0; g < full; g++) {
        if (r->kept[g] && all_dead(&r->word[g * GROUP_WORDS])) {
            r->kept[g] = 0;
            ax_seam_discard(&r->books, (uint64_t)(uintptr_t)&r->word[g * GROUP_WORDS],
                            GROUP_WORDS * sizeof *r->word);
            if (r->life) {
                ax_seam_discard(&r->books, (uint64_t)(uintptr_t)&r->life[g * GROUP_WORDS],
                                GROUP_WORDS * sizeof *r->life);
            }
        }
        r->kept_groups += r->kept[g];
    }
    r->trim_at = 2 * r->kept_groups + 16;
}

static int is_plain(const ax_replay *r)
{
    return r->direct != NULL;
}

int ax_replay_begin(ax_replay *r, const ax_trace_view *trace, const ax_replay_options *options,
                    ax_detail *detail)
{
    memset(r, 0, sizeof *r);
    ax_seam_init(&r->seam, options->backing);
    ax_seam_init(&r->books, AX_BACKING_REAL);
    r->trace = *trace;
    r->engine = options->engine;
    r->arena_by = options->arena_by;
    r->objects = options->objects;
    r->arena_ids = options->arena_by == AX_ARENA_BY_ONE ? 1 : options->arena_ids;
    r->end_ns = trace->time_ns && trace->events ? trace->time_ns[trace->events - 1] : 0;
    int status = ax_arenas_init(&r->set, &options->params, &r->seam, &r->books, detail);
    if (status != AX_OK) {
        return status;
    }
    while ((1u << r->alignment_log2) < options->params.shape.alignment_bytes) {
        r->alignment_log2++;
    }
    uint64_t payload = ax_pool_payload(&options->params.shape);
    r->max_object_bytes = options->max_object_bytes ? options->max_object_bytes : payload;
    if (r->max_object_bytes > (UINT64_C(1) << 40)) {
        return ax_fail(detail, AX_ERR_RANGE, "max_object_bytes", r->max_object_bytes, 1,
                       UINT64_C(1) << 40, 0);
    }
    r->trim_at = 16;
    status = map_table(&r->books, r->objects, sizeof *r->word, &r->word);
    if (status == AX_OK) {
        status = map_table(&r->books, r->objects / GROUP_WORDS, sizeof *r->kept, &r->kept);
    }
    if (status == AX_OK && r->seam.backing == AX_BACKING_REAL) {
        status = map_table(&r->books, r->objects, sizeof *r->address, &r->address);
    }
    if (status == AX_OK && r->arena_by == AX_ARENA_BY_ARENA) {
        status = map_table(&r->books, r->objects, sizeof *r->life, &r->life);
    }
    if (status == AX_OK) {
        status = map_table(&r->books, r->arena_ids, sizeof *r->arena_of, &r->arena_of);
    }
    uint64_t units = (r->max_object_bytes >> r->alignment_log2) + 2;
    if (status == AX_OK && r->arena_by == AX_ARENA_BY_ONE && !trace->key && units <= DIRECT_ROOM) {
        r->direct_room = units;
        status = map_table(&r->books, units, sizeof *r->direct, &r->direct);
    }
    if (status == AX_OK && r->engine == AX_ENGINE_CURVE) {
        status = ax_curve_init(&r->curve, &r->set.ladder, options->params.large_capacity,
                               options->retain_bytes, options->thresholds, &r->books);
    }
    if (status == AX_OK && r->arena_by == AX_ARENA_BY_ONE) {
        status = ax_arenas_open(&r->set, &r->arena_of[0]);
        r->arena_of[0] += 1;
    }
    if (status != AX_OK) {
        ax_replay_end(r);
        return status;
    }
    r->seam.fail_at = options->fail_at;
    return AX_OK;
}

void ax_replay_end(ax_replay *r)
{
    if (r->set.arenas) {
        /* Curve lists hang in the arenas' chains, where the set would look for its own. */
        for (uint32_t i = 0; r->engine == AX_ENGINE_CURVE && i < r->set.arenas_used; i++) {
            if (r->set.arenas[i].life) {
                r->set.arenas[i].first_list = AX_NO_LIST;
            }
        }
    }
    ax_arenas_release(&r->set);
    ax_curve_release(&r->curve);
    ax_keymap_release(&r->keys, &r->books);
    unmap_table(&r->books, r->word, r->objects, sizeof *r->word);
    unmap_table(&r->books, r->kept, r->objects / GROUP_WORDS, sizeof *r->kept);
    unmap_table(&r->books, r->address, r->objects, sizeof *r->address);
    unmap_table(&r->books, r->life, r->objects, sizeof *r->life);
    unmap_table(&r->books, r->arena_of, r->arena_ids, sizeof *r->arena_of);
    unmap_table(&r->books, r->direct, r->direct_room, sizeof *r->direct);
    r->word = r->life = r->arena_of = r->direct = NULL;
    r->kept = NULL;
    r->address = NULL;
}

/* --- from a request to its list
 * ------------------------------------------------------------------- */

static int list_alive(const void *owner, uint32_t list, uint32_t life)
{
    const ax_replay *r = owner;
    return r->engine == AX_ENGINE_CURVE ? r->curve.lists[list].life == life
                                        : r->set.lists[list].life == life;
}

static int make_list(ax_replay *r, uint32_t arena, uint32_t key, uint64_t entry_bytes,
                     uint32_t *list)
{
    int status;
    ax_arena *owner = &r->set.arenas[arena];
    if (!is_plain(r)) {
        status = ax_keymap_reserve(&r->keys, &r->books, list_alive, r);
        if (status != AX_OK) {
            return status;
        }
    }
    if (r->engine == AX_ENGINE_CURVE) {
        status = ax_curve_add_list(&r->curve, arena, key, entry_bytes, owner->life, list);
        if (status == AX_OK) {
            r->curve.lists[*list].next_in_arena = owner->first_list;
            owner->first_list = *list;
        }
    } else {
        status = ax_arenas_add_list(&r->set, arena, key, entry_bytes, list);
    }
    if (status != AX_OK) {
        return status;
    }
    if (*list >= AX_BYPASSED - 1) {
        return AX_ERR_OVERFLOW;
    }
    if (is_plain(r)) {
        r->direct[entry_bytes >> r->alignment_log2] = *list + 1;
    } else {
        ax_keymap_insert(&r->keys, owner->life, key, entry_bytes, *list);
    }
    return AX_OK;
}

/* The arena that an event's column names, opened where it is not. */
static int arena_of_event(ax_replay *r, size_t i, uint32_t *arena)
{
    uint32_t id = 0;
    if (r->arena_by == AX_ARENA_BY_THREAD && r->trace.thread) {
        id = r->trace.thread[i];
    } else if (r->arena_by == AX_ARENA_BY_ARENA && r->trace.arena) {
        id = r->trace.arena[i];
    }
    if (id >= r->arena_ids) {
        return ax_fail(&r->detail, AX_ERR_EVENT_ARENA, "arena number out of range", id,
                       r->arena_ids - 1, 0, i);
    }
    if (r->arena_of[id] == 0) {
        int status = ax_arenas_open(&r->set, arena);
        if (status != AX_OK) {
            return status;
        }
        r->arena_of[id] = *arena + 1;
    }
    *arena = r->arena_of[id] - 1;
    return AX_OK;
}

static int find_list_slow(ax_replay *r, size_t i, uint32_t arena, uint64_t entry_bytes,
                          uint32_t *list)
{
    int status = AX_OK;
    if (arena == AX_NO_LIST) {
        status = arena_of_event(r, i, &arena);
        if (status != AX_OK) {
            return status;
        }
    }
    /* Intrusive lists belong to sizes: types of one size share. */
    int keyed = r->trace.key && r->set.params.policy != AX_POLICY_INTRUSIVE;
    uint32_t key = keyed ? r->trace.key[i] : 0;
    if (!is_plain(r)) {
        *list = ax_keymap_find(&r->keys, r->set.arenas[arena].life, key, entry_bytes);
        if (*list != AX_NO_LIST) {
            return AX_OK;
        }
    }
    return make_list(r, arena, key, entry_bytes, list);
}

/* size_bytes <= max_object_bytes. arena: AX_NO_LIST to take the event's. */
static inline int find_list(ax_replay *r, size_t i, uint32_t arena, uint64_t size_bytes,
                            uint32_t *list, int plain)
{
    uint32_t log2 = r->alignment_log2;
    uint64_t units = (size_bytes + (size_bytes == 0) + (UINT64_C(1) << log2) - 1) >> log2;
    if (plain) {
        uint32_t known = r->direct[units];
        if (known) {
            *list = known - 1;
            return AX_OK;
        }
    }
    return find_list_slow(r, i, arena, units << log2, list);
}

/* --- one event
 * ------------------------------------------------------------------------------------ */

static inline int do_alloc(ax_replay *r, uint32_t list, uint64_t object, ax_weight now, int curve)
{
    uint64_t address;
    if (curve) {
        ax_curve_list *l = &r->curve.lists[list];
        if (l->len) {
            ax_curve_pop(&r->curve, l, now);
            return AX_OK;
        }
        l->bumps++;
        return ax_pool_bump(&r->set.arenas[l->arena].pool, &r->set.params.shape, &r->seam,
                            l->entry_bytes, &address);
    }
    int status = ax_arena_alloc_inline(&r->set, list, &address, &r->detail);
    if (status == AX_OK && r->address) {
        r->address[object] = address;
    }
    return status;
}

static inline int do_free(ax_replay *r, uint32_t list, uint64_t address, ax_weight now, int curve)
{
    if (curve) {
        return ax_curve_push(&r->curve, &r->curve.lists[list], now);
    }
    return ax_arena_free_inline(&r->set, list, address);
}

static int dead(ax_replay *r, size_t i, uint64_t object)
{
    return ax_fail(&r->detail, AX_ERR_EVENT_DEAD, NULL, object, 0, 0, i);
}

static uint32_t arena_of_list(const ax_replay *r, uint32_t list)
{
    return r->engine == AX_ENGINE_CURVE ? r->curve.lists[list].arena : r->set.lists[list].arena;
}

static inline uint32_t life_of_list(const ax_replay *r, uint32_t list, int curve)
{
    return curve ? r->curve.lists[list].life : r->set.lists[list].life;
}

/* Whether an object's list is still the one it came from. In a file that changed after it was
 * validated its arena may have been closed since, and the list's place given to another. */
static inline int is_own_list(const ax_replay *r, uint64_t object, uint32_t list, int curve)
{
    return !r->life || r->life[object] == life_of_list(r, list, curve);
}

static inline void remember_life(ax_replay *r, uint64_t object, uint32_t list, int curve)
{
    if (r->life) {
        r->life[object] = life_of_list(r, list, curve);
    }
}

static int do_realloc(ax_replay *r, size_t i, uint64_t object, ax_weight now)
{
    uint32_t before = r->word[object];
    uint64_t size = r->trace.size_bytes[i];
    int curve = r->engine == AX_ENGINE_CURVE;
    if (before == 0) {
        return dead(r, i, object);
    }
    uint32_t arena = AX_NO_LIST;
    if (before != AX_BYPASSED) {
        if (!is_own_list(r, object, before - 1, curve)) {
            return dead(r, i, object);
        }
        arena = arena_of_list(r, before - 1);
    }
    uint32_t after = AX_BYPASSED;
    uint64_t address = r->address ? r->address[object] : 0;
    if (size <= r->max_object_bytes) {
        uint32_t list;
        int status = find_list(r, i, arena, size, &list, is_plain(r));
        if (status != AX_OK) {
            return status;
        }
        after = list + 1;
        if (after == before) {
            return AX_OK;
        }
        status = do_alloc(r, list, object, now, curve);
        if (status != AX_OK) {
            return status;
        }
        remember_life(r, object, list, curve);
    } else {
        r->bypassed++;
        if (before == AX_BYPASSED) {
            return AX_OK;
        }
    }
    r->word[object] = after;
    return before == AX_BYPASSED ? AX_OK : do_free(r, before - 1, address, now, curve);
}

static int do_destroy(ax_replay *r, size_t i, ax_weight now)
{
    uint32_t id = r->trace.arena ? r->trace.arena[i] : 0;
    if (r->arena_by != AX_ARENA_BY_ARENA) {
        /* The trace's arenas are not ours. Their objects die all the same, but which ones those are
         * is not known here. */
        return ax_fail(&r->detail, AX_ERR_EVENT_ARENA,
                       "the trace destroys arenas, so arena_by must be 'arena'", id, 0, 0, i);
    }
    if (id >= r->arena_ids) {
        return ax_fail(&r->detail, AX_ERR_EVENT_ARENA, "arena number out of range", id,
                       r->arena_ids - 1, 0, i);
    }
    if (r->arena_of[id] == 0) {
        return AX_OK; /* nothing was ever allocated in it */
    }
    uint32_t arena = r->arena_of[id] - 1;
    r->arena_of[id] = 0;
    ax_arena *a = &r->set.arenas[arena];
    if (r->engine == AX_ENGINE_CURVE) {
        for (uint32_t list = a->first_list; list != AX_NO_LIST;) {
            uint32_t next = r->curve.lists[list].next_in_arena;
            r->set.counters.closed_bumps += r->curve.lists[list].bumps;
            ax_curve_drop_list(&r->curve, list, now);
            list = next;
        }
        a->first_list = AX_NO_LIST;
    }
    ax_arenas_close(&r->set, arena);
    return AX_OK;
}

static int do_rare(ax_replay *r, size_t i, uint8_t op, uint64_t object, ax_weight now)
{
    if (op == AX_OP_DESTROY) {
        return do_destroy(r, i, now);
    }
    if (op != AX_OP_REALLOC) {
        return ax_fail(&r->detail, AX_ERR_EVENT_OP, NULL, op, AX_OPS - 1, 0, i);
    }
    if (object >= r->objects) {
        return ax_fail(&r->detail, AX_ERR_EVENT_OBJECT, NULL, object, r->objects, 0, i);
    }
    return do_realloc(r, i, object, now);
}

/* --- the loop
 * ------------------------------------------------------------------------------------- */

/* Instantiated once for each combination of the four constants; everything that does not change
 * from event to event is decided there. */
static inline __attribute__((always_inline)) int run(ax_replay *r, size_t events, int curve,
                                                     int plain, int timed, int wide)
{
    const uint8_t *ops = r->trace.op;
    const uint32_t *objects32 = r->trace.object;
    const uint64_t *objects64 = r->trace.object;
    const uint64_t *sizes = r->trace.size_bytes;
    const uint64_t *times = r->trace.time_ns;
    const size_t total = r->trace.events;
    uint32_t *word = r->word;
    int status = AX_OK;
    size_t i = r->at;
    const size_t end = i + events;
    for (; i < end; i++) {
        const uint8_t op = ops[i];
        const uint64_t object = wide ? objects64[i] : objects32[i];
        const ax_weight now = {total - i, timed ? r->end_ns - times[i] : 0};
        if (op <= AX_OP_FREE && object >= r->objects) {
            status = ax_fail(&r->detail, AX_ERR_EVENT_OBJECT, NULL, object, r->objects, 0, i);
        } else if (op == AX_OP_ALLOC) {
            const uint64_t size = sizes[i];
            if (size > r->max_object_bytes) {
                r->bypassed++;
                word[object] = AX_BYPASSED;
            } else {
                uint32_t list;
                status = find_list(r, i, AX_NO_LIST, size, &list, plain);
                if (status == AX_OK) {
                    status = do_alloc(r, list, object, now, curve);
                    word[object] = list + 1;
                    if (!plain) {
                        remember_life(r, object, list, curve);
                    }
                }
            }
        } else if (op == AX_OP_FREE) {
            const uint32_t before = word[object];
            word[object] = 0;
            if (before == 0 ||
                (!plain && before != AX_BYPASSED && !is_own_list(r, object, before - 1, curve))) {
                status = dead(r, i, object);
            } else if (before != AX_BYPASSED) {
                status = do_free(r, before - 1, r->address ? r->address[object] : 0, now, curve);
            }
        } else {
            status = do_rare(r, i, op, object, now);
        }
        if (status != AX_OK) {
            break;
        }
        if (!curve) {
            const uint64_t overhead = r->set.capacity_entries - r->set.length_entries;
            r->overhead_events += overhead;
            if (timed && i + 1 < total) {
                r->overhead_ns += (ax_u128)overhead * (times[i + 1] - times[i]);
            }
        }
    }
    r->at = i;
    return status;
}

static int run_arena(ax_replay *r, size_t n)
{
    return is_plain(r) ? run(r, n, 0, 1, r->trace.time_ns != NULL, r->trace.object_is_u64)
                       : run(r, n, 0, 0, r->trace.time_ns != NULL, r->trace.object_is_u64);
}

static int run_curve(ax_replay *r, size_t n)
{
    int plain = is_plain(r);
    if (r->trace.object_is_u64) {
        if (r->trace.time_ns) {
            return plain ? run(r, n, 1, 1, 1, 1) : run(r, n, 1, 0, 1, 1);
        }
        return plain ? run(r, n, 1, 1, 0, 1) : run(r, n, 1, 0, 0, 1);
    }
    if (r->trace.time_ns) {
        return plain ? run(r, n, 1, 1, 1, 0) : run(r, n, 1, 0, 1, 0);
    }
    return plain ? run(r, n, 1, 1, 0, 0) : run(r, n, 1, 0, 0, 0);
}

int ax_replay_step(ax_replay *r, size_t events, size_t *left, ax_detail *detail)
{
    size_t rest = r->trace.events - r->at;
    size_t wanted = events < rest ? events : rest;
    while (r->status == AX_OK && wanted > 0) {
        size_t n = wanted < TRIM_EVENTS ? wanted : TRIM_EVENTS;
        r->status = r->engine == AX_ENGINE_CURVE ? run_curve(r, n) : run_arena(r, n);
        trim(r);
        wanted -= n;
        if (r->status == AX_OK && r->at == r->trace.events && r->engine == AX_ENGINE_CURVE) {
            ax_curve_finish(&r->curve);
        }
    }
    *left = r->trace.events - r->at;
    if (r->status != AX_OK && detail) {
        *detail = r->detail;
    }
    return r->status;
}

/* --- results
 * -------------------------------------------------------------------------------------- */

uint32_t ax_replay_rows(const ax_replay *r)
{
    return r->engine == AX_ENGINE_CURVE ? r->curve.thresholds : 1;
}

static double mean_ns(const ax_replay *r, ax_u128 sum, uint64_t pointer_bytes)
{
    if (!r->trace.time_ns || r->trace.events == 0 || r->end_ns == r->trace.time_ns[0]) {
        return NAN;
    }
    return (double)sum * (double)pointer_bytes / (double)(r->end_ns - r->trace.time_ns[0]);
}

static void curve_row(const ax_replay *r, uint32_t j, ax_replay_row *out)
{
    const ax_curve *curve = &r->curve;
    const uint64_t width = r->set.params.pointer_bytes;
    const double events = r->trace.events ? (double)r->trace.events : 1.0;
    ax_curve_row row;
    ax_curve_get(curve, j, &row);
    out->retain_bytes = curve->retain_bytes[j];
    out->pops = curve->pops;
    out->pops_large = row.pops_large;
    out->transitions = curve->closed_transitions;
    out->bumps = r->set.counters.closed_bumps;
    for (uint32_t i = 0; i < curve->lists_used; i++) {
        const ax_curve_list *list = &curve->lists[i];
        if (list->life) {
            out->transitions += list->transitions;
            out->bumps += list->bumps;
            out->freelist_bytes_end += list->len * list->entry_bytes;
            out->lists_end++;
        }
    }
    out->held_bytes_end = row.buffer_bytes_end;
    out->list_mallocs = row.list_mallocs;
    out->list_reallocs = row.list_reallocs;
    out->list_frees = row.list_frees;
    out->list_frees_at_close = row.list_frees_at_close;
    out->list_bytes_moved = row.list_bytes_moved;
    out->overhead_bytes_end = (row.capacity_end - curve->length) * width;
    out->overhead_bytes_peak = row.overhead_peak_entries * width;
    out->overhead_bytes_mean =
        (double)(row.capacity_events - curve->length_events) * (double)width / events;
    out->overhead_bytes_mean_ns = mean_ns(r, row.capacity_ns - curve->length_ns, width);
    memcpy(out->histogram_buffer, row.histogram_buffer, sizeof row.histogram_buffer);
    ax_curve_get(curve, 0, &row);
    memcpy(out->histogram_peak, row.histogram_buffer, sizeof row.histogram_buffer);
}

static void arena_row(const ax_replay *r, ax_replay_row *out)
{
    const ax_arenas *set = &r->set;
    const ax_arena_counters *c = &set->counters;
    const uint64_t width = set->params.pointer_bytes;
    ax_arena_totals totals;
    ax_arenas_totals(set, &totals);
    out->retain_bytes = set->params.retain_bytes;
    out->pops = totals.pops;
    out->pops_large = totals.pops_large;
    out->transitions = totals.transitions;
    out->bumps = totals.bumps;
    out->list_mallocs = c->list_mallocs;
    out->list_reallocs = c->list_reallocs;
    out->list_frees = c->list_frees;
    out->list_frees_at_close = c->list_frees_at_close;
    out->list_bytes_moved = c->list_bytes_moved;
    out->overhead_bytes_end = (set->capacity_entries - set->length_entries) * width;
    out->overhead_bytes_peak = set->overhead_peak_entries * width;
    out->overhead_bytes_mean = (double)r->overhead_events * (double)width /
                               (r->trace.events ? (double)r->trace.events : 1.0);
    out->overhead_bytes_mean_ns = mean_ns(r, r->overhead_ns, width);
    out->freelist_bytes_end = totals.freelist_bytes;
    out->leaked_bytes_end = totals.leaked_bytes;
    out->held_bytes_end = totals.list_buffer_bytes;
    out->lists_end = totals.lists;
    memcpy(out->histogram_peak, c->histogram_peak, sizeof c->histogram_peak);
    memcpy(out->histogram_buffer, c->histogram_buffer, sizeof c->histogram_buffer);
}

int ax_replay_row_get(const ax_replay *r, uint32_t row, ax_replay_row *out)
{
    if (r->status != AX_OK || r->at != r->trace.events || row >= ax_replay_rows(r)) {
        return AX_ERR_STATE;
    }
    memset(out, 0, sizeof *out);
    if (r->engine == AX_ENGINE_CURVE) {
        curve_row(r, row, out);
    } else {
        arena_row(r, out);
    }
    ax_arena_totals pools;
    ax_arenas_totals(&r->set, &pools);
    out->chunk_bytes_end = pools.chunk_bytes;
    out->held_bytes_end += pools.chunk_bytes; /* until here: the list buffers */
    out->slop_bytes_end = pools.slop_bytes;
    out->live_bytes_end = pools.bumped_bytes - out->freelist_bytes_end - out->leaked_bytes_end;
    out->chunk_mallocs =
        r->seam.calls[AX_CALL_MALLOC] - (r->engine == AX_ENGINE_ARENA ? out->list_mallocs : 0);
    out->arenas_end = r->set.arenas_alive;
    out->bypassed = r->bypassed;
    return AX_OK;
}
