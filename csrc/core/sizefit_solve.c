/* The solvers of room sizefit: what step() does, stage by stage. */
#include "sizefit.h"

#include <math.h>
#include <string.h>

#define NO_PRICE (-1.0)
/* Whole prices end the search by themselves; where sums are rounded, this many are enough. */
#define MOST_PRICES 200
/* Prices find ties exactly where sums are exact, and are then the fastest for any K. Rounding hides
 * ties; while classes * candidates are no more than this, the layers, which need none, are cheap in
 * time and memory. */
#define CHEAP_LAYERS (UINT64_C(1) << 22)

static int hold(ax_sizefit *fit, void *array, size_t *room, size_t items, size_t item_bytes)
{
    return *room >= items ? AX_OK : ax_grow_to(fit->books, array, room, items, item_bytes);
}

#define HOLD(fit, name, items) \
    hold(fit, &(fit)->name, &(fit)->name##_room, items, sizeof *(fit)->name)

static int hold_layers(ax_sizefit *fit)
{
    const size_t row = (size_t)fit->m + 1;
    int status = HOLD(fit, value, row);
    if (status == AX_OK) {
        status = HOLD(fit, previous, row);
    }
    if (status == AX_OK) {
        status = HOLD(fit, opt, (size_t)fit->wanted + 1);
    }
    if (status == AX_OK) {
        const size_t rows = fit->curve ? 1 : fit->wanted;
        status = rows > SIZE_MAX / 2 / sizeof *fit->arg / row ? AX_ERR_OVERFLOW
                                                              : HOLD(fit, arg, row * rows);
    }
    return status;
}

static int hold_prices(ax_sizefit *fit)
{
    const size_t row = (size_t)fit->m + 1;
    int status = HOLD(fit, value, row);
    if (status == AX_OK) {
        status = HOLD(fit, count_of, row);
    }
    if (status == AX_OK) {
        status = HOLD(fit, back, row);
    }
    if (status == AX_OK) {
        status = HOLD(fit, queue, row);
    }
    if (status == AX_OK) {
        status = HOLD(fit, start, row);
    }
    if (status == AX_OK) {
        status = hold(fit, &fit->low.path, &fit->low_room, row, sizeof *fit->low.path);
    }
    if (status == AX_OK) {
        status = hold(fit, &fit->high.path, &fit->high_room, row, sizeof *fit->high.path);
    }
    return status;
}

int ax_sizefit_start(ax_sizefit *fit, enum ax_sizefit_method method, uint32_t classes, int curve,
                     ax_detail *detail)
{
    fit->stage = AX_SIZEFIT_IDLE;
    if (classes == 0 || (classes < fit->forced && !curve)) {
        return ax_fail(detail, AX_ERR_RANGE, "classes", classes, curve ? 1 : fit->forced,
                       UINT32_MAX, 0);
    }
    fit->wanted = classes < fit->m ? classes : fit->m;
    fit->curve = curve;
    fit->method = method;
    fit->layer = 0;
    fit->at = 0;
    fit->classes = 0;
    fit->cost = INFINITY;
    fit->bound = -INFINITY;
    int status = HOLD(fit, path, (size_t)fit->wanted);
    if (status == AX_OK) {
        fit->stage = fit->monge < 0 && method != AX_SIZEFIT_QUADRATIC ? AX_SIZEFIT_CHECKING
                                                                      : AX_SIZEFIT_IDLE;
    }
    return status;
}

/* Which solver follows once it is known whether the condition holds. */
static int choose(ax_sizefit *fit)
{
    enum ax_sizefit_method method = fit->method;
    const int greedy = method == AX_SIZEFIT_GREEDY && !fit->curve;
    if (fit->monge != 1 && !greedy) {
        method = AX_SIZEFIT_QUADRATIC;
    } else if (fit->curve) {
        method = method == AX_SIZEFIT_QUADRATIC ? method : AX_SIZEFIT_DIVIDE;
    } else if (method == AX_SIZEFIT_AUTO) {
        method = fit->exact || (uint64_t)fit->wanted * fit->m > CHEAP_LAYERS ? AX_SIZEFIT_PRICE
                                                                             : AX_SIZEFIT_DIVIDE;
    }
    fit->method = method;
    /* A best path of `wanted` classes halves the work of a curve, see do_layer. */
    fit->bounded = fit->curve && fit->monge == 1 && fit->exact && method == AX_SIZEFIT_DIVIDE &&
                   fit->wanted >= fit->forced;
    const int layers = method == AX_SIZEFIT_DIVIDE || method == AX_SIZEFIT_QUADRATIC ||
                       (greedy && fit->monge != 1);
    const int prices = !layers || fit->bounded;
    fit->stage = prices ? AX_SIZEFIT_PRICING : AX_SIZEFIT_LAYERS;
    fit->prices = 0;
    fit->low.classes = 0;
    int status = layers ? hold_layers(fit) : AX_OK;
    if (status == AX_OK && prices) {
        status = hold_prices(fit);
    }
    return status;
}

/* For every pair of neighbours i, i + 1 and j, j + 1: one row i. Infinite edges keep the condition
 * (an edge that passes over a forced class makes the wider one infinite, too). */
static int row_is_monge(const ax_sizefit *fit, uint32_t i)
{
    for (uint32_t j = i + 2; j < fit->m; j++) {
        if (i < fit->column[j + 1].from) {
            break;
        }
        const double narrow = ax_sizefit_edge(fit, i, j) + ax_sizefit_edge(fit, i + 1, j + 1);
        const double wide = ax_sizefit_edge(fit, i, j + 1) + ax_sizefit_edge(fit, i + 1, j);
        if (narrow > wide + (fit->exact ? 0 : 1e-12 * fit->bytes[fit->m])) {
            return 0;
        }
    }
    return 1;
}

/* Layers: value[j] = the least cost of `layer` classes the last of which is j. */

/* The first best predecessor of j from low to high. */
static uint32_t best_before(const ax_sizefit *fit, uint32_t j, uint32_t low, uint32_t high,
                            double *cost)
{
    const ax_sizefit_column *c = &fit->column[j];
    const double *previous = fit->previous;
    const double cap = (double)fit->params.cap_bytes;
    double least = INFINITY;
    uint32_t best = low;
    uint32_t i = low;
    for (; i <= high && i < c->cut; i++) {
        const double each = previous[i] + (c->far - fit->count[i] * cap);
        if (each < least) {
            least = each;
            best = i;
        }
    }
    for (; i <= high; i++) {
        const double each =
            previous[i] + (c->near - (fit->count[i] * c->effective - fit->bytes[i]));
        if (each < least) {
            least = each;
            best = i;
        }
    }
    *cost = least;
    return best;
}

/* The best predecessor moves one way only with j, and with the number of classes, too: `fewer` has
 * those of the layer before (0 where there is none), and may be the same row as `arg`. */
static void divide(ax_sizefit *fit, uint32_t *arg, const uint32_t *fewer, uint32_t first,
                   uint32_t last, uint32_t low, uint32_t high)
{
    while (first <= last) {
        const uint32_t j = first + (last - first) / 2;
        uint32_t from = fit->column[j].from > low ? fit->column[j].from : low;
        from = fewer[j] > from ? fewer[j] : from;
        const uint32_t to = j - 1 < high ? j - 1 : high;
        const uint32_t best = best_before(fit, j, from, to, &fit->value[j]);
        arg[j] = best;
        if (j > first) {
            divide(fit, arg, fewer, first, j - 1, low, best);
        }
        first = j + 1;
        low = best;
    }
}

/* A path of k classes from the predecessors of the layers. */
static void trace_layers(ax_sizefit *fit, uint32_t k)
{
    uint32_t j = fit->m;
    fit->classes = k;
    fit->cost = fit->opt[k];
    for (; k > 0; k--) {
        fit->path[k - 1] = j;
        j = fit->arg[(size_t)(k - 1) * (fit->m + 1) + j];
    }
}

static void finish(ax_sizefit *fit, double bound)
{
    /* Rounded sums may put a bound a hair above the cost. */
    fit->bound = !fit->exact && bound > fit->cost ? fit->cost : bound;
    fit->stage = fit->method == AX_SIZEFIT_GREEDY ? AX_SIZEFIT_PICKING
                 : fit->bounded                   ? AX_SIZEFIT_LAYERS
                                                  : AX_SIZEFIT_DONE;
    fit->layer = 0;
    fit->at = 0;
}

static int finish_layers(ax_sizefit *fit)
{
    if (fit->curve) {
        fit->stage = AX_SIZEFIT_DONE;
        return AX_OK;
    }
    uint32_t k = fit->wanted;
    if (fit->monge != 1) {
        /* More classes may cost more. Every choice was looked at: the cost is its own bound. */
        for (uint32_t fewer = fit->wanted; fewer >= 1; fewer--) {
            k = fit->opt[fewer] <= fit->opt[k] ? fewer : k;
        }
    }
    trace_layers(fit, k);
    if (fit->monge != 1 || k == fit->forced || k == fit->m) {
        finish(fit, fit->cost); /* in the latter cases there is no other path */
        return AX_OK;
    }
    /* opt is convex: a price between the last two differences makes k the best number. */
    fit->bound_price = fit->opt[k - 1] - fit->opt[k];
    fit->stage = AX_SIZEFIT_BOUNDING;
    return hold_prices(fit);
}

static uint64_t do_layer(ax_sizefit *fit)
{
    const uint32_t m = fit->m;
    if (fit->at == 0) {
        double *swap = fit->previous;
        fit->previous = fit->value;
        fit->value = swap;
        const size_t room = fit->previous_room;
        fit->previous_room = fit->value_room;
        fit->value_room = room;
        if (fit->layer == 0) {
            for (uint32_t j = 0; j <= m; j++) {
                fit->previous[j] = INFINITY;
            }
            fit->previous[0] = 0;
        }
        for (uint32_t j = 0; j <= m; j++) {
            fit->value[j] = INFINITY;
        }
        if (fit->layer == 0 || !fit->curve) {
            uint32_t *row = fit->arg + (size_t)fit->layer * (m + 1);
            memset(row, 0, ((size_t)m + 1) * sizeof *row);
        }
    }
    const uint32_t k = fit->layer + 1;
    uint32_t *arg = fit->arg + (fit->curve ? 0 : (size_t)fit->layer * (m + 1));
    const uint32_t *fewer = fit->curve || fit->layer == 0 ? arg : arg - (m + 1);
    uint64_t work = 0;
    if (fit->method == AX_SIZEFIT_DIVIDE) {
        /* With k classes the last is at most the k-th forced one, and the one before at most the
         * (k - 1)-th: between these limits every column has a finite entry. fit->best is the former
         * of the layer before, 0 for none. */
        const uint32_t before = fit->layer ? fit->best : 0;
        uint32_t last = before < m ? before + 1 : m;
        while (last < m && fit->column[last + 1].from <= before) {
            last++;
        }
        fit->best = last;
        /* Node k of a best path of more classes bounds that of one of fewer from below: where it
         * did not, exchanging the stretches between two crossings would make neither path dearer.
         */
        const uint32_t first = fit->bounded ? fit->path[k - 1] : k;
        const uint32_t low = fit->bounded ? (k > 1 ? fit->path[k - 2] : 0) : k - 1;
        divide(fit, arg, fewer, first, last, low, before);
        work = (uint64_t)m * 8;
        fit->at = m;
    } else {
        while (fit->at < m && work < 65536) {
            const uint32_t j = ++fit->at;
            const uint32_t best = best_before(fit, j, fit->column[j].from, j - 1, &fit->value[j]);
            arg[j] = best;
            work += j;
        }
    }
    if (fit->at == m) {
        fit->opt[k] = fit->value[m];
        fit->layer = k;
        fit->at = 0;
    }
    return work;
}

/* Prices: with each class at a price, the best path needs one pass. */

typedef struct priced {
    double cost; /* without the price */
    double total;
    uint32_t classes;
} priced;

/* value[i] + w(i, j), smaller first, then by number of classes. The later of two predecessors stays
 * the better one from where it first is. */
static inline int better(const ax_sizefit *fit, uint32_t later, uint32_t earlier, uint32_t j,
                         int most)
{
    if (earlier < fit->column[j].from) {
        return 1;
    }
    const double a = fit->value[later] + ax_sizefit_edge(fit, later, j);
    const double b = fit->value[earlier] + ax_sizefit_edge(fit, earlier, j);
    if (a != b) {
        return a < b;
    }
    return most ? fit->count_of[later] > fit->count_of[earlier]
                : fit->count_of[later] < fit->count_of[earlier];
}

/* The first position behind `low` (where `later` is not better) where it is; m + 1 for none. */
static uint32_t takes_over(const ax_sizefit *fit, uint32_t later, uint32_t earlier, uint32_t low,
                           int most)
{
    const uint32_t m = fit->m;
    uint32_t step = 1;
    while (step <= m - low && !better(fit, later, earlier, low + step, most)) {
        low += step;
        step *= 2;
    }
    uint32_t high = step <= m - low ? low + step : m + 1;
    while (low + 1 < high) {
        const uint32_t middle = low + (high - low) / 2;
        if (better(fit, later, earlier, middle, most)) {
            high = middle;
        } else {
            low = middle;
        }
    }
    return high;
}

/* The least cost + price * classes over all paths, with the fewest classes or the most. */
static priced at_price(ax_sizefit *fit, double price, int most)
{
    const uint32_t m = fit->m;
    uint32_t *queue = fit->queue;
    uint32_t *start = fit->start;
    uint32_t head = 0;
    uint32_t tail = 1;
    queue[0] = 0;
    start[0] = 1;
    fit->value[0] = 0;
    fit->count_of[0] = 0;
    for (uint32_t j = 1; j <= m; j++) {
        while (head + 1 < tail && start[head + 1] <= j) {
            head++;
        }
        const uint32_t i = queue[head];
        fit->value[j] = fit->value[i] + ax_sizefit_edge(fit, i, j) + price;
        fit->count_of[j] = fit->count_of[i] + 1;
        fit->back[j] = i;
        if (j == m) {
            break;
        }
        for (;;) {
            const uint32_t last = queue[tail - 1];
            const uint32_t from = start[tail - 1] > j ? start[tail - 1] : j + 1;
            if (better(fit, j, last, from, most)) {
                tail--;
                if (tail == head) {
                    queue[tail] = j;
                    start[tail++] = j + 1;
                    break;
                }
                continue;
            }
            const uint32_t at = takes_over(fit, j, last, from, most);
            if (at <= m) {
                queue[tail] = j;
                start[tail++] = at;
            }
            break;
        }
    }
    priced result = {.total = fit->value[m], .classes = fit->count_of[m]};
    for (uint32_t j = m; j; j = fit->back[j]) {
        result.cost += ax_sizefit_edge(fit, fit->back[j], j);
    }
    return result;
}

static void keep_path(ax_sizefit *fit, ax_sizefit_end *end, const priced *result, double price)
{
    end->classes = result->classes;
    end->cost = result->cost;
    end->price = price;
    uint32_t k = result->classes;
    for (uint32_t j = fit->m; j; j = fit->back[j]) {
        end->path[--k] = j;
    }
}

static void take(ax_sizefit *fit, const uint32_t *path, uint32_t classes)
{
    fit->classes = classes;
    fit->cost = 0;
    for (uint32_t k = 0; k < classes; k++) {
        fit->path[k] = path[k];
        fit->cost += ax_sizefit_edge(fit, k ? path[k - 1] : 0, path[k]);
    }
}

/* K classes out of two paths that are both best at one price, with fewer and with more: an edge of
 * the one lies around an edge of the other at the right distance, and there they change over. By
 * the condition the two crossed paths cost no more than the two given. */
static void splice(ax_sizefit *fit, uint32_t wanted)
{
    const uint32_t *few = fit->low.path;   /* few[r - 1] is its node r; node 0 is 0 */
    const uint32_t *many = fit->high.path; /* likewise */
    const uint32_t d = fit->high.classes - wanted;
    uint32_t r = 0;
    while (r + 1 < fit->low.classes && many[r + d] > few[r]) {
        r++;
    }
    /* nodes 0 .. r of the few, then r + d + 1 .. of the many */
    for (uint32_t k = 0; k < r; k++) {
        fit->high.path[k] = few[k];
    }
    memmove(fit->high.path + r, fit->high.path + r + d,
            (fit->high.classes - r - d) * sizeof *fit->high.path);
    take(fit, fit->high.path, wanted);
}

/* The two ends that need no price: only what must be there, and everything. */
static void begin_prices(ax_sizefit *fit)
{
    const uint32_t m = fit->m;
    uint32_t k = fit->forced;
    for (uint32_t j = m; j; j = fit->column[j].from) {
        fit->low.path[--k] = j;
    }
    fit->low.classes = fit->forced;
    fit->low.price = NO_PRICE;
    fit->low.cost = 0;
    fit->high.classes = m;
    fit->high.price = 0;
    fit->high.cost = 0;
    for (uint32_t i = 0; i < fit->forced; i++) {
        fit->low.cost += ax_sizefit_edge(fit, i ? fit->low.path[i - 1] : 0, fit->low.path[i]);
    }
    for (uint32_t j = 1; j <= m; j++) {
        fit->high.path[j - 1] = j;
        fit->high.cost += ax_sizefit_edge(fit, j - 1, j);
    }
}

/* The next price to try. opt(K) is convex, so the slope of the chord between the two ends is a
 * price at which neither end is alone the best; it always moves an end, but may move it by one
 * class. Where both ends have a price, the number of classes goes about with a power of it. */
static double next_price(const ax_sizefit *fit, int *is_chord)
{
    const ax_sizefit_end *low = &fit->low;
    const ax_sizefit_end *high = &fit->high;
    const double k = fit->wanted;
    const double chord = (low->cost - high->cost) / (high->classes - low->classes);
    double price = chord;
    if (fit->prices == 0) {
        /* of evenly spread sizes: opt(K) is about a constant divided by K */
        price = low->cost * low->classes / (k * (k + 1));
    } else if (fit->prices % 3 && (low->price > 0 || high->price > 0)) {
        if (low->price > 0 && high->price > 0) {
            const double t = log(k / low->classes) / log((double)high->classes / low->classes);
            price = low->price * pow(high->price / low->price, t);
        } else {
            const ax_sizefit_end *end = low->price > 0 ? low : high;
            price = end->price * (end->classes / k) * (end->classes / k);
        }
    }
    price = fit->exact ? floor(price) : price;
    *is_chord = !(price > high->price && (low->price == NO_PRICE || price < low->price));
    if (*is_chord) {
        return fit->exact ? floor(chord) : chord;
    }
    return price;
}

static void do_price(ax_sizefit *fit)
{
    const uint32_t wanted = fit->wanted;
    if (fit->low.classes == 0) {
        begin_prices(fit);
    }
    if (wanted == fit->low.classes) {
        take(fit, fit->low.path, wanted);
        finish(fit, fit->cost);
        return;
    }
    if (wanted == fit->high.classes) {
        take(fit, fit->high.path, wanted);
        finish(fit, fit->cost);
        return;
    }
    int is_chord;
    const double price = next_price(fit, &is_chord);
    fit->prices++;
    const uint32_t few_before = fit->low.classes;
    const uint32_t many_before = fit->high.classes;
    priced found = at_price(fit, price, 0);
    double bound = found.total - price * wanted;
    int moved = found.classes < many_before;
    if (found.classes > wanted) {
        keep_path(fit, &fit->high, &found, price);
    } else if (found.classes == wanted) {
        keep_path(fit, &fit->low, &found, price);
        take(fit, fit->low.path, wanted);
        finish(fit, bound);
        return;
    } else {
        moved = found.classes > few_before;
        keep_path(fit, &fit->low, &found, price);
        found = at_price(fit, price, 1);
        if (found.classes >= wanted) {
            keep_path(fit, &fit->high, &found, price);
            if (found.classes == wanted) {
                take(fit, fit->high.path, wanted);
            } else {
                splice(fit, wanted);
            }
            finish(fit, bound);
            return;
        }
        moved |= found.classes > few_before;
        keep_path(fit, &fit->low, &found, price);
    }
    if (!fit->exact && ((is_chord && !moved) || fit->prices > MOST_PRICES)) {
        /* The tie is hidden by rounding: both ends are on the line of this price, or nearly. */
        splice(fit, wanted);
        finish(fit, bound);
    }
}

static void do_bound(ax_sizefit *fit)
{
    const priced found = at_price(fit, fit->bound_price, 0);
    finish(fit, found.total - fit->bound_price * fit->classes);
}

/* Greedy, as the tool of the seed does it: each candidate by a full look at all sizes. */

static double full_cost(const ax_sizefit *fit, const uint32_t *classes, uint32_t count,
                        uint32_t added)
{
    const uint64_t header = fit->params.header_bytes;
    const double cap = fit->params.cap_bytes ? (double)fit->params.cap_bytes : INFINITY;
    double cost = 0;
    uint32_t k = 0;
    int before = added != 0; /* whether `added` is still to come */
    uint32_t j = 0;
    uint64_t limit = 0;
    double effective = 0;
    for (size_t i = 0; i < fit->n; i++) {
        const uint64_t need = fit->sizes[i] + header;
        while (need > limit || limit == 0) {
            if (before && (k == count || added < classes[k])) {
                j = added;
                before = 0;
            } else {
                j = classes[k++];
            }
            limit = fit->size[j];
            effective = fit->column[j].effective;
        }
        const double waste = effective - (double)need;
        cost += fit->counts[i] * (waste < cap ? waste : cap);
    }
    return cost;
}

static uint64_t do_pick(ax_sizefit *fit)
{
    const uint32_t m = fit->m;
    if (fit->layer == 0) {
        uint32_t k = fit->forced;
        for (uint32_t j = m; j; j = fit->column[j].from) {
            fit->path[--k] = j;
        }
        fit->classes = fit->forced;
        fit->cost = full_cost(fit, fit->path, fit->classes, 0);
        fit->layer = 1;
        fit->at = 0;
    }
    if (fit->classes == fit->wanted) {
        fit->stage = AX_SIZEFIT_DONE;
        return 1;
    }
    if (fit->at == 0) {
        fit->best = 0;
        fit->best_cost = fit->cost;
    }
    fit->at++;
    uint32_t k = 0;
    while (k < fit->classes && fit->path[k] < fit->at) {
        k++;
    }
    if (k == fit->classes || fit->path[k] != fit->at) {
        const double cost = full_cost(fit, fit->path, fit->classes, fit->at);
        if (cost < fit->best_cost) { /* of equal ones the first, which is the smallest */
            fit->best_cost = cost;
            fit->best = fit->at;
        }
    }
    if (fit->at == m) {
        fit->at = 0;
        if (fit->best == 0) {
            fit->stage = AX_SIZEFIT_DONE; /* nothing more helps */
            return 1;
        }
        uint32_t at = fit->classes++;
        for (; at > 0 && fit->path[at - 1] > fit->best; at--) {
            fit->path[at] = fit->path[at - 1];
        }
        fit->path[at] = fit->best;
        fit->cost = fit->best_cost;
    }
    return fit->n;
}

int ax_sizefit_step(ax_sizefit *fit, uint64_t work, uint64_t *left)
{
    uint64_t done = 0;
    const uint64_t m = fit->m;
    int status = AX_OK;
    while (status == AX_OK && fit->stage != AX_SIZEFIT_DONE && (done == 0 || done < work)) {
        switch (fit->stage) {
        case AX_SIZEFIT_IDLE:
            status = choose(fit);
            done++;
            break;
        case AX_SIZEFIT_CHECKING:
            if (fit->at + 1 >= fit->m || !row_is_monge(fit, fit->at)) {
                fit->monge = fit->at + 1 >= fit->m;
                fit->at = 0;
                status = choose(fit);
            } else {
                fit->at++;
            }
            done += m;
            break;
        case AX_SIZEFIT_LAYERS:
            done += do_layer(fit);
            if (fit->layer == fit->wanted) {
                status = finish_layers(fit);
            }
            break;
        case AX_SIZEFIT_PRICING:
            do_price(fit);
            done += 32 * m;
            break;
        case AX_SIZEFIT_BOUNDING:
            do_bound(fit);
            done += 16 * m;
            break;
        default:
            done += do_pick(fit);
            break;
        }
    }
    if (status != AX_OK) {
        fit->stage = AX_SIZEFIT_IDLE;
        return status;
    }
    *left = fit->stage == AX_SIZEFIT_DONE       ? 0
            : fit->stage == AX_SIZEFIT_LAYERS   ? (uint64_t)(fit->wanted - fit->layer) * m + 1
            : fit->stage == AX_SIZEFIT_CHECKING ? (m - fit->at) * m + 1
                                                : 1;
    return AX_OK;
}
