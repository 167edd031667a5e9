/* What records mean: events, and what happened beside them. */
#include "rawlog.h"

#include <string.h>

#define NO_OBJECT UINT64_MAX

const char *ax_rawlog_count_name(int count)
{
    static const char *const names[AX_RAWLOG_COUNTS] = {
        [AX_RAWLOG_RECORDS] = "records",
        [AX_RAWLOG_WINDOWS] = "windows",
        [AX_RAWLOG_WINDOWS_UNUSED] = "windows_unused",
        [AX_RAWLOG_FREES_OF_NULL] = "frees_of_null",
        [AX_RAWLOG_REALLOCS_OF_NULL] = "reallocs_of_null",
        [AX_RAWLOG_REALLOCS_TO_NULL] = "reallocs_to_null",
        [AX_RAWLOG_FAILED_ALLOCS] = "failed_allocs",
        [AX_RAWLOG_FAILED_REALLOCS] = "failed_reallocs",
        [AX_RAWLOG_FAILED_MAPS] = "failed_maps",
        [AX_RAWLOG_FREES_OF_UNKNOWN] = "frees_of_unknown",
        [AX_RAWLOG_DELETES_OF_UNKNOWN] = "deletes_of_unknown",
        [AX_RAWLOG_REALLOCS_OF_UNKNOWN] = "reallocs_of_unknown",
        [AX_RAWLOG_REALLOCS_OF_UNKNOWN_FREED] = "reallocs_of_unknown_to_null",
        [AX_RAWLOG_USABLE_SIZES_OF_UNKNOWN] = "usable_sizes_of_unknown",
        [AX_RAWLOG_REALLOCS_UNFINISHED] = "reallocs_unfinished",
        [AX_RAWLOG_REALLOC_ENDS_ALONE] = "realloc_ends_alone",
        [AX_RAWLOG_ORDER_REPAIRS] = "order_repairs",
        [AX_RAWLOG_FREES_INFERRED] = "frees_inferred",
        [AX_RAWLOG_TIMES_RAISED] = "times_raised",
        [AX_RAWLOG_ALIGNMENTS_RAISED] = "alignments_raised",
        [AX_RAWLOG_FORKS] = "forks",
        [AX_RAWLOG_LOST] = "lost",
        [AX_RAWLOG_RECORDS_AFTER_CUT] = "records_after_cut",
        [AX_RAWLOG_DROPPED_TRUNCATED] = "truncated",
        [AX_RAWLOG_DROPPED_DAMAGED] = "damaged",
    };
    return count >= 0 && count < AX_RAWLOG_COUNTS ? names[count] : NULL;
}

/* ---- tables -----------------------------------------------------------------------------------
 */

static void add_column(ax_rawlog_table *table, const char *name, size_t item_bytes)
{
    table->column[table->columns++] = (ax_rawlog_column){.name = name, .item_bytes = item_bytes};
}

int ax_rawlog_make_tables(ax_rawlog *log)
{
    static const struct {
        int table;
        const char *name;
        size_t item_bytes;
    } columns[] = {
        {AX_TABLE_EVENTS, "op", 1},
        {AX_TABLE_EVENTS, "thread", 4},
        {AX_TABLE_EVENTS, "object", 4},
        {AX_TABLE_EVENTS, "size_bytes", 8},
        {AX_TABLE_EVENTS, "align_log2", 1},
        {AX_TABLE_EVENTS, "time_ns", 8},
        {AX_TABLE_EVENTS, "call", 1},
        {AX_TABLE_REALLOC_BEGIN, "event", 8},
        {AX_TABLE_REALLOC_BEGIN, "time_ns", 8},
        {AX_TABLE_FAILED, "event", 8},
        {AX_TABLE_FAILED, "thread", 4},
        {AX_TABLE_FAILED, "time_ns", 8},
        {AX_TABLE_FAILED, "begin_ns", 8},
        {AX_TABLE_FAILED, "call", 1},
        {AX_TABLE_FAILED, "size_bytes", 8},
        {AX_TABLE_FAILED, "align_bytes", 8},
        {AX_TABLE_FAILED, "object", 8},
        {AX_TABLE_ASKED_ALIGN, "event", 8},
        {AX_TABLE_ASKED_ALIGN, "align_bytes", 8},
        {AX_TABLE_USABLE_SIZE, "event", 8},
        {AX_TABLE_USABLE_SIZE, "thread", 4},
        {AX_TABLE_USABLE_SIZE, "time_ns", 8},
        {AX_TABLE_USABLE_SIZE, "object", 8},
        {AX_TABLE_USABLE_SIZE, "size_bytes", 8},
        {AX_TABLE_MAPS, "event", 8},
        {AX_TABLE_MAPS, "thread", 4},
        {AX_TABLE_MAPS, "time_ns", 8},
        {AX_TABLE_MAPS, "call", 1},
        {AX_TABLE_MAPS, "address", 8},
        {AX_TABLE_MAPS, "size_bytes", 8},
        {AX_TABLE_MAPS, "prot", 4},
        {AX_TABLE_MAPS, "flags", 4},
        {AX_TABLE_MAPS, "old_address", 8},
        {AX_TABLE_MAPS, "old_bytes", 8},
    };
    static const char *const names[AX_TABLES] = {"events",      "realloc_begin", "failed",
                                                 "asked_align", "usable_size",   "maps"};
    for (int i = 0; i < AX_TABLES; i++) {
        log->tables[i].name = names[i];
    }
    for (size_t i = 0; i < sizeof columns / sizeof *columns; i++) {
        add_column(&log->tables[columns[i].table], columns[i].name, columns[i].item_bytes);
    }
    if (log->header.flags & AX_RAWLOG_SITES) {
        add_column(&log->tables[AX_TABLE_EVENTS], "key", 4);
    }
    return AX_OK;
}

void ax_rawlog_free_tables(ax_rawlog *log)
{
    for (int i = 0; i < AX_TABLES; i++) {
        ax_rawlog_table *table = &log->tables[i];
        for (int k = 0; k < table->columns; k++) {
            ax_rawlog_column *one = &table->column[k];
            ax_grow_free(&log->books, &one->array, &one->capacity, one->item_bytes);
        }
        table->rows = table->capacity = 0;
        table->columns = 0;
    }
}

static int grow_table(ax_rawlog *log, ax_rawlog_table *table)
{
    size_t capacity = 0;
    int status = ax_grow_capacity(table->capacity, table->rows + 1, sizeof(uint64_t), &capacity);
    for (int i = 0; i < table->columns && status == AX_OK; i++) {
        ax_rawlog_column *one = &table->column[i];
        if (one->capacity < capacity) {
            status =
                ax_grow_to(&log->books, &one->array, &one->capacity, capacity, one->item_bytes);
        }
    }
    if (status == AX_OK) {
        table->capacity = capacity;
    }
    return status;
}

/* Adds a row; the values are in the order of the columns. */
static int put(ax_rawlog *log, int which, const uint64_t *values)
{
    ax_rawlog_table *table = &log->tables[which];
    if (table->rows == table->capacity) {
        const int status = grow_table(log, table);
        if (status != AX_OK) {
            return status;
        }
    }
    const size_t row = table->rows++;
    for (int i = 0; i < table->columns; i++) {
        void *array = table->column[i].array;
        switch (table->column[i].item_bytes) {
        case 1:
            ((uint8_t *)array)[row] = (uint8_t)values[i];
            break;
        case 4:
            ((uint32_t *)array)[row] = (uint32_t)values[i];
            break;
        default:
            ((uint64_t *)array)[row] = values[i];
        }
    }
    return AX_OK;
}

/* ---- what rows are made of --------------------------------------------------------------------
 */

static uint64_t events_of(const ax_rawlog *log)
{
    return log->tables[AX_TABLE_EVENTS].rows;
}

/* The time of the record at hand. */
static uint64_t time_of(ax_rawlog *log, uint64_t stamp)
{
    const uint64_t ns = ax_rawlog_ns(log, stamp);
    if (ns < log->time_ns) {
        log->counts[AX_RAWLOG_TIMES_RAISED]++;
    } else {
        log->time_ns = ns;
    }
    return log->time_ns;
}

/* The number of a thread among those that made events. */
static int dense_of(ax_rawlog *log, const ax_rawlog_stream *s, uint64_t *out)
{
    ax_rawlog_thread *thread = &log->threads[s->thread];
    if (thread->dense == UINT32_MAX) {
        const int status = ax_grow_array(&log->books, &log->tids, &log->tids_capacity,
                                         log->tids_found + 1, sizeof *log->tids);
        if (status != AX_OK) {
            return status;
        }
        log->tids[log->tids_found] = thread->tid;
        thread->dense = (uint32_t)log->tids_found++;
    }
    *out = thread->dense;
    return AX_OK;
}

static int site_of(ax_rawlog *log, uint64_t address, uint32_t *out)
{
    *out = 0;
    if (!(log->header.flags & AX_RAWLOG_SITES)) {
        return AX_OK;
    }
    /* An unknown caller is a site like others, and ids are not 0. */
    const uint64_t id = address ? address : 1;
    ax_idmap_slot *slot = ax_idmap_find(&log->site_places, id);
    if (!slot) {
        int status = ax_idmap_reserve(&log->site_places, sizeof *slot, &log->books);
        if (status == AX_OK) {
            status = ax_grow_array(&log->books, &log->sites, &log->sites_capacity,
                                   log->sites_found + 1, sizeof *log->sites);
        }
        if (status != AX_OK) {
            return status;
        }
        log->sites[log->sites_found] = address;
        slot = ax_idmap_add(&log->site_places, id);
        slot->value = log->sites_found++;
    }
    *out = (uint32_t)slot->value;
    return AX_OK;
}

static int log2_of(uint64_t alignment)
{
    int log2 = 0;
    while (log2 < 63 && UINT64_C(1) << log2 < alignment) {
        log2++;
    }
    return log2;
}

typedef struct event {
    enum ax_op op;
    uint32_t object;
    uint32_t site;
    uint64_t size;
    int align_log2;
    int call;
} event;

static int put_event(ax_rawlog *log, const ax_rawlog_stream *s, const event *e)
{
    uint64_t thread = 0;
    const int status = dense_of(log, s, &thread);
    if (status != AX_OK) {
        return status;
    }
    const uint64_t values[] = {(uint64_t)e->op,
                               thread,
                               e->object,
                               e->size,
                               (uint64_t)e->align_log2,
                               time_of(log, s->record.stamp),
                               (uint64_t)e->call,
                               e->site};
    return put(log, AX_TABLE_EVENTS, values);
}

/* When a call began of which the record at hand is the end: never after it. */
static uint64_t begin_of(const ax_rawlog *log, uint64_t stamp)
{
    const uint64_t began = ax_rawlog_ns(log, stamp);
    return began < log->time_ns ? began : log->time_ns;
}

/* `began` is the stamp with which the call began. */
static int put_failed(ax_rawlog *log, const ax_rawlog_stream *s, int call, uint64_t size,
                      uint64_t alignment, uint64_t object, uint64_t began)
{
    uint64_t thread = 0;
    const int status = dense_of(log, s, &thread);
    if (status != AX_OK) {
        return status;
    }
    const uint64_t time_ns = time_of(log, s->record.stamp);
    /* What is no realloc has one stamp. */
    const uint64_t begin_ns = began == s->record.stamp ? time_ns : begin_of(log, began);
    const uint64_t values[] = {events_of(log), thread, time_ns,   begin_ns,
                               (uint64_t)call, size,   alignment, object};
    return put(log, AX_TABLE_FAILED, values);
}

/* ---- what lives where -------------------------------------------------------------------------
 */

static uint64_t packed(uint32_t object, uint32_t site)
{
    return (uint64_t)site << 32 | object;
}

static int hold(ax_rawlog_stream *s, uint64_t address, int live, uint64_t ticks)
{
    s->wait_address = address;
    s->wait_live = (uint8_t)live;
    s->wait_until = s->key > UINT64_MAX - ticks ? UINT64_MAX : s->key + ticks;
    return AX_RAWLOG_HELD;
}

/* Waits for an address to come to life, where that may be. */
static int await(ax_rawlog *log, ax_rawlog_stream *s, uint64_t address)
{
    const int held = hold(s, address, 1, AX_RAWLOG_WAIT_ALLOC);
    const int may = address ? ax_rawlog_may_come(log, s, address, s->wait_until) : 0;
    return may == 1 ? held : may;
}

/* Makes an address free of what lives there: by waiting, or by taking it as freed. */
static int make_room(ax_rawlog *log, ax_rawlog_stream *s, uint64_t address, int may_wait)
{
    ax_idmap_slot *slot = ax_idmap_find(&log->live, address);
    if (!slot) {
        return AX_OK;
    }
    if (may_wait) {
        return hold(s, address, 0, AX_RAWLOG_WAIT_FREE);
    }
    const event lost = {.op = AX_OP_FREE,
                        .object = (uint32_t)slot->value,
                        .site = (uint32_t)(slot->value >> 32),
                        .call = AX_MADE_BY_UNKNOWN};
    const int status = put_event(log, s, &lost);
    if (status == AX_OK) {
        log->counts[AX_RAWLOG_FREES_INFERRED]++;
        ax_idmap_remove(&log->live, slot);
    }
    return status;
}

/* A new object at an address that is free. */
static int put_alloc(ax_rawlog *log, ax_rawlog_stream *s, uint64_t size, uint64_t alignment,
                     int call)
{
    uint32_t site = 0;
    if (log->objects == UINT32_MAX) {
        return AX_ERR_OVERFLOW;
    }
    int status = ax_idmap_reserve(&log->live, sizeof(ax_idmap_slot), &log->books);
    if (status == AX_OK) {
        status = site_of(log, s->record.site, &site);
    }
    if (status == AX_OK) {
        const event made = {.op = AX_OP_ALLOC,
                            .object = (uint32_t)log->objects,
                            .site = site,
                            .size = size,
                            .align_log2 = log2_of(alignment),
                            .call = call};
        status = put_event(log, s, &made);
    }
    if (status == AX_OK && (alignment & (alignment - 1)) != 0) {
        const uint64_t asked[] = {events_of(log) - 1, alignment};
        log->counts[AX_RAWLOG_ALIGNMENTS_RAISED]++;
        status = put(log, AX_TABLE_ASKED_ALIGN, asked);
    }
    if (status == AX_OK) {
        ax_idmap_slot *slot = ax_idmap_add(&log->live, s->record.address);
        slot->value = packed((uint32_t)log->objects++, site);
    }
    return status;
}

/* Gives an object that has one no longer an address that is free. */
static int settle(ax_rawlog *log, uint64_t address, uint32_t object, uint32_t site)
{
    const int status = ax_idmap_reserve(&log->live, sizeof(ax_idmap_slot), &log->books);
    if (status == AX_OK) {
        ax_idmap_slot *slot = ax_idmap_add(&log->live, address);
        slot->value = packed(object, site);
    }
    return status;
}

/* ---- records ----------------------------------------------------------------------------------
 */

static int take_alloc(ax_rawlog *log, ax_rawlog_stream *s, int may_wait)
{
    const ax_rawlog_record *r = &s->record;
    const int call = r->kind - AX_RAWLOG_MALLOC + AX_MADE_BY_MALLOC;
    if (r->failed || r->address == 0) {
        log->counts[AX_RAWLOG_FAILED_ALLOCS]++;
        return put_failed(log, s, call, r->size, r->alignment, NO_OBJECT, r->stamp);
    }
    const int status = make_room(log, s, r->address, may_wait);
    if (status != AX_OK) {
        return status;
    }
    log->counts[AX_RAWLOG_REALLOCS_OF_NULL] +=
        call == AX_MADE_BY_REALLOC || call == AX_MADE_BY_REALLOCARRAY;
    return put_alloc(log, s, r->size, r->alignment, call);
}

static int take_free(ax_rawlog *log, ax_rawlog_stream *s, int may_wait)
{
    const ax_rawlog_record *r = &s->record;
    const int deletes = r->kind == AX_RAWLOG_DELETE;
    ax_idmap_slot *slot = ax_idmap_find(&log->live, r->address);
    if (!slot) {
        const int status = may_wait ? await(log, s, r->address) : AX_OK;
        if (status != AX_OK) {
            return status;
        }
        log->counts[deletes ? AX_RAWLOG_DELETES_OF_UNKNOWN : AX_RAWLOG_FREES_OF_UNKNOWN]++;
        return AX_OK;
    }
    const event freed = {.op = AX_OP_FREE,
                         .object = (uint32_t)slot->value,
                         .site = (uint32_t)(slot->value >> 32),
                         .call = deletes ? AX_MADE_BY_DELETE : AX_MADE_BY_FREE};
    ax_idmap_remove(&log->live, slot);
    return put_event(log, s, &freed);
}

/* What began has not ended: its object is where it was, unless somebody else is there by now. */
static int undo_realloc(ax_rawlog *log, ax_rawlog_thread *thread)
{
    int status = AX_OK;
    log->counts[AX_RAWLOG_REALLOCS_UNFINISHED]++;
    thread->in_realloc = 0;
    if (thread->known && !ax_idmap_find(&log->live, thread->old_address)) {
        status = settle(log, thread->old_address, thread->object, thread->site);
    }
    return status;
}

static int take_realloc_begin(ax_rawlog *log, ax_rawlog_stream *s, int may_wait)
{
    const ax_rawlog_record *r = &s->record;
    ax_rawlog_thread *thread = &log->threads[s->thread];
    if (thread->in_realloc) {
        const int status = undo_realloc(log, thread);
        if (status != AX_OK) {
            return status;
        }
    }
    ax_idmap_slot *slot = ax_idmap_find(&log->live, r->address);
    if (!slot && may_wait) {
        const int status = await(log, s, r->address);
        if (status != AX_OK) {
            return status;
        }
    }
    thread->in_realloc = 1;
    thread->known = slot != NULL;
    thread->call =
        r->kind == AX_RAWLOG_REALLOC_BEGIN ? AX_MADE_BY_REALLOC : AX_MADE_BY_REALLOCARRAY;
    thread->old_address = r->address;
    thread->size = r->size;
    thread->stamp = r->stamp;
    thread->object = slot ? (uint32_t)slot->value : 0;
    thread->site = slot ? (uint32_t)(slot->value >> 32) : 0;
    if (slot) {
        ax_idmap_remove(&log->live, slot);
    }
    return AX_OK;
}

/* What the realloc of a thread did is the last event. */
static int put_realloc_begin(ax_rawlog *log, const ax_rawlog_thread *thread)
{
    const uint64_t begin[] = {events_of(log) - 1, begin_of(log, thread->stamp)};
    return put(log, AX_TABLE_REALLOC_BEGIN, begin);
}

/* A realloc that answered an address, of an object that has none in between. */
static int put_realloc(ax_rawlog *log, ax_rawlog_stream *s, const ax_rawlog_thread *thread)
{
    const event resized = {.op = AX_OP_REALLOC,
                           .object = thread->object,
                           .site = thread->site,
                           .size = thread->size,
                           .call = thread->call};
    int status = ax_idmap_reserve(&log->live, sizeof(ax_idmap_slot), &log->books);
    if (status == AX_OK) {
        status = put_event(log, s, &resized);
    }
    if (status == AX_OK) {
        status = put_realloc_begin(log, thread);
    }
    if (status == AX_OK) {
        status = settle(log, s->record.address, thread->object, thread->site);
    }
    return status;
}

static int take_realloc_end(ax_rawlog *log, ax_rawlog_stream *s, int may_wait)
{
    const ax_rawlog_record *r = &s->record;
    ax_rawlog_thread *thread = &log->threads[s->thread];
    if (!thread->in_realloc && (r->failed || r->address == 0)) {
        log->counts[AX_RAWLOG_REALLOC_ENDS_ALONE]++;
        return AX_OK;
    }
    /* Where the object is now: it failed, so it is where it was. */
    const uint64_t address = !r->failed ? r->address : thread->known ? thread->old_address : 0;
    if (address) {
        const int status = make_room(log, s, address, may_wait);
        if (status != AX_OK) {
            return status;
        }
    }
    if (!thread->in_realloc) {
        log->counts[AX_RAWLOG_REALLOC_ENDS_ALONE]++;
        return put_alloc(log, s, r->size, 0, AX_MADE_BY_REALLOC);
    }
    thread->in_realloc = 0;
    if (r->failed) {
        log->counts[AX_RAWLOG_FAILED_REALLOCS]++;
        int status = put_failed(log, s, thread->call, thread->size, 0,
                                thread->known ? thread->object : NO_OBJECT, thread->stamp);
        if (status == AX_OK && thread->known) {
            status = settle(log, address, thread->object, thread->site);
        }
        return status;
    }
    if (!thread->known) {
        if (address == 0) {
            log->counts[AX_RAWLOG_REALLOCS_OF_UNKNOWN_FREED]++;
            return AX_OK;
        }
        log->counts[AX_RAWLOG_REALLOCS_OF_UNKNOWN]++;
        const int status = put_alloc(log, s, thread->size, 0, thread->call);
        return status == AX_OK ? put_realloc_begin(log, thread) : status;
    }
    if (address == 0) {
        const event freed = {
            .op = AX_OP_FREE, .object = thread->object, .site = thread->site, .call = thread->call};
        log->counts[AX_RAWLOG_REALLOCS_TO_NULL]++;
        const int status = put_event(log, s, &freed);
        return status == AX_OK ? put_realloc_begin(log, thread) : status;
    }
    return put_realloc(log, s, thread);
}

static int take_usable_size(ax_rawlog *log, ax_rawlog_stream *s)
{
    const ax_rawlog_record *r = &s->record;
    uint64_t thread = 0;
    const ax_idmap_slot *slot = ax_idmap_find(&log->live, r->address);
    if (!slot) {
        log->counts[AX_RAWLOG_USABLE_SIZES_OF_UNKNOWN]++;
        return AX_OK;
    }
    const int status = dense_of(log, s, &thread);
    if (status != AX_OK) {
        return status;
    }
    const uint64_t values[] = {events_of(log), thread, time_of(log, r->stamp),
                               (uint32_t)slot->value, r->size};
    return put(log, AX_TABLE_USABLE_SIZE, values);
}

static int take_map(ax_rawlog *log, ax_rawlog_stream *s)
{
    const ax_rawlog_record *r = &s->record;
    uint64_t thread = 0;
    if (r->failed) {
        log->counts[AX_RAWLOG_FAILED_MAPS]++;
        return AX_OK;
    }
    const int status = dense_of(log, s, &thread);
    if (status != AX_OK) {
        return status;
    }
    const int moves = r->kind == AX_RAWLOG_MREMAP;
    const uint64_t values[] = {events_of(log),
                               thread,
                               time_of(log, r->stamp),
                               (uint64_t)(r->kind - AX_RAWLOG_MMAP),
                               r->address,
                               r->size,
                               moves ? 0 : (uint32_t)r->extra[0],
                               r->kind == AX_RAWLOG_MMAP ? r->extra[0] >> 32 : 0,
                               moves ? r->extra[0] : 0,
                               moves ? r->extra[1] : 0};
    return put(log, AX_TABLE_MAPS, values);
}

int ax_rawlog_take(ax_rawlog *log, ax_rawlog_stream *s, int may_wait)
{
    switch (s->record.kind) {
    case AX_RAWLOG_FREE:
    case AX_RAWLOG_DELETE:
        return take_free(log, s, may_wait);
    case AX_RAWLOG_REALLOC_BEGIN:
    case AX_RAWLOG_REALLOCARRAY_BEGIN:
        return take_realloc_begin(log, s, may_wait);
    case AX_RAWLOG_REALLOC_END:
        return take_realloc_end(log, s, may_wait);
    case AX_RAWLOG_USABLE_SIZE:
        return take_usable_size(log, s);
    case AX_RAWLOG_MMAP:
    case AX_RAWLOG_MUNMAP:
    case AX_RAWLOG_MPROTECT:
    case AX_RAWLOG_MREMAP:
        return take_map(log, s);
    case AX_RAWLOG_FORK:
        log->counts[AX_RAWLOG_FORKS]++;
        return AX_OK;
    default:
        return take_alloc(log, s, may_wait);
    }
}

void ax_rawlog_end_events(ax_rawlog *log)
{
    for (size_t i = 0; i < log->threads_found; i++) {
        log->counts[AX_RAWLOG_REALLOCS_UNFINISHED] += log->threads[i].in_realloc;
    }
    /* Room for further rows goes back; a column that is refused to keeps it. */
    for (int i = 0; i < AX_TABLES; i++) {
        ax_rawlog_table *table = &log->tables[i];
        for (int k = 0; k < table->columns; k++) {
            ax_rawlog_column *one = &table->column[k];
            if (table->rows > 0 && one->capacity > table->rows) {
                (void)ax_grow_to(&log->books, &one->array, &one->capacity, table->rows,
                                 one->item_bytes);
            }
        }
    }
}
