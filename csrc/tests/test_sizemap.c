/* sizemap: every kind by the oracle and by counting classes, golden numbers, refusals by name,
 * arrays of every width, and every allocation refused. */
#include "check.h"

#include <string.h>

#include "../core/sizemap.h"

static const uint64_t android64[] = {
    0x20,   0x30,   0x40,   0x50,   0x60,   0x70,   0x90,   0xb0,   0xc0,   0xe0,    0x120,
    0x160,  0x1c0,  0x250,  0x320,  0x450,  0x670,  0x830,  0xa10,  0xc30,  0x1010,  0x1210,
    0x1bd0, 0x2210, 0x2d90, 0x3790, 0x4010, 0x4810, 0x5a10, 0x7310, 0x8210, 0x10010,
};
enum { ANDROID64 = sizeof android64 / sizeof android64[0] };

static ax_sizemap_params params_of(uint32_t kind, uint32_t bits, uint32_t lo, uint32_t mid,
                                   uint32_t hi, uint64_t delta)
{
    return (ax_sizemap_params){kind, bits, lo, mid, hi, delta, 1};
}

/* The smallest class that holds a size, by counting. */
static uint32_t counted(const uint64_t *classes, uint32_t count, uint64_t size)
{
    for (uint32_t i = 0; i < count; i++) {
        if (classes[i] >= size) {
            return i + 1;
        }
    }
    return 0;
}

static int check_all(const ax_sizemap *map, ax_detail *detail)
{
    uint64_t next = 0;
    int status = AX_OK;
    uint64_t rounds = 0;
    while (status == AX_OK && next <= map->largest) {
        status = ax_sizemap_check(map, &next, 1000000, detail);
        rounds++;
    }
    CHECK(rounds >= 1);
    return status;
}

static void test_kinds(void)
{
    ax_seam books;
    ax_seam_init(&books, AX_BACKING_REAL);
    for (uint32_t kind = 0; kind < AX_MAP_KINDS; kind++) {
        ax_sizemap map;
        ax_detail detail = {0};
        const ax_sizemap_params p = kind == AX_MAP_FIXED ? params_of(kind, 3, 5, 8, 17, 16)
                                                         : params_of(kind, 7, 4, 6, 16, 16);
        CHECK(ax_sizemap_init(&map, &p, android64, ANDROID64, &books, &detail) == AX_OK);
        CHECK(map.count == (kind == AX_MAP_FIXED ? 44 : ANDROID64));
        CHECK(map.entry_count == (kind == AX_MAP_TABLE  ? 640
                                  : kind == AX_MAP_FLAT ? map.entry_count
                                                        : 0));
        CHECK(check_all(&map, &detail) == AX_OK);
        for (uint64_t n = 0; n < map.largest + 3; n += 1 + n / 300) {
            CHECK(ax_sizemap_class_of(&map, n) == counted(&map.sizes[1], map.count, n));
        }
        CHECK(ax_sizemap_class_of(&map, UINT64_MAX) == 0);
        CHECK(ax_sizemap_size_of(&map, 0) == 0);
        for (uint32_t id = 1; id <= map.count; id++) {
            const uint64_t size = ax_sizemap_size_of(&map, id);
            CHECK(size == map.sizes[id]);
            CHECK(size % (UINT64_C(1) << ax_sizemap_least_set_bit(&map, id)) == 0);
            CHECK(size >> ax_sizemap_least_set_bit(&map, id) & 1);
        }
        CHECK(ax_sizemap_hint(&map, 1, 13, 13) == 13);
        CHECK(ax_sizemap_hint(&map, map.count, 13, 13) == 1);
        ax_sizemap_release(&map);
        ax_sizemap_release(&map); /* twice is nothing */
        CHECK(books.bytes_held == 0);
    }
}

static void test_fixed(void)
{
    static const struct {
        uint32_t bits, lo, mid, hi;
        uint64_t delta;
        uint32_t count;
    } golden[] = {
        {3, 5, 8, 17, 0, 44},  {3, 5, 8, 17, 16, 44}, {4, 4, 8, 14, 16, 64}, {4, 3, 7, 14, 8, 72},
        {3, 4, 8, 63, 0, 236}, {1, 5, 5, 5, 0, 1},    {1, 7, 7, 7, 0, 1},    {1, 5, 5, 15, 0, 11},
    };
    ax_seam books;
    ax_seam_init(&books, AX_BACKING_REAL);
    for (size_t i = 0; i < sizeof golden / sizeof golden[0]; i++) {
        ax_sizemap map;
        ax_detail detail = {0};
        const ax_sizemap_params p = params_of(AX_MAP_FIXED, golden[i].bits, golden[i].lo,
                                              golden[i].mid, golden[i].hi, golden[i].delta);
        CHECK(ax_sizemap_init(&map, &p, NULL, 0, &books, &detail) == AX_OK);
        CHECK(map.count == golden[i].count);
        CHECK(map.largest == (UINT64_C(1) << golden[i].hi) + golden[i].delta);
        CHECK(check_all(&map, &detail) == AX_OK);
        ax_sizemap_release(&map);
    }
    CHECK(books.bytes_held == 0);
}

/* What the oracle says of maps that were broken after they were made. */
static void test_oracle(void)
{
    ax_seam books;
    ax_seam_init(&books, AX_BACKING_REAL);
    ax_sizemap map;
    ax_detail detail = {0};
    const ax_sizemap_params p = params_of(AX_MAP_TABLE, 7, 4, 6, 16, 16);
    CHECK(ax_sizemap_init(&map, &p, android64, ANDROID64, &books, &detail) == AX_OK);
    for (uint32_t i = 0; i < 640; i++) {
        const uint8_t kept = map.entries[i];
        map.entries[i] = (uint8_t)(kept - 1);
        CHECK(check_all(&map, &detail) == AX_ERR_CORRUPT);
        CHECK(detail.value + 1 == detail.low && detail.low == kept);
        map.entries[i] = (uint8_t)(kept + 1);
        CHECK(check_all(&map, &detail) == AX_ERR_CORRUPT);
        map.entries[i] = kept;
    }
    CHECK(check_all(&map, &detail) == AX_OK);
    map.entries[639] = AX_MAP_NO_CLASS;
    CHECK(check_all(&map, &detail) == AX_ERR_CORRUPT && detail.value == 255);
    map.entries[639] = ANDROID64;
    map.sizes[5] = map.sizes[6];
    CHECK(check_all(&map, &detail) == AX_ERR_CORRUPT);
    ax_sizemap_release(&map);
    CHECK(books.bytes_held == 0);
}

static void test_violations(void)
{
    static const uint64_t valid[] = {32, 48, 64, 80, 96, 112, 144, 272};
    ax_violation found[AX_MAP_CONDITIONS];
    ax_detail detail = {0};
    uint32_t broken = 99;
    ax_sizemap_params p = params_of(AX_MAP_TABLE, 3, 4, 6, 8, 16);
    CHECK(ax_sizemap_violations(&p, valid, 8, found, &broken, &detail) == AX_OK && broken == 0);
    CHECK(ax_sizemap_violations(&p, valid, 0, found, &broken, &detail) == AX_ERR_RANGE);
    /* All of them at once. */
    static const uint64_t bad[] = {33, 31, 64, 80, 100, 273, 900};
    p = params_of(AX_MAP_TABLE, 8, 4, 6, 8, 16);
    p.align_bytes = 16;
    CHECK(ax_sizemap_violations(&p, bad, 7, found, &broken, &detail) == AX_OK && broken == 6);
    p.num_bits = 2;
    CHECK(ax_sizemap_violations(&p, bad, 7, found, &broken, &detail) == AX_OK && broken == 5);
    CHECK(found[0].condition == 1 && found[0].index == 1 && found[0].refused);
    CHECK(found[1].condition == 2 && found[1].index == 0 && found[1].expected == 32);
    CHECK(found[2].condition == 4 && found[2].index == 6 && found[2].refused);
    CHECK(found[3].condition == 5 && found[3].expected == 272);
    CHECK(found[4].condition == 6 && found[4].index == 0 && !found[4].refused);
    p.max_size_log = 64;
    CHECK(ax_sizemap_violations(&p, bad, 7, found, &broken, &detail) == AX_ERR_RANGE);
    CHECK(strcmp(detail.what, "max_size_log") == 0);
}

static int refused(const ax_sizemap_params *p, const uint64_t *classes, uint64_t count,
                   const char *what)
{
    ax_seam books;
    ax_seam_init(&books, AX_BACKING_REAL);
    ax_sizemap map;
    ax_detail detail = {0};
    const int status = ax_sizemap_init(&map, p, classes, count, &books, &detail);
    ax_sizemap_release(&map);
    return status == AX_ERR_RANGE && strstr(detail.what, what) && books.bytes_held == 0;
}

static void test_refusals_by_name(void)
{
    static const uint64_t gap[] = {32, 64};
    static const uint64_t equal[] = {32, 32};
    static const uint64_t off[] = {32, 48, 64, 80, 96, 200};
    static const uint64_t far[] = {32, 48, 64, 80, 96, 336};
    static const uint64_t two_levels[] = {1, (1 << 30) - 1, 1 << 30};
    static const uint64_t top[] = {UINT64_MAX};
    ax_sizemap_params p = params_of(AX_MAP_TABLE, 3, 4, 6, 8, 16);
    CHECK(refused(&p, gap, 2, "V2"));
    CHECK(refused(&p, equal, 2, "V1"));
    CHECK(refused(&p, off, 6, "V4"));
    CHECK(refused(&p, far, 6, "V5"));
    CHECK(refused(&p, far, 0, "number of classes"));
    CHECK(refused(&p, far, 255, "number of classes"));
    p.num_bits = 8;
    CHECK(refused(&p, far, 5, "V3"));
    p = params_of(AX_MAP_FLAT, 0, 0, 0, 0, 0);
    CHECK(refused(&p, two_levels, 3, "flat map in two levels"));
    CHECK(refused(&p, top, 1, "V1"));
    p.kind = AX_MAP_KINDS;
    CHECK(refused(&p, gap, 2, "kind"));
    p = params_of(AX_MAP_FIXED, 9, 0, 8, 17, 0);
    CHECK(refused(&p, NULL, 0, "number of classes"));
    p = params_of(AX_MAP_FIXED, 3, 0, 1, 17, 0);
    CHECK(refused(&p, NULL, 0, "num_bits"));
    p = params_of(AX_MAP_FIXED, 3, 5, 8, 17, UINT64_C(1) << 49);
    CHECK(refused(&p, NULL, 0, "delta_bytes"));
}

/* Random lists under flat and the searches, against counting. */
static void test_random_lists(void)
{
    ax_seam books;
    ax_seam_init(&books, AX_BACKING_REAL);
    uint64_t random = 4;
    for (int round = 0; round < 200; round++) {
        uint64_t classes[300];
        const uint32_t count = 1 + (uint32_t)(next_random(&random) % (round % 10 ? 20 : 300));
        const uint64_t grid = UINT64_C(1) << next_random(&random) % 7;
        uint64_t size = next_random(&random) % 40;
        for (uint32_t i = 0; i < count; i++) {
            size += grid * (1 + next_random(&random) % (i % 8 ? 3 : 200));
            classes[i] = size;
        }
        for (uint32_t kind = AX_MAP_FLAT; kind < AX_MAP_KINDS; kind++) {
            ax_sizemap map;
            ax_detail detail = {0};
            const ax_sizemap_params p = params_of(kind, 0, 0, 0, 0, 0);
            CHECK(ax_sizemap_init(&map, &p, classes, count, &books, &detail) == AX_OK);
            CHECK(check_all(&map, &detail) == AX_OK);
            for (int i = 0; i < 30; i++) {
                const uint64_t n = next_random(&random) % (size + 50);
                CHECK(ax_sizemap_class_of(&map, n) == counted(classes, count, n));
            }
            ax_sizemap_release(&map);
        }
    }
    CHECK(books.bytes_held == 0);
}

static void test_two_levels(void)
{
    ax_seam books;
    ax_seam_init(&books, AX_BACKING_REAL);
    uint64_t classes[100];
    uint32_t count = 0;
    for (uint64_t size = 24; size <= 1024; size += 8) {
        if (size % 24 == 0) {
            classes[count++] = size;
        }
    }
    for (uint64_t size = 2048 + 8; size < UINT64_C(1) << 25; size = 2 * size - 8) {
        classes[count++] = size;
    }
    ax_sizemap map;
    ax_detail detail = {0};
    const ax_sizemap_params p = params_of(AX_MAP_FLAT, 0, 0, 0, 0, 0);
    CHECK(ax_sizemap_init(&map, &p, classes, count, &books, &detail) == AX_OK);
    CHECK(map.split != UINT64_MAX && map.entry_count < 20000);
    CHECK(ax_sizemap_class_of(&map, 1008) == 42 && ax_sizemap_class_of(&map, 1009) == 43);
    for (uint32_t i = 0; i < count; i++) {
        CHECK(ax_sizemap_class_of(&map, classes[i]) == i + 1);
        CHECK(ax_sizemap_class_of(&map, classes[i] - 1) == i + 1);
        CHECK(ax_sizemap_class_of(&map, classes[i] + 1) == (i + 1 < count ? i + 2 : 0));
    }
    ax_sizemap_release(&map);
    CHECK(books.bytes_held == 0);
}

/* Each width in, each out, plain and strided and not aligned, exactly as many bytes as there are.
 */
static void test_arrays(void)
{
    enum { N = 2100 };
    ax_seam books;
    ax_seam_init(&books, AX_BACKING_REAL);
    for (uint32_t kind = AX_MAP_TABLE; kind <= AX_MAP_FLAT; kind++) {
        ax_sizemap map;
        ax_detail detail = {0};
        const ax_sizemap_params p = params_of(kind, 7, 4, 6, 16, 16);
        CHECK(ax_sizemap_init(&map, &p, android64, ANDROID64, &books, &detail) == AX_OK);
        for (uint32_t in = 1; in <= 8; in *= 2) {
            for (uint32_t out = 1; out <= 8; out *= 2) {
                for (uint32_t gap = 0; gap < 2; gap++) {
                    const size_t in_step = in + gap;
                    const size_t out_step = out + 3 * gap;
                    unsigned char *a = calloc(N, in_step);
                    unsigned char *b = calloc(N, out_step);
                    if (!a || !b) {
                        abort();
                    }
                    for (uint64_t i = 0; i < N; i++) {
                        const uint64_t n = i * 37 % (in == 1 ? 256 : in == 2 ? 65536 : 70000);
                        memcpy(a + i * in_step, &n, in); /* little-endian */
                    }
                    const ax_integers from = {a, (ptrdiff_t)in_step, in, 0};
                    const ax_integers to = {b, (ptrdiff_t)out_step, out, 0};
                    CHECK(ax_sizemap_look_up(&map, AX_LOOKUP_CLASS, from, to, N, &detail) == AX_OK);
                    uint64_t wrong = 0;
                    for (uint64_t i = 0; i < N; i++) {
                        uint64_t n = 0;
                        uint64_t id = 0;
                        memcpy(&n, a + i * in_step, in);
                        memcpy(&id, b + i * out_step, out);
                        wrong += id != counted(android64, ANDROID64, n);
                    }
                    CHECK(wrong == 0);
                    free(a);
                    free(b);
                }
            }
        }
        int32_t sizes[3] = {1, -7, 4};
        const ax_integers from = {sizes, 4, 4, 1};
        CHECK(ax_sizemap_look_up(&map, AX_LOOKUP_CLASS, from, (ax_integers){0}, 3, &detail) ==
              AX_ERR_RANGE);
        CHECK(detail.where == 1 && (int32_t)detail.value == -7);
        CHECK(ax_sizemap_look_up(&map, AX_LOOKUP_CLASS, from, from, 1, &detail) == AX_OK);
        CHECK(sizes[0] == 1 && sizes[1] == -7);
        ax_sizemap_release(&map);
    }
    CHECK(books.bytes_held == 0);
}

static void test_refused_memory(void)
{
    for (uint32_t kind = 0; kind < AX_MAP_KINDS; kind++) {
        uint64_t classes[42];
        for (uint32_t i = 0; i < 42; i++) {
            classes[i] = i < 32 ? android64[i] : UINT64_C(65552) << (i - 31);
        }
        /* The long list needs two levels, so a flat map makes one array more. */
        for (uint32_t count = 32; count <= 42; count += 10) {
            if (kind == AX_MAP_TABLE && count > 32) {
                continue;
            }
            const ax_sizemap_params p = kind == AX_MAP_FIXED ? params_of(kind, 3, 5, 8, 17, 16)
                                                             : params_of(kind, 7, 4, 6, 16, 16);
            const uint64_t calls = 2u + (kind == AX_MAP_TABLE || kind == AX_MAP_FLAT) +
                                   (kind == AX_MAP_FLAT && count > 32);
            for (uint64_t n = 1; n <= calls + 1; n++) {
                ax_seam books;
                ax_sizemap map;
                ax_detail detail = {0};
                ax_seam_init(&books, AX_BACKING_REAL);
                books.fail_at = n;
                const int status = ax_sizemap_init(&map, &p, classes, count, &books, &detail);
                CHECK(status == (n <= calls ? AX_ERR_NOMEM : AX_OK));
                ax_sizemap_release(&map);
                CHECK(books.bytes_held == 0);
                CHECK(books.calls[AX_CALL_MALLOC] == books.calls[AX_CALL_FREE]);
            }
        }
    }
}

int main(void)
{
    test_kinds();
    test_fixed();
    test_oracle();
    test_violations();
    test_refusals_by_name();
    test_random_lists();
    test_two_levels();
    test_arrays();
    test_refused_memory();
    return check_report();
}
