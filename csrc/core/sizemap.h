/* sizemap: from a size to the size class that holds it, in five ways behind one interface.
 *
 * Classes are numbered from 1 and their sizes rise strictly; id 0 means "no class": a size above
 * the largest. A lookup takes what a block must hold, headers included. Size 0 has class 1.
 *
 *     fixed              arithmetic: a linear part, then 2^S steps for each doubling; no memory
 *     table              linear part, then a byte table over the cells of such a logarithm; each
 *                        entry is the class of the UPPER edge of its cell
 *     flat               a table over equal steps, the largest power of two that divides all
 *                        distances; two such tables, one behind the other, where one were too long
 *     search             binary search that branches on each comparison
 *     search_branchless  binary search of a fixed number of steps
 *
 * With S = num_bits - 1, lo, mid, hi the three logs and d = delta_bytes, a size n of the first two
 * lies, after n - d, in the linear part up to 2^mid (steps of 2^lo), then in cell slog(n - d - 1):
 * slog(x) is the number made of the position of the top bit of x above mid and the S bits below it.
 *
 * A table map is right only if its classes obey V1 to V6 (ax_sizemap_violations). What would make
 * it hand out a block smaller than asked for is refused when the map is made. A class off the grid
 * (V4) is only reported: sizes in the cell that it divides get the class behind it. The largest
 * must be on the grid: the last sizes up to it would have no class at all.
 */
#ifndef AX_SIZEMAP_H
#define AX_SIZEMAP_H

#include "grow.h"

enum ax_map_kind {
    AX_MAP_FIXED,
    AX_MAP_TABLE,
    AX_MAP_FLAT,
    AX_MAP_SEARCH,
    AX_MAP_SEARCH_BRANCHLESS,
    AX_MAP_KINDS
};

enum {
    AX_MAP_TABLE_CLASSES = 254,  /* ids fit a byte, and 255 means no class in the table */
    AX_MAP_FIXED_CLASSES = 255,  /* with the class of batches 256 */
    AX_MAP_CLASSES = 65534,      /* ids fit 16 bits */
    AX_MAP_NO_CLASS = 255,       /* in the table of a table map */
    AX_MAP_FLAT_ENTRIES = 65536, /* of one level; beyond that two are tried */
    AX_MAP_ENTRIES = 1 << 20,    /* of any table */
    AX_MAP_CONDITIONS = 6        /* V1 to V6 */
};

#define AX_MAP_MOST_DELTA (UINT64_C(1) << 48)
#define AX_MAP_MOST_FLAT (UINT64_C(1) << 62) /* the largest class of a flat map */

typedef struct ax_sizemap_params {
    uint32_t kind;
    uint32_t num_bits; /* 0: unknown, only for kinds that do not need the logarithm */
    uint32_t min_size_log;
    uint32_t mid_size_log;
    uint32_t max_size_log;
    uint64_t delta_bytes;
    uint64_t align_bytes; /* what V6 wants all classes to be multiples of */
} ax_sizemap_params;

typedef struct ax_sizemap ax_sizemap;

typedef struct ax_map_kind_ops {
    const char *name;
    uint32_t (*class_of)(const ax_sizemap *map, uint64_t size);
    uint64_t (*size_of)(const ax_sizemap *map, uint32_t id);
    void (*class_of_block)(const ax_sizemap *map, const uint64_t *sizes, uint32_t *ids, size_t n);
    /* The sum of the ids of n sizes, for measuring: looked up independently, or each after the
     * last, of which the size takes the bits of `mask` (0, but the compiler must not know). */
    uint64_t (*sum)(const ax_sizemap *map, const uint32_t *sizes, size_t n);
    uint64_t (*chain)(const ax_sizemap *map, const uint32_t *sizes, size_t n, uint32_t mask);
} ax_map_kind_ops;

struct ax_sizemap {
    const ax_map_kind_ops *ops;
    ax_sizemap_params params;
    uint32_t count;
    uint64_t largest;
    uint64_t *sizes;      /* [count + 1], sizes[0] = 0 */
    uint8_t *least_bits;  /* [count + 1], index of the lowest set bit */
    uint8_t *entries;     /* the table, of entry_bytes each */
    uint64_t entry_count; /* 0: no table */
    uint32_t entry_bytes; /* 1 or 2 */
    /* flat: a size above split is looked up in the second level */
    uint64_t split;
    uint64_t bias[2];
    uint64_t base[2];
    uint32_t shift[2];
    /* The lowest set bits as 2 bits for each class, less the smallest of them, where that is
     * possible: up to 32 classes whose bits lie within 3 of one another. */
    int is_packed;
    uint32_t packed_least;
    uint64_t packed_bits;
    ax_seam *books;
};

const char *ax_map_kind_name(uint32_t kind);
extern const ax_map_kind_ops ax_map_kinds[AX_MAP_KINDS];

/* `classes` is not used by kind fixed, which makes them from its parameters. */
int ax_sizemap_init(ax_sizemap *map, const ax_sizemap_params *params, const uint64_t *classes,
                    uint64_t count, ax_seam *books, ax_detail *detail);
void ax_sizemap_release(ax_sizemap *map);

static inline uint32_t ax_sizemap_class_of(const ax_sizemap *map, uint64_t size)
{
    return map->ops->class_of(map, size);
}

/* id from 0 (which has size 0) to the number of classes. */
static inline uint64_t ax_sizemap_size_of(const ax_sizemap *map, uint32_t id)
{
    return map->ops->size_of(map, id);
}

/* Index of the lowest set bit of a class's size; id from 1. */
uint32_t ax_sizemap_least_set_bit(const ax_sizemap *map, uint32_t id);

/* How many blocks of a class a cache may hold: as many as 2^max_bytes_log bytes hold, at most
 * max_cached, at least one. id from 1, max_bytes_log below 64. */
uint32_t ax_sizemap_hint(const ax_sizemap *map, uint32_t id, uint32_t max_cached,
                         uint32_t max_bytes_log);

/* One condition that a class list does not meet, by the first class that breaks it. */
typedef struct ax_violation {
    uint32_t condition; /* 1 to 6 */
    int refused;        /* a table map of these classes cannot be made */
    uint64_t index;     /* of the class, from 0; the number of classes where one is missing */
    uint64_t value;     /* its size, or what else is wrong */
    uint64_t expected;  /* what it would have to be, or the limit */
} ax_violation;

/* What keeps classes, at least one, from being the list of a table map: the broken conditions in
 * order, and how many. AX_ERR_RANGE where the parameters are no logarithm. */
int ax_sizemap_violations(const ax_sizemap_params *params, const uint64_t *classes, uint64_t count,
                          ax_violation found[AX_MAP_CONDITIONS], uint32_t *broken,
                          ax_detail *detail);

/* The oracle: each class's size, the size before and the size after have the right class, and every
 * size has a class, one that holds it, of which the class before does not. Resumable: *next is 0
 * first and above the largest class at the end; at most `sizes` sizes a call. Where the largest
 * class is above AX_MAP_EVERY_SIZE, sizes above 2^20 are looked at only around the classes and at
 * 4096 places in each doubling. */
#define AX_MAP_EVERY_SIZE (UINT64_C(1) << 26)
int ax_sizemap_check(const ax_sizemap *map, uint64_t *next, uint64_t sizes, ax_detail *detail);

/* --- arrays (sizemap_arrays.c) --- */

/* Integers in memory that somebody else owns, in the byte order of the machine. */
typedef struct ax_integers {
    void *data; /* need not be aligned */
    ptrdiff_t stride;
    uint32_t bytes; /* 1, 2, 4 or 8 */
    int is_signed;
} ax_integers;

enum ax_map_lookup { AX_LOOKUP_CLASS, AX_LOOKUP_SIZE, AX_LOOKUP_ROUND, AX_LOOKUP_LEAST_BIT };

/* Looks up n integers: sizes for CLASS and ROUND, ids for the other two. `out` must be able to hold
 * every answer; it may be `in` (same data, stride and width), else they must not overlap. With
 * out.data NULL `in` is only checked. A negative number, or an id that is not one of the map, is
 * AX_ERR_RANGE with its index in detail.where; then some of `out` has been written. */
int ax_sizemap_look_up(const ax_sizemap *map, enum ax_map_lookup what, ax_integers in,
                       ax_integers out, size_t n, ax_detail *detail);

#endif
