#include "timeline.h"

#include <string.h>

/* What lives in an arena. */
typedef struct share {
    uint64_t id;
    uint64_t bytes;
    uint64_t objects;
} share;

int ax_timeline_begin(ax_timeline *timeline, const ax_trace_view *trace, const uint64_t *edges,
                      size_t rows, ax_detail *detail)
{
    memset(timeline, 0, sizeof *timeline);
    timeline->trace = *trace;
    ax_seam_init(&timeline->books, AX_BACKING_REAL);
    uint64_t before = 0;
    for (size_t i = 0; i <= rows; i++) {
        const uint64_t least = i == rows ? trace->events : before;
        const uint64_t most = i == 0 && rows ? 0 : trace->events;
        if (edges[i] < least || edges[i] > most) {
            return ax_fail(detail, AX_ERR_RANGE, "edge", edges[i], least, most, 0);
        }
        before = edges[i];
    }
    if (rows == 0 && trace->events) {
        return ax_fail(detail, AX_ERR_RANGE, "rows", rows, 1, SIZE_MAX, 0);
    }
    int status = ax_grow_to(&timeline->books, &timeline->edges, &timeline->edge_capacity, rows + 1,
                            sizeof *timeline->edges);
    if (status == AX_OK) {
        memcpy(timeline->edges, edges, (rows + 1) * sizeof *edges);
        status = ax_grow_to(&timeline->books, &timeline->out, &timeline->out_capacity, rows + 1,
                            sizeof *timeline->out);
    }
    if (status != AX_OK) {
        return ax_fail(detail, status, NULL, 0, 0, 0, 0);
    }
    memset(timeline->out, 0, (rows + 1) * sizeof *timeline->out);
    for (size_t i = 0; i < rows; i++) {
        timeline->out[i].most_bytes_event = AX_NO_OBJECT;
    }
    timeline->rows = rows;
    return AX_OK;
}

void ax_timeline_finish(ax_timeline *timeline)
{
    ax_seam *books = &timeline->books;
    ax_grow_free(books, &timeline->edges, &timeline->edge_capacity, sizeof *timeline->edges);
    ax_grow_free(books, &timeline->out, &timeline->out_capacity, sizeof *timeline->out);
    ax_grow_free(books, &timeline->object_size, &timeline->object_size_capacity,
                 sizeof *timeline->object_size);
    ax_idmap_free(&timeline->shares, books);
}

/* What lives in an arena, which begins here if it is not known; NULL without memory. */
static share *share_of(ax_timeline *t, uint32_t arena)
{
    share *found = ax_idmap_find(&t->shares, (uint64_t)arena + 1);
    if (!found && ax_idmap_reserve(&t->shares, sizeof(share), &t->books) == AX_OK) {
        found = ax_idmap_add(&t->shares, (uint64_t)arena + 1);
        found->bytes = 0;
        found->objects = 0;
    }
    return found;
}

static int refuse(ax_timeline *t, int status, const char *what, uint64_t value, ax_detail *detail)
{
    t->refused = 1;
    /* No value would be right: the trace has changed since it was checked. */
    return ax_fail(detail, status, what, value, 1, 0, t->next);
}

/* Adds `size` bytes in the place of `old`. */
static int resize(ax_timeline *t, ax_timeline_row *row, uint64_t size, uint64_t old,
                  ax_detail *detail)
{
    const uint64_t rest = t->live_bytes - old;
    if (size > UINT64_MAX - rest) {
        return refuse(t, AX_ERR_OVERFLOW, "live bytes do not fit 64 bits", size, detail);
    }
    if (size > UINT64_MAX - row->allocated_bytes) {
        return refuse(t, AX_ERR_OVERFLOW, "allocated bytes do not fit 64 bits", size, detail);
    }
    t->live_bytes = rest + size;
    row->allocated_bytes += size;
    return AX_OK;
}

static int walk_event(ax_timeline *t, ax_timeline_row *row, ax_detail *detail)
{
    const size_t i = t->next;
    const uint8_t op = t->trace.op[i];
    const uint64_t object = ax_trace_object(&t->trace, i);
    const uint64_t size = t->trace.size_bytes[i];
    share *own = NULL;
    if (t->trace.arena) {
        own = share_of(t, t->trace.arena[i]);
        if (!own) {
            return refuse(t, AX_ERR_NOMEM, NULL, 0, detail);
        }
    }
    if (op == AX_OP_DESTROY) {
        row->destroys++;
        if (own) {
            t->live_bytes -= own->bytes;
            t->live_objects -= own->objects;
            own->bytes = 0;
            own->objects = 0;
        }
        return AX_OK;
    }
    if (op == AX_OP_ALLOC) {
        if (object != t->objects) {
            return refuse(t, AX_ERR_EVENT_ORDER,
                          "objects must be numbered in the order of their "
                          "allocation",
                          object, detail);
        }
        const int grown = ax_grow_array(&t->books, &t->object_size, &t->object_size_capacity,
                                        (size_t)object + 1, sizeof *t->object_size);
        if (grown != AX_OK) {
            return refuse(t, grown, NULL, 0, detail);
        }
        const int status = resize(t, row, size, 0, detail);
        if (status != AX_OK) {
            return status;
        }
        t->objects++;
        t->live_objects++;
        row->allocs++;
        t->object_size[object] = size;
        if (own) {
            own->bytes += size;
            own->objects++;
        }
        return AX_OK;
    }
    if (op > AX_OP_DESTROY) {
        return refuse(t, AX_ERR_EVENT_OP, "unknown operation", op, detail);
    }
    if (object >= t->objects) {
        return refuse(t, AX_ERR_EVENT_OBJECT, "an object that was never allocated", object, detail);
    }
    const uint64_t old = t->object_size[object];
    if (op == AX_OP_FREE) {
        row->frees++;
        t->live_objects--;
        t->live_bytes -= old;
        if (own) {
            own->bytes -= old;
            own->objects--;
        }
        return AX_OK;
    }
    const int status = resize(t, row, size, old, detail);
    if (status != AX_OK) {
        return status;
    }
    row->reallocs++;
    t->object_size[object] = size;
    if (own) {
        own->bytes += size - old;
    }
    return AX_OK;
}

/* A row begins with the state that it found. */
static void settle(const ax_timeline *t, ax_timeline_row *row)
{
    row->live_bytes = t->live_bytes;
    row->live_objects = t->live_objects;
    if (row->most_bytes_event == AX_NO_OBJECT) {
        row->least_live_bytes = row->most_live_bytes = t->live_bytes;
        row->least_live_objects = row->most_live_objects = t->live_objects;
    }
}

static void note(const ax_timeline *t, ax_timeline_row *row)
{
    if (row->most_bytes_event == AX_NO_OBJECT) {
        settle(t, row);
        row->most_bytes_event = t->next;
        return;
    }
    row->live_bytes = t->live_bytes;
    row->live_objects = t->live_objects;
    if (t->live_bytes > row->most_live_bytes) {
        row->most_live_bytes = t->live_bytes;
        row->most_bytes_event = t->next;
    }
    if (t->live_bytes < row->least_live_bytes) {
        row->least_live_bytes = t->live_bytes;
    }
    if (t->live_objects > row->most_live_objects) {
        row->most_live_objects = t->live_objects;
    }
    if (t->live_objects < row->least_live_objects) {
        row->least_live_objects = t->live_objects;
    }
}

int ax_timeline_step(ax_timeline *timeline, size_t events, ax_detail *detail)
{
    const size_t left = timeline->trace.events - timeline->next;
    const size_t end = timeline->next + (events < left ? events : left);
    if (timeline->refused) {
        return ax_fail(detail, AX_ERR_STATE, "timeline of a trace that was refused", 0, 0, 0, 0);
    }
    while (timeline->next < end) {
        while (timeline->next >= timeline->edges[timeline->row + 1]) {
            settle(timeline, &timeline->out[timeline->row]);
            timeline->row++;
        }
        ax_timeline_row *row = &timeline->out[timeline->row];
        const int status = walk_event(timeline, row, detail);
        if (status != AX_OK) {
            return status;
        }
        note(timeline, row);
        timeline->next++;
    }
    if (timeline->next == timeline->trace.events) {
        for (size_t i = timeline->row; i < timeline->rows; i++) {
            settle(timeline, &timeline->out[i]);
        }
    }
    return AX_OK;
}
