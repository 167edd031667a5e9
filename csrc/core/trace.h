/* trace: the ordered events of one run, as columns of equal length.
 *
 *     event      0      1      2      3      4      5
 *     op         alloc  alloc  free   alloc  realloc destroy
 *     object     0      1      0      2      1      AX_NO_OBJECT
 *     size_bytes 48     8      0      48     16     0          request size; 0 for free and destroy
 *     thread     0      0      1      0      0      0          dense
 *     arena      0      0      0      1      0      0          optional; dense
 *
 * The k-th allocation makes object k, so ids are dense and the number of objects is the number of
 * allocations. A realloc keeps its object. A destroy (only where there is an arena column) ends an
 * arena and every object that still lives in it; the arena's number may be used again afterwards.
 * In a free or realloc the arena is the one that owns the object.
 *
 * The core borrows the columns (they may be a mapped file) and trusts none of their values: whoever
 * walks them checks ids as it goes, so a file that changes under us cannot make us write astray.
 */
#ifndef AX_TRACE_H
#define AX_TRACE_H

#include <stddef.h>
#include <stdint.h>

#include "idmap.h"

enum ax_op { AX_OP_ALLOC = 0, AX_OP_FREE = 1, AX_OP_REALLOC = 2, AX_OP_DESTROY = 3, AX_OPS = 4 };

/* Which function of the program made an event. Nobody here looks at it; readers fill it. */
enum ax_made_by {
    AX_MADE_BY_UNKNOWN = 0,
    AX_MADE_BY_MALLOC = 1,
    AX_MADE_BY_CALLOC = 2,
    AX_MADE_BY_REALLOC = 3, /* of NULL: an alloc; to NULL with size 0: a free */
    AX_MADE_BY_REALLOCARRAY = 4,
    AX_MADE_BY_POSIX_MEMALIGN = 5,
    AX_MADE_BY_ALIGNED_ALLOC = 6,
    AX_MADE_BY_MEMALIGN = 7,
    AX_MADE_BY_VALLOC = 8,
    AX_MADE_BY_PVALLOC = 9,
    AX_MADE_BY_NEW = 10,
    AX_MADE_BY_FREE = 11,
    AX_MADE_BY_DELETE = 12,
    AX_MADE_BY = 13
};

#define AX_NO_OBJECT UINT64_MAX /* in a u32 column: UINT32_MAX */

typedef struct ax_trace_view {
    size_t events;
    const uint8_t *op;
    const void *object; /* u32 or u64, see object_is_u64 */
    const uint64_t *size_bytes;
    const uint32_t *thread;  /* NULL: one thread */
    const uint32_t *key;     /* NULL: unknown */
    const uint32_t *arena;   /* NULL: one arena */
    const uint64_t *time_ns; /* NULL: unknown */
    int object_is_u64;
} ax_trace_view;

static inline uint64_t ax_trace_object(const ax_trace_view *t, size_t i)
{
    return t->object_is_u64 ? ((const uint64_t *)t->object)[i] : ((const uint32_t *)t->object)[i];
}

/* The check of a trace, resumable: begin, step until next == trace.events, finish.
 *
 *     AX_ERR_EVENT_OP      an op that does not exist
 *     AX_ERR_EVENT_ORDER   the k-th alloc does not make object k
 *     AX_ERR_EVENT_OBJECT  free or realloc of an object that was never allocated,
 *                          destroy of an object
 *     AX_ERR_EVENT_DEAD    free or realloc of an object that was freed or died with its arena
 *     AX_ERR_EVENT_ARENA   free or realloc in an arena that does not own the object,
 *                          destroy without an arena column
 *     AX_ERR_EVENT_TIME    a time before the time of the event before it
 *     AX_ERR_OVERFLOW      more objects than a u32 object column can number
 *
 * A destroy of an arena in which nothing lives is allowed: making an arena is not an event, so an
 * arena that was made and ended unused shows up as just that. Sizes of free and destroy are not
 * looked at.
 *
 * Memory: one bit an object, and with an arena column one word an object. An object points at the
 * lifetime of its arena; a destroy ends the lifetime, so that it costs the same however many
 * objects die with it:
 *
 *     owner[object] -> lifetime    arena_of[lifetime] -> arena    lifetime_of[arena] -> the current
 */
typedef struct ax_trace_check {
    ax_trace_view trace;
    ax_seam books;    /* its own; a summary has no other */
    size_t next;      /* events before this one are checked */
    uint64_t objects; /* allocated so far */
    uint64_t last_time_ns;
    uint64_t *live; /* a bit an object: not freed (its arena may have ended) */
    size_t live_capacity;
    size_t *owner;
    size_t owner_capacity;
    uint32_t *arena_of;
    size_t lifetimes;
    size_t lifetime_capacity;
    ax_idmap lifetime_of; /* arena + 1 -> its current lifetime */
} ax_trace_check;

void ax_trace_check_begin(ax_trace_check *check, const ax_trace_view *trace);

/* Checks at most `events` further events. After a refusal `next` is the event refused, and a
 * further step answers the same; after AX_ERR_NOMEM it may succeed. */
int ax_trace_check_step(ax_trace_check *check, size_t events, ax_detail *detail);

void ax_trace_check_finish(ax_trace_check *check);

/* All of the above in one call. */
int ax_trace_validate(const ax_trace_view *trace, ax_detail *detail);

typedef struct ax_trace_totals {
    uint64_t by_op[AX_OPS]; /* events */
    uint64_t objects;
    uint64_t live_bytes; /* now; request sizes */
    uint64_t live_objects;
    uint64_t peak_live_bytes;   /* the first moment at which live_bytes was largest ... */
    uint64_t peak_live_objects; /* ... and the objects live then */
    uint64_t peak_event;        /* ... after this event */
    uint64_t most_live_objects; /* the largest live_objects, whenever that was */
    uint64_t allocated_bytes;   /* the request sizes of all allocs and reallocs */
    uint64_t largest_size_bytes;
    uint64_t distinct_sizes; /* of allocs and reallocs */
    uint64_t threads;
    uint64_t arenas;
    uint64_t keys;
    uint64_t
        cross_thread_frees; /* by another thread than the one that allocated or last realloced */
    uint64_t first_time_ns;
    uint64_t last_time_ns;
} ax_trace_totals;

/* The totals of a trace, resumable like the check, which runs along: the totals of a mapped file
 * that changed under us may be wrong, but making them never leaves our memory. 12 bytes an object.
 */
typedef struct ax_trace_summary {
    ax_trace_check check;
    ax_trace_totals totals;
    uint64_t *object_size;
    size_t object_size_capacity;
    uint32_t *object_thread;
    size_t object_thread_capacity;
    struct ax_trace_share {
        uint64_t bytes;
        uint64_t objects;
    } *lifetime_share; /* what lives in each lifetime of an arena */
    size_t lifetime_share_capacity;
    ax_idmap sizes; /* this and the next three are sets */
    ax_idmap threads;
    ax_idmap arenas;
    ax_idmap keys;
    int refused;
} ax_trace_summary;

void ax_trace_summary_begin(ax_trace_summary *summary, const ax_trace_view *trace);

/* As ax_trace_check_step; and AX_ERR_OVERFLOW where a sum of sizes does not fit 64 bits. After any
 * refusal the totals are of no use, and a further step answers AX_ERR_STATE. */
int ax_trace_summary_step(ax_trace_summary *summary, size_t events, ax_detail *detail);

void ax_trace_summary_finish(ax_trace_summary *summary);

#endif
