/* livecode: what is sealed runs and what is open does not, whatever the system refuses. */
#include "check.h"

#include <string.h>

#include "../core/codepolicy.h"
#include "../core/livecode.h"

#define MOST 64

typedef struct thing {
    ax_code_handle handle;
    uint64_t size;
    uint8_t fill;
    uint8_t sealed;
} thing;

static struct world {
    ax_livecode live;
    thing things[MOST];
    uint32_t alive;
    uint32_t fills;
    uint32_t refusals;
} w;

static ax_code_params params_of(uint32_t policy, uint32_t wx)
{
    ax_code_params params;
    ax_code_params_default(&params);
    params.page_bytes = ax_page_bytes();
    params.chunk_bytes = params.page_bytes;
    params.policy = policy;
    params.wx = wx;
    params.partitions = 2;
    params.byte_limit = policy < AX_CODE_FIRST_FIT ? 1024 : 0;
    return params;
}

static void begin(const ax_code_params *params)
{
    memset(&w, 0, sizeof w);
    CHECK(ax_livecode_open(&w.live, params, NULL) == AX_OK);
}

/* The rights of the page at an address as the kernel has them: "r-x", "rw-"; "" where nothing is.
 */
static void rights(uint64_t address, char out[4])
{
    FILE *maps = fopen("/proc/self/maps", "r");
    char line[512];
    memset(out, 0, 4);
    while (maps && fgets(line, sizeof line, maps)) {
        unsigned long long low;
        unsigned long long high;
        char found[5];
        if (sscanf(line, "%llx-%llx %4s", &low, &high, found) == 3 && address >= low &&
            address < high) {
            memcpy(out, found, 3);
        }
    }
    if (maps) {
        fclose(maps);
    }
}

static const ax_code_chunk *chunk_of(const thing *t)
{
    return &w.live.heap.chunks[w.live.heap.blocks[t->handle.block].chunk];
}

/* Every block holds its bytes, at the address where it is executed; the kernel agrees with us about
 * what can be. */
static void content(int ask_the_kernel)
{
    ax_detail detail = {0};
    int status = ax_livecode_check(&w.live, &detail);
    if (status != AX_OK) {
        fprintf(stderr, "%s: %llu, %llu\n", detail.what, (unsigned long long)detail.value,
                (unsigned long long)detail.low);
    }
    CHECK(status == AX_OK);
    const uint32_t wx = w.live.heap.params.wx;
    for (uint32_t i = 0; i < w.alive; i++) {
        const thing *t = &w.things[i];
        int sealed = -1;
        int executable = -1;
        CHECK(ax_livecode_look(&w.live, t->handle, &sealed, &executable, NULL) == AX_OK);
        CHECK(sealed == t->sealed);
        const ax_code_chunk *chunk = chunk_of(t);
        CHECK(executable == (t->sealed && (wx != AX_WX_FLIP || chunk->open_blocks == 0)));
        const uint8_t *bytes = ax_at(t->handle.address);
        CHECK(bytes[0] == t->fill && bytes[t->size - 1] == t->fill);
        if (ask_the_kernel) {
            char found[4];
            rights(t->handle.address, found);
            if (wx == AX_WX_FLIP) {
                CHECK(strcmp(found, chunk->open_blocks ? "rw-" : "r-x") == 0);
            } else {
                CHECK(strcmp(found, wx == AX_WX_DUAL ? "r-x" : "rwx") == 0);
            }
        }
    }
}

/* Everything that a refused call must leave as it was. */
typedef struct picture {
    ax_livecode_totals totals;
    ax_code_counters counters;
    uint64_t mapped, code, empty, vmas, operations;
    uint32_t chunks;
} picture;

static picture look(void)
{
    picture p;
    memset(&p, 0, sizeof p);
    const ax_codeheap *heap = &w.live.heap;
    CHECK(ax_livecode_totals_now(&w.live, &p.totals, NULL) == AX_OK);
    p.counters = heap->counters;
    p.counters.list_scan_steps = 0; /* who searches in vain has searched */
    p.mapped = heap->mapped_bytes;
    p.code = heap->code_bytes;
    p.empty = heap->empty_bytes;
    p.vmas = heap->vmas;
    p.operations = ax_code_operations(heap);
    p.chunks = heap->chunks_alive;
    return p;
}

static int same(const picture *before)
{
    picture now = look();
    return memcmp(&now, before, sizeof now) == 0;
}

/* What the system refused is asked for again: it refuses one call only. */
static int refused(int status, const picture *before)
{
    if (status == AX_OK) {
        return 0;
    }
    CHECK(status == AX_ERR_NOMEM);
    CHECK(same(before));
    content(1);
    w.refusals++;
    return 1;
}

static void write_one(thing *t)
{
    uint8_t bytes[4096];
    t->fill = (uint8_t)(++w.fills % 255 + 1);
    memset(bytes, t->fill, sizeof bytes);
    CHECK(ax_livecode_write(&w.live, t->handle, 0, bytes, t->size, NULL) == AX_OK);
}

static void shrink_one(thing *t, uint64_t size)
{
    picture before = look();
    if (refused(ax_livecode_shrink(&w.live, t->handle, size, NULL), &before)) {
        CHECK(ax_livecode_shrink(&w.live, t->handle, size, NULL) == AX_OK);
    }
    t->size = size;
    CHECK(ax_livecode_size(&w.live, t->handle) == size);
}

/* A block of a size, or, of a policy that knows none, at most of it. */
static thing *alloc_one(uint64_t size)
{
    thing *t = &w.things[w.alive];
    const uint64_t asked = w.live.heap.policy->sized ? size : 0;
    memset(t, 0, sizeof *t);
    picture before = look();
    if (refused(ax_livecode_alloc(&w.live, asked, &t->handle, NULL), &before)) {
        CHECK(t->handle.address == 0);
        CHECK(ax_livecode_alloc(&w.live, asked, &t->handle, NULL) == AX_OK);
    }
    t->size = ax_livecode_size(&w.live, t->handle);
    CHECK(asked == 0 || t->size == asked);
    w.alive++;
    write_one(t);
    if (t->size > size) {
        shrink_one(t, size);
    }
    return t;
}

static void seal_one(thing *t)
{
    picture before = look();
    if (refused(ax_livecode_seal(&w.live, t->handle, NULL), &before)) {
        CHECK(ax_livecode_seal(&w.live, t->handle, NULL) == AX_OK);
    }
    t->sealed = 1;
}

static void open_one(thing *t)
{
    picture before = look();
    if (refused(ax_livecode_unseal(&w.live, t->handle, NULL), &before)) {
        CHECK(ax_livecode_unseal(&w.live, t->handle, NULL) == AX_OK);
    }
    t->sealed = 0;
}

static void free_one(thing *t)
{
    picture before = look();
    if (refused(ax_livecode_free(&w.live, t->handle, NULL), &before)) {
        CHECK(ax_livecode_free(&w.live, t->handle, NULL) == AX_OK);
    }
    CHECK(ax_livecode_free(&w.live, t->handle, NULL) == AX_ERR_DOUBLE_FREE);
    *t = w.things[--w.alive];
}

static void close_all(void)
{
    const ax_code_params *params = &w.live.heap.params;
    const uint32_t pieces = params->policy == AX_CODE_PARTITION ? params->partitions : 1;
    int status = ax_livecode_close(&w.live, NULL);
    if (status != AX_OK) {
        CHECK(status == AX_ERR_NOMEM && w.live.open);
        CHECK(ax_livecode_check(&w.live, NULL) == AX_OK);
        w.refusals++;
        CHECK(ax_livecode_close(&w.live, NULL) == AX_OK);
    }
    CHECK(!w.live.open && ax_livecode_close(&w.live, NULL) == AX_OK);
    CHECK(w.live.seam.mapped_bytes == 0 && w.live.books.bytes_held == 0);
    /* The chunks of a partition come at once and go one by one; but for a first mapping without its
     * second. */
    CHECK(w.live.seam.failed[AX_CALL_MAP] ||
          w.live.seam.calls[AX_CALL_MAP] * pieces == w.live.seam.calls[AX_CALL_UNMAP]);
}

/* Blocks of all states in shared chunks, chunks that empty and go, and one of several pages. */
static void workload(const ax_code_params *params, uint64_t seam_n, uint64_t books_n)
{
    begin(params);
    w.live.seam.fail_at = seam_n;
    w.live.books.fail_at = books_n;
    uint64_t random = 11;
    for (uint32_t i = 0; i < 12; i++) {
        thing *t = alloc_one(300 + 60 * i);
        if (i % 3) {
            seal_one(t);
        }
    }
    seal_one(alloc_one(4000));
    content(1);
    for (uint32_t i = 0; i < 60; i++) {
        uint64_t r = next_random(&random);
        thing *t = w.alive ? &w.things[(r >> 8) % w.alive] : NULL;
        switch (r % 4) {
        case 0:
            if (w.alive < 16) {
                t = alloc_one(16 + (r >> 32) % 1500);
                if (r >> 16 & 1) {
                    seal_one(t);
                }
                break;
            }
            /* fall through */
        case 1:
            if (t) {
                free_one(t);
            }
            break;
        case 2:
            if (t && t->sealed) {
                open_one(t);
                write_one(t);
            } else if (t) {
                shrink_one(t, 1 + (r >> 32) % t->size);
            }
            break;
        default:
            if (t && !t->sealed) {
                seal_one(t);
            }
        }
        content(0);
    }
    while (w.alive > 3) {
        free_one(&w.things[w.alive / 2]);
    }
    content(1);
    close_all();
}

static void test_every_refusal(const ax_code_params *params)
{
    workload(params, 0, 0);
    CHECK(w.refusals == 0);
    uint64_t attempts[2] = {w.live.seam.attempts, w.live.books.attempts};
    CHECK(attempts[0] >= 4 && attempts[1] >= 3);
    for (int books = 0; books < 2; books++) {
        for (uint64_t n = 1; n <= attempts[books]; n++) {
            workload(params, books ? 0 : n, books ? n : 0);
            const ax_seam *seam = books ? &w.live.books : &w.live.seam;
            uint64_t failed = 0;
            for (int call = 0; call < AX_CALLS; call++) {
                failed += seam->failed[call];
            }
            CHECK(failed == 1);
            /* An empty chunk that the system does not take back is no failure of the free. */
            CHECK(w.refusals == 1 || (!books && seam->failed[AX_CALL_UNMAP] == 1));
        }
    }
}

/* Hazard (b): the last open block of a chunk goes, and others live there. */
static void test_free_of_the_last_open_block(uint32_t policy, uint32_t header)
{
    ax_code_params params = params_of(policy, AX_WX_FLIP);
    params.header_bytes = header;
    begin(&params);
    thing *a = alloc_one(100);
    seal_one(a);
    thing *b = alloc_one(100);
    while (chunk_of(a) != chunk_of(b)) { /* partition has two, whole_block the rest of one */
        seal_one(b);
        b = alloc_one(100);
    }
    CHECK(!chunk_of(a)->exec);
    content(1);
    /* Shrinking leaves what is open open. */
    shrink_one(b, 10);
    CHECK(!chunk_of(a)->exec);
    picture before = look();
    ax_detail detail = {0};
    w.live.seam.fail_at = w.live.seam.attempts + 1;
    CHECK(ax_livecode_free(&w.live, b->handle, &detail) == AX_ERR_NOMEM && detail.what);
    CHECK(same(&before));
    content(1);
    free_one(b);
    CHECK(chunk_of(a)->exec);
    content(1);
    /* Hazard (a): a free touches nothing and flips nothing. */
    const uint64_t protects = w.live.seam.calls[AX_CALL_PROTECT];
    const uint64_t where = w.things[0].handle.address - w.live.heap.params.header_bytes;
    uint8_t headers[2][4096];
    memcpy(headers[0], ax_at(where), w.live.heap.params.header_bytes);
    free_one(&w.things[0]);
    memcpy(headers[1], ax_at(where), w.live.heap.params.header_bytes);
    CHECK(memcmp(headers[0], headers[1], w.live.heap.params.header_bytes) == 0);
    CHECK(w.live.seam.calls[AX_CALL_PROTECT] == protects);
    CHECK(w.live.heap.counters.unmarked_header_writes == 0);
    content(1);
    close_all();
}

/* A size that nobody knows yet. */
static void test_unsized(uint32_t policy, uint32_t wx)
{
    ax_code_params params = params_of(policy, wx);
    const int sized = policy >= AX_CODE_FIRST_FIT;
    for (uint32_t header = 0; header <= 48; header += 12) {
        for (int limited = 0; limited < 2; limited++) {
            params.header_bytes = header;
            params.byte_limit = limited ? 500 : 0;
            begin(&params);
            const uint64_t chunk = params.chunk_bytes - 2 * (uint64_t)header;
            ax_code_handle h;
            ax_detail d = {0};
            CHECK(ax_livecode_alloc(&w.live, 0, &h, &d) == AX_OK);
            const uint64_t got = ax_livecode_size(&w.live, h);
            if (limited && (sized || policy >= AX_CODE_HALVING)) {
                CHECK(got == 500);
            } else if (policy == AX_CODE_BUCKETS) {
                CHECK(got == (header ? chunk + 1 + 2 * (uint64_t)header : 2 * chunk) / 2);
            } else {
                CHECK(got <= chunk && got + 128 > chunk);
            }
            CHECK(w.live.heap.mapped_bytes ==
                  params.chunk_bytes *
                      (policy == AX_CODE_BITMAP || policy == AX_CODE_PARTITION ? 2 : 1));
            const uint8_t byte = 7;
            CHECK(ax_livecode_write(&w.live, h, got - 1, &byte, 1, &d) == AX_OK);
            CHECK(ax_livecode_write(&w.live, h, got, &byte, 1, &d) == AX_ERR_RANGE);
            picture before = look();
            CHECK(ax_livecode_shrink(&w.live, h, 0, &d) == AX_ERR_RANGE && d.high == got);
            CHECK(ax_livecode_shrink(&w.live, h, got + 1, &d) == AX_ERR_RANGE);
            CHECK(same(&before));
            CHECK(ax_livecode_write(&w.live, h, 0, &byte, 1, &d) == AX_OK);
            const uint64_t free_before = before.totals.code.free_bytes;
            CHECK(ax_livecode_shrink(&w.live, h, 40, &d) == AX_OK);
            CHECK(*(const uint8_t *)ax_at(h.address) == 7);
            before = look();
            const int worth_it = policy != AX_CODE_BEST_FIT || !limited;
            CHECK(worth_it ? before.totals.code.free_bytes > free_before + 200
                           : before.totals.code.free_bytes == free_before);
            CHECK(ax_livecode_write(&w.live, h, 40, &byte, 1, &d) == AX_ERR_RANGE);
            /* Once more there is too little behind it to be a block. */
            const uint64_t blocks = before.totals.code.blocks;
            CHECK(ax_livecode_shrink(&w.live, h, 39, &d) == AX_OK);
            CHECK(look().totals.code.blocks == blocks && look().code == 39);
            content(0);
            CHECK(ax_livecode_seal(&w.live, h, &d) == AX_OK);
            before = look();
            CHECK(ax_livecode_shrink(&w.live, h, 10, &d) == AX_ERR_SEALED);
            CHECK(sized || ax_livecode_alloc(&w.live, 40, &h, &d) == AX_ERR_RANGE);
            CHECK(same(&before));
            CHECK(ax_livecode_free(&w.live, h, &d) == AX_OK);
            CHECK(ax_livecode_shrink(&w.live, h, 10, &d) == AX_ERR_DOUBLE_FREE);
            content(0);
            close_all();
            CHECK(ax_livecode_shrink(&w.live, h, 10, &d) == AX_ERR_CLOSED);
        }
    }
}

/* Limits with which the history's arithmetic is wrong have no place on real pages. */
static void test_limits(void)
{
    static const struct {
        uint32_t policy, header, least;
        uint64_t limit;
    } limits[] = {
        {AX_CODE_BYTE_LIMIT, 20, 32, 83},       {AX_CODE_BYTE_LIMIT, 40, 32, 103},
        {AX_CODE_HALVING, 20, 32, 84},          {AX_CODE_HALVING, 0, 5, 10},
        {AX_CODE_HALVING_PAYLOAD, 20, 32, 121}, {AX_CODE_HALVING_PAYLOAD, 40, 32, 181},
        {AX_CODE_HALVING_PAYLOAD, 0, 5, 10},    {AX_CODE_HALVING_PAYLOAD, 1, 5, 10},
    };
    for (size_t i = 0; i < sizeof limits / sizeof limits[0]; i++) {
        ax_code_params params = params_of(limits[i].policy, AX_WX_FLIP);
        ax_detail d = {0};
        params.header_bytes = limits[i].header;
        params.min_payload_bytes = limits[i].least;
        params.byte_limit = limits[i].limit - 1;
        CHECK(ax_livecode_open(&w.live, &params, &d) == AX_ERR_RANGE);
        CHECK(strncmp(d.what, "byte_limit", 10) == 0 && d.low == limits[i].limit);
        CHECK(!w.live.open && ax_livecode_close(&w.live, &d) == AX_OK);
        params.byte_limit++;
        begin(&params);
        ax_code_handle h;
        for (int n = 0; n < 200; n++) {
            CHECK(ax_livecode_alloc(&w.live, 0, &h, &d) == AX_OK);
            CHECK(ax_livecode_size(&w.live, h) >= limits[i].least);
        }
        content(0);
        close_all();
    }
    ax_code_params params = params_of(AX_CODE_SEGREGATED, AX_WX_FLIP);
    params.byte_limit = (UINT64_C(1) << 31) + 1;
    CHECK(ax_livecode_open(&w.live, &params, NULL) == AX_ERR_RANGE);
}

/* The same two hazards in the design that had them, which marks what it compiles and nothing else.
 */
static void test_hazards_of_history(void)
{
    ax_code_params params = params_of(AX_CODE_BYTE_LIMIT, AX_WX_FLIP);
    params.byte_limit = 512;
    ax_seam seam;
    ax_seam books;
    ax_seam_init(&seam, AX_BACKING_MODELLED);
    ax_seam_init(&books, AX_BACKING_REAL);
    ax_codeheap heap;
    CHECK(ax_codeheap_init(&heap, &params, &seam, &books, NULL) == AX_OK);
    uint32_t method = 0;
    uint32_t exits = 0;
    CHECK(ax_codeheap_alloc(&heap, 0, &method) == AX_OK);
    const uint32_t chunk = heap.blocks[method].chunk;
    CHECK(ax_codeheap_mark_exec(&heap, chunk) == AX_OK && heap.chunks[chunk].exec);
    /* (b): the exit stream of the next method gets a block here and uses nothing of it. */
    CHECK(ax_codeheap_alloc(&heap, 0, &exits) == AX_OK && heap.blocks[exits].chunk == chunk);
    uint32_t list = AX_NO_BLOCK;
    CHECK(ax_codeheap_add_remainder(&heap, &list, exits, ax_block_address(&heap, exits),
                                    heap.blocks[exits].end) == AX_OK);
    /* Nothing on the list, so nothing to mark: the first method's code cannot run. */
    CHECK(list == AX_NO_BLOCK && heap.chunks[chunk].used_blocks == 1 && !heap.chunks[chunk].exec);
    CHECK(ax_codeheap_check(&heap, NULL) == AX_OK);
    /* (a): a free writes a header into a chunk that is executable. */
    CHECK(ax_codeheap_mark_exec(&heap, chunk) == AX_OK);
    CHECK(heap.counters.unmarked_header_writes == 0);
    CHECK(ax_codeheap_free(&heap, method) == AX_OK);
    CHECK(heap.counters.unmarked_header_writes == 1);
    ax_codeheap_release(&heap);
}

/* Flips are as few as the count of open blocks allows. */
static void test_flips(void)
{
    ax_code_params params = params_of(AX_CODE_SEGREGATED, AX_WX_FLIP);
    begin(&params);
    thing *a = alloc_one(100);
    thing *b = alloc_one(100);
    thing *c = alloc_one(100);
    const ax_code_counters *n = &w.live.heap.counters;
    CHECK(n->flips_to_write == 0 && n->flips_to_exec == 0);
    seal_one(a);
    seal_one(b);
    CHECK(n->flips_to_exec == 0);
    seal_one(c);
    CHECK(n->flips_to_exec == 1);
    open_one(b);
    open_one(a);
    CHECK(n->flips_to_write == 1);
    write_one(a);
    seal_one(b);
    CHECK(n->flips_to_exec == 1);
    seal_one(a);
    CHECK(n->flips_to_exec == 2 && n->flips_to_write == 1);
    CHECK(n->pages_flipped == 3 && w.live.seam.calls[AX_CALL_PROTECT] == 3);
    content(1);
    close_all();
}

static void test_misuse(uint32_t wx)
{
    ax_code_params params = params_of(AX_CODE_SEGREGATED, wx);
    begin(&params);
    ax_detail d = {0};
    ax_code_handle none = {64, 7, 1};
    CHECK(ax_livecode_free(&w.live, none, &d) == AX_ERR_FOREIGN && d.value == 64);
    CHECK(ax_livecode_alloc(&w.live, UINT64_MAX, &none, &d) == AX_ERR_OVERFLOW);
    thing *t = alloc_one(100);
    thing *u = alloc_one(50);
    seal_one(u);
    picture before = look();
    uint8_t bytes[101] = {0};
    CHECK(ax_livecode_write(&w.live, t->handle, 0, bytes, 101, &d) == AX_ERR_RANGE &&
          d.high == 100);
    CHECK(ax_livecode_write(&w.live, t->handle, 60, bytes, 41, &d) == AX_ERR_RANGE && d.high == 40);
    CHECK(ax_livecode_write(&w.live, t->handle, 101, bytes, 0, &d) == AX_ERR_RANGE);
    CHECK(ax_livecode_write(&w.live, t->handle, UINT64_MAX, bytes, 2, &d) == AX_ERR_RANGE);
    CHECK(ax_livecode_write(&w.live, t->handle, 100, bytes, 0, &d) == AX_OK);
    CHECK(ax_livecode_write(&w.live, u->handle, 0, bytes, 1, &d) == AX_ERR_SEALED);
    CHECK(ax_livecode_seal(&w.live, u->handle, &d) == AX_ERR_SEALED);
    CHECK(ax_livecode_unseal(&w.live, t->handle, &d) == AX_ERR_SEALED);
    ax_code_handle wrong = t->handle;
    wrong.generation++;
    CHECK(ax_livecode_free(&w.live, wrong, &d) == AX_ERR_FOREIGN);
    wrong = t->handle;
    wrong.address += 16;
    CHECK(ax_livecode_free(&w.live, wrong, &d) == AX_ERR_FOREIGN);
    CHECK(same(&before));
    content(1);
    ax_code_handle old = t->handle;
    free_one(t);
    CHECK(ax_livecode_seal(&w.live, old, &d) == AX_ERR_DOUBLE_FREE);
    t = alloc_one(100); /* the same memory, another generation */
    CHECK(t->handle.address == old.address);
    CHECK(ax_livecode_free(&w.live, old, &d) == AX_ERR_STALE);
    content(0);
    old = t->handle;
    close_all();
    int one;
    int two;
    ax_livecode_totals totals;
    CHECK(ax_livecode_alloc(&w.live, 8, &none, &d) == AX_ERR_CLOSED);
    CHECK(ax_livecode_free(&w.live, old, &d) == AX_ERR_CLOSED);
    CHECK(ax_livecode_look(&w.live, old, &one, &two, &d) == AX_ERR_CLOSED);
    CHECK(ax_livecode_totals_now(&w.live, &totals, &d) == AX_ERR_CLOSED);
    CHECK(ax_livecode_check(&w.live, &d) == AX_ERR_CLOSED);
}

static void test_parameters(void)
{
    ax_detail d = {0};
    for (uint32_t policy = 0; policy < AX_CODE_POLICIES; policy++) {
        ax_code_params params = params_of(policy, AX_WX_FLIP);
        int status = ax_livecode_open(&w.live, &params, &d);
        CHECK(status == AX_OK);
        CHECK(ax_livecode_close(&w.live, NULL) == AX_OK);
    }
    ax_code_params params = params_of(AX_CODE_SEGREGATED, AX_WX_PER_THREAD);
    CHECK(ax_livecode_open(&w.live, &params, &d) == AX_ERR_RANGE);
    params = params_of(AX_CODE_POLICIES, AX_WX_FLIP);
    CHECK(ax_livecode_open(&w.live, &params, &d) == AX_ERR_RANGE);
    params = params_of(AX_CODE_SEGREGATED, AX_WX_FLIP);
    params.page_bytes /= 2;
    CHECK(ax_livecode_open(&w.live, &params, &d) == AX_ERR_RANGE && d.low == ax_page_bytes());
}

/* A flush takes every block; their handles are known to be dead, also when memory comes again. */
static void test_flush(uint32_t wx)
{
    ax_code_params params = params_of(AX_CODE_BUMP, wx);
    params.max_code_bytes = 2 * params.chunk_bytes;
    begin(&params);
    ax_code_handle handles[3];
    for (int i = 0; i < 2; i++) {
        CHECK(ax_livecode_alloc(&w.live, params.chunk_bytes - 64, &handles[i], NULL) == AX_OK);
    }
    CHECK(ax_livecode_seal(&w.live, handles[0], NULL) == AX_OK);
    CHECK(ax_livecode_alloc(&w.live, params.chunk_bytes - 64, &handles[2], NULL) == AX_OK);
    CHECK(w.live.heap.counters.flushes == 1 && w.live.heap.chunks_alive == 1);
    for (int i = 0; i < 2; i++) {
        int status = ax_livecode_free(&w.live, handles[i], NULL);
        CHECK(status == AX_ERR_DOUBLE_FREE || status == AX_ERR_STALE);
    }
    CHECK(ax_livecode_seal(&w.live, handles[2], NULL) == AX_OK);
    CHECK(ax_livecode_check(&w.live, NULL) == AX_OK);
    close_all();
}

#define DEMAND(field, wrong, text)                                   \
    do {                                                             \
        ax_detail found = {0};                                       \
        const uint64_t kept = (uint64_t)(field);                     \
        (field) = (__typeof__(field))(wrong);                        \
        CHECK(ax_livecode_check(&w.live, &found) == AX_ERR_CORRUPT); \
        CHECK(found.what &&strcmp(found.what, text) == 0);           \
        (field) = (__typeof__(field))kept;                           \
        content(0);                                                  \
    } while (0)

static void test_corruption(void)
{
    ax_code_params params = params_of(AX_CODE_SEGREGATED, AX_WX_FLIP);
    begin(&params);
    thing *a = alloc_one(100);
    seal_one(a);
    ax_block *block = &w.live.heap.blocks[a->handle.block];
    ax_code_chunk *chunk = &w.live.heap.chunks[block->chunk];
    DEMAND(block->sealed, 0, "open blocks of a chunk");
    DEMAND(chunk->open_blocks, 1, "open blocks of a chunk");
    DEMAND(chunk->alias, 4096, "the second mapping of a chunk");
    DEMAND(block->end, block->end + 16, "blocks do not tile their chunk");
    open_one(a);
    chunk->exec = 1;
    w.live.heap.counters.flips_to_exec++;
    ax_detail d = {0};
    CHECK(ax_livecode_check(&w.live, &d) == AX_ERR_CORRUPT);
    CHECK(strcmp(d.what, "a chunk with an open block is executable") == 0);
    w.live.heap.counters.flips_to_exec--;
    chunk->exec = 0;
    block->sealed = 1;
    chunk->open_blocks = 0;
    CHECK(ax_livecode_check(&w.live, &d) == AX_ERR_CORRUPT);
    CHECK(strcmp(d.what, "a chunk of sealed blocks is not executable") == 0);
    close_all();
}

int main(void)
{
    for (uint32_t wx = AX_WX_FLIP; wx <= AX_WX_RWX; wx++) {
        for (uint32_t policy = 0; policy < AX_CODE_POLICIES; policy++) {
            ax_code_params params = params_of(policy, wx);
            workload(&params, 0, 0);
            params.keep_bytes = 0;
            workload(&params, 0, 0);
            test_every_refusal(&params);
            params.header_bytes = 16;
            if (policy == AX_CODE_SEGREGATED || policy == AX_CODE_BYTE_LIMIT) {
                test_every_refusal(&params);
            }
            test_unsized(policy, wx);
        }
        test_misuse(wx);
        test_flush(wx);
    }
    for (uint32_t policy = 0; policy < AX_CODE_POLICIES; policy++) {
        test_free_of_the_last_open_block(policy, policy < AX_CODE_FIRST_FIT ? 40 : 0);
        test_free_of_the_last_open_block(policy, 16);
    }
    test_limits();
    test_hazards_of_history();
    test_flips();
    test_parameters();
    test_corruption();
    return check_report();
}
