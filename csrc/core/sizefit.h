/* sizefit: the size classes that waste least, provably.
 *
 * A request of s bytes needs n = s + header and gets the smallest class b >= n. It wastes
 * min(e(b) - n, cap): e is the class itself or, with a tail rule, the bytes of a span divided by
 * the objects in it; the cap is what a request can waste at most (pages that nobody touches are not
 * resident). Sizes above the largest class cost nothing and are counted apart.
 *
 *     sizes       . .. .  . :. .   .  . . |  .   .    . .   |   ...      |      > largest: excluded
 *     candidates 0        1    2        3             4         5 = m
 *                         '---- w(2,5): sizes in (b2, b5] served by class 5 ----'
 *
 * Of all classes that the constraints allow (multiples of the alignment and of the step at their
 * size, at most `bits` significant bits above the header, a low lowest set bit) only those can be
 * of use to which some size is rounded up, and those that must be there: the forced ones and the
 * largest. Between two candidates no size distinguishes one class from another, and the lower is
 * cheaper. They are the m candidates, indices 1 to m; index 0 stands for "no class". A choice of
 * classes is a path from 0 to m over chosen candidates, and with prefix sums of counts and bytes
 * the cost w(i, j) of an edge takes constant time, cap included: requests of at most `e(bj) - cap`
 * bytes cost the cap each, the others are linear.
 *
 * If e does not fall from a candidate to the next, w is Monge: for a <= b <= c <= d,
 * w(a,c) + w(b,d) <= w(a,d) + w(b,c), since the difference is a sum over the sizes in (a,b] of
 * count times (cost in class d - cost in class c). Forced classes (an edge must not pass over one:
 * infinite) keep that. On it rest divide and conquer (the best predecessor moves one way only), the
 * one-pass solution for a price per class, and the convexity of opt(K). A tail rule can break it.
 * Then candidates with a larger one that costs no more per object are left out, which leaves e
 * rising and loses nothing (each such class can be replaced by its cheapest larger one). Where one
 * of them must be there, all of them stay, the condition is checked for every pair of neighbours,
 * and where it fails only the quadratic solver is used.
 *
 * Costs are doubles. Where counts and effective sizes are whole and (sum of counts) * (largest
 * effective size) * (1 + forced classes) is below 2^53, every sum is an exact integer (`exact`) and
 * the answer is the optimum to the byte. Else each operation is rounded by at most a relative 2^-53
 * of the sum of counts times the largest size; the answer is the optimum, and the lower bound below
 * it, up to such errors.
 *
 * The lower bound comes from another argument than the answer of the layers: with a price per
 * class, (least cost + price * classes over all paths) - price * K bounds the cost of any K classes
 * from below, whatever the price. Where the condition is broken the quadratic solver's own value is
 * the bound, since it looks at every choice.
 */
#ifndef AX_SIZEFIT_H
#define AX_SIZEFIT_H

#include "grow.h"

#define AX_SIZEFIT_MOST_BYTES (UINT64_C(1) << 52) /* of a class: exact as a double */
#define AX_SIZEFIT_STEPS 4

typedef struct ax_sizefit_params {
    uint64_t align_bytes;   /* classes are multiples of it; a power of two */
    uint64_t header_bytes;  /* added to each request; the grid is fine above it */
    uint64_t largest_bytes; /* the largest class; 0: the smallest that holds every size */
    uint64_t cap_bytes;     /* a request wastes at most so much; 0: no limit */
    uint32_t bits;          /* most significant bits of (class - header); 0: any */
    uint32_t steps;         /* used of those below; 0: the alignment alone */
    uint32_t odd_bits;      /* no class is a multiple of 2^odd_bits; 0: any may be */
    /* classes up to step_end[i] and above the one before are multiples of step[i], powers of two
     * that do not fall; the last has no end. With bits the header is a multiple of them all, since
     * else no class would have few bits. */
    uint64_t step[AX_SIZEFIT_STEPS], step_end[AX_SIZEFIT_STEPS];
    /* the tail rule: a class is cut from the fewest pages whose tail is at most the fraction
     * tail_num / tail_den and which hold as many objects as are asked for; of at most
     * span_max_pages pages. Where none will do: those whose objects are the cheapest, or, with
     * span_largest, the most pages, as a loop that stops there leaves them */
    uint32_t span_max_pages;
    uint32_t span_largest;
    uint64_t span_page_bytes; /* 0: no tail rule, a class costs what it is */
    uint32_t tail_num, tail_den;
    /* at least clamp(span_move_bytes / class, 2, 32) / 4 objects; 0: at least one */
    uint64_t span_move_bytes;
} ax_sizefit_params;

/* What a candidate costs as the end of an edge. */
typedef struct ax_sizefit_column {
    double effective;
    double near; /* of an edge from i >= cut: near - (count[i] * effective - bytes[i]) */
    double far;  /* of an edge from i < cut: far - count[i] * cap */
    uint32_t cut;
    uint32_t from; /* the last candidate before it that must be there, 0 if none: i >= from */
} ax_sizefit_column;

enum ax_sizefit_method {
    AX_SIZEFIT_AUTO = 0,
    AX_SIZEFIT_QUADRATIC, /* O(K m^2): needs no condition, the oracle of the others */
    AX_SIZEFIT_DIVIDE,    /* O(K m log m) */
    AX_SIZEFIT_PRICE,     /* a price per class: O(m log m) per price, some ten prices */
    AX_SIZEFIT_GREEDY,    /* adds the best class at a time, each candidate by a full look at all
                           * sizes; no optimum, for comparison */
    AX_SIZEFIT_METHODS
};

enum ax_sizefit_stage {
    AX_SIZEFIT_IDLE = 0,
    AX_SIZEFIT_CHECKING,
    AX_SIZEFIT_LAYERS,
    AX_SIZEFIT_PRICING,
    AX_SIZEFIT_BOUNDING,
    AX_SIZEFIT_PICKING,
    AX_SIZEFIT_DONE
};

/* One end of the bracket around K: a path that is optimal for its own number of classes. */
typedef struct ax_sizefit_end {
    uint32_t *path;
    uint32_t classes;
    double cost;
    double price; /* -1: unknown */
} ax_sizefit_end;

typedef struct ax_sizefit {
    ax_sizefit_params params;
    const uint64_t *sizes; /* borrowed */
    const double *counts;
    size_t n;        /* sizes up to the largest class; those behind are excluded */
    uint32_t m;      /* candidates */
    uint32_t forced; /* of the m, how many must be there */
    int exact;       /* all sums are exact integers */
    int monge;       /* 1: proved, 0: broken, -1: not known yet */
    double excluded_count, excluded_bytes;
    /* per candidate, [m + 1], index 0 is "no class" */
    uint64_t *size;
    double *count; /* of sizes up to it */
    double *bytes; /* needed by them, headers included */
    uint64_t *end; /* sizes up to it */
    ax_sizefit_column *column;
    size_t size_room, count_room, bytes_room, end_room, column_room;

    /* a run */
    enum ax_sizefit_stage stage;
    enum ax_sizefit_method method;
    uint32_t wanted; /* classes, at most m */
    uint32_t layer, at;
    int curve;   /* values of all layers are wanted, no path */
    int bounded; /* the layers of the curve are bounded by a path that is found first */
    double cost, bound;
    uint32_t classes; /* found */
    uint32_t *path;   /* [classes], candidates */
    double *opt;      /* [wanted + 1], of layers; infinite where the forced ones are more */
    double *value, *previous;
    uint32_t *arg; /* [wanted][m + 1] */
    uint32_t *count_of, *back, *queue, *start;
    ax_sizefit_end low, high;
    double bound_price;
    uint32_t rounds, prices;
    double best_cost;
    uint32_t best;
    size_t path_room, opt_room, value_room, previous_room, arg_room, count_of_room, back_room,
        queue_room, start_room, low_room, high_room;
    ax_seam *books;
} ax_sizefit;

/* Sizes must be strictly rising, counts finite and above 0, forced strictly rising, and all of them
 * on the grid, above the header and at most the largest. The columns are borrowed until the
 * release. */
int ax_sizefit_begin(ax_sizefit *fit, const uint64_t *sizes, const double *counts, size_t n,
                     const ax_sizefit_params *params, const uint64_t *forced, size_t forced_count,
                     ax_seam *books, ax_detail *detail);
void ax_sizefit_release(ax_sizefit *fit);

/* Whether parameters are within their ranges; the others ask it. */
int ax_sizefit_check_params(const ax_sizefit_params *params, ax_detail *detail);

/* Begins a search for at most `classes` classes (more than m are as good as m); with `curve` only
 * for the values of all numbers of classes up to it. */
int ax_sizefit_start(ax_sizefit *fit, enum ax_sizefit_method method, uint32_t classes, int curve,
                     ax_detail *detail);
/* Does about `work` evaluations of w, at least one round of the method; *left is 0 when the run is
 * done, else some measure of what is left. */
int ax_sizefit_step(ax_sizefit *fit, uint64_t work, uint64_t *left);

/* The smallest class on the grid that holds `need` bytes; 0 where there is none. */
uint64_t ax_sizefit_round(const ax_sizefit_params *params, uint64_t need);
/* What an object of a class costs: span bytes / objects under a tail rule. *pages is the span. */
double ax_sizefit_effective(const ax_sizefit_params *params, uint64_t class_bytes, uint64_t *pages);

/* The candidate that saves most if it is added to a path, 0 where none saves anything; *saved. */
uint32_t ax_sizefit_best_addition(const ax_sizefit *fit, const uint32_t *path, uint32_t classes,
                                  double *saved);

/* What a class of a table costs. wastage = alignment + rest + tail - cut. */
typedef struct ax_sizefit_row {
    uint64_t class_bytes;
    double effective;
    double count;     /* requests it serves */
    double requested; /* bytes, without headers */
    double alignment; /* need rounded up to the alignment, or to the class where that is less */
    double rest;      /* from there to the class */
    double tail;      /* from there to the effective size */
    double cut;       /* of which the cap forgives so much */
    double loss;      /* what the table loses without it; infinite for the largest */
} ax_sizefit_row;

/* Any table: rows[k].class_bytes must be given, strictly rising. */
void ax_sizefit_evaluate(const ax_sizefit_params *params, const uint64_t *sizes,
                         const double *counts, size_t n, ax_sizefit_row *rows, size_t classes,
                         double *excluded_count, double *excluded_bytes);

/* Walks the candidates and, after a run, its answer. */
int ax_sizefit_check(const ax_sizefit *fit, ax_detail *detail);

/* The cost of an edge; i < j, and no candidate that must be there in between. */
static inline double ax_sizefit_edge(const ax_sizefit *fit, uint32_t i, uint32_t j)
{
    const ax_sizefit_column *c = &fit->column[j];
    return i >= c->cut ? c->near - (fit->count[i] * c->effective - fit->bytes[i])
                       : c->far - fit->count[i] * (double)fit->params.cap_bytes;
}

#endif
