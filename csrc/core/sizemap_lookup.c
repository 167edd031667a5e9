/* The five ways of looking up one size, and loops over many. Each loop is made once for each way,
 * so that the lookup is part of it. */
#include "sizemap.h"

#include <string.h>

#if defined(__GNUC__)
#define AX_INLINE static inline __attribute__((always_inline))
#else
#define AX_INLINE static inline
#endif

/* The top bits of x: how far its highest set bit is above mid, then the s bits below that bit. */
AX_INLINE uint64_t scaled_log(uint64_t x, uint32_t s, uint32_t mid)
{
    const uint32_t top = 63u - (uint32_t)__builtin_clzll(x);
    return ((uint64_t)(top - mid) << s) + (x >> (top - s)) - (UINT64_C(1) << s);
}

/* --- fixed --- */

AX_INLINE uint32_t fixed_class_of(const ax_sizemap *map, uint64_t size)
{
    const ax_sizemap_params *p = &map->params;
    const uint64_t d = p->delta_bytes;
    if (size > map->largest) {
        return 0;
    }
    if (size <= d + (UINT64_C(1) << p->min_size_log)) {
        return 1;
    }
    size -= d;
    const uint32_t linear = 1u << (p->mid_size_log - p->min_size_log);
    if (size <= UINT64_C(1) << p->mid_size_log) {
        return (uint32_t)((size - 1) >> p->min_size_log) + 1;
    }
    return linear + 1 + (uint32_t)scaled_log(size - 1, p->num_bits - 1, p->mid_size_log);
}

static uint64_t fixed_size_of(const ax_sizemap *map, uint32_t id)
{
    const ax_sizemap_params *p = &map->params;
    const uint32_t s = p->num_bits - 1;
    const uint32_t linear = 1u << (p->mid_size_log - p->min_size_log);
    if (id == 0) {
        return 0;
    }
    if (id <= linear) {
        return ((uint64_t)id << p->min_size_log) + p->delta_bytes;
    }
    id -= linear;
    const uint64_t octave = UINT64_C(1) << (p->mid_size_log + (id >> s));
    return octave + (octave >> s) * (id & ((1u << s) - 1)) + p->delta_bytes;
}

/* --- table --- */

AX_INLINE uint32_t table_class_of(const ax_sizemap *map, uint64_t size)
{
    const ax_sizemap_params *p = &map->params;
    if (size > map->largest) {
        return 0;
    }
    if (size <= map->sizes[1]) {
        return 1;
    }
    size -= p->delta_bytes;
    if (size <= UINT64_C(1) << p->mid_size_log) {
        return (uint32_t)((size - 1) >> p->min_size_log) + 1;
    }
    return map->entries[scaled_log(size - 1, p->num_bits - 1, p->mid_size_log)];
}

static uint64_t stored_size_of(const ax_sizemap *map, uint32_t id)
{
    return map->sizes[id];
}

/* --- flat --- */

AX_INLINE uint32_t flat_any_class_of(const ax_sizemap *map, uint64_t size)
{
    /* One above the largest is the last entry, which says that there is no class. */
    const uint64_t held = size <= map->largest ? size : map->largest + 1;
    const size_t level = held > map->split;
    const uint64_t index = ((held + map->bias[level]) >> map->shift[level]) + map->base[level];
    if (map->entry_bytes == 1) {
        return map->entries[index];
    }
    uint16_t id;
    memcpy(&id, &map->entries[2 * index], sizeof id);
    return id;
}

/* The usual case: one level, an entry is a byte. */
AX_INLINE uint32_t flat_bytes_class_of(const ax_sizemap *map, uint64_t size)
{
    const uint64_t held = size <= map->largest ? size : map->largest + 1;
    return map->entries[(held + map->bias[0]) >> map->shift[0]];
}

static int is_usual(const ax_sizemap *map)
{
    return map->split == UINT64_MAX && map->entry_bytes == 1;
}

/* --- search --- */

AX_INLINE uint32_t search_class_of(const ax_sizemap *map, uint64_t size)
{
    uint32_t low = 1;
    uint32_t high = map->count + 1;
    while (low < high) {
        const uint32_t middle = low + (high - low) / 2;
        if (map->sizes[middle] < size) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low <= map->count ? low : 0;
}

AX_INLINE uint32_t search_branchless_class_of(const ax_sizemap *map, uint64_t size)
{
    const uint64_t *const first = &map->sizes[1];
    const uint64_t *base = first;
    for (size_t left = map->count; left > 1;) {
        const size_t half = left / 2;
        base += half & -(size_t)(base[half - 1] < size);
        left -= half;
    }
    const uint32_t id = (uint32_t)(base - first) + 1 + (*base < size);
    return id <= map->count ? id : 0;
}

/* --- the same loops for all --- */

#define LOOPS(kind)                                                                       \
    static void kind##_block(const ax_sizemap *map, const uint64_t *sizes, uint32_t *ids, \
                             size_t n)                                                    \
    {                                                                                     \
        const ax_sizemap m = *map;                                                        \
        for (size_t i = 0; i < n; i++) {                                                  \
            ids[i] = kind##_class_of(&m, sizes[i]);                                       \
        }                                                                                 \
    }                                                                                     \
    static uint64_t kind##_sum(const ax_sizemap *map, const uint32_t *sizes, size_t n)    \
    {                                                                                     \
        const ax_sizemap m = *map;                                                        \
        uint64_t sum = 0;                                                                 \
        for (size_t i = 0; i < n; i++) {                                                  \
            sum += kind##_class_of(&m, sizes[i]);                                         \
        }                                                                                 \
        return sum;                                                                       \
    }                                                                                     \
    static uint64_t kind##_chain(const ax_sizemap *map, const uint32_t *sizes, size_t n,  \
                                 uint32_t mask)                                           \
    {                                                                                     \
        const ax_sizemap m = *map;                                                        \
        uint64_t sum = 0;                                                                 \
        uint32_t id = 0;                                                                  \
        for (size_t i = 0; i < n; i++) {                                                  \
            id = kind##_class_of(&m, sizes[i] + (id & mask));                             \
            sum += id;                                                                    \
        }                                                                                 \
        return sum;                                                                       \
    }

LOOPS(fixed)
LOOPS(table)
LOOPS(flat_bytes)
LOOPS(flat_any)
LOOPS(search)
LOOPS(search_branchless)

#define ONE(kind)                                                    \
    static uint32_t kind##_one(const ax_sizemap *map, uint64_t size) \
    {                                                                \
        return kind##_class_of(map, size);                           \
    }

ONE(fixed)
ONE(table)
ONE(search)
ONE(search_branchless)

static uint32_t flat_one(const ax_sizemap *map, uint64_t size)
{
    return flat_any_class_of(map, size);
}

static void flat_block(const ax_sizemap *map, const uint64_t *sizes, uint32_t *ids, size_t n)
{
    (is_usual(map) ? flat_bytes_block : flat_any_block)(map, sizes, ids, n);
}

static uint64_t flat_sum(const ax_sizemap *map, const uint32_t *sizes, size_t n)
{
    return (is_usual(map) ? flat_bytes_sum : flat_any_sum)(map, sizes, n);
}

static uint64_t flat_chain(const ax_sizemap *map, const uint32_t *sizes, size_t n, uint32_t mask)
{
    return (is_usual(map) ? flat_bytes_chain : flat_any_chain)(map, sizes, n, mask);
}

#define OPS(kind, size_of) {#kind, kind##_one, size_of, kind##_block, kind##_sum, kind##_chain}

const ax_map_kind_ops ax_map_kinds[AX_MAP_KINDS] = {
    OPS(fixed, fixed_size_of),
    OPS(table, stored_size_of),
    OPS(flat, stored_size_of),
    OPS(search, stored_size_of),
    OPS(search_branchless, stored_size_of),
};

const char *ax_map_kind_name(uint32_t kind)
{
    return ax_map_kinds[kind].name;
}
