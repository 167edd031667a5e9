/* Arrays of sizes and ids. A block at a time: what is not contiguous and aligned is copied to a
 * block that is, so that every loop is over plain arrays. A block stays in the first cache, and is
 * so short that a core has begun to fetch the next one before it is done: blocks of 1024 were a
 * third slower over arrays that come from memory. */
#include "sizemap.h"

#include <string.h>

enum { BLOCK = 256 };

/* --- from and to plain arrays --- */

static int is_plain(ax_integers array)
{
    return array.stride == (ptrdiff_t)array.bytes && (uintptr_t)array.data % array.bytes == 0;
}

static void *item(ax_integers array, size_t at)
{
    return (unsigned char *)array.data + (ptrdiff_t)at * array.stride;
}

static void move_items(unsigned char *to, ptrdiff_t to_stride, const unsigned char *from,
                       ptrdiff_t from_stride, uint32_t bytes, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        switch (bytes) {
        case 1:
            *to = *from;
            break;
        case 2:
            memcpy(to, from, 2);
            break;
        case 4:
            memcpy(to, from, 4);
            break;
        default:
            memcpy(to, from, 8);
        }
        to += to_stride;
        from += from_stride;
    }
}

/* One loop body for each width of unsigned integers. */
#define BY_WIDTH(bytes, LOOP) \
    switch (bytes) {          \
    case 1:                   \
        LOOP(uint8_t);        \
        break;                \
    case 2:                   \
        LOOP(uint16_t);       \
        break;                \
    case 4:                   \
        LOOP(uint32_t);       \
        break;                \
    default:                  \
        LOOP(uint64_t);       \
    }

/* All bits that any of n numbers has: as a number not below their largest, and its sign bit says
 * whether one is negative. The length of a whole block is a constant, so that the compiler makes
 * vectors of it, and there are four sums, so that they do not wait for one another. */
static uint64_t bits_of(const void *from, uint32_t bytes, size_t n)
{
    enum { QUARTER = BLOCK / 4 };
    uint64_t bits = 0;
#define LOOP(type)                                 \
    do {                                           \
        const type *p = (const type *)from;        \
        type a = 0;                                \
        type b = 0;                                \
        type c = 0;                                \
        type d = 0;                                \
        if (n == BLOCK) {                          \
            for (size_t i = 0; i < QUARTER; i++) { \
                a |= p[i];                         \
                b |= p[i + QUARTER];               \
                c |= p[i + 2 * QUARTER];           \
                d |= p[i + 3 * QUARTER];           \
            }                                      \
        } else {                                   \
            for (size_t i = 0; i < n; i++) {       \
                a |= p[i];                         \
            }                                      \
        }                                          \
        bits = (uint64_t)a | b | c | d;            \
    } while (0)
    BY_WIDTH(bytes, LOOP)
#undef LOOP
    return bits;
}

static void widen(const void *from, uint32_t bytes, uint64_t *to, size_t n)
{
#define LOOP(type)                          \
    do {                                    \
        const type *p = (const type *)from; \
        for (size_t i = 0; i < n; i++) {    \
            to[i] = p[i];                   \
        }                                   \
    } while (0)
    BY_WIDTH(bytes, LOOP)
#undef LOOP
}

static void store_ids(const uint32_t *ids, void *to, uint32_t bytes, size_t n)
{
#define LOOP(type)                       \
    do {                                 \
        type *p = (type *)to;            \
        for (size_t i = 0; i < n; i++) { \
            p[i] = (type)ids[i];         \
        }                                \
    } while (0)
    BY_WIDTH(bytes, LOOP)
#undef LOOP
}

static void store_sizes(const uint64_t *sizes, const uint32_t *ids, void *to, uint32_t bytes,
                        size_t n)
{
#define LOOP(type)                       \
    do {                                 \
        type *p = (type *)to;            \
        for (size_t i = 0; i < n; i++) { \
            p[i] = (type)sizes[ids[i]];  \
        }                                \
    } while (0)
    BY_WIDTH(bytes, LOOP)
#undef LOOP
}

/* --- a flat map of one level, in one loop --- */

/* The index of a size that may be above the largest class, which costs two instructions, and of one
 * that is not. Four at a time, so that the loads of the table overlap: the compiler cannot know
 * that they do not depend on the stores before them. */
#define CLAMPED(size) (((size) < cap ? (size) : cap) + bias) >> shift
#define HELD(size) ((size) + bias) >> shift

#define FLAT_LOOP(in_type, entry_type, out_type, INDEX)        \
    do {                                                       \
        const in_type *in = (const in_type *)from;             \
        const entry_type *table = (const entry_type *)entries; \
        out_type *out = (out_type *)to;                        \
        size_t i = 0;                                          \
        for (; i + 4 <= n; i += 4) {                           \
            const uint64_t a = in[i];                          \
            const uint64_t b = in[i + 1];                      \
            const uint64_t c = in[i + 2];                      \
            const uint64_t d = in[i + 3];                      \
            const out_type w = table[INDEX(a)];                \
            const out_type x = table[INDEX(b)];                \
            const out_type y = table[INDEX(c)];                \
            const out_type z = table[INDEX(d)];                \
            out[i] = w;                                        \
            out[i + 1] = x;                                    \
            out[i + 2] = y;                                    \
            out[i + 3] = z;                                    \
        }                                                      \
        for (; i < n; i++) {                                   \
            const uint64_t a = in[i];                          \
            out[i] = table[INDEX(a)];                          \
        }                                                      \
    } while (0)

#define FLAT_CASE(in_type, entry_type, out_type)           \
    if (all_held) {                                        \
        FLAT_LOOP(in_type, entry_type, out_type, HELD);    \
    } else {                                               \
        FLAT_LOOP(in_type, entry_type, out_type, CLAMPED); \
    }                                                      \
    break

#define FLAT_TO(name, entry_type, out_type)                                                    \
    static void name(const ax_sizemap *map, const void *from, uint32_t in_bytes, int all_held, \
                     void *to, size_t n)                                                       \
    {                                                                                          \
        const void *entries = map->entries;                                                    \
        const uint64_t cap = map->largest + 1;                                                 \
        const uint64_t bias = map->bias[0];                                                    \
        const uint32_t shift = map->shift[0];                                                  \
        switch (in_bytes) {                                                                    \
        case 1:                                                                                \
            FLAT_CASE(uint8_t, entry_type, out_type);                                          \
        case 2:                                                                                \
            FLAT_CASE(uint16_t, entry_type, out_type);                                         \
        case 4:                                                                                \
            FLAT_CASE(uint32_t, entry_type, out_type);                                         \
        default:                                                                               \
            FLAT_CASE(uint64_t, entry_type, out_type);                                         \
        }                                                                                      \
    }

FLAT_TO(flat_1_to_1, uint8_t, uint8_t)
FLAT_TO(flat_1_to_2, uint8_t, uint16_t)
FLAT_TO(flat_1_to_4, uint8_t, uint32_t)
FLAT_TO(flat_1_to_8, uint8_t, uint64_t)
FLAT_TO(flat_2_to_2, uint16_t, uint16_t)
FLAT_TO(flat_2_to_4, uint16_t, uint32_t)
FLAT_TO(flat_2_to_8, uint16_t, uint64_t)

static void flat_ids(const ax_sizemap *map, const void *from, uint32_t in_bytes, int all_held,
                     void *to, uint32_t out_bytes, size_t n)
{
    if (map->entry_bytes == 1) {
        switch (out_bytes) {
        case 1:
            flat_1_to_1(map, from, in_bytes, all_held, to, n);
            break;
        case 2:
            flat_1_to_2(map, from, in_bytes, all_held, to, n);
            break;
        case 4:
            flat_1_to_4(map, from, in_bytes, all_held, to, n);
            break;
        default:
            flat_1_to_8(map, from, in_bytes, all_held, to, n);
        }
        return;
    }
    switch (out_bytes) {
    case 2:
        flat_2_to_2(map, from, in_bytes, all_held, to, n);
        break;
    case 4:
        flat_2_to_4(map, from, in_bytes, all_held, to, n);
        break;
    default:
        flat_2_to_8(map, from, in_bytes, all_held, to, n);
    }
}

/* --- one block --- */

typedef struct lookup {
    const ax_sizemap *map;
    enum ax_map_lookup what;
    uint32_t in_bytes;
    uint32_t out_bytes;
    int in_one_loop;
} lookup;

static void classes_of(const lookup *l, const void *from, int all_held, uint32_t *ids, size_t n)
{
    uint64_t sizes[BLOCK];
    if (l->in_one_loop) {
        flat_ids(l->map, from, l->in_bytes, all_held, ids, sizeof *ids, n);
    } else {
        widen(from, l->in_bytes, sizes, n);
        l->map->ops->class_of_block(l->map, sizes, ids, n);
    }
}

/* The ids of a block as they are; the index of the first that is none of the map's, or SIZE_MAX. */
static size_t load_ids(const lookup *l, const void *from, uint32_t *ids, size_t n)
{
    const uint32_t least = l->what == AX_LOOKUP_LEAST_BIT; /* no class has no bits */
    const uint32_t count = l->map->count;
    size_t bad = SIZE_MAX;
#define LOOP(type)                                             \
    do {                                                       \
        const type *p = (const type *)from;                    \
        int any = 0;                                           \
        for (size_t i = 0; i < n; i++) {                       \
            any |= (p[i] > count) | (p[i] < least);            \
            ids[i] = (uint32_t)p[i];                           \
        }                                                      \
        for (size_t i = 0; any && bad == SIZE_MAX; i++) {      \
            bad = p[i] > count || p[i] < least ? i : SIZE_MAX; \
        }                                                      \
    } while (0)
    BY_WIDTH(l->in_bytes, LOOP)
#undef LOOP
    return bad;
}

static size_t look_up_block(const lookup *l, const void *from, int all_held, void *to, size_t n)
{
    uint32_t ids[BLOCK];
    const ax_sizemap *map = l->map;
    if (l->what == AX_LOOKUP_CLASS || l->what == AX_LOOKUP_ROUND) {
        if (!to) {
            return SIZE_MAX;
        }
        if (l->what == AX_LOOKUP_CLASS && l->in_one_loop) {
            flat_ids(map, from, l->in_bytes, all_held, to, l->out_bytes, n);
            return SIZE_MAX;
        }
        classes_of(l, from, all_held, ids, n);
    } else {
        const size_t bad = load_ids(l, from, ids, n);
        if (bad != SIZE_MAX || !to) {
            return bad;
        }
    }
    if (l->what == AX_LOOKUP_LEAST_BIT) {
        for (size_t i = 0; i < n; i++) {
            ids[i] = ax_sizemap_least_set_bit(map, ids[i]);
        }
    }
    if (l->what == AX_LOOKUP_CLASS || l->what == AX_LOOKUP_LEAST_BIT) {
        store_ids(ids, to, l->out_bytes, n);
    } else {
        store_sizes(map->sizes, ids, to, l->out_bytes, n);
    }
    return SIZE_MAX;
}

static uint64_t number_at(const void *p, uint32_t bytes, size_t at)
{
    uint64_t value[1];
    widen((const unsigned char *)p + at * bytes, bytes, value, 1);
    return value[0];
}

int ax_sizemap_look_up(const ax_sizemap *map, enum ax_map_lookup what, ax_integers in,
                       ax_integers out, size_t n, ax_detail *detail)
{
    uint64_t in_block[BLOCK];
    uint64_t out_block[BLOCK];
    const uint64_t sign = UINT64_C(1) << (8 * in.bytes - 1);
    const int plain_in = is_plain(in);
    const int plain_out = out.data && is_plain(out);
    const lookup l = {
        .map = map,
        .what = what,
        .in_bytes = in.bytes,
        .out_bytes = out.bytes,
        .in_one_loop = map->params.kind == AX_MAP_FLAT && map->split == UINT64_MAX,
    };
    for (size_t at = 0; at < n; at += BLOCK) {
        const size_t here = n - at < BLOCK ? n - at : BLOCK;
        const void *from = item(in, at);
        if (!plain_in) {
            move_items((unsigned char *)in_block, in.bytes, from, in.stride, in.bytes, here);
            from = in_block;
        }
        const uint64_t bits = bits_of(from, in.bytes, here);
        if (in.is_signed && bits & sign) {
            size_t i = 0;
            while (!(number_at(from, in.bytes, i) & sign)) {
                i++;
            }
            return ax_fail(detail, AX_ERR_RANGE, "a negative number", number_at(from, in.bytes, i),
                           0, sign - 1, at + i);
        }
        const int all_held = bits <= map->largest;
        void *to = plain_out ? item(out, at) : out.data ? (void *)out_block : NULL;
        const size_t i = look_up_block(&l, from, all_held, to, here);
        if (i != SIZE_MAX) {
            return ax_fail(detail, AX_ERR_RANGE, "id", number_at(from, in.bytes, i),
                           what == AX_LOOKUP_LEAST_BIT, map->count, at + i);
        }
        if (out.data && !plain_out) {
            move_items(item(out, at), out.stride, (const unsigned char *)out_block, out.bytes,
                       out.bytes, here);
        }
    }
    return AX_OK;
}
