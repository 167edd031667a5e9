#include "sizefit.h"

#include <math.h>
#include <string.h>

/* A grid is walked only under a tail rule, where a class that no size is rounded up to can be the
 * cheapest for it. */
#define MOST_GRID (1u << 20)

static uint32_t bit_length(uint64_t x)
{
    return x ? 64 - (uint32_t)__builtin_clzll(x) : 0;
}

static uint64_t round_up(uint64_t x, uint64_t step)
{
    return (x + step - 1) & ~(step - 1);
}

/* The smallest multiple of alignment and step of at least `need`; *unit is what it is one of. */
static uint64_t next_step(const ax_sizefit_params *params, uint64_t need, uint64_t *unit)
{
    *unit = params->align_bytes;
    uint64_t size = round_up(need, *unit);
    for (uint32_t i = 0; i < params->steps; i++) {
        *unit = params->step[i] > params->align_bytes ? params->step[i] : params->align_bytes;
        /* Steps do not fall, so what is rounded beyond the end is no more than the next one's. */
        size = round_up(size, *unit);
        if (size <= params->step_end[i]) {
            break;
        }
    }
    return size;
}

uint64_t ax_sizefit_round(const ax_sizefit_params *params, uint64_t need)
{
    const uint64_t header = params->header_bytes;
    const uint64_t odd = params->odd_bits ? UINT64_C(1) << params->odd_bits : 0;
    need = need > header ? need : header + 1;
    /* Each turn goes up to the next class that one of the constraints allows. */
    for (;;) {
        uint64_t unit;
        const uint64_t size = next_step(params, need, &unit);
        if (params->bits) {
            const uint64_t above = size - header;
            const uint32_t length = bit_length(above);
            if (header & (unit - 1)) {
                /* All differences share their lowest bit, so a larger one has as many bits at
                 * least. */
                if (length - (uint32_t)__builtin_ctzll(above) > params->bits) {
                    return 0;
                }
            } else if (length > params->bits) {
                const uint64_t coarse = UINT64_C(1) << (length - params->bits);
                need = header + round_up(above, coarse);
                if (need > size) {
                    continue;
                }
                /* From here on all are multiples of `coarse` above the header. */
                if (odd && coarse >= odd && (header & (odd - 1)) == 0) {
                    return 0;
                }
            }
        }
        if (odd == 0 || size & (odd - 1)) {
            return size;
        }
        if (unit >= odd) {
            return 0; /* and so are all larger ones, since units do not fall */
        }
        need = size + 1;
    }
}

static uint64_t least_objects(const ax_sizefit_params *params, uint64_t class_bytes)
{
    if (params->span_move_bytes == 0) {
        return 1;
    }
    uint64_t move = params->span_move_bytes / class_bytes;
    move = move < 2 ? 2 : move > 32 ? 32 : move;
    return move < 4 ? 1 : move / 4;
}

double ax_sizefit_effective(const ax_sizefit_params *params, uint64_t class_bytes, uint64_t *pages)
{
    const uint64_t page = params->span_page_bytes;
    if (page == 0) {
        *pages = 0;
        return (double)class_bytes;
    }
    const uint64_t least = least_objects(params, class_bytes);
    /* A class of many pages is a span of its own; so many more are looked at. */
    const uint64_t first = (class_bytes + page - 1) / page;
    const uint64_t last = params->span_max_pages > first ? params->span_max_pages : first;
    double best = INFINITY;
    for (uint64_t p = first; p <= last; p++) {
        const uint64_t span = p * page;
        const uint64_t objects = span / class_bytes;
        const uint64_t tail = span % class_bytes;
        if ((double)tail * params->tail_den <= (double)span * params->tail_num &&
            objects >= least) {
            *pages = p;
            return (double)span / (double)objects;
        }
        const double each = (double)span / (double)objects;
        if (each < best || params->span_largest) {
            best = each;
            *pages = p;
        }
    }
    return best;
}

/* Sizes first .. last - 1: counts, and counts * need. Four sums at a time, since one would wait for
 * itself. */
static void sum_range(const ax_sizefit *fit, size_t first, size_t last, double *count,
                      double *bytes)
{
    const int64_t header = (int64_t)fit->params.header_bytes;
    double c[4] = {0, 0, 0, 0};
    double b[4] = {0, 0, 0, 0};
    size_t i = first;
    for (; i + 4 <= last; i += 4) {
        for (int k = 0; k < 4; k++) {
            const double one = fit->counts[i + (size_t)k];
            c[k] += one;
            b[k] += one * (double)((int64_t)fit->sizes[i + (size_t)k] + header);
        }
    }
    for (; i < last; i++) {
        c[0] += fit->counts[i];
        b[0] += fit->counts[i] * (double)((int64_t)fit->sizes[i] + header);
    }
    *count = (c[0] + c[1]) + (c[2] + c[3]);
    *bytes = (b[0] + b[1]) + (b[2] + b[3]);
}

/* The first of sizes[from .. to) that needs more than `limit`, looked for near `from`. */
static size_t first_above(const ax_sizefit *fit, size_t from, size_t to, uint64_t limit)
{
    if (limit < fit->params.header_bytes) {
        return from;
    }
    const uint64_t most = limit - fit->params.header_bytes;
    size_t step = 1;
    size_t low = from;
    while (low + step <= to && fit->sizes[low + step - 1] <= most) {
        low += step;
        step *= 2;
    }
    size_t high = low + step - 1 < to ? low + step - 1 : to;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (fit->sizes[middle] <= most) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

static int check_columns(ax_sizefit *fit, const uint64_t *sizes, const double *counts, size_t n,
                         ax_detail *detail)
{
    if (n == 0) {
        return ax_fail(detail, AX_ERR_RANGE, "sizes", 0, 1, SIZE_MAX, 0);
    }
    int bad = 0;
    int whole = 1;
    uint64_t before = 0;
    for (size_t i = 0; i < n; i++) {
        const double count = counts[i];
        bad |= (sizes[i] <= before) & (i > 0);
        bad |= !((count > 0) & (count <= 1e300));
        /* 2^62: more is not exact anyhow, and no int64_t */
        whole &= (count < 4e18) && (double)(int64_t)count == count;
        before = sizes[i];
    }
    fit->exact = whole;
    if (bad || before > AX_SIZEFIT_MOST_BYTES / 16) {
        for (size_t i = 0; i < n; i++) {
            if ((i && sizes[i] <= sizes[i - 1]) || sizes[i] > AX_SIZEFIT_MOST_BYTES / 16) {
                return ax_fail(detail, AX_ERR_RANGE, "size", sizes[i], i ? sizes[i - 1] + 1 : 0,
                               AX_SIZEFIT_MOST_BYTES / 16, i);
            }
            if (!(counts[i] > 0 && counts[i] <= 1e300)) {
                return ax_fail(detail, AX_ERR_RANGE, "count of size", sizes[i], 0, 0, i);
            }
        }
    }
    return AX_OK;
}

int ax_sizefit_check_params(const ax_sizefit_params *p, ax_detail *detail)
{
    const uint64_t most = AX_SIZEFIT_MOST_BYTES / 16;
    if (p->align_bytes == 0 || p->align_bytes > most || (p->align_bytes & (p->align_bytes - 1))) {
        return ax_fail(detail, AX_ERR_RANGE, "align_bytes (a power of two)", p->align_bytes, 1,
                       most, 0);
    }
    if (p->header_bytes > most) {
        return ax_fail(detail, AX_ERR_RANGE, "header_bytes", p->header_bytes, 0, most, 0);
    }
    if (p->largest_bytes &&
        (p->largest_bytes <= p->header_bytes || p->largest_bytes > AX_SIZEFIT_MOST_BYTES)) {
        return ax_fail(detail, AX_ERR_RANGE, "largest_bytes", p->largest_bytes, p->header_bytes + 1,
                       AX_SIZEFIT_MOST_BYTES, 0);
    }
    if (p->cap_bytes > AX_SIZEFIT_MOST_BYTES) {
        return ax_fail(detail, AX_ERR_RANGE, "cap_bytes", p->cap_bytes, 0, AX_SIZEFIT_MOST_BYTES,
                       0);
    }
    if (p->bits > 64) {
        return ax_fail(detail, AX_ERR_RANGE, "bits", p->bits, 0, 64, 0);
    }
    if (p->steps > AX_SIZEFIT_STEPS || p->odd_bits > 63) {
        return ax_fail(detail, AX_ERR_RANGE, "steps", p->steps, 0, AX_SIZEFIT_STEPS, 0);
    }
    for (uint32_t i = 0; i < p->steps; i++) {
        const uint64_t step = p->step[i];
        const int last = i + 1 == p->steps;
        if (step == 0 || step > most || (step & (step - 1)) || (i && step < p->step[i - 1]) ||
            (p->bits && p->header_bytes % step)) {
            return ax_fail(detail, AX_ERR_RANGE, "step", step, 1, most, i);
        }
        if (last ? p->step_end[i] != UINT64_MAX : i && p->step_end[i] <= p->step_end[i - 1]) {
            return ax_fail(detail, AX_ERR_RANGE, "end of a step", p->step_end[i], 1, UINT64_MAX, i);
        }
    }
    if (p->span_page_bytes && (p->tail_den == 0 || p->span_max_pages == 0 ||
                               p->span_max_pages > 65536 || p->span_page_bytes > most / 65536)) {
        return ax_fail(detail, AX_ERR_RANGE, "tail rule", p->span_max_pages, 1, 65536, 0);
    }
    return AX_OK;
}

static int add_candidate(ax_sizefit *fit, uint64_t size, size_t end, int must)
{
    const size_t j = (size_t)fit->m + 1;
    if (j >= UINT32_MAX / 2) {
        return AX_ERR_OVERFLOW;
    }
    int status = ax_grow_array(fit->books, &fit->size, &fit->size_room, j + 1, sizeof *fit->size);
    if (status == AX_OK) {
        status =
            ax_grow_array(fit->books, &fit->count, &fit->count_room, j + 1, sizeof *fit->count);
    }
    if (status == AX_OK) {
        status =
            ax_grow_array(fit->books, &fit->bytes, &fit->bytes_room, j + 1, sizeof *fit->bytes);
    }
    if (status == AX_OK) {
        status = ax_grow_array(fit->books, &fit->end, &fit->end_room, j + 1, sizeof *fit->end);
    }
    if (status == AX_OK) {
        status =
            ax_grow_array(fit->books, &fit->column, &fit->column_room, j + 1, sizeof *fit->column);
    }
    if (status != AX_OK) {
        return status;
    }
    double count;
    double bytes;
    sum_range(fit, fit->end[j - 1], end, &count, &bytes);
    uint64_t pages;
    fit->size[j] = size;
    fit->end[j] = end;
    fit->count[j] = fit->count[j - 1] + count;
    fit->bytes[j] = fit->bytes[j - 1] + bytes;
    fit->column[j] = (ax_sizefit_column){
        .effective = ax_sizefit_effective(&fit->params, size, &pages),
        /* until all are there: whether this one must be */
        .from = (uint32_t)must,
    };
    fit->forced += must != 0;
    fit->m = (uint32_t)j;
    return AX_OK;
}

/* The classes of the grid from the first that holds a size to the largest, without those that a
 * larger one is no more expensive than; with all of them where one of those must be there. */
static int cheapest_grid(const ax_sizefit *fit, const uint64_t *must, size_t musts, uint64_t **out,
                         size_t *room, size_t *count, int *all, ax_detail *detail)
{
    const ax_sizefit_params *p = &fit->params;
    const uint64_t largest = must[musts - 1];
    uint64_t size = ax_sizefit_round(p, p->header_bytes + fit->sizes[0]);
    size_t n = 0;
    while (size && size <= largest) {
        if (n == MOST_GRID) {
            return ax_fail(detail, AX_ERR_RANGE, "candidates under a tail rule", n + 1, 1,
                           MOST_GRID, 0);
        }
        const int status = ax_grow_array(fit->books, out, room, n + 1, sizeof **out);
        if (status != AX_OK) {
            return status;
        }
        (*out)[n++] = size;
        size = ax_sizefit_round(p, size + 1);
    }
    uint64_t pages;
    double least = INFINITY;
    size_t must_at = musts;
    *all = 0;
    for (size_t i = n; i-- > 0 && !*all;) {
        const double each = ax_sizefit_effective(p, (*out)[i], &pages);
        while (must_at > 0 && must[must_at - 1] > (*out)[i]) {
            must_at--;
        }
        const int is_must = must_at > 0 && must[must_at - 1] == (*out)[i];
        *all = is_must && each >= least;
        least = each < least ? each : least;
    }
    *count = n;
    if (*all) {
        return AX_OK;
    }
    size_t kept = n;
    least = INFINITY;
    for (size_t i = n; i-- > 0;) {
        const double each = ax_sizefit_effective(p, (*out)[i], &pages);
        if (each < least) {
            least = each;
            (*out)[--kept] = (*out)[i];
        }
    }
    memmove(*out, *out + kept, (n - kept) * sizeof **out);
    *count = n - kept;
    return AX_OK;
}

static int add_candidates(ax_sizefit *fit, const uint64_t *must, size_t musts, ax_detail *detail)
{
    uint64_t *grid = NULL;
    size_t grid_room = 0;
    size_t grid_count = 0;
    size_t grid_at = 0;
    int all = 0;
    int status = AX_OK;
    if (fit->params.span_page_bytes) {
        status = cheapest_grid(fit, must, musts, &grid, &grid_room, &grid_count, &all, detail);
    }
    size_t i = 0;
    size_t must_at = 0;
    while (status == AX_OK && must_at < musts) {
        uint64_t size = UINT64_MAX;
        if (all) {
            size = grid_at < grid_count ? grid[grid_at++] : UINT64_MAX;
        } else if (i < fit->n) {
            const uint64_t need = fit->sizes[i] + fit->params.header_bytes;
            if (grid) {
                while (grid_at < grid_count && grid[grid_at] < need) {
                    grid_at++;
                }
                size = grid_at < grid_count ? grid[grid_at] : UINT64_MAX;
            } else {
                size = ax_sizefit_round(&fit->params, need);
                size = size ? size : UINT64_MAX;
            }
        }
        const int is_must = must[must_at] <= size;
        if (is_must) {
            grid_at -= all && size != UINT64_MAX && must[must_at] < size;
            size = must[must_at++];
        }
        i = first_above(fit, i, fit->n, size);
        status = add_candidate(fit, size, i, is_must);
    }
    ax_grow_free(fit->books, &grid, &grid_room, sizeof *grid);
    return status;
}

/* What edges need to know, and whether the condition holds for a simple reason. */
static void finish_columns(ax_sizefit *fit)
{
    const double cap = (double)fit->params.cap_bytes;
    double most = 0;
    uint32_t cut = 0;
    uint32_t from = 0;
    int rises = 1;
    for (uint32_t j = 1; j <= fit->m; j++) {
        ax_sizefit_column *c = &fit->column[j];
        const double e = c->effective;
        rises &= j == 1 || e >= fit->column[j - 1].effective;
        most = e > most ? e : most;
        fit->exact &= e == floor(e);
        const int must = (int)c->from;
        c->from = from;
        from = must ? j : from;
        c->near = fit->count[j] * e - fit->bytes[j];
        c->far = c->near;
        c->cut = 0;
        const double limit = e - cap;
        if (cap == 0 || limit <= 0) {
            continue;
        }
        cut = j > 1 && e < fit->column[j - 1].effective ? 0 : cut;
        while (cut < j && (double)fit->size[cut] < limit) {
            cut++;
        }
        c->cut = cut;
        if (cut == 0) {
            continue;
        }
        double count = 0;
        double bytes = 0;
        const size_t last =
            first_above(fit, fit->end[cut - 1], fit->end[j], (uint64_t)floor(limit));
        sum_range(fit, fit->end[cut - 1], last, &count, &bytes);
        count += fit->count[cut - 1];
        bytes += fit->bytes[cut - 1];
        c->far = (fit->count[j] - count) * e - (fit->bytes[j] - bytes) + count * cap;
    }
    most = cap > most ? cap : most;
    fit->exact &= fit->count[fit->m] * most * (1.0 + fit->forced) < 9007199254740992.0;
    fit->monge = rises ? 1 : -1;
}

int ax_sizefit_begin(ax_sizefit *fit, const uint64_t *sizes, const double *counts, size_t n,
                     const ax_sizefit_params *params, const uint64_t *forced, size_t forced_count,
                     ax_seam *books, ax_detail *detail)
{
    memset(fit, 0, sizeof *fit);
    int status = ax_sizefit_check_params(params, detail);
    if (status == AX_OK) {
        status = check_columns(fit, sizes, counts, n, detail);
    }
    if (status != AX_OK) {
        return status;
    }
    fit->params = *params;
    fit->sizes = sizes;
    fit->counts = counts;
    fit->books = books;
    uint64_t largest = params->largest_bytes;
    for (size_t i = 0; i < forced_count; i++) {
        const uint64_t least = i ? forced[i - 1] + 1 : params->header_bytes + 1;
        const uint64_t most = largest ? largest : AX_SIZEFIT_MOST_BYTES;
        if (forced[i] < least || forced[i] > most) {
            return ax_fail(detail, AX_ERR_RANGE, "forced class", forced[i], least, most, i);
        }
        if (ax_sizefit_round(params, forced[i]) != forced[i]) {
            return ax_fail(detail, AX_ERR_RANGE, "forced class off the grid", forced[i], least,
                           most, i);
        }
    }
    if (largest == 0) {
        largest = ax_sizefit_round(params, sizes[n - 1] + params->header_bytes);
        if (largest == 0) {
            return ax_fail(detail, AX_ERR_RANGE, "bits leave no class for size", sizes[n - 1], 0, 0,
                           n - 1);
        }
        if (forced_count && forced[forced_count - 1] > largest) {
            largest = forced[forced_count - 1];
        }
    } else if (ax_sizefit_round(params, largest) != largest) {
        return ax_fail(detail, AX_ERR_RANGE, "largest_bytes off the grid", largest, 0, 0, 0);
    }
    if (largest < params->header_bytes + sizes[0]) {
        return ax_fail(detail, AX_ERR_RANGE, "largest_bytes (no size fits)", largest,
                       params->header_bytes + sizes[0], AX_SIZEFIT_MOST_BYTES, 0);
    }
    fit->params.largest_bytes = largest;
    fit->n = first_above(fit, 0, n, largest);
    for (size_t i = fit->n; i < n; i++) {
        fit->excluded_count += counts[i];
        fit->excluded_bytes += counts[i] * (double)sizes[i];
    }
    uint64_t *must = NULL;
    size_t must_room = 0;
    const int add = forced_count == 0 || forced[forced_count - 1] < largest;
    const size_t musts = forced_count + (size_t)add;
    status = ax_grow_to(books, &must, &must_room, musts, sizeof *must);
    if (status == AX_OK) {
        if (forced_count) {
            memcpy(must, forced, forced_count * sizeof *must);
        }
        must[musts - 1] = largest;
        status = ax_grow_array(books, &fit->size, &fit->size_room, 512, sizeof *fit->size);
    }
    if (status == AX_OK) {
        status = ax_grow_array(books, &fit->count, &fit->count_room, 512, sizeof *fit->count);
    }
    if (status == AX_OK) {
        status = ax_grow_array(books, &fit->bytes, &fit->bytes_room, 512, sizeof *fit->bytes);
    }
    if (status == AX_OK) {
        status = ax_grow_array(books, &fit->end, &fit->end_room, 512, sizeof *fit->end);
    }
    if (status == AX_OK) {
        status = ax_grow_array(books, &fit->column, &fit->column_room, 512, sizeof *fit->column);
    }
    if (status == AX_OK) {
        fit->size[0] = 0;
        fit->count[0] = 0;
        fit->bytes[0] = 0;
        fit->end[0] = 0;
        memset(&fit->column[0], 0, sizeof *fit->column);
        status = add_candidates(fit, must, musts, detail);
    }
    ax_grow_free(books, &must, &must_room, sizeof *must);
    if (status != AX_OK) {
        ax_sizefit_release(fit);
        return status;
    }
    finish_columns(fit);
    return AX_OK;
}

void ax_sizefit_release(ax_sizefit *fit)
{
    ax_seam *books = fit->books;
    if (!books) {
        return;
    }
    ax_grow_free(books, &fit->size, &fit->size_room, sizeof *fit->size);
    ax_grow_free(books, &fit->count, &fit->count_room, sizeof *fit->count);
    ax_grow_free(books, &fit->bytes, &fit->bytes_room, sizeof *fit->bytes);
    ax_grow_free(books, &fit->end, &fit->end_room, sizeof *fit->end);
    ax_grow_free(books, &fit->column, &fit->column_room, sizeof *fit->column);
    ax_grow_free(books, &fit->path, &fit->path_room, sizeof *fit->path);
    ax_grow_free(books, &fit->opt, &fit->opt_room, sizeof *fit->opt);
    ax_grow_free(books, &fit->value, &fit->value_room, sizeof *fit->value);
    ax_grow_free(books, &fit->previous, &fit->previous_room, sizeof *fit->previous);
    ax_grow_free(books, &fit->arg, &fit->arg_room, sizeof *fit->arg);
    ax_grow_free(books, &fit->count_of, &fit->count_of_room, sizeof *fit->count_of);
    ax_grow_free(books, &fit->back, &fit->back_room, sizeof *fit->back);
    ax_grow_free(books, &fit->queue, &fit->queue_room, sizeof *fit->queue);
    ax_grow_free(books, &fit->start, &fit->start_room, sizeof *fit->start);
    ax_grow_free(books, &fit->low.path, &fit->low_room, sizeof *fit->low.path);
    ax_grow_free(books, &fit->high.path, &fit->high_room, sizeof *fit->high.path);
    memset(fit, 0, sizeof *fit);
}

uint32_t ax_sizefit_best_addition(const ax_sizefit *fit, const uint32_t *path, uint32_t classes,
                                  double *saved)
{
    uint32_t best = 0;
    *saved = 0;
    uint32_t before = 0;
    for (uint32_t k = 0; k < classes; k++) {
        const uint32_t j = path[k];
        for (uint32_t i = before + 1; i < j; i++) {
            const double gain = ax_sizefit_edge(fit, before, j) - ax_sizefit_edge(fit, before, i) -
                                ax_sizefit_edge(fit, i, j);
            if (gain > *saved) {
                *saved = gain;
                best = i;
            }
        }
        before = j;
    }
    return best;
}

void ax_sizefit_evaluate(const ax_sizefit_params *params, const uint64_t *sizes,
                         const double *counts, size_t n, ax_sizefit_row *rows, size_t classes,
                         double *excluded_count, double *excluded_bytes)
{
    const double cap = params->cap_bytes ? (double)params->cap_bytes : INFINITY;
    size_t i = 0;
    uint64_t pages;
    for (size_t k = 0; k < classes; k++) {
        rows[k].effective = ax_sizefit_effective(params, rows[k].class_bytes, &pages);
    }
    for (size_t k = 0; k < classes; k++) {
        ax_sizefit_row row = {.class_bytes = rows[k].class_bytes, .effective = rows[k].effective};
        const int last = k + 1 == classes;
        for (; i < n && sizes[i] + params->header_bytes <= row.class_bytes; i++) {
            const uint64_t need = sizes[i] + params->header_bytes;
            uint64_t aligned = round_up(need, params->align_bytes);
            aligned = aligned < row.class_bytes ? aligned : row.class_bytes;
            const double whole = row.effective - (double)need;
            row.count += counts[i];
            row.requested += counts[i] * (double)sizes[i];
            row.alignment += counts[i] * (double)(aligned - need);
            row.rest += counts[i] * (double)(row.class_bytes - aligned);
            row.tail += counts[i] * (row.effective - (double)row.class_bytes);
            row.cut += whole > cap ? counts[i] * (whole - cap) : 0;
            if (!last) {
                const double next = rows[k + 1].effective - (double)need;
                row.loss += counts[i] * ((next < cap ? next : cap) - (whole < cap ? whole : cap));
            }
        }
        row.loss = last ? INFINITY : row.loss;
        rows[k] = row;
    }
    *excluded_count = 0;
    *excluded_bytes = 0;
    for (; i < n; i++) {
        *excluded_count += counts[i];
        *excluded_bytes += counts[i] * (double)sizes[i];
    }
}

int ax_sizefit_check(const ax_sizefit *fit, ax_detail *detail)
{
    uint32_t musts = 0;
    for (uint32_t j = 1; j <= fit->m; j++) {
        const ax_sizefit_column *c = &fit->column[j];
        if (fit->size[j] <= fit->size[j - 1] || fit->end[j] < fit->end[j - 1] ||
            fit->count[j] < fit->count[j - 1]) {
            return ax_fail(detail, AX_ERR_CORRUPT, "candidates do not rise", fit->size[j],
                           fit->size[j - 1] + 1, 0, j);
        }
        if (ax_sizefit_round(&fit->params, fit->size[j]) != fit->size[j]) {
            return ax_fail(detail, AX_ERR_CORRUPT, "a candidate off the grid", fit->size[j], 0, 0,
                           j);
        }
        if (c->cut > j || c->from >= j || c->from < fit->column[j - 1].from) {
            return ax_fail(detail, AX_ERR_CORRUPT, "a column's limits", c->cut, c->from, 0, j);
        }
        musts += c->from != fit->column[j - 1].from;
    }
    if (fit->m == 0 || fit->end[fit->m] != fit->n ||
        fit->size[fit->m] != fit->params.largest_bytes || musts + 1 != fit->forced) {
        return ax_fail(detail, AX_ERR_CORRUPT, "the last candidate is not the largest class",
                       fit->end[fit->m], fit->n, 0, fit->m);
    }
    if (fit->stage != AX_SIZEFIT_DONE || fit->curve) {
        return AX_OK;
    }
    double cost = 0;
    uint32_t before = 0;
    for (uint32_t k = 0; k < fit->classes; k++) {
        const uint32_t j = fit->path[k];
        if (j <= before || j > fit->m || before < fit->column[j].from) {
            return ax_fail(detail, AX_ERR_CORRUPT, "a path that is none", j, before + 1, 0, k);
        }
        cost += ax_sizefit_edge(fit, before, j);
        before = j;
    }
    const double slack = fit->exact ? 0 : 1e-9 * (fabs(cost) + fit->bytes[fit->m]);
    if (before != fit->m || fit->classes > fit->wanted || fabs(cost - fit->cost) > slack ||
        fit->bound > fit->cost + slack) {
        return ax_fail(detail, AX_ERR_CORRUPT, "an answer that is not its own cost",
                       (uint64_t)fit->cost, (uint64_t)cost, 0, fit->classes);
    }
    return AX_OK;
}
