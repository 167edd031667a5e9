#include "sizemap.h"

#include <string.h>

enum { MOST_NUM_BITS = 32 };

static uint32_t top_bit(uint64_t x)
{
    return 63u - (uint32_t)__builtin_clzll(x);
}

static uint32_t lowest_bit(uint64_t x)
{
    return (uint32_t)__builtin_ctzll(x);
}

/* --- validity of a table --- */

static int check_logarithm(const ax_sizemap_params *p, ax_detail *detail)
{
    if (p->num_bits < 1 || p->num_bits > MOST_NUM_BITS) {
        return ax_fail(detail, AX_ERR_RANGE, "num_bits", p->num_bits, 1, MOST_NUM_BITS, 0);
    }
    if (p->max_size_log > 63) {
        return ax_fail(detail, AX_ERR_RANGE, "max_size_log", p->max_size_log, 0, 63, 0);
    }
    if (p->mid_size_log > p->max_size_log) {
        return ax_fail(detail, AX_ERR_RANGE, "mid_size_log", p->mid_size_log, 0, p->max_size_log,
                       0);
    }
    if (p->min_size_log > p->mid_size_log) {
        return ax_fail(detail, AX_ERR_RANGE, "min_size_log", p->min_size_log, 0, p->mid_size_log,
                       0);
    }
    return AX_OK;
}

static int check_params(const ax_sizemap_params *p, ax_detail *detail)
{
    if (p->kind >= AX_MAP_KINDS) {
        return ax_fail(detail, AX_ERR_RANGE, "kind", p->kind, 0, AX_MAP_KINDS - 1, 0);
    }
    if (p->delta_bytes > AX_MAP_MOST_DELTA) {
        return ax_fail(detail, AX_ERR_RANGE, "delta_bytes", p->delta_bytes, 0, AX_MAP_MOST_DELTA,
                       0);
    }
    return p->kind == AX_MAP_FIXED || p->kind == AX_MAP_TABLE ? check_logarithm(p, detail) : AX_OK;
}

static ax_violation *add(ax_violation *at, uint32_t condition, int refused, uint64_t index,
                         uint64_t value, uint64_t expected)
{
    *at = (ax_violation){condition, refused, index, value, expected};
    return at + 1;
}

static uint32_t find_violations(const ax_sizemap_params *params, const uint64_t *classes,
                                uint64_t count, ax_violation found[AX_MAP_CONDITIONS])
{
    const uint64_t d = params->delta_bytes;
    const uint64_t prefix = UINT64_C(1) << (params->mid_size_log - params->min_size_log);
    const uint64_t last = classes[count - 1];
    const uint64_t most = (UINT64_C(1) << params->max_size_log) + d;
    ax_violation *next = found;
    uint64_t i = 1;
    while (i < count && classes[i - 1] < classes[i]) {
        i++;
    }
    if (i < count) {
        next = add(next, 1, 1, i, classes[i], classes[i - 1] + 1);
    } else if (count > AX_MAP_TABLE_CLASSES) {
        next = add(next, 1, 1, count, count, AX_MAP_TABLE_CLASSES);
    }
    i = 0;
    while (i < prefix && i < count && classes[i] == d + ((i + 1) << params->min_size_log)) {
        i++;
    }
    if (i < prefix) {
        next =
            add(next, 2, 1, i, i < count ? classes[i] : 0, d + ((i + 1) << params->min_size_log));
    }
    if (params->mid_size_log + 1 < params->num_bits) {
        next = add(next, 3, 1, 0, params->num_bits, params->mid_size_log + 1);
    }
    ax_violation off_grid = {0};
    for (i = prefix; i < count; i++) {
        const uint64_t above = classes[i] > d ? classes[i] - d : 0;
        const uint32_t bits = above ? top_bit(above) - lowest_bit(above) + 1 : 0;
        if (bits > params->num_bits && off_grid.condition == 0) {
            off_grid = (ax_violation){4, 0, i, classes[i], params->num_bits};
        }
        if (bits > params->num_bits && i == count - 1) {
            /* Then it is this one that matters. */
            off_grid = (ax_violation){4, 1, i, classes[i], params->num_bits};
        }
    }
    if (off_grid.condition) {
        *next++ = off_grid;
    }
    if (last > most) {
        next = add(next, 5, 1, count - 1, last, most);
    }
    i = 0;
    while (i < count && params->align_bytes && classes[i] % params->align_bytes == 0) {
        i++;
    }
    if (i < count && params->align_bytes) {
        next = add(next, 6, 0, i, classes[i], params->align_bytes);
    }
    return (uint32_t)(next - found);
}

int ax_sizemap_violations(const ax_sizemap_params *params, const uint64_t *classes, uint64_t count,
                          ax_violation found[AX_MAP_CONDITIONS], uint32_t *broken,
                          ax_detail *detail)
{
    const int status = check_params(params, detail);
    if (status == AX_OK && count == 0) {
        return ax_fail(detail, AX_ERR_RANGE, "number of classes", 0, 1, AX_MAP_TABLE_CLASSES, 0);
    }
    if (status == AX_OK) {
        *broken = find_violations(params, classes, count, found);
    }
    return status;
}

/* --- making a map --- */

static int count_fixed(const ax_sizemap_params *p, uint64_t *count, ax_detail *detail)
{
    const uint32_t linear = p->mid_size_log - p->min_size_log;
    *count = (UINT64_C(1) << (linear < 20 ? linear : 20)) +
             ((uint64_t)(p->max_size_log - p->mid_size_log) << (p->num_bits - 1));
    return *count <= AX_MAP_FIXED_CLASSES ? AX_OK
                                          : ax_fail(detail, AX_ERR_RANGE, "number of classes",
                                                    *count, 1, AX_MAP_FIXED_CLASSES, 0);
}

static int build_fixed(ax_sizemap *map, ax_detail *detail)
{
    const ax_sizemap_params *p = &map->params;
    if (p->num_bits - 1 > p->mid_size_log) {
        return ax_fail(detail, AX_ERR_RANGE, "num_bits", p->num_bits, 1, p->mid_size_log + 1, 0);
    }
    for (uint32_t id = 1; id <= map->count; id++) {
        map->sizes[id] = ax_map_kinds[AX_MAP_FIXED].size_of(map, id);
    }
    return AX_OK;
}

static int make_entries(ax_sizemap *map, uint64_t count, uint32_t bytes, const char *what,
                        ax_detail *detail)
{
    if (count > AX_MAP_ENTRIES) {
        return ax_fail(detail, AX_ERR_RANGE, what, count, 1, AX_MAP_ENTRIES, 0);
    }
    const int status = ax_grow_zeroed(map->books, &map->entries, count, bytes);
    if (status == AX_OK) {
        map->entry_count = count;
        map->entry_bytes = bytes;
    }
    return status;
}

static int refuse(const ax_sizemap_params *p, const ax_violation *v, ax_detail *detail)
{
    static const char *const broken[AX_MAP_CONDITIONS + 1] = {
        "",
        "V1", /* seen to before */
        "V2 (linear prefix up to mid_size_log is complete): class",
        "V3 (mid_size_log is at least num_bits - 1): num_bits",
        "V4 (the largest class has at most num_bits significant bits above delta_bytes): class",
        "V5 (the largest class is at most 2**max_size_log + delta_bytes): class",
        "V6",
    };
    const int limit = v->condition == 3 || v->condition == 5;
    uint64_t low = limit ? 1 : v->expected;
    uint64_t high = v->expected;
    if (v->condition == 4) {
        /* the edges of its cell, either of which is right */
        const uint64_t above = v->value - p->delta_bytes;
        const uint64_t step = UINT64_C(1) << (top_bit(above) - (p->num_bits - 1));
        low = (above & ~(step - 1)) + p->delta_bytes;
        high = low + step;
    }
    return ax_fail(detail, AX_ERR_RANGE, broken[v->condition], v->value, low, high, v->index);
}

static int build_table(ax_sizemap *map, ax_detail *detail)
{
    const ax_sizemap_params *p = &map->params;
    const uint32_t s = p->num_bits - 1;
    ax_violation found[AX_MAP_CONDITIONS];
    const uint32_t broken = find_violations(p, &map->sizes[1], map->count, found);
    for (uint32_t i = 0; i < broken; i++) {
        if (found[i].refused) {
            return refuse(p, &found[i], detail);
        }
    }
    const uint64_t length = (uint64_t)(p->max_size_log - p->mid_size_log) << s;
    if (length == 0) {
        return AX_OK; /* all of it is linear */
    }
    const int status = make_entries(map, length, 1, "entries of the table", detail);
    if (status != AX_OK) {
        return status;
    }
    uint64_t edge = UINT64_C(1) << p->mid_size_log;
    uint64_t step = edge >> s;
    uint32_t id = 1;
    for (uint64_t i = 0; i < length; i++) {
        edge += step;
        if ((edge & (edge - 1)) == 0) {
            step += step;
        }
        while (id <= map->count && map->sizes[id] < edge + p->delta_bytes) {
            id++;
        }
        map->entries[i] = id <= map->count ? (uint8_t)id : AX_MAP_NO_CLASS;
    }
    return AX_OK;
}

/* Entries of a level whose largest class is `span` bytes above the place where it begins. */
static uint64_t level_entries(uint64_t span, uint32_t shift)
{
    return (span + (UINT64_C(1) << shift) - 1) >> shift;
}

/* The shift of a level that begins at 0: by the distances among its classes, whose lowest bits are
 * or'ed; one class needs one entry. */
static uint32_t shift_of(uint64_t distances, uint64_t first)
{
    return distances ? lowest_bit(distances) : top_bit(first) + 1;
}

/* The class with which the first of two levels ends, so that the table is short; 0 where one level
 * is shorter. */
static int best_split(const ax_sizemap *map, uint32_t *split, uint64_t *entries)
{
    const uint64_t *sizes = map->sizes;
    const uint32_t count = map->count;
    uint8_t *above = NULL; /* the shift of a level that begins after a class */
    size_t room = (size_t)count + 1;
    const int status = ax_grow_zeroed(map->books, &above, room, sizeof *above);
    if (status != AX_OK) {
        return status;
    }
    uint64_t distances = 0;
    for (uint32_t id = count - 1; id >= 1; id--) {
        distances |= map->largest - sizes[id + 1];
        above[id] = (uint8_t)shift_of(distances, map->largest);
    }
    distances = 0;
    *entries = UINT64_MAX;
    *split = 0;
    for (uint32_t id = 1; id <= count; id++) {
        distances |= sizes[id] - sizes[1];
        const uint64_t low = level_entries(sizes[id], shift_of(distances, sizes[1])) + 2;
        const uint64_t high = id < count ? level_entries(map->largest - sizes[id], above[id]) : 0;
        if (low + high <= *entries) {
            *entries = low + high;
            *split = id < count ? id : 0;
        }
    }
    ax_grow_free(map->books, &above, &room, sizeof *above);
    return AX_OK;
}

static void set_entry(ax_sizemap *map, uint64_t index, uint32_t id)
{
    if (map->entry_bytes == 1) {
        map->entries[index] = (uint8_t)id;
    } else {
        const uint16_t wide = (uint16_t)id;
        memcpy(&map->entries[2 * index], &wide, sizeof wide);
    }
}

static int build_flat(ax_sizemap *map, ax_detail *detail)
{
    const uint64_t *sizes = map->sizes;
    const uint64_t first = sizes[1];
    if (map->largest > AX_MAP_MOST_FLAT) {
        return ax_fail(detail, AX_ERR_RANGE, "the largest class of a flat map", map->largest, 1,
                       AX_MAP_MOST_FLAT, 0);
    }
    uint64_t distances = 0;
    for (uint32_t id = 2; id <= map->count; id++) {
        distances |= sizes[id] - first;
    }
    uint32_t shift = shift_of(distances, first);
    uint64_t entries = level_entries(map->largest, shift) + 2;
    uint32_t split = 0;
    int status = AX_OK;
    if (entries > AX_MAP_FLAT_ENTRIES) {
        status = best_split(map, &split, &entries);
    }
    if (status == AX_OK) {
        status = make_entries(map, entries, map->count <= UINT8_MAX ? 1 : 2,
                              "entries of a flat map in two levels", detail);
    }
    if (status != AX_OK) {
        return status;
    }
    if (split) {
        distances = 0;
        for (uint32_t id = 2; id <= split; id++) {
            distances |= sizes[id] - first;
        }
        shift = shift_of(distances, first);
    }
    const uint64_t step = UINT64_C(1) << shift;
    map->split = UINT64_MAX;
    map->shift[0] = shift;
    map->bias[0] = step - 1 - (first & (step - 1));
    /* Entry i is the class of the largest size that has index i. */
    uint32_t id = 1;
    uint64_t index = 0;
    for (; id <= (split ? split : map->count); id++) {
        for (const uint64_t end = (sizes[id] + map->bias[0]) >> shift; index <= end; index++) {
            set_entry(map, index, id);
        }
    }
    if (split) {
        distances = 0;
        for (uint32_t k = split + 1; k < map->count; k++) {
            distances |= map->largest - sizes[k];
        }
        /* The steps need not end at the split: it is compared with. */
        const uint64_t above = UINT64_C(1) << shift_of(distances, map->largest);
        map->split = sizes[split];
        map->shift[1] = lowest_bit(above);
        map->bias[1] = above - 1 - (map->largest & (above - 1));
        map->base[1] = index - ((map->split + 1 + map->bias[1]) >> map->shift[1]);
        for (; id <= map->count; id++) {
            const uint64_t end = ((sizes[id] + map->bias[1]) >> map->shift[1]) + map->base[1];
            for (; index <= end; index++) {
                set_entry(map, index, id);
            }
        }
    }
    return AX_OK; /* the entries left are 0: no class */
}

static void note_least_bits(ax_sizemap *map)
{
    uint32_t least = 63;
    uint32_t most = 0;
    for (uint32_t id = 1; id <= map->count; id++) {
        const uint32_t bit = lowest_bit(map->sizes[id]);
        map->least_bits[id] = (uint8_t)bit;
        least = bit < least ? bit : least;
        most = bit > most ? bit : most;
    }
    if (map->count <= 32 && most - least <= 3) {
        map->is_packed = 1;
        map->packed_least = least;
        for (uint32_t id = 1; id <= map->count; id++) {
            map->packed_bits |= (uint64_t)(map->least_bits[id] - least) << (2 * (id - 1));
        }
    }
}

static int check_classes(const ax_sizemap_params *params, const uint64_t *classes, uint64_t count,
                         ax_detail *detail)
{
    const uint64_t most = params->kind == AX_MAP_TABLE ? AX_MAP_TABLE_CLASSES : AX_MAP_CLASSES;
    const uint64_t delta = params->delta_bytes;
    if (count < 1 || count > most) {
        return ax_fail(detail, AX_ERR_RANGE, "number of classes", count, 1, most, 0);
    }
    for (uint64_t i = 0; i < count; i++) {
        const uint64_t low = i ? classes[i - 1] + 1 : 1;
        if (classes[i] < low || classes[i] == UINT64_MAX) {
            return ax_fail(detail, AX_ERR_RANGE, "V1 (classes rise strictly): class", classes[i],
                           low, UINT64_MAX - 1, i);
        }
    }
    if (delta >= classes[0]) {
        return ax_fail(detail, AX_ERR_RANGE, "delta_bytes", delta, 0, classes[0] - 1, 0);
    }
    return AX_OK;
}

int ax_sizemap_init(ax_sizemap *map, const ax_sizemap_params *params, const uint64_t *classes,
                    uint64_t count, ax_seam *books, ax_detail *detail)
{
    memset(map, 0, sizeof *map);
    int status = check_params(params, detail);
    if (status == AX_OK) {
        status = params->kind == AX_MAP_FIXED ? count_fixed(params, &count, detail)
                                              : check_classes(params, classes, count, detail);
    }
    if (status != AX_OK) {
        return status;
    }
    map->ops = &ax_map_kinds[params->kind];
    map->params = *params;
    map->count = (uint32_t)count;
    map->books = books;
    status = ax_grow_zeroed(books, &map->sizes, count + 1, sizeof *map->sizes);
    if (status == AX_OK) {
        status = ax_grow_zeroed(books, &map->least_bits, count + 1, sizeof *map->least_bits);
    }
    if (status == AX_OK && params->kind == AX_MAP_FIXED) {
        status = build_fixed(map, detail);
    } else if (status == AX_OK) {
        memcpy(&map->sizes[1], classes, count * sizeof *classes);
    }
    if (status == AX_OK) {
        map->largest = map->sizes[count];
        note_least_bits(map);
        status = params->kind == AX_MAP_TABLE  ? build_table(map, detail)
                 : params->kind == AX_MAP_FLAT ? build_flat(map, detail)
                                               : AX_OK;
    }
    if (status != AX_OK) {
        ax_sizemap_release(map);
    }
    return status;
}

void ax_sizemap_release(ax_sizemap *map)
{
    if (!map->books) {
        return;
    }
    size_t sizes = (size_t)map->count + 1;
    size_t least_bits = sizes;
    size_t entries = map->entry_count;
    ax_grow_free(map->books, &map->sizes, &sizes, sizeof *map->sizes);
    ax_grow_free(map->books, &map->least_bits, &least_bits, sizeof *map->least_bits);
    ax_grow_free(map->books, &map->entries, &entries, map->entry_bytes);
    memset(map, 0, sizeof *map);
}

/* --- numbers of a class --- */

uint32_t ax_sizemap_least_set_bit(const ax_sizemap *map, uint32_t id)
{
    if (map->is_packed) {
        return map->packed_least + (uint32_t)(map->packed_bits >> (2 * (id - 1)) & 3);
    }
    return map->least_bits[id];
}

uint32_t ax_sizemap_hint(const ax_sizemap *map, uint32_t id, uint32_t max_cached,
                         uint32_t max_bytes_log)
{
    const uint64_t bytes = UINT64_C(1) << max_bytes_log;
    const uint64_t size = map->sizes[id];
    /* 32 bits are divided several times faster where a processor is small. */
    const uint64_t blocks =
        bytes <= UINT32_MAX && size <= UINT32_MAX ? (uint32_t)bytes / (uint32_t)size : bytes / size;
    const uint64_t hint = blocks < max_cached ? blocks : max_cached;
    return hint ? (uint32_t)hint : 1;
}

/* --- the oracle --- */

/* The smallest class that holds a size, found by looking at sizes[] only; count + 1 if none. */
static uint32_t right_class(const ax_sizemap *map, uint64_t size)
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
    return low;
}

static int check_one(const ax_sizemap *map, uint64_t size, uint32_t id, ax_detail *detail)
{
    const char *what = NULL;
    if (id == 0 || id > map->count) {
        what = "a size has no class, though the largest holds it";
    } else if (ax_sizemap_size_of(map, id) < size) {
        what = "a size has a class smaller than it";
    } else if (size > 0 && ax_sizemap_size_of(map, id - 1) >= size) {
        what = "a size has a class though a smaller one holds it";
    } else {
        return AX_OK;
    }
    return ax_fail(detail, AX_ERR_CORRUPT, what, id, right_class(map, size), right_class(map, size),
                   size);
}

static int check_around_classes(const ax_sizemap *map, ax_detail *detail)
{
    for (uint32_t id = 1; id <= map->count; id++) {
        const uint64_t size = ax_sizemap_size_of(map, id);
        if (size != map->sizes[id] || size <= map->sizes[id - 1]) {
            return ax_fail(detail, AX_ERR_CORRUPT, "sizes of classes do not rise", size,
                           map->sizes[id - 1] + 1, UINT64_MAX, id);
        }
        for (uint64_t n = size - 1; n != size + 2; n++) {
            const uint32_t found = ax_sizemap_class_of(map, n);
            if (n > map->largest) {
                if (found != 0) {
                    return ax_fail(detail, AX_ERR_CORRUPT,
                                   "a size above the largest class has a class", found, 0, 0, n);
                }
                continue;
            }
            const int status = check_one(map, n, found, detail);
            if (status != AX_OK) {
                return status;
            }
        }
    }
    return AX_OK;
}

/* The next size that is looked at. */
static uint64_t after(const ax_sizemap *map, uint64_t size)
{
    if (map->largest <= AX_MAP_EVERY_SIZE || size < (UINT64_C(1) << 20)) {
        return size + 1;
    }
    const uint64_t cell = UINT64_C(1) << (top_bit(size) - 12);
    return (size & (cell - 1)) == 1 ? size + cell - 2 : size + 1;
}

int ax_sizemap_check(const ax_sizemap *map, uint64_t *next, uint64_t sizes, ax_detail *detail)
{
    enum { BLOCK = 512 };
    uint64_t at[BLOCK];
    uint32_t ids[BLOCK];
    uint64_t size = *next;
    int status = size == 0 ? check_around_classes(map, detail) : AX_OK;
    while (status == AX_OK && sizes > 0 && size <= map->largest) {
        size_t n = 0;
        for (; n < BLOCK && n < sizes && size <= map->largest; n++) {
            at[n] = size;
            size = after(map, size);
        }
        sizes -= n;
        map->ops->class_of_block(map, at, ids, n);
        for (size_t i = 0; i < n && status == AX_OK; i++) {
            status = check_one(map, at[i], ids[i], detail);
        }
    }
    *next = size;
    return status;
}
