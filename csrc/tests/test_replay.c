/* replay_arena: both engines read a trace alike, refuse what is wrong in it, and end clean. */
#include "check.h"

#include <math.h>
#include <string.h>

#include "../core/replay_arena.h"

enum { A = AX_OP_ALLOC, F = AX_OP_FREE, R = AX_OP_REALLOC, D = AX_OP_DESTROY };

#define CUTS 4
static const uint64_t cuts[CUTS] = {0, 31, 64, UINT64_MAX};

/* A trace with all columns; a view shows those that a test wants. */
#define ROOM 400
typedef struct columns {
    size_t n;
    uint64_t objects;
    uint8_t op[ROOM];
    uint32_t object[ROOM];
    uint64_t wide[ROOM];
    uint64_t size[ROOM];
    uint32_t thread[ROOM];
    uint32_t key[ROOM];
    uint32_t arena[ROOM];
    uint64_t time[ROOM];
} columns;

static ax_trace_view plain_view(const columns *c)
{
    return (ax_trace_view){.events = c->n, .op = c->op, .object = c->object, .size_bytes = c->size};
}

static ax_replay_options default_options(const columns *c)
{
    ax_replay_options options = {
        .engine = AX_ENGINE_ARENA,
        .backing = AX_BACKING_MODELLED,
        .arena_by = AX_ARENA_BY_ONE,
        .objects = c->objects,
        .arena_ids = 3,
        .retain_bytes = cuts,
        .thresholds = CUTS,
    };
    ax_arena_params_default(&options.params);
    options.params.shape.chunk_bytes = 512;
    options.params.large_capacity = 3;
    options.params.check_poison = 1;
    return options;
}

/* A valid trace of three arenas, in waves, so that lists fill and empty. */
static void random_trace(columns *c, uint64_t random, int destroys)
{
    static const uint64_t sizes[] = {0, 1, 8, 9, 24, 100, 480, 488, 489, 900};
    uint32_t live[ROOM];
    uint32_t owner[ROOM];
    uint32_t alive = 0;
    uint64_t now = 0;
    memset(c, 0, sizeof *c);
    for (; c->n < ROOM; c->n++) {
        size_t i = c->n;
        uint64_t r = next_random(&random);
        int rising = (i / 25) % 2 == 0;
        uint64_t kind = r % 16;
        c->size[i] = sizes[(r >> 8) % 10];
        c->thread[i] = (uint32_t)(r >> 16) % 3;
        c->key[i] = (uint32_t)(r >> 24) % 2;
        c->arena[i] = (uint32_t)(r >> 32) % 3;
        now += (r >> 40) % 4;
        c->time[i] = now;
        uint32_t which = alive ? (uint32_t)(r >> 48) % alive : 0;
        if (destroys && kind == 15) {
            c->op[i] = D;
            c->object[i] = UINT32_MAX;
            for (uint32_t k = 0; k < alive;) {
                if (owner[k] == c->arena[i]) {
                    live[k] = live[--alive];
                    owner[k] = owner[alive];
                } else {
                    k++;
                }
            }
        } else if (alive && kind >= 13) {
            c->op[i] = R;
            c->object[i] = live[which];
            c->arena[i] = owner[which];
        } else if (alive && (rising ? kind < 3 : kind < 11)) {
            c->op[i] = F;
            c->object[i] = live[which];
            c->arena[i] = owner[which];
            live[which] = live[--alive];
            owner[which] = owner[alive];
        } else {
            c->op[i] = A;
            c->object[i] = (uint32_t)c->objects++;
            live[alive] = c->object[i];
            owner[alive++] = c->arena[i];
        }
        c->wide[i] = c->object[i];
    }
}

static void ended(ax_replay *r)
{
    ax_replay_end(r);
    CHECK(r->seam.bytes_held == 0);
    CHECK(r->seam.calls[AX_CALL_MALLOC] == r->seam.calls[AX_CALL_FREE]);
    CHECK(r->books.bytes_held == 0 && r->books.mapped_bytes == 0);
    CHECK(r->books.calls[AX_CALL_MALLOC] == r->books.calls[AX_CALL_FREE]);
    CHECK(r->books.calls[AX_CALL_MAP] == r->books.calls[AX_CALL_UNMAP]);
    ax_replay_end(r); /* twice is nothing */
    CHECK(r->books.mapped_bytes == 0);
}

/* Runs a trace that must pass; one row for engine ARENA, CUTS for engine CURVE. */
static void run(const ax_trace_view *view, const ax_replay_options *options, size_t step,
                ax_replay_row *rows)
{
    ax_replay r;
    ax_detail detail = {0};
    int status = ax_replay_begin(&r, view, options, &detail);
    CHECK(status == AX_OK);
    if (status != AX_OK) {
        return;
    }
    size_t left = view->events;
    do {
        size_t before = left;
        CHECK(view->events == 0 || ax_replay_row_get(&r, 0, &rows[0]) == AX_ERR_STATE);
        CHECK(ax_replay_step(&r, 0, &left, NULL) == AX_OK && left == before);
        status = ax_replay_step(&r, step, &left, &detail);
        CHECK(status == AX_OK && left == before - (before < step ? before : step));
        if (r.engine == AX_ENGINE_ARENA) {
            CHECK(ax_arenas_check(&r.set, NULL) == AX_OK);
        }
    } while (left && status == AX_OK);
    CHECK(ax_replay_step(&r, 5, &left, NULL) == AX_OK && left == 0); /* past the end: nothing */
    uint32_t n = options->engine == AX_ENGINE_CURVE ? CUTS : 1;
    CHECK(ax_replay_rows(&r) == n);
    for (uint32_t i = 0; i < n; i++) {
        CHECK(ax_replay_row_get(&r, i, &rows[i]) == AX_OK);
    }
    ax_replay_row none;
    CHECK(ax_replay_row_get(&r, n, &none) == AX_ERR_STATE);
    ended(&r);
}

static int same(const ax_replay_row *a, const ax_replay_row *b)
{
    return memcmp(a, b, sizeof *a) == 0;
}

/* Every way to ask the same question. */
static void test_engines_agree(uint64_t seed)
{
    static columns c;
    uint64_t random = seed;
    enum ax_arena_by by = (enum ax_arena_by)(seed % AX_ARENA_BYS);
    random_trace(&c, seed, by == AX_ARENA_BY_ARENA);
    ax_trace_view view = plain_view(&c);
    ax_replay_options options = default_options(&c);
    options.arena_by = by;
    view.thread = next_random(&random) % 2 || by == AX_ARENA_BY_THREAD ? c.thread : NULL;
    view.key = next_random(&random) % 2 ? c.key : NULL;
    view.arena = by == AX_ARENA_BY_ARENA ? c.arena : NULL;
    view.time_ns = next_random(&random) % 2 ? c.time : NULL;
    options.params.shape.alignment_bytes = next_random(&random) % 2 ? 8 : 16;
    options.max_object_bytes = next_random(&random) % 2 ? 0 : 100;

    ax_replay_row curve[CUTS];
    options.engine = AX_ENGINE_CURVE;
    run(&view, &options, SIZE_MAX, curve);
    ax_replay_row one[CUTS];
    run(&view, &options, 1, one);
    for (uint32_t j = 0; j < CUTS; j++) {
        CHECK(same(&curve[j], &one[j]));
    }
    options.engine = AX_ENGINE_ARENA;
    for (uint32_t j = 0; j < CUTS; j++) {
        options.params.retain_bytes = cuts[j];
        ax_replay_row row;
        run(&view, &options, SIZE_MAX, &row);
        CHECK(same(&row, &curve[j]));
        run(&view, &options, 1 + seed % 7, &row);
        CHECK(same(&row, &curve[j]));
        options.backing = AX_BACKING_REAL;
        run(&view, &options, SIZE_MAX, &row);
        CHECK(same(&row, &curve[j]));
        options.backing = AX_BACKING_MODELLED;
    }
    ax_trace_view wide = view;
    wide.object = c.wide;
    wide.object_is_u64 = 1;
    /* In a u64 column that which is no object is another number. */
    for (size_t i = 0; i < c.n; i++) {
        c.wide[i] = c.op[i] == D ? AX_NO_OBJECT : c.wide[i];
    }
    ax_replay_row row;
    run(&wide, &options, SIZE_MAX, &row);
    CHECK(same(&row, &curve[CUTS - 1]));
    options.engine = AX_ENGINE_CURVE;
    run(&wide, &options, SIZE_MAX, one);
    for (uint32_t j = 0; j < CUTS; j++) {
        CHECK(same(&curve[j], &one[j]));
    }
}

static void set_event(columns *c, uint8_t op, uint32_t object, uint64_t size, uint32_t arena)
{
    size_t i = c->n++;
    c->op[i] = op;
    c->object[i] = object;
    c->wide[i] = object;
    c->size[i] = size;
    c->arena[i] = arena;
    c->thread[i] = arena;
    c->objects += op == A;
}

/* One answer in both engines, on both backings, object numbers of both widths. */
static void refuse(const columns *c, enum ax_arena_by by, int status, uint64_t where,
                   uint64_t found)
{
    for (int way = 0; way < 8; way++) {
        ax_trace_view view = plain_view(c);
        ax_replay_options options = default_options(c);
        options.engine = way & 1 ? AX_ENGINE_CURVE : AX_ENGINE_ARENA;
        options.backing = way & 2 ? AX_BACKING_REAL : AX_BACKING_MODELLED;
        options.arena_by = by;
        options.arena_ids = 2;
        view.arena = by == AX_ARENA_BY_ARENA ? c->arena : NULL;
        view.thread = c->thread;
        if (way & 4) {
            view.object = c->wide;
            view.object_is_u64 = 1;
        }
        ax_replay r;
        CHECK(ax_replay_begin(&r, &view, &options, NULL) == AX_OK);
        for (int again = 0; again < 2; again++) {
            ax_detail detail = {0};
            size_t left = 0;
            CHECK(ax_replay_step(&r, SIZE_MAX, &left, &detail) == status);
            CHECK(left == c->n - where);
            CHECK(detail.where == where && detail.value == found);
            CHECK(ax_replay_step(&r, 1, &left, NULL) == status);
        }
        ax_replay_row row;
        CHECK(ax_replay_row_get(&r, 0, &row) == AX_ERR_STATE);
        ended(&r);
    }
}

static void test_wrong_traces(void)
{
    static columns c;
    const columns empty = {0};
    c = empty;
    set_event(&c, A, 0, 8, 0);
    set_event(&c, A, 2, 8, 0); /* of two objects */
    refuse(&c, AX_ARENA_BY_ONE, AX_ERR_EVENT_OBJECT, 1, 2);
    refuse(&c, AX_ARENA_BY_ARENA, AX_ERR_EVENT_OBJECT, 1, 2);
    for (uint8_t op = F; op <= R; op++) {
        c = empty;
        set_event(&c, A, 0, 8, 0);
        set_event(&c, op, UINT32_MAX, 8, 0);
        refuse(&c, AX_ARENA_BY_ONE, AX_ERR_EVENT_OBJECT, 1, UINT32_MAX);
        refuse(&c, AX_ARENA_BY_THREAD, AX_ERR_EVENT_OBJECT, 1, UINT32_MAX);

        c = empty;
        set_event(&c, A, 0, 8, 0);
        set_event(&c, F, 0, 8, 0);
        set_event(&c, op, 0, 8, 0); /* again */
        refuse(&c, AX_ARENA_BY_ONE, AX_ERR_EVENT_DEAD, 2, 0);
        refuse(&c, AX_ARENA_BY_ARENA, AX_ERR_EVENT_DEAD, 2, 0);

        c = empty;
        set_event(&c, op, 0, 8, 0); /* before there was any */
        set_event(&c, A, 0, 8, 0);
        refuse(&c, AX_ARENA_BY_ONE, AX_ERR_EVENT_DEAD, 0, 0);

        c = empty;
        set_event(&c, A, 0, 8, 0);
        set_event(&c, D, UINT32_MAX, 0, 0);
        set_event(&c, op, 0, 16, 0); /* it died with its arena */
        refuse(&c, AX_ARENA_BY_ARENA, AX_ERR_EVENT_DEAD, 2, 0);

        c = empty;
        set_event(&c, A, 0, 8, 0);
        set_event(&c, D, UINT32_MAX, 0, 0);
        set_event(&c, A, 1, 8, 1); /* another arena's list in the same slot */
        set_event(&c, A, 2, 8, 0);
        set_event(&c, op, 0, 16, 0);
        refuse(&c, AX_ARENA_BY_ARENA, AX_ERR_EVENT_DEAD, 4, 0);
    }
    c = empty;
    set_event(&c, A, 0, 8, 0);
    set_event(&c, 4, 0, 8, 0);
    refuse(&c, AX_ARENA_BY_ONE, AX_ERR_EVENT_OP, 1, 4);
    c.op[1] = 255;
    refuse(&c, AX_ARENA_BY_ARENA, AX_ERR_EVENT_OP, 1, 255);
    c.op[1] = D;
    refuse(&c, AX_ARENA_BY_ONE, AX_ERR_EVENT_ARENA, 1, 0);
    refuse(&c, AX_ARENA_BY_THREAD, AX_ERR_EVENT_ARENA, 1, 0);
    c.arena[1] = 2; /* of two */
    refuse(&c, AX_ARENA_BY_ARENA, AX_ERR_EVENT_ARENA, 1, 2);
    c.op[1] = A;
    c.object[1] = 1;
    c.wide[1] = 1;
    c.objects = 2;
    c.thread[1] = 2;
    refuse(&c, AX_ARENA_BY_ARENA, AX_ERR_EVENT_ARENA, 1, 2);
    refuse(&c, AX_ARENA_BY_THREAD, AX_ERR_EVENT_ARENA, 1, 2);
}

/* What an event comes to. */
static void test_decoder(void)
{
    static columns c;
    c = (columns){0};
    set_event(&c, A, 0, 0, 0);   /* a size of 0 counts as 1 */
    set_event(&c, R, 0, 8, 0);   /* the same key: nothing */
    set_event(&c, R, 0, 9, 0);   /* a new object, and the old one is free */
    set_event(&c, A, 1, 488, 0); /* the payload of a chunk: exactly fits */
    set_event(&c, A, 2, 489, 0); /* bypasses */
    set_event(&c, R, 2, 600, 0); /* still does */
    set_event(&c, R, 2, 1, 0);   /* comes in: takes the first object's memory */
    set_event(&c, R, 1, 489, 0); /* goes out */
    set_event(&c, F, 1, 0, 0);
    set_event(&c, F, 0, 0, 0);
    ax_trace_view view = plain_view(&c);
    ax_replay_options options = default_options(&c);
    for (int engine = 0; engine < 2; engine++) {
        options.engine = engine ? AX_ENGINE_CURVE : AX_ENGINE_ARENA;
        ax_replay_row rows[CUTS];
        run(&view, &options, SIZE_MAX, rows);
        ax_replay_row row = rows[engine ? CUTS - 1 : 0];
        CHECK(row.bypassed == 3 && row.bumps == 3 && row.pops == 1 && row.transitions == 1);
        CHECK(row.lists_end == 3 && row.live_bytes_end == 8 && row.freelist_bytes_end == 488 + 16);
        CHECK(row.chunk_mallocs == 2 && row.chunk_bytes_end == 1024);
        CHECK(row.slop_bytes_end == 488 - 8 - 16 && row.arenas_end == 1);
        CHECK(row.list_mallocs == 3 && row.list_frees == 0);
        CHECK(row.held_bytes_end == 1024 + 3 * 16);
        CHECK(isnan(row.overhead_bytes_mean_ns));
    }

    /* Destroyed arenas come back empty under their number; one without objects is nothing. */
    c = (columns){0};
    set_event(&c, D, UINT32_MAX, 0, 1);
    set_event(&c, A, 0, 8, 1);
    set_event(&c, F, 0, 0, 1);
    set_event(&c, A, 1, 8, 0);
    set_event(&c, D, UINT32_MAX, 0, 1);
    set_event(&c, A, 2, 8, 1); /* nothing is free here */
    view = plain_view(&c);
    view.arena = c.arena;
    options = default_options(&c);
    options.arena_by = AX_ARENA_BY_ARENA;
    for (int engine = 0; engine < 2; engine++) {
        options.engine = engine ? AX_ENGINE_CURVE : AX_ENGINE_ARENA;
        ax_replay_row rows[CUTS];
        run(&view, &options, SIZE_MAX, rows);
        CHECK(rows[0].bumps == 3 && rows[0].pops == 0 && rows[0].list_frees_at_close == 1);
        CHECK(rows[0].arenas_end == 2 && rows[0].lists_end == 2 && rows[0].live_bytes_end == 16);
        CHECK(rows[0].chunk_mallocs == 3 && rows[0].chunk_bytes_end == 1024);
    }
    /* By thread each has its own; as one they share. */
    c = (columns){0};
    set_event(&c, A, 0, 8, 0);
    set_event(&c, F, 0, 0, 1); /* goes home */
    set_event(&c, A, 1, 8, 1);
    set_event(&c, A, 2, 8, 0);
    view = plain_view(&c);
    view.thread = c.thread;
    for (int engine = 0; engine < 2; engine++) {
        options = default_options(&c);
        options.engine = engine ? AX_ENGINE_CURVE : AX_ENGINE_ARENA;
        ax_replay_row rows[CUTS];
        run(&view, &options, SIZE_MAX, rows);
        CHECK(rows[0].pops == 1 && rows[0].bumps == 2 && rows[0].arenas_end == 1);
        options.arena_by = AX_ARENA_BY_THREAD;
        run(&view, &options, SIZE_MAX, rows);
        CHECK(rows[0].pops == 1 && rows[0].bumps == 2 && rows[0].arenas_end == 2);
        c.thread[3] = 2;
        run(&view, &options, SIZE_MAX, rows);
        CHECK(rows[0].pops == 0 && rows[0].bumps == 3 && rows[0].arenas_end == 3);
        c.thread[3] = 0;
    }
}

/* Means over events take the state after each, means over time the state until the next. */
static void test_means(void)
{
    static columns c;
    c = (columns){0};
    set_event(&c, A, 0, 8, 0);
    set_event(&c, A, 1, 8, 0);
    set_event(&c, F, 0, 0, 0); /* 1 of 1 */
    set_event(&c, F, 1, 0, 0); /* 2 of 3: 8 bytes unused */
    set_event(&c, A, 2, 8, 0); /* 16 */
    set_event(&c, A, 3, 8, 0); /* empty: 24, or nothing */
    static const uint64_t times[] = {100, 100, 110, 120, 150, 250};
    memcpy(c.time, times, sizeof times);
    ax_trace_view view = plain_view(&c);
    ax_replay_options options = default_options(&c);
    for (int engine = 0; engine < 2; engine++) {
        ax_replay_row rows[CUTS];
        options.engine = engine ? AX_ENGINE_CURVE : AX_ENGINE_ARENA;
        options.params.retain_bytes = 0;
        view.time_ns = c.time;
        run(&view, &options, SIZE_MAX, rows);
        CHECK(rows[0].overhead_bytes_mean == (8.0 + 16.0) / 6);
        CHECK(rows[0].overhead_bytes_mean_ns == (8.0 * 30 + 16.0 * 100) / 150);
        CHECK(rows[0].overhead_bytes_peak == 16 && rows[0].overhead_bytes_end == 0);
        options.params.retain_bytes = UINT64_MAX;
        run(&view, &options, SIZE_MAX, rows);
        const ax_replay_row *all = &rows[engine ? CUTS - 1 : 0];
        CHECK(all->overhead_bytes_mean == (8.0 + 16.0 + 24.0) / 6);
        CHECK(all->overhead_bytes_mean_ns == (8.0 * 30 + 16.0 * 100) / 150);
        CHECK(all->overhead_bytes_peak == 24 && all->overhead_bytes_end == 24);
        memset(c.time, 0, sizeof times); /* no time passes */
        run(&view, &options, SIZE_MAX, rows);
        CHECK(isnan(rows[0].overhead_bytes_mean_ns));
        memcpy(c.time, times, sizeof times);
        view.events = 0;
        run(&view, &options, SIZE_MAX, rows);
        CHECK(rows[0].overhead_bytes_mean == 0 && isnan(rows[0].overhead_bytes_mean_ns));
        view.events = 6;
    }
}

/* Long enough that the words of dead objects are given back on the way. */
static void test_trimming(void)
{
    enum { OBJECTS = 600000 };
    static uint8_t op[2 * OBJECTS];
    static uint32_t object[2 * OBJECTS];
    static uint64_t size[2 * OBJECTS];
    static uint32_t arena[2 * OBJECTS];
    /* Every 100,000th object lives to the end, the others until three more were allocated. */
    ax_trace_view view = {.op = op, .object = object, .size_bytes = size};
    for (uint32_t i = 0; i < OBJECTS; i++) {
        size[view.events] = 8;
        object[view.events++] = i;
        if (i >= 3 && i % 100000 != 3) {
            op[view.events] = F;
            object[view.events++] = i - 3;
        }
    }
    columns none = {.objects = OBJECTS};
    for (int way = 0; way < 4; way++) {
        ax_replay_options options = default_options(&none);
        options.engine = way & 1 ? AX_ENGINE_CURVE : AX_ENGINE_ARENA;
        options.arena_by = way & 2 ? AX_ARENA_BY_ARENA : AX_ARENA_BY_ONE;
        view.arena = arena;
        ax_replay r;
        size_t left;
        CHECK(ax_replay_begin(&r, &view, &options, NULL) == AX_OK);
        CHECK(ax_replay_step(&r, SIZE_MAX, &left, NULL) == AX_OK && left == 0);
        CHECK(r.groups > 0 && r.kept_groups < 8);
        for (uint32_t i = 0; i < OBJECTS; i++) {
            int lives = i % 100000 == 0 || i + 3 >= OBJECTS;
            if ((r.word[i] != 0) != lives) {
                CHECK(!"an object's word was lost, or came back");
                break;
            }
        }
        CHECK(!r.life || r.life[300000] == r.set.arenas[0].life);
        ax_replay_row row;
        CHECK(ax_replay_row_get(&r, 0, &row) == AX_OK);
        CHECK(row.bumps + row.pops == OBJECTS && row.bumps == 4 + 6);
        CHECK(row.live_bytes_end == 8 * (6 + 3));
        ended(&r);
    }
}

/* The n-th call of the allocator's seam, or of the books, is refused: for every n. */
static void test_refusals(uint64_t seed, enum ax_engine engine, enum ax_backing backing)
{
    static columns c;
    random_trace(&c, seed, seed % 2 == 1);
    ax_trace_view view = plain_view(&c);
    view.arena = seed % 2 ? c.arena : NULL;
    view.key = seed % 2 ? c.key : NULL;
    ax_replay_options options = default_options(&c);
    options.engine = engine;
    options.backing = backing;
    options.arena_by = seed % 2 ? AX_ARENA_BY_ARENA : AX_ARENA_BY_ONE;
    ax_replay r;
    size_t left;
    CHECK(ax_replay_begin(&r, &view, &options, NULL) == AX_OK);
    uint64_t books_before = r.books.attempts;
    CHECK(ax_replay_step(&r, SIZE_MAX, &left, NULL) == AX_OK);
    uint64_t attempts = r.seam.attempts;
    uint64_t books = r.books.attempts;
    CHECK(attempts > 5 && books > books_before);
    ended(&r);
    for (uint64_t n = 1; n <= attempts + 1; n++) {
        options.fail_at = n;
        CHECK(ax_replay_begin(&r, &view, &options, NULL) == AX_OK);
        int wanted = n <= attempts ? AX_ERR_NOMEM : AX_OK;
        CHECK(ax_replay_step(&r, SIZE_MAX, &left, NULL) == wanted);
        CHECK(ax_replay_step(&r, SIZE_MAX, &left, NULL) == wanted);
        CHECK((left == 0) == (wanted == AX_OK));
        if (engine == AX_ENGINE_ARENA) {
            CHECK(ax_arenas_check(&r.set, NULL) == AX_OK);
        }
        r.seam.fail_at = 0;
        ended(&r);
    }
    options.fail_at = 0;
    for (uint64_t n = books_before + 1; n <= books; n++) {
        CHECK(ax_replay_begin(&r, &view, &options, NULL) == AX_OK);
        r.books.fail_at = n;
        CHECK(ax_replay_step(&r, SIZE_MAX, &left, NULL) == AX_ERR_NOMEM);
        r.books.fail_at = 0;
        ended(&r);
    }
}

static void refuse_options(const ax_trace_view *view, const ax_replay_options *options, int status,
                           const char *what)
{
    ax_replay r;
    ax_detail detail = {0};
    CHECK(ax_replay_begin(&r, view, options, &detail) == status);
    CHECK(!what || (detail.what && strcmp(detail.what, what) == 0));
    CHECK(r.books.bytes_held == 0 && r.books.mapped_bytes == 0 && r.seam.bytes_held == 0);
}

static void test_options(void)
{
    static columns c;
    c = (columns){0};
    set_event(&c, A, 0, 8, 0);
    ax_trace_view view = plain_view(&c);
    const ax_replay_options good = default_options(&c);
    ax_replay_options o = good;
    o.max_object_bytes = (UINT64_C(1) << 40) + 1;
    refuse_options(&view, &o, AX_ERR_RANGE, "max_object_bytes");
    o = good;
    o.objects = (UINT64_C(1) << 40) + 1;
    refuse_options(&view, &o, AX_ERR_OVERFLOW, NULL);
    o = good;
    o.objects = UINT64_C(1) << 40;
    o.backing = AX_BACKING_REAL;
    o.arena_ids = UINT64_MAX;
    o.arena_by = AX_ARENA_BY_ARENA;
    ax_replay r;
    int status = ax_replay_begin(&r, &view, &o, NULL); /* more than there is, or too many */
    CHECK(status == AX_ERR_OVERFLOW || status == AX_ERR_NOMEM);
    CHECK(r.books.mapped_bytes == 0);
    static const uint32_t alignments[] = {0, 3, 32, UINT32_C(1) << 31, UINT32_MAX};
    for (size_t i = 0; i < sizeof alignments / sizeof alignments[0]; i++) {
        o = good;
        o.params.shape.alignment_bytes = alignments[i];
        refuse_options(&view, &o, AX_ERR_RANGE, "alignment_bytes (a power of two)");
    }
}

int main(void)
{
    test_decoder();
    test_means();
    test_wrong_traces();
    test_options();
    test_trimming();
    for (uint64_t seed = 0; seed < 60; seed++) {
        test_engines_agree(seed);
    }
    for (uint64_t seed = 0; seed < 4; seed++) {
        test_refusals(seed, AX_ENGINE_ARENA, AX_BACKING_MODELLED);
        test_refusals(seed, AX_ENGINE_ARENA, AX_BACKING_REAL);
        test_refusals(seed, AX_ENGINE_CURVE, AX_BACKING_MODELLED);
    }
    return check_report();
}
