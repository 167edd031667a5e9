/* codeheap: the golden vectors, the soak of the original, every refusal of the system, what the
 * check sees. */
#include "check.h"

#include <string.h>

#include "../core/codeheap.h"
#include "../core/codepolicy.h"

typedef struct fixture {
    ax_code_params params;
    ax_seam seam;
    ax_seam books;
    ax_codeheap heap;
} fixture;

/* The heap knows addresses of the seams: there is one, and it does not move. */
static fixture f;

static ax_code_params with(uint32_t policy)
{
    ax_code_params params;
    ax_code_params_default(&params);
    params.policy = policy;
    return params;
}

/* The layout of 32 bits. */
static ax_code_params small(uint32_t policy, uint64_t limit)
{
    ax_code_params params = with(policy);
    params.header_bytes = 20;
    params.pointer_bytes = 4;
    params.byte_limit = limit;
    return params;
}

static void start_on(ax_code_params params, enum ax_backing backing)
{
    memset(&f, 0, sizeof f);
    f.params = params;
    ax_seam_init(&f.seam, backing);
    ax_seam_init(&f.books, AX_BACKING_REAL);
    CHECK(ax_codeheap_init(&f.heap, &params, &f.seam, &f.books, NULL) == AX_OK);
}

static void start(ax_code_params params)
{
    start_on(params, AX_BACKING_MODELLED);
}

static void content(void)
{
    ax_detail detail = {0};
    int status = ax_codeheap_check(&f.heap, &detail);
    CHECK(status == AX_OK);
    if (status != AX_OK) {
        fprintf(stderr, "%s: %llu, %llu, %llu\n", detail.what, (unsigned long long)detail.value,
                (unsigned long long)detail.low, (unsigned long long)detail.where);
    }
}

static void finish(void)
{
    ax_codeheap_release(&f.heap);
    CHECK(f.seam.mapped_bytes == 0 && f.books.bytes_held == 0);
    CHECK(f.books.calls[AX_CALL_MALLOC] == f.books.calls[AX_CALL_FREE]);
}

static uint32_t take(uint64_t size)
{
    uint32_t block = AX_NO_BLOCK;
    CHECK(ax_codeheap_alloc(&f.heap, size, &block) == AX_OK);
    return block;
}

/* --- golden vectors
 * ------------------------------------------------------------------------------- */

static void test_golden(void)
{
    static const struct {
        uint32_t header;
        uint64_t chunk, blocks, rest;
    } cases[] = {
        {20, 64 << 10, 15, 3756},
        {20, 1 << 20, 254, 3072},
        {40, 2 << 20, 507, 120},
    };
    for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
        ax_code_params params = small(AX_CODE_BYTE_LIMIT, 4096);
        params.header_bytes = cases[c].header;
        params.chunk_bytes = cases[c].chunk;
        start(params);
        uint64_t at = cases[c].chunk - cases[c].header;
        for (uint64_t i = 0; i < cases[c].blocks; i++) {
            uint32_t block = take(0);
            at -= 4096 + cases[c].header;
            CHECK(ax_block_payload(&f.heap, block) == 4096);
            CHECK(f.heap.blocks[block].start - f.heap.chunks[0].base == at);
        }
        uint32_t last = take(0);
        CHECK(ax_block_payload(&f.heap, last) == cases[c].rest);
        CHECK(f.heap.blocks[last].start == f.heap.chunks[0].base);
        CHECK(f.heap.chunks_alive == 1);
        content();
        finish();
    }
}

/* --- the soak: 20 live code lists, 20,000 replacements
 * -------------------------------------------- */

#define LISTS 20
#define REPLACEMENTS 20000

static void free_list(uint32_t list)
{
    while (list != AX_NO_BLOCK) {
        uint32_t next = f.heap.blocks[list].next;
        CHECK(ax_codeheap_free(&f.heap, list) == AX_OK);
        list = next;
    }
}

/* A code list of at least `size` bytes; what the last block has more is a hole in its middle or at
 * its low end, or goes unused. */
static uint32_t compile(uint64_t size, int middle)
{
    uint32_t list = AX_NO_BLOCK;
    const uint64_t pointer = f.params.pointer_bytes;
    while (size) {
        uint32_t block = take(0);
        uint64_t payload = ax_block_payload(&f.heap, block);
        CHECK(payload >= f.params.min_payload_bytes);
        if (payload <= size) {
            f.heap.blocks[block].next = list;
            list = block;
            size -= payload;
            continue;
        }
        uint64_t start = ax_block_address(&f.heap, block);
        uint64_t low = middle ? size / 2 / pointer * pointer : 0;
        CHECK(ax_codeheap_add_remainder(&f.heap, &list, block, start + low,
                                        start + payload - (size - low)) == AX_OK);
        size = 0;
    }
    for (uint32_t i = list; i != AX_NO_BLOCK; i = f.heap.blocks[i].next) {
        CHECK(ax_codeheap_mark_exec(&f.heap, f.heap.blocks[i].chunk) == AX_OK);
    }
    return list;
}

static void soak(ax_code_params params, uint64_t seed)
{
    uint32_t lists[LISTS];
    start(params);
    for (int i = 0; i < LISTS; i++) {
        lists[i] = AX_NO_BLOCK;
    }
    for (int i = 0; i < REPLACEMENTS; i++) {
        uint64_t r = next_random(&seed);
        uint32_t *list = &lists[r % LISTS];
        uint64_t size = (r >> 8) % 5 == 0 ? 1 + (r >> 16) % 16384 : 1 + (r >> 16) % 1024;
        free_list(*list);
        *list = compile(size, (int)(r >> 40 & 1));
        if (i % 20 == 0 || i < 200) {
            content();
        }
    }
    content();
    for (int i = 0; i < LISTS; i++) {
        free_list(lists[i]);
    }
    content();
    ax_code_totals totals;
    ax_codeheap_totals(&f.heap, &totals);
    CHECK(totals.blocks == f.heap.chunks_alive && totals.dead_bytes == 0);
    CHECK(totals.largest_free_bytes == params.chunk_bytes - 2 * (uint64_t)params.header_bytes);
    CHECK(ax_codeheap_sweep(&f.heap) == AX_OK && f.heap.chunks_alive == 0);
    content();
    finish();
}

/* One of the limited designs with a limit, or with the smallest larger one that is right for it. */
static void soak_limited(ax_code_params params, uint32_t policy, uint64_t limit, uint32_t rule)
{
    const uint64_t least =
        ax_code_least_limit(policy, params.header_bytes, params.min_payload_bytes);
    if (policy != AX_CODE_BYTE_LIMIT && rule == AX_HOLE_MAX_M_2H) {
        /* Halves need not be whole words, and a hole inside of one wraps under this rule. */
        rule = AX_HOLE_2H_M;
    }
    params.policy = policy;
    params.byte_limit = limit && limit < least ? least : limit;
    params.min_hole = rule;
    soak(params, limit + rule);
}

static void test_soak(void)
{
    static const uint64_t limits[] = {0, 128, 512, 1024, 2048, 4096};
    static const uint32_t limited[] = {AX_CODE_BYTE_LIMIT, AX_CODE_HALVING,
                                       AX_CODE_HALVING_PAYLOAD};
    const ax_code_params narrow = small(AX_CODE_BYTE_LIMIT, 0);
    ax_code_params wide = with(AX_CODE_BYTE_LIMIT);
    wide.header_bytes = 40;
    for (uint32_t n = 0; n < sizeof limits / sizeof limits[0]; n++) {
        for (uint32_t p = 0; p < 3; p++) {
            /* With two headers of 20 no rule lets them overlap: H + M is more. With those of 40 it
             * is less. */
            soak_limited(narrow, limited[p], limits[n], (n + p) % AX_HOLES);
            const uint32_t rule = (n + 2 * p) % (AX_HOLES - 1);
            soak_limited(wide, limited[p], limits[n], rule + (rule >= AX_HOLE_H_M));
        }
    }
    for (uint32_t rule = 0; rule < AX_HOLES; rule++) {
        soak_limited(narrow, AX_CODE_BYTE_LIMIT, 128, rule);
        if (rule != AX_HOLE_H_M) {
            soak_limited(wide, AX_CODE_BYTE_LIMIT, 128, rule);
        }
    }
    for (uint32_t policy = AX_CODE_SCAN; policy <= AX_CODE_PARTITION; policy++) {
        ax_code_params params = small(policy, 0);
        soak(params, policy);
        params.header_bytes = 40;
        params.pointer_bytes = 8;
        params.chunk_bytes = 4096;
        params.min_hole = AX_HOLE_MAX_M_2H;
        soak(params, policy);
    }
}

/* --- refusals
 * ------------------------------------------------------------------------------------- */

#define LIVE 12

/* Some of everything; goes on after a refusal, of which nothing may remain but that it did not
 * happen. */
static void work(uint32_t policy, uint64_t seed)
{
    uint32_t live[LIVE];
    const int sized = ax_code_policy_get(policy)->sized;
    memset(live, 0xff, sizeof live);
    for (int i = 0; i < 60; i++) {
        uint64_t r = next_random(&seed);
        uint32_t *slot = &live[r % LIVE];
        uint64_t flushes = f.heap.counters.flushes;
        uint64_t code = f.heap.code_bytes;
        uint32_t block;
        if (*slot != AX_NO_BLOCK && (r >> 8) % 2) {
            /* A free asks for nothing; what is given back to the system is not its business. */
            CHECK(ax_codeheap_free(&f.heap, *slot) == AX_OK);
            *slot = AX_NO_BLOCK;
        } else if (*slot == AX_NO_BLOCK) {
            int status = ax_codeheap_alloc(&f.heap, sized ? (r >> 16) % 3000 : 0, &block);
            CHECK(status == AX_OK || status == AX_ERR_NOMEM);
            if (flushes != f.heap.counters.flushes) {
                memset(live, 0xff, sizeof live);
            } else if (status != AX_OK) {
                CHECK(f.heap.code_bytes == code);
            }
            if (status == AX_OK) {
                *slot = block;
            }
        } else if (!sized) {
            uint64_t start = ax_block_address(&f.heap, *slot);
            uint64_t payload = ax_block_payload(&f.heap, *slot);
            uint32_t list = AX_NO_BLOCK;
            int status = ax_codeheap_add_remainder(
                &f.heap, &list, *slot, start + (r >> 16 & 1) * 64, start + payload / 4 * 3);
            CHECK(status == AX_OK || status == AX_ERR_NOMEM);
            if (status == AX_OK) {
                *slot = list;
                free_list(f.heap.blocks[list].next);
                f.heap.blocks[list].next = AX_NO_BLOCK;
            }
        }
        if (*slot != AX_NO_BLOCK) {
            int status = ax_codeheap_mark_exec(&f.heap, f.heap.blocks[*slot].chunk);
            CHECK(status == AX_OK || status == AX_ERR_NOMEM);
        }
        content();
    }
    (void)ax_codeheap_sweep(&f.heap);
    content();
}

static void refuse(ax_code_params params, enum ax_backing backing)
{
    start_on(params, backing);
    work(params.policy, 1);
    const uint64_t calls = f.seam.attempts;
    const uint64_t books = f.books.attempts;
    finish();
    for (uint64_t n = 1; n <= calls + books; n++) {
        start_on(params, backing);
        f.seam.fail_at = n <= calls ? n : 0;
        f.books.fail_at = n <= calls ? 0 : n - calls;
        work(params.policy, 1);
        f.books.fail_at = 0;
        finish();
    }
    /* A system that refuses from here on. */
    CHECK(calls > 0 && books > 0);
}

static void test_refusals(void)
{
    for (uint32_t policy = 0; policy < AX_CODE_POLICIES; policy++) {
        for (uint32_t wx = 0; wx < AX_WXS; wx++) {
            ax_code_params params = with(policy);
            params.wx = wx;
            params.chunk_bytes = 4096;
            params.byte_limit = 512;
            params.keep_bytes = wx % 2 ? 0 : 8192;
            params.max_code_bytes = 12288;
            params.partitions = 2;
            params.keep_chunks = wx == AX_WX_RWX ? 1 : UINT64_MAX;
            refuse(params, AX_BACKING_MODELLED);
        }
    }
    ax_code_params params = with(AX_CODE_SEGREGATED);
    params.chunk_bytes = ax_page_bytes();
    params.page_bytes = ax_page_bytes();
    params.keep_bytes = 0;
    refuse(params, AX_BACKING_REAL);
}

/* What a chunk would have grown to is not remembered of a chunk that there is not. */
static void test_refused_chunk_does_not_grow(void)
{
    start(with(AX_CODE_BITMAP));
    for (uint64_t n = 1; n <= 3; n++) {
        uint32_t block;
        f.seam.fail_at = n;
        CHECK(ax_codeheap_alloc(&f.heap, 64, &block) == AX_ERR_NOMEM);
    }
    f.seam.fail_at = 0;
    (void)take(64);
    CHECK(f.heap.mapped_bytes == 2 * f.params.chunk_bytes);
    finish();
}

static uint64_t chunk_of(uint32_t block)
{
    return f.heap.chunks[f.heap.blocks[block].chunk].bytes;
}

/* Chunks of a pool double, whatever the others have, and start anew where they have gone. */
static void test_growth(void)
{
    ax_code_params params = with(AX_CODE_BITMAP);
    params.chunk_bytes = 4096;
    start(params);
    uint32_t blocks[4];
    for (int i = 0; i < 4; i++) {
        blocks[i] = take((UINT64_C(8192) << i) - 192); /* multiples of 64 only */
        CHECK(chunk_of(blocks[i]) == UINT64_C(8192) << i);
    }
    CHECK(chunk_of(take(128)) == 8192 && chunk_of(take(256)) == 8192);
    CHECK(f.heap.chunks_alive == 6);
    content();
    /* The newest one there is counts. */
    CHECK(ax_codeheap_free(&f.heap, blocks[3]) == AX_OK);
    CHECK(ax_codeheap_free(&f.heap, blocks[2]) == AX_OK);
    CHECK(ax_codeheap_sweep(&f.heap) == AX_OK && f.heap.chunks_alive == 4);
    CHECK(chunk_of(take(12288 + 64)) == 32768);
    for (int i = 0; i < 2; i++) {
        CHECK(ax_codeheap_free(&f.heap, blocks[i]) == AX_OK);
    }
    content();
    /* What is larger than that has a multiple of the first size; the largest is 64 MiB. */
    CHECK(chunk_of(take(100000)) == 102400);
    CHECK(chunk_of(take((UINT64_C(40) << 20) + 64)) == (UINT64_C(40) << 20) + 4096);
    uint32_t block = take((UINT64_C(41) << 20) + 64);
    CHECK(chunk_of(block) == UINT64_C(64) << 20);
    CHECK(chunk_of(take((UINT64_C(60) << 20) + 64)) == UINT64_C(64) << 20);
    CHECK(chunk_of(take((UINT64_C(65) << 20) + 64)) == (UINT64_C(65) << 20) + 4096);
    CHECK(chunk_of(take((UINT64_C(60) << 20) + 64)) == (UINT64_C(65) << 20) + 4096);
    content();
    finish();
}

/* Empty chunks are kept by their number; those of a pool are of no use to the others. */
static void test_keep_chunks(void)
{
    static const uint32_t policies[] = {AX_CODE_SEGREGATED, AX_CODE_WHOLE_BLOCK, AX_CODE_BITMAP};
    for (size_t p = 0; p < 3; p++) {
        for (uint64_t keep = 0; keep < 4; keep++) {
            ax_code_params params = with(policies[p]);
            params.chunk_bytes = 4096;
            params.keep_chunks = keep;
            start(params);
            const int pools = policies[p] == AX_CODE_BITMAP ? 3 : 1;
            uint32_t blocks[3][3];
            for (int i = 0; i < 3; i++) {
                for (int pool = 0; pool < pools; pool++) {
                    const uint64_t granules = pools == 1 ? 56 : (UINT64_C(128) << i) - 4;
                    blocks[pool][i] = take(64 * (granules + (uint64_t)(pool + 1) % 3));
                }
            }
            CHECK(f.heap.chunks_alive == 3 * (uint32_t)pools);
            for (int i = 0; i < 3; i++) {
                for (int pool = 0; pool < pools; pool++) {
                    CHECK(ax_codeheap_free(&f.heap, blocks[pool][i]) == AX_OK);
                    content();
                }
            }
            const uint64_t left = keep < 3 ? keep : 3;
            CHECK(f.heap.chunks_alive == left * (uint64_t)pools);
            CHECK(f.heap.empty_chunks == f.heap.chunks_alive);
            CHECK(f.seam.calls[AX_CALL_UNMAP] == (3 - left) * (uint64_t)pools);
            finish();
        }
    }
    /* What the system does not take back stays, and goes with the next one. */
    ax_code_params params = with(AX_CODE_SEGREGATED);
    params.chunk_bytes = 4096;
    params.keep_chunks = 0;
    start(params);
    uint32_t a = take(3500);
    uint32_t b = take(3500);
    f.seam.fail_at = f.seam.attempts + 1;
    CHECK(ax_codeheap_free(&f.heap, a) == AX_OK && f.heap.chunks_alive == 2);
    content();
    CHECK(ax_codeheap_free(&f.heap, b) == AX_OK && f.heap.chunks_alive == 0);
    finish();
}

/* Whose headers are in the chunks writes there in a free, too; the history asks nobody either. */
static void test_header_writes(void)
{
    for (uint32_t policy = 0; policy < AX_CODE_POLICIES; policy++) {
        for (uint32_t header = 0; header <= 16; header += 16) {
            ax_code_params params = with(policy);
            params.header_bytes = header;
            start(params);
            const uint32_t block = take(policy < AX_CODE_FIRST_FIT ? 0 : 64);
            CHECK(ax_codeheap_mark_exec(&f.heap, f.heap.blocks[block].chunk) == AX_OK);
            CHECK(ax_codeheap_free(&f.heap, block) == AX_OK);
            CHECK(f.heap.counters.unmarked_header_writes == (header > 0));
            const uint32_t open = take(policy < AX_CODE_FIRST_FIT ? 0 : 64);
            CHECK(ax_codeheap_free(&f.heap, open) == AX_OK);
            CHECK(f.heap.counters.unmarked_header_writes == (header > 0));
            finish();
        }
    }
}

/* A flush that the system stops half way through is one all the same. */
static void test_refused_flush(void)
{
    ax_code_params params = with(AX_CODE_BUMP);
    params.chunk_bytes = 4096;
    params.max_code_bytes = 8192;
    start(params);
    (void)take(4000);
    (void)take(4000);
    uint32_t block;
    f.seam.fail_at = f.seam.attempts + 2;
    CHECK(ax_codeheap_alloc(&f.heap, 4000, &block) == AX_ERR_NOMEM);
    CHECK(f.heap.counters.flushes == 1 && f.heap.chunks_alive == 1);
    content();
    (void)take(4000);
    content();
    finish();
}

/* A rest that is too small to be listed stays with the block. */
static void test_rest_that_is_not_listed(void)
{
    static const uint32_t policies[] = {AX_CODE_FIRST_FIT, AX_CODE_BEST_FIT, AX_CODE_SEGREGATED};
    for (size_t p = 0; p < 3; p++) {
        for (uint64_t rest = 0; rest < 70; rest++) {
            ax_code_params params = with(policies[p]);
            params.header_bytes = 20;
            params.granule_bytes = 64;
            params.min_rest_bytes = 0;
            params.page_bytes = 1;
            /* Segments hold the header, too. */
            const uint64_t used = policies[p] == AX_CODE_BEST_FIT ? 320 : 256 + 20;
            params.chunk_bytes = used + 20 + rest + 20;
            start(params);
            (void)take(256);
            content();
            CHECK(f.heap.counters.splits == (rest >= 64));
            finish();
        }
    }
}

/* Permissions of a protection key are no borders between mappings. */
static void test_vmas(void)
{
    static const uint64_t vmas[AX_WXS] = {
        [AX_WX_FLIP] = 3, [AX_WX_DUAL] = 3, [AX_WX_RWX] = 1, [AX_WX_PER_THREAD] = 1};
    for (uint32_t wx = 0; wx < AX_WXS; wx++) {
        ax_code_params params = with(AX_CODE_WHOLE_BLOCK);
        params.chunk_bytes = 4096;
        params.wx = wx;
        start(params);
        uint32_t blocks[3];
        for (int i = 0; i < 3; i++) {
            blocks[i] = take(0);
        }
        CHECK(f.heap.vmas == (wx == AX_WX_DUAL ? 3 : 1));
        CHECK(ax_codeheap_mark_exec(&f.heap, f.heap.blocks[blocks[1]].chunk) == AX_OK);
        CHECK(f.heap.vmas == vmas[wx] &&
              f.heap.counters.vma_peak == (wx == AX_WX_DUAL ? 6 : vmas[wx]));
        content();
        CHECK(ax_codeheap_mark_exec(&f.heap, f.heap.blocks[blocks[0]].chunk) == AX_OK);
        CHECK(f.heap.vmas == (wx == AX_WX_FLIP ? 2 : vmas[wx]));
        CHECK(ax_codeheap_free(&f.heap, blocks[1]) == AX_OK);
        CHECK(ax_codeheap_sweep(&f.heap) == AX_OK);
        CHECK(f.heap.vmas == (wx == AX_WX_DUAL ? 2 : 2));
        content();
        finish();
    }
}

/* Half of one byte is none, and not the whole block. */
static void test_half_of_nothing(void)
{
    ax_code_params params = small(AX_CODE_HALVING, 1);
    params.header_bytes = 0;
    params.page_bytes = 1;
    params.chunk_bytes = 32;
    start(params);
    uint32_t block = take(0);
    CHECK(ax_block_payload(&f.heap, block) == 0 && f.heap.counters.splits == 1);
    finish();
}

/* A sweep searches the list for each block that goes; where all of them go nobody does. */
static void test_reset_searches_nothing(void)
{
    for (int all = 0; all < 2; all++) {
        ax_code_params params = small(AX_CODE_BYTE_LIMIT, 0);
        params.chunk_bytes = 4096;
        start(params);
        uint32_t blocks[20];
        for (int i = 0; i < 20; i++) {
            blocks[i] = take(0);
        }
        for (int i = 20; i-- > 0;) {
            CHECK(ax_codeheap_free(&f.heap, blocks[i]) == AX_OK);
        }
        CHECK((all ? ax_codeheap_reset : ax_codeheap_sweep)(&f.heap) == AX_OK);
        CHECK(f.heap.chunks_alive == 0 && f.heap.bin_head[0] == AX_NO_BLOCK);
        CHECK(f.heap.counters.list_scan_steps == (all ? 0 : 19 * 20 / 2));
        content();
        finish();
    }
}

static void test_wrong_blocks(void)
{
    start(with(AX_CODE_SEGREGATED));
    uint32_t block = take(100);
    CHECK(ax_codeheap_free(&f.heap, AX_NO_BLOCK) == AX_ERR_FOREIGN);
    CHECK(ax_codeheap_free(&f.heap, block + 2) == AX_ERR_FOREIGN);
    CHECK(ax_codeheap_free(&f.heap, block) == AX_OK);
    /* Its record went when it was joined. */
    CHECK(ax_codeheap_free(&f.heap, block) == AX_ERR_FOREIGN);
    uint32_t neighbours[3] = {take(100), take(100), take(100)};
    CHECK(ax_codeheap_free(&f.heap, neighbours[1]) == AX_OK);
    CHECK(ax_codeheap_free(&f.heap, neighbours[1]) == AX_ERR_DOUBLE_FREE);
    CHECK(ax_codeheap_alloc(&f.heap, UINT64_C(1) << 40, &block) == AX_ERR_OVERFLOW);
    content();
    finish();
}

static void refused(const char *what, ax_code_params params)
{
    ax_detail detail = {0};
    ax_codeheap heap;
    CHECK(ax_codeheap_init(&heap, &params, &f.seam, &f.books, &detail) == AX_ERR_RANGE);
    CHECK(detail.what && strncmp(detail.what, what, strlen(what)) == 0);
    ax_codeheap_release(&heap);
}

static void test_parameters(void)
{
    const ax_code_params good = with(AX_CODE_PARTITION);
#define REFUSED(name, value)       \
    do {                           \
        ax_code_params bad = good; \
        bad.name = (value);        \
        refused(#name, bad);       \
    } while (0)
    REFUSED(page_bytes, 0);
    REFUSED(page_bytes, 4095);
    REFUSED(pointer_bytes, 2);
    REFUSED(header_bytes, 4097);
    REFUSED(min_payload_bytes, 0);
    REFUSED(min_payload_bytes, 65537);
    REFUSED(chunk_bytes, 0);
    REFUSED(chunk_bytes, 4097);
    REFUSED(chunk_bytes, UINT64_C(1) << 33);
    REFUSED(granule_bytes, 0);
    REFUSED(min_hole, AX_HOLES);
    REFUSED(wx, AX_WXS);
    REFUSED(policy, AX_CODE_POLICIES);
    REFUSED(partitions, 0);
#undef REFUSED
    CHECK(ax_code_policy_name(AX_CODE_POLICIES) == NULL);
}

/* Flips are accounted for when chunks that were executable have gone, by a sweep or at once. */
static void test_flips_of_chunks_that_went(void)
{
    for (uint32_t wx = 0; wx < AX_WXS; wx++) {
        ax_code_params params = with(AX_CODE_SEGREGATED);
        params.wx = wx;
        params.chunk_bytes = 4096;
        params.keep_bytes = 0;
        start(params);
        const int flips = wx == AX_WX_FLIP || wx == AX_WX_PER_THREAD;
        for (uint32_t i = 1; i <= 3; i++) {
            uint32_t block = take(4000);
            CHECK(ax_codeheap_mark_exec(&f.heap, f.heap.blocks[block].chunk) == AX_OK);
            CHECK(ax_codeheap_free(&f.heap, block) == AX_OK && f.heap.chunks_alive == 0);
            CHECK(f.heap.exec_gone == (flips ? i : 0));
            content();
        }
        uint32_t block = take(4000);
        CHECK(ax_codeheap_mark_exec(&f.heap, f.heap.blocks[block].chunk) == AX_OK);
        CHECK(ax_codeheap_reset(&f.heap) == AX_OK);
        content();
        finish();
    }
}

/* --- what the check sees
 * -------------------------------------------------------------------------- */

/* Changes one field, expects the check to name it, and puts it back. */
#define SEEN(field, broken, text)                                                    \
    do {                                                                             \
        ax_detail detail = {0};                                                      \
        __typeof__(field) before = (field);                                          \
        (field) = (__typeof__(field))(broken);                                       \
        CHECK(ax_codeheap_check(&f.heap, &detail) == AX_ERR_CORRUPT);                \
        CHECK(detail.what &&strstr(detail.what, text));                              \
        if (!detail.what || !strstr(detail.what, text)) {                            \
            fprintf(stderr, "%s: %s\n", #field, detail.what ? detail.what : "none"); \
        }                                                                            \
        (field) = before;                                                            \
        content();                                                                   \
    } while (0)

static void test_check(void)
{
    ax_code_params params = small(AX_CODE_BYTE_LIMIT, 4096);
    start(params);
    uint32_t live[40];
    for (int i = 0; i < 40; i++) {
        live[i] = take(0);
        ax_codeheap_set_code(&f.heap, live[i], 100);
        CHECK(ax_codeheap_mark_exec(&f.heap, f.heap.blocks[live[i]].chunk) == AX_OK);
    }
    for (int i = 1; i < 40; i += 4) {
        CHECK(ax_codeheap_free(&f.heap, live[i]) == AX_OK);
    }
    content();
    ax_block *used = &f.heap.blocks[live[2]];
    ax_block *idle = &f.heap.blocks[live[5]];
    ax_code_chunk *chunk = &f.heap.chunks[used->chunk];
    CHECK(!used->is_free && idle->is_free && idle->listed);
    SEEN(used->alive, 0, "neighbours");
    SEEN(used->chunk, used->chunk + 1, "neighbours");
    SEEN(used->lower, AX_NO_BLOCK, "neighbours");
    SEEN(used->start, used->start + 4, "tile");
    SEEN(used->start, used->end, "smaller than its header");
    SEEN(used->end, used->end + 4, "tile");
    SEEN(used->end, 0, "smaller than its header");
    SEEN(used->higher, AX_NO_BLOCK, "terminator");
    SEEN(used->code_bytes, 5000, "more code than");
    SEEN(used->code_bytes, 99, "bytes of code");
    SEEN(used->is_free, 1, "listed though");
    SEEN(used->listed, 1, "listed though");
    SEEN(idle->listed, 0, "listed though");
    SEEN(idle->is_free, 0, "listed though");
    SEEN(idle->bin, 3, "list of free blocks");
    SEEN(idle->prev, live[1], "list of free blocks");
    SEEN(idle->next, AX_NO_BLOCK, "free lists");
    SEEN(idle->next, live[2], "list of free blocks");
    SEEN(chunk->base, chunk->base + 4, "tile");
    SEEN(chunk->bytes, chunk->bytes + 4096, "terminator");
    SEEN(chunk->first, used->higher, "neighbours");
    SEEN(chunk->used_blocks, chunk->used_blocks + 1, "used blocks");
    SEEN(chunk->exec, !chunk->exec, "VMAs");
    SEEN(f.heap.bin_head[0], AX_NO_BLOCK, "map of the free lists");
    SEEN(f.heap.bin_map[0], 0, "map of the free lists");
    SEEN(f.heap.bin_map[7], 2, "map of the free lists");
    SEEN(f.heap.mapped_bytes, 1, "bytes of blocks and chunks");
    SEEN(f.heap.code_bytes, 1, "bytes of code");
    SEEN(f.heap.vmas, 9, "VMAs");
    SEEN(f.heap.chunks_alive, 2, "chunks that touch");
    SEEN(f.heap.counters.flips_to_write, 99, "flips and executable chunks");
    SEEN(f.heap.exec_gone, 1, "flips and executable chunks");
    SEEN(f.heap.counters.allocs, f.heap.counters.flips_to_write - 1, "flips to write without");
    SEEN(chunk->above, AX_NO_CHUNK, "chunks that touch");
    SEEN(chunk->below, 1, "chunks that touch");
    SEEN(f.heap.chunks[1].below, AX_NO_CHUNK, "chunks that touch");
    SEEN(f.heap.chunks[1].base, chunk->base, "tile");
    SEEN(f.heap.by_address[0], f.heap.by_address[1], "chunks that touch");
    SEEN(f.heap.empty_bytes, 1, "bytes of empty chunks");
    SEEN(f.heap.empty_chunks, 1, "number of empty chunks");
    SEEN(f.heap.newest, AX_NO_CHUNK, "chunks by age");
    SEEN(chunk->older, f.heap.newest, "chunks by age");
    SEEN(chunk->alive, 0, "chunks by age");
    finish();

    /* Neighbours that nobody lists. */
    start(small(AX_CODE_SCAN, 0));
    uint32_t list = AX_NO_BLOCK;
    uint32_t block = take(0);
    uint64_t at = ax_block_address(&f.heap, block);
    CHECK(ax_codeheap_add_remainder(&f.heap, &list, block, at + 400, at + 800) == AX_OK);
    ax_code_unuse(&f.heap, list);
    ax_detail detail = {0};
    CHECK(ax_codeheap_check(&f.heap, &detail) == AX_ERR_CORRUPT);
    CHECK(strstr(detail.what, "neighbouring blocks are free"));
    ax_code_use(&f.heap, list, 0);
    content();
    finish();

    /* Two blocks whose border is at no multiple of a pointer: in a heap of parameters that are. */
    for (int aligned = 0; aligned < 2; aligned++) {
        params = small(AX_CODE_HALVING, aligned ? 4100 : 4096); /* half of it and 20 */
        start(params);
        block = take(0);
        ax_block *high = &f.heap.blocks[block];
        ax_block *low = &f.heap.blocks[high->lower];
        low->end = high->start = high->start - 2;
        CHECK(ax_codeheap_check(&f.heap, &detail) == (aligned ? AX_ERR_CORRUPT : AX_OK));
        CHECK(!aligned || strstr(detail.what, "a header is not aligned"));
        low->end = high->start = high->start + 2;
        finish();
    }
}

int main(void)
{
    test_golden();
    test_soak();
    test_refusals();
    test_refused_chunk_does_not_grow();
    test_growth();
    test_keep_chunks();
    test_header_writes();
    test_refused_flush();
    test_rest_that_is_not_listed();
    test_vmas();
    test_half_of_nothing();
    test_reset_searches_nothing();
    test_wrong_blocks();
    test_parameters();
    test_flips_of_chunks_that_went();
    test_check();
    return check_report();
}
