#include "trace.h"

#include <string.h>

/* One event, read from the columns once: a mapped file may say something else the next time. */
typedef struct event {
    uint64_t object;
    uint64_t size_bytes;
    uint64_t time_ns;
    uint32_t thread;
    uint32_t arena;
    uint32_t key;
    uint8_t op;
} event;

static event load(const ax_trace_view *t, size_t i)
{
    event e = {.op = t->op[i], .object = ax_trace_object(t, i), .size_bytes = t->size_bytes[i]};
    e.thread = t->thread ? t->thread[i] : 0;
    e.arena = t->arena ? t->arena[i] : 0;
    e.key = t->key ? t->key[i] : 0;
    e.time_ns = t->time_ns ? t->time_ns[i] : 0;
    return e;
}

static int no_room(ax_detail *detail, int status, size_t where)
{
    return ax_fail(detail, status, NULL, 0, 0, 0, where);
}

void ax_trace_check_begin(ax_trace_check *check, const ax_trace_view *trace)
{
    *check = (ax_trace_check){.trace = *trace};
    ax_seam_init(&check->books, AX_BACKING_REAL);
}

void ax_trace_check_finish(ax_trace_check *check)
{
    ax_seam *books = &check->books;
    ax_grow_free(books, &check->live, &check->live_capacity, sizeof *check->live);
    ax_grow_free(books, &check->owner, &check->owner_capacity, sizeof *check->owner);
    ax_grow_free(books, &check->arena_of, &check->lifetime_capacity, sizeof *check->arena_of);
    ax_idmap_free(&check->lifetime_of, books);
}

/* The current lifetime of an arena, which begins here if there is none. */
static int lifetime_at(ax_trace_check *check, uint32_t arena, size_t *out)
{
    const uint64_t id = (uint64_t)arena + 1;
    const ax_idmap_slot *slot = ax_idmap_find(&check->lifetime_of, id);
    if (slot) {
        *out = (size_t)slot->value;
        return AX_OK;
    }
    int status = ax_grow_array(&check->books, &check->arena_of, &check->lifetime_capacity,
                               check->lifetimes + 1, sizeof *check->arena_of);
    if (status == AX_OK) {
        status = ax_idmap_reserve(&check->lifetime_of, sizeof(ax_idmap_slot), &check->books);
    }
    if (status == AX_OK) {
        *out = check->lifetimes++;
        check->arena_of[*out] = arena;
        ax_idmap_slot *begun = ax_idmap_add(&check->lifetime_of, id);
        begun->value = *out;
    }
    return status;
}

static int check_alloc(ax_trace_check *check, const event *e, size_t i, ax_detail *detail)
{
    const uint64_t object = check->objects;
    if (e->object != object) {
        return ax_fail(detail, AX_ERR_EVENT_ORDER,
                       "objects must be numbered in the order of their allocation", e->object,
                       object, object, i);
    }
    if (object == (check->trace.object_is_u64 ? AX_NO_OBJECT : UINT32_MAX)) {
        return ax_fail(detail, AX_ERR_OVERFLOW, "more objects than a u32 column can number", object,
                       0, 0, i);
    }
    const size_t words = check->live_capacity;
    int status = ax_grow_array(&check->books, &check->live, &check->live_capacity,
                               (size_t)(object / 64) + 1, sizeof *check->live);
    if (status != AX_OK) {
        return no_room(detail, status, i);
    }
    if (check->live_capacity > words) {
        memset(check->live + words, 0, (check->live_capacity - words) * sizeof *check->live);
    }
    if (check->trace.arena) {
        size_t lifetime = 0;
        status = ax_grow_array(&check->books, &check->owner, &check->owner_capacity,
                               (size_t)object + 1, sizeof *check->owner);
        if (status == AX_OK) {
            status = lifetime_at(check, e->arena, &lifetime);
        }
        if (status != AX_OK) {
            return no_room(detail, status, i);
        }
        check->owner[object] = lifetime;
    }
    check->live[object / 64] |= UINT64_C(1) << (object % 64);
    check->objects++;
    return AX_OK;
}

static int check_use(ax_trace_check *check, const event *e, size_t i, ax_detail *detail)
{
    const int is_free = e->op == AX_OP_FREE;
    if (e->object >= check->objects) {
        return ax_fail(detail, AX_ERR_EVENT_OBJECT,
                       is_free ? "free of an object that was never allocated"
                               : "realloc of an object that was never allocated",
                       e->object, check->objects ? 0 : 1, check->objects ? check->objects - 1 : 0,
                       i);
    }
    uint64_t *word = &check->live[e->object / 64];
    const uint64_t bit = UINT64_C(1) << (e->object % 64);
    if (!(*word & bit)) {
        return ax_fail(detail, AX_ERR_EVENT_DEAD,
                       is_free ? "free of an object that is already dead"
                               : "realloc of an object that is already dead",
                       e->object, 1, 0, i);
    }
    if (check->trace.arena) {
        const size_t lifetime = check->owner[e->object];
        const uint32_t arena = check->arena_of[lifetime];
        const ax_idmap_slot *slot = ax_idmap_find(&check->lifetime_of, (uint64_t)arena + 1);
        if (!slot || slot->value != lifetime) {
            return ax_fail(detail, AX_ERR_EVENT_DEAD,
                           is_free ? "free of an object that died with its arena"
                                   : "realloc of an object that died with its arena",
                           e->object, 1, 0, i);
        }
        if (arena != e->arena) {
            return ax_fail(detail, AX_ERR_EVENT_ARENA,
                           is_free ? "free in an arena that does not own the object"
                                   : "realloc in an arena that does not own the object",
                           e->arena, arena, arena, i);
        }
    }
    if (is_free) {
        *word &= ~bit;
    }
    return AX_OK;
}

static int check_destroy(ax_trace_check *check, const event *e, size_t i, ax_detail *detail)
{
    const uint64_t none = check->trace.object_is_u64 ? AX_NO_OBJECT : UINT32_MAX;
    if (!check->trace.arena) {
        return ax_fail(detail, AX_ERR_EVENT_ARENA, "destroy in a trace without an arena column",
                       e->op, AX_OP_ALLOC, AX_OP_REALLOC, i);
    }
    if (e->object != none) {
        return ax_fail(detail, AX_ERR_EVENT_OBJECT, "destroy names an object", e->object, none,
                       none, i);
    }
    ax_idmap_slot *slot = ax_idmap_find(&check->lifetime_of, (uint64_t)e->arena + 1);
    if (slot) {
        ax_idmap_remove(&check->lifetime_of, slot);
    }
    return AX_OK;
}

static int check_event(ax_trace_check *check, const event *e, ax_detail *detail)
{
    const size_t i = check->next;
    int status;
    if (e->time_ns < check->last_time_ns) {
        return ax_fail(detail, AX_ERR_EVENT_TIME, "time runs backwards", e->time_ns,
                       check->last_time_ns, UINT64_MAX, i);
    }
    switch (e->op) {
    case AX_OP_ALLOC:
        status = check_alloc(check, e, i, detail);
        break;
    case AX_OP_FREE:
    case AX_OP_REALLOC:
        status = check_use(check, e, i, detail);
        break;
    case AX_OP_DESTROY:
        status = check_destroy(check, e, i, detail);
        break;
    default:
        return ax_fail(detail, AX_ERR_EVENT_OP, "unknown operation", e->op, 0, AX_OPS - 1, i);
    }
    if (status == AX_OK) {
        check->last_time_ns = e->time_ns;
        check->next++;
    }
    return status;
}

/* Where a step of at most `events` events ends. */
static size_t step_end(const ax_trace_check *check, size_t events)
{
    const size_t left = check->trace.events - check->next;
    return check->next + (events < left ? events : left);
}

int ax_trace_check_step(ax_trace_check *check, size_t events, ax_detail *detail)
{
    const size_t end = step_end(check, events);
    while (check->next < end) {
        const event e = load(&check->trace, check->next);
        const int status = check_event(check, &e, detail);
        if (status != AX_OK) {
            return status;
        }
    }
    return AX_OK;
}

int ax_trace_validate(const ax_trace_view *trace, ax_detail *detail)
{
    ax_trace_check check;
    ax_trace_check_begin(&check, trace);
    const int status = ax_trace_check_step(&check, trace->events, detail);
    ax_trace_check_finish(&check);
    return status;
}

void ax_trace_summary_begin(ax_trace_summary *summary, const ax_trace_view *trace)
{
    memset(summary, 0, sizeof *summary);
    ax_trace_check_begin(&summary->check, trace);
}

void ax_trace_summary_finish(ax_trace_summary *summary)
{
    ax_seam *books = &summary->check.books;
    ax_grow_free(books, &summary->object_size, &summary->object_size_capacity,
                 sizeof *summary->object_size);
    ax_grow_free(books, &summary->object_thread, &summary->object_thread_capacity,
                 sizeof *summary->object_thread);
    ax_grow_free(books, &summary->lifetime_share, &summary->lifetime_share_capacity,
                 sizeof *summary->lifetime_share);
    ax_idmap_free(&summary->sizes, books);
    ax_idmap_free(&summary->threads, books);
    ax_idmap_free(&summary->arenas, books);
    ax_idmap_free(&summary->keys, books);
    ax_trace_check_finish(&summary->check);
}

/* Ids start at 0 and the map's at 1; the largest size has no successor and takes the place of 0. */
static int count_distinct(ax_idmap *seen, ax_seam *books, uint64_t id, uint64_t *count)
{
    const uint64_t stored = id + 1 ? id + 1 : UINT64_MAX;
    if (ax_idmap_find(seen, stored)) {
        return AX_OK;
    }
    const int status = ax_idmap_reserve(seen, sizeof stored, books);
    if (status == AX_OK) {
        ax_idmap_add(seen, stored);
        *count += 1;
    }
    return status;
}

static int add_bytes(uint64_t *sum, uint64_t bytes, const char *what, size_t i, ax_detail *detail)
{
    if (bytes > UINT64_MAX - *sum) {
        return ax_fail(detail, AX_ERR_OVERFLOW, what, bytes, 0, 0, i);
    }
    *sum += bytes;
    return AX_OK;
}

static int reserve_for_alloc(ax_trace_summary *s, size_t object)
{
    ax_seam *books = &s->check.books;
    int status = ax_grow_array(books, &s->object_size, &s->object_size_capacity, object + 1,
                               sizeof *s->object_size);
    if (status == AX_OK) {
        status = ax_grow_array(books, &s->object_thread, &s->object_thread_capacity, object + 1,
                               sizeof *s->object_thread);
    }
    const size_t shares = s->lifetime_share_capacity;
    if (status == AX_OK) {
        status = ax_grow_array(books, &s->lifetime_share, &s->lifetime_share_capacity,
                               s->check.lifetimes, sizeof *s->lifetime_share);
    }
    if (status == AX_OK && s->lifetime_share_capacity > shares) {
        memset(s->lifetime_share + shares, 0,
               (s->lifetime_share_capacity - shares) * sizeof *s->lifetime_share);
    }
    return status;
}

/* An alloc or a realloc makes an object `size` bytes large. */
static int add_live(ax_trace_summary *s, const event *e, size_t i, ax_detail *detail)
{
    ax_trace_totals *t = &s->totals;
    const uint64_t size = e->size_bytes;
    int status = add_bytes(&t->live_bytes, size, "live bytes do not fit 64 bits", i, detail);
    if (status == AX_OK) {
        status =
            add_bytes(&t->allocated_bytes, size, "allocated bytes do not fit 64 bits", i, detail);
    }
    if (status != AX_OK) {
        return status;
    }
    status = count_distinct(&s->sizes, &s->check.books, size, &t->distinct_sizes);
    if (status != AX_OK) {
        return no_room(detail, status, i);
    }
    s->object_size[e->object] = size;
    s->object_thread[e->object] = e->thread;
    t->live_objects++;
    if (s->check.trace.arena) {
        struct ax_trace_share *share = &s->lifetime_share[s->check.owner[e->object]];
        share->bytes += size;
        share->objects++;
    }
    if (size > t->largest_size_bytes) {
        t->largest_size_bytes = size;
    }
    if (t->live_bytes > t->peak_live_bytes || t->peak_live_objects == 0) {
        t->peak_live_bytes = t->live_bytes;
        t->peak_live_objects = t->live_objects;
        t->peak_event = i;
    }
    if (t->live_objects > t->most_live_objects) {
        t->most_live_objects = t->live_objects;
    }
    return AX_OK;
}

static void remove_live(ax_trace_summary *s, const event *e)
{
    const uint64_t size = s->object_size[e->object];
    s->totals.live_bytes -= size;
    s->totals.live_objects--;
    if (s->check.trace.arena) {
        struct ax_trace_share *share = &s->lifetime_share[s->check.owner[e->object]];
        share->bytes -= size;
        share->objects--;
    }
}

static int count_ids(ax_trace_summary *s, const event *e)
{
    ax_seam *books = &s->check.books;
    int status = count_distinct(&s->threads, books, e->thread, &s->totals.threads);
    if (status == AX_OK) {
        status = count_distinct(&s->arenas, books, e->arena, &s->totals.arenas);
    }
    if (status == AX_OK && s->check.trace.key && e->op != AX_OP_DESTROY) {
        status = count_distinct(&s->keys, books, e->key, &s->totals.keys);
    }
    return status;
}

static int summarise_event(ax_trace_summary *s, const event *e, ax_detail *detail)
{
    ax_trace_totals *t = &s->totals;
    const size_t i = s->check.next;
    const ax_idmap_slot *ending = NULL;
    size_t ended = 0;
    if (e->op == AX_OP_DESTROY) {
        ending = ax_idmap_find(&s->check.lifetime_of, (uint64_t)e->arena + 1);
        ended = ending ? (size_t)ending->value : 0;
    }
    int status = check_event(&s->check, e, detail);
    if (status != AX_OK) {
        return status;
    }
    status = count_ids(s, e);
    if (status == AX_OK && e->op == AX_OP_ALLOC) {
        status = reserve_for_alloc(s, (size_t)e->object);
    }
    if (status != AX_OK) {
        return no_room(detail, status, i);
    }
    t->by_op[e->op]++;
    t->objects = s->check.objects;
    t->last_time_ns = e->time_ns;
    if (i == 0) {
        t->first_time_ns = e->time_ns;
    }
    switch (e->op) {
    case AX_OP_ALLOC:
        return add_live(s, e, i, detail);
    case AX_OP_REALLOC:
        remove_live(s, e);
        return add_live(s, e, i, detail);
    case AX_OP_FREE:
        t->cross_thread_frees += s->object_thread[e->object] != e->thread;
        remove_live(s, e);
        return AX_OK;
    default:
        if (ending) {
            t->live_bytes -= s->lifetime_share[ended].bytes;
            t->live_objects -= s->lifetime_share[ended].objects;
        }
        return AX_OK;
    }
}

int ax_trace_summary_step(ax_trace_summary *summary, size_t events, ax_detail *detail)
{
    const size_t end = step_end(&summary->check, events);
    if (summary->refused) {
        return ax_fail(detail, AX_ERR_STATE, "summary of a trace that was refused", 0, 0, 0, 0);
    }
    while (summary->check.next < end) {
        const event e = load(&summary->check.trace, summary->check.next);
        const int status = summarise_event(summary, &e, detail);
        if (status != AX_OK) {
            summary->refused = 1;
            return status;
        }
    }
    return AX_OK;
}
