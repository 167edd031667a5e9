/* replay_arena: a trace driven through arenas, by one of two engines behind one decoder of events.
 *
 *     trace columns ──decoder──▶ alloc(list) / free(list) / close(arena)
 *                        │            ├──▶ AX_ENGINE_ARENA  ax_arenas itself, any policy
 *                        │            └──▶ AX_ENGINE_CURVE  ax_curve, all byte cuts in one pass
 *                        └─ word[object]: 0 dead, AX_BYPASSED, or list + 1
 *
 * What the decoder decides:
 *  - The key of a request is its key (0 where the trace has none) together with its size rounded up
 * to the alignment (a size of 0 counts as 1), so one key never holds two sizes.
 *  - A request above max_object_bytes, of an alloc or a realloc, bypasses the arena and is counted.
 *  - A realloc that keeps the key is nothing; otherwise an alloc of the new, then a free of the
 * old.
 *  - The arena is the trace's arena, the thread, or the only one (arena_by). A realloc stays in the
 *    arena of its object.
 *  - A destroy closes its arena; a later allocation opens a new one under the same number.
 *
 * Sums over events take the state after each event; peaks are over the states after each list
 * operation, so they see the middle of a realloc as well.
 *
 * Memory: one u32 per live object, two where arenas can die, and one record per list. The words lie
 * in mapped tables, object by object; since objects are numbered as they are allocated, the dead
 * ones soon fill whole pages, and those are given back as the trace goes (trim). The real backing
 * keeps the address of each object too.
 */
#ifndef AX_REPLAY_ARENA_H
#define AX_REPLAY_ARENA_H

#include "arena.h"
#include "curve.h"
#include "trace.h"

enum ax_engine { AX_ENGINE_ARENA, AX_ENGINE_CURVE };
enum ax_arena_by { AX_ARENA_BY_ONE, AX_ARENA_BY_THREAD, AX_ARENA_BY_ARENA, AX_ARENA_BYS };

#define AX_BYPASSED UINT32_MAX

typedef struct ax_replay {
    ax_trace_view trace; /* borrowed */
    size_t at;           /* the next event */
    int status;          /* not AX_OK: a step failed and the replay is over */
    ax_detail detail;    /* of that failure */
    enum ax_engine engine;
    enum ax_arena_by arena_by;
    uint64_t max_object_bytes;
    uint64_t objects;
    uint64_t arena_ids;
    uint32_t *word;
    uint8_t *kept;        /* per group of words: not given back */
    uint64_t groups;      /* groups that kept speaks of */
    uint64_t kept_groups; /* how many of them are kept */
    uint64_t trim_at;     /* look for dead groups when so many are kept */
    uint64_t *address;    /* real backing only */
    uint32_t *life;       /* arena_by ARENA only: of the arena that the object lives in */
    uint32_t *arena_of;   /* arena id of the trace -> arena of the set, or AX_NO_LIST */
    uint32_t *direct; /* rounded size / alignment -> list + 1; where the size alone is the key */
    uint64_t direct_room;
    uint32_t alignment_log2;
    uint64_t end_ns;
    uint64_t bypassed;
    uint64_t overhead_events; /* engine ARENA: sum over events of capacity - length */
    ax_u128 overhead_ns;
    ax_keymap keys;
    ax_arenas set; /* engine CURVE: only its arenas' pools are used */
    ax_curve curve;
    ax_seam seam;
    ax_seam books;
} ax_replay;

typedef struct ax_replay_options {
    ax_arena_params params;
    enum ax_engine engine;
    enum ax_backing backing;
    enum ax_arena_by arena_by;
    uint64_t max_object_bytes;    /* 0: the payload of a standard chunk */
    uint64_t objects;             /* how many the trace has */
    uint64_t arena_ids;           /* arenas (or threads) are numbered below this */
    const uint64_t *retain_bytes; /* engine CURVE: strictly rising, from 0 */
    uint32_t thresholds;
    uint64_t fail_at; /* fail this attempt of the allocator's seam; 0: none */
} ax_replay_options;

int ax_replay_begin(ax_replay *replay, const ax_trace_view *trace, const ax_replay_options *options,
                    ax_detail *detail);
/* At most `events` more; *left says how many remain. */
int ax_replay_step(ax_replay *replay, size_t events, size_t *left, ax_detail *detail);
void ax_replay_end(ax_replay *replay);

typedef struct ax_replay_row {
    uint64_t retain_bytes;
    uint64_t pops, pops_large, transitions, bumps;
    uint64_t list_mallocs, list_reallocs, list_frees, list_frees_at_close, list_bytes_moved;
    uint64_t overhead_bytes_end, overhead_bytes_peak;
    double overhead_bytes_mean;    /* per event */
    double overhead_bytes_mean_ns; /* per ns; NaN where times are unknown */
    uint64_t held_bytes_end;       /* all that the backing handed out: chunks and list buffers */
    uint64_t chunk_bytes_end, freelist_bytes_end, slop_bytes_end, live_bytes_end, leaked_bytes_end;
    uint64_t chunk_mallocs, arenas_end, lists_end, bypassed;
    uint64_t histogram_peak[AX_RUNGS], histogram_buffer[AX_RUNGS];
} ax_replay_row;

/* Rows of a finished replay: one for engine ARENA, one per threshold for engine CURVE. */
uint32_t ax_replay_rows(const ax_replay *replay);
int ax_replay_row_get(const ax_replay *replay, uint32_t row, ax_replay_row *out);

#endif
