/* pool: which chunk an object comes from, what is lost in it, and what the check sees. */
#include "check.h"

#include <string.h>

#include "../core/pool.h"

static const ax_pool_shape firefox = {
    .chunk_bytes = 8192, .header_bytes = 24, .alignment_bytes = 8};

typedef struct pair {
    ax_seam seam;
    ax_pool pool;
    ax_pool_shape shape;
} pair;

static pair start(enum ax_backing backing, ax_pool_shape shape)
{
    pair p = {.shape = shape};
    ax_seam_init(&p.seam, backing);
    CHECK(ax_pool_shape_check(&shape, backing, NULL) == AX_OK);
    return p;
}

static uint64_t bump(pair *p, uint64_t bytes)
{
    uint64_t address = 0;
    CHECK(ax_pool_bump(&p->pool, &p->shape, &p->seam, bytes, &address) == AX_OK);
    CHECK(ax_pool_check(&p->pool, &p->shape, &p->seam, NULL) == AX_OK);
    CHECK(address % p->shape.alignment_bytes == 0);
    if (p->seam.backing == AX_BACKING_REAL) {
        CHECK(ax_pool_owns(&p->pool, &p->shape, address, bytes));
        memset(ax_at(address), 0xAB, bytes);
    }
    return address;
}

static void finish(pair *p)
{
    uint64_t chunks = p->pool.chunks;
    ax_pool_release(&p->pool, &p->seam);
    CHECK(p->seam.bytes_held == 0);
    CHECK(p->seam.calls[AX_CALL_MALLOC] == chunks && p->seam.calls[AX_CALL_FREE] == chunks);
    CHECK(p->pool.chunks == 0 && p->pool.chunk_bytes_held == 0 && p->pool.offset == 0);
    CHECK(ax_pool_check(&p->pool, &p->shape, &p->seam, NULL) == AX_OK);
    ax_pool_release(&p->pool, &p->seam); /* nothing */
    CHECK(p->seam.calls[AX_CALL_FREE] == chunks);
}

/* The chunk rules, in Firefox's numbers. */
static void test_chunks(enum ax_backing backing)
{
    pair p = start(backing, firefox);
    ax_pool *pool = &p.pool;
    CHECK(ax_pool_payload(&firefox) == 8168);
    uint64_t first = bump(&p, 8);
    CHECK(pool->chunks == 1 && pool->chunk_bytes_held == 8192);
    CHECK(pool->end - pool->offset == 8160);
    CHECK(bump(&p, 8) == first + 8);

    /* Larger than a standard payload: a chunk of just its size, and the current one stays. */
    bump(&p, 8176);
    CHECK(pool->chunks == 2 && pool->oversize_chunks == 1);
    CHECK(pool->chunk_bytes_held == 8192 + 8176 + 24);
    CHECK(pool->slop_bytes == 0 && pool->end - pool->offset == 8152);
    CHECK(bump(&p, 8) == first + 16);

    /* A standard payload that does not fit the rest: the rest is lost. */
    uint64_t whole = bump(&p, 8168);
    CHECK(pool->chunks == 3 && pool->oversize_chunks == 1);
    CHECK(pool->slop_bytes == 8144 && pool->end == pool->offset);
    CHECK(pool->end == whole + 8168);

    /* A chunk that is exactly full leaves nothing behind. */
    uint64_t again = bump(&p, 8160);
    CHECK(pool->chunks == 4 && pool->slop_bytes == 8144);
    CHECK(bump(&p, 8) == again + 8160); /* exact fit */
    CHECK(pool->chunks == 4 && pool->end == pool->offset);
    bump(&p, 16);
    CHECK(pool->chunks == 5 && pool->slop_bytes == 8144);

    CHECK(pool->headers_bytes == 5 * 24);
    CHECK(pool->bumps == 8);
    CHECK(pool->bumped_bytes == 8 + 8 + 8176 + 8 + 8168 + 8160 + 8 + 16);
    CHECK(pool->chunk_bytes_held == 4 * 8192 + 8200 && p.seam.bytes_held == 4 * 8192 + 8200);
    finish(&p);
}

/* An oversize chunk first: there is no current chunk then. */
static void test_oversize_first(enum ax_backing backing)
{
    pair p = start(backing, firefox);
    bump(&p, 100000);
    CHECK(p.pool.oversize_chunks == 1 && p.pool.offset == 0 && p.pool.end == 0);
    bump(&p, 8);
    CHECK(p.pool.chunks == 2 && p.pool.slop_bytes == 0);
    finish(&p);
}

/* Header and chunk that are no multiples of the alignment. */
static void test_odd_shape(enum ax_backing backing)
{
    ax_pool_shape shape = {.chunk_bytes = 103, .header_bytes = 33, .alignment_bytes = 16};
    pair p = start(backing, shape);
    CHECK(ax_pool_payload(&shape) == 48); /* 103 - 48 = 55, in whole units */
    bump(&p, 48);
    CHECK(p.pool.chunks == 1 && p.pool.headers_bytes == 48 && p.pool.oversize_chunks == 0);
    CHECK(p.pool.end - p.pool.offset == 7);
    bump(&p, 16);
    CHECK(p.pool.slop_bytes == 7 && p.pool.chunks == 2);
    bump(&p, 64);
    CHECK(p.pool.oversize_chunks == 1 && p.pool.chunk_bytes_held == 2 * 103 + 48 + 64);
    finish(&p);
}

static void test_random(enum ax_backing backing, uint64_t seed)
{
    ax_pool_shape shape = {.chunk_bytes = 200 + next_random(&seed) % 400,
                           .header_bytes = 24 + (uint32_t)(next_random(&seed) % 20),
                           .alignment_bytes = seed % 2 ? 8 : 16};
    pair p = start(backing, shape);
    uint64_t payload = ax_pool_payload(&shape);
    uint64_t room = 0;
    uint64_t slop = 0;
    uint64_t chunks = 0;
    for (int i = 0; i < 300; i++) {
        uint64_t bytes = shape.alignment_bytes * (1 + next_random(&seed) % 40);
        bump(&p, bytes);
        if (bytes <= room) {
            room -= bytes;
        } else if (chunks++, bytes <= payload) {
            slop += room;
            room = shape.chunk_bytes - p.pool.headers_bytes / chunks - bytes;
        }
        CHECK(p.pool.chunks == chunks && p.pool.slop_bytes == slop);
        CHECK(p.pool.end - p.pool.offset == room);
    }
    finish(&p);
}

static void test_shapes(void)
{
    static const struct {
        ax_pool_shape shape;
        enum ax_backing backing;
        const char *what; /* NULL: allowed */
        uint64_t low, high;
    } cases[] = {
        {{8192, 24, 8}, AX_BACKING_REAL, NULL, 0, 0},
        {{32, 24, 8}, AX_BACKING_REAL, NULL, 0, 0},
        {{31, 24, 8}, AX_BACKING_REAL, "chunk_bytes", 32, UINT64_C(1) << 40},
        {{48, 24, 16}, AX_BACKING_REAL, NULL, 0, 0},
        {{47, 24, 16}, AX_BACKING_REAL, "chunk_bytes", 48, UINT64_C(1) << 40},
        {{UINT64_C(1) << 40, 24, 8}, AX_BACKING_REAL, NULL, 0, 0},
        {{(UINT64_C(1) << 40) + 1, 24, 8}, AX_BACKING_REAL, "chunk_bytes", 32, UINT64_C(1) << 40},
        {{8192, 23, 8}, AX_BACKING_REAL, "chunk_header_bytes", 24, 4096},
        {{8192, 0, 8}, AX_BACKING_MODELLED, NULL, 0, 0},
        {{8192, 4096, 8}, AX_BACKING_MODELLED, NULL, 0, 0},
        {{8192, 4097, 8}, AX_BACKING_MODELLED, "chunk_header_bytes", 0, 4096},
        {{8192, 24, 4}, AX_BACKING_MODELLED, NULL, 0, 0},
        {{8192, 24, 4}, AX_BACKING_REAL, "alignment_bytes (a power of two)", 8, 16},
        {{8192, 24, 0}, AX_BACKING_MODELLED, "alignment_bytes (a power of two)", 4, 16},
        {{8192, 24, 12}, AX_BACKING_MODELLED, "alignment_bytes (a power of two)", 4, 16},
        {{8192, 24, 32}, AX_BACKING_MODELLED, "alignment_bytes (a power of two)", 4, 16},
        {{4, 0, 4}, AX_BACKING_MODELLED, NULL, 0, 0},
        {{3, 0, 4}, AX_BACKING_MODELLED, "chunk_bytes", 4, UINT64_C(1) << 40},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        ax_detail detail = {0};
        int status = ax_pool_shape_check(&cases[i].shape, cases[i].backing, &detail);
        CHECK(status == (cases[i].what ? AX_ERR_RANGE : AX_OK));
        if (cases[i].what && status != AX_OK) {
            CHECK(strcmp(detail.what, cases[i].what) == 0);
            CHECK(detail.low == cases[i].low && detail.high == cases[i].high);
        }
    }
}

static void test_refusal(enum ax_backing backing)
{
    pair p = start(backing, firefox);
    for (int i = 0; i < 20; i++) {
        uint64_t bytes = i % 3 == 2 ? 9000 : 4000;
        ax_pool before = p.pool;
        uint64_t address = 1;
        p.seam.fail_at = p.seam.attempts + 1;
        int status = ax_pool_bump(&p.pool, &p.shape, &p.seam, bytes, &address);
        if (status != AX_OK) {
            CHECK(status == AX_ERR_NOMEM && address == 1);
            CHECK(memcmp(&before, &p.pool, sizeof before) == 0);
            bump(&p, bytes);
        }
    }
    uint64_t address;
    ax_pool before = p.pool;
    CHECK(ax_pool_bump(&p.pool, &p.shape, &p.seam, (UINT64_C(1) << 40) + 8, &address) ==
          AX_ERR_NOMEM);
    CHECK(memcmp(&before, &p.pool, sizeof before) == 0);
    CHECK(p.seam.failed[AX_CALL_MALLOC] == p.pool.chunks);
    finish(&p);
}

static void test_owns(void)
{
    pair p = start(AX_BACKING_REAL, firefox);
    uint64_t a = bump(&p, 64);
    uint64_t big = bump(&p, 10000);
    CHECK(ax_pool_owns(&p.pool, &p.shape, a, 8168));
    CHECK(!ax_pool_owns(&p.pool, &p.shape, a, 8169));
    CHECK(!ax_pool_owns(&p.pool, &p.shape, a - 8, 8)); /* the header is no object */
    CHECK(ax_pool_owns(&p.pool, &p.shape, big, 10000));
    CHECK(ax_pool_owns(&p.pool, &p.shape, big + 9992, 8));
    CHECK(!ax_pool_owns(&p.pool, &p.shape, big + 9992, 9));
    CHECK(!ax_pool_owns(&p.pool, &p.shape, big + 10000, 8));
    CHECK(!ax_pool_owns(&p.pool, &p.shape, 0, 8));
    finish(&p);
}

#define DEMAND(text)                                                                 \
    do {                                                                             \
        ax_detail detail = {0};                                                      \
        CHECK(ax_pool_check(&p.pool, &p.shape, &p.seam, &detail) == AX_ERR_CORRUPT); \
        CHECK(detail.what &&strcmp(detail.what, text) == 0);                         \
        p.pool = good;                                                               \
    } while (0)

static void test_corruption(enum ax_backing backing)
{
    static const char sum[] = "parts of the chunks do not add up";
    pair p = start(backing, firefox);
    bump(&p, 4000);
    bump(&p, 5000);
    bump(&p, 9000);
    const ax_pool good = p.pool;
    p.pool.bumped_bytes += 8;
    DEMAND(sum);
    p.pool.slop_bytes -= 8;
    DEMAND(sum);
    p.pool.headers_bytes += 24;
    DEMAND(sum);
    p.pool.chunk_bytes_held += 8192;
    DEMAND(sum);
    p.pool.offset += 8;
    DEMAND(sum);
    p.pool.end -= 8;
    DEMAND(sum);
    /* The parts add up modulo 2^64, and yet. */
    p.pool.bumped_bytes += 8192;
    p.pool.offset += 8192;
    DEMAND(sum);
    p.pool.chunks++;
    DEMAND("bytes of chunk headers");
    p.pool.headers_bytes += 24;
    p.pool.bumped_bytes -= 24;
    DEMAND("bytes of chunk headers");
    if (backing == AX_BACKING_REAL) {
        uint64_t *header = ax_at(p.pool.newest); /* next, bytes */
        header[1] += 8;
        DEMAND("chunks in the chain");
        header[1] -= 8;
        uint64_t next = header[0];
        header[0] = 0;
        DEMAND("chunks in the chain");
        header[0] = p.pool.newest; /* a ring */
        DEMAND("chunks in the chain");
        header[0] = next;
        p.pool.newest = next;
        DEMAND("chunks in the chain");
    }
    CHECK(ax_pool_check(&p.pool, &p.shape, &p.seam, NULL) == AX_OK);
    finish(&p);
}

int main(void)
{
    test_shapes();
    test_owns();
    for (int i = 0; i < 2; i++) {
        enum ax_backing backing = i ? AX_BACKING_MODELLED : AX_BACKING_REAL;
        test_chunks(backing);
        test_oversize_first(backing);
        test_odd_shape(backing);
        test_refusal(backing);
        test_corruption(backing);
        for (uint64_t seed = 0; seed < 20; seed++) {
            test_random(backing, seed);
        }
    }
    return check_report();
}
