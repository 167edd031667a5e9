/* sizefit: every solver against all subsets, in any slices, with any call refused. */
#include "check.h"

#include <math.h>
#include <string.h>

#include "../core/sizefit.h"

enum { MOST = 40 };

typedef struct problem {
    uint64_t sizes[MOST];
    double counts[MOST];
    size_t n;
    ax_sizefit_params params;
    uint64_t forced[3];
    size_t forced_count;
} problem;

static ax_sizefit_params plain(void)
{
    const ax_sizefit_params params = {.align_bytes = 8};
    return params;
}

static void draw(problem *p, uint64_t *state)
{
    memset(p, 0, sizeof *p);
    p->params = plain();
    p->params.align_bytes = UINT64_C(1) << next_random(state) % 5;
    p->params.header_bytes = next_random(state) % 3 * p->params.align_bytes;
    p->params.bits = next_random(state) % 2 ? 2 + (uint32_t)(next_random(state) % 4) : 0;
    p->params.cap_bytes = next_random(state) % 3 * 3 * p->params.align_bytes;
    uint64_t size = 0;
    p->n = 1 + next_random(state) % 12;
    for (size_t i = 0; i < p->n; i++) {
        size += (i > 0) + next_random(state) % 40;
        p->sizes[i] = size;
        p->counts[i] = (double)(1 + next_random(state) % 20);
    }
    if (next_random(state) % 3 == 0) {
        p->params.largest_bytes =
            ax_sizefit_round(&p->params, p->params.header_bytes + p->sizes[p->n / 2]);
    }
    if (next_random(state) % 3 == 0) {
        const uint64_t need =
            p->params.header_bytes + p->sizes[next_random(state) % (p->n / 2 + 1)];
        p->forced[p->forced_count++] = ax_sizefit_round(&p->params, need);
    }
}

static int begin(ax_sizefit *fit, const problem *p, ax_seam *books)
{
    ax_detail detail;
    return ax_sizefit_begin(fit, p->sizes, p->counts, p->n, &p->params, p->forced, p->forced_count,
                            books, &detail);
}

static int run(ax_sizefit *fit, enum ax_sizefit_method method, uint32_t classes, int curve,
               uint64_t slice)
{
    ax_detail detail;
    uint64_t left = 1;
    int status = ax_sizefit_start(fit, method, classes, curve, &detail);
    while (status == AX_OK && left) {
        status = ax_sizefit_step(fit, slice, &left);
    }
    return status;
}

/* What a set of candidates wastes, size by size. */
static double by_sizes(const ax_sizefit *fit, uint64_t set)
{
    double cost = 0;
    for (size_t i = 0; i < fit->n; i++) {
        const uint64_t need = fit->sizes[i] + fit->params.header_bytes;
        uint32_t j = 1;
        while (!(set >> j & 1) || fit->size[j] < need) {
            j++;
        }
        const double waste = (double)(fit->size[j] - need);
        const double cap = (double)fit->params.cap_bytes;
        cost += fit->counts[i] * (cap > 0 && waste > cap ? cap : waste);
    }
    return cost;
}

static double all_subsets(const ax_sizefit *fit, uint32_t classes)
{
    double best = INFINITY;
    for (uint64_t set = 0; set < UINT64_C(2) << fit->m; set += 2) {
        int allowed = (uint32_t)__builtin_popcountll(set) <= classes;
        for (uint32_t j = fit->m; j && allowed; j = fit->column[j].from) {
            allowed = (int)(set >> j & 1);
        }
        const double cost = allowed ? by_sizes(fit, set) : INFINITY;
        best = cost < best ? cost : best;
    }
    return best;
}

static void test_against_all_subsets(void)
{
    uint64_t state = 1;
    for (int round = 0; round < 60; round++) {
        problem p;
        draw(&p, &state);
        ax_seam books;
        ax_seam_init(&books, AX_BACKING_REAL);
        ax_sizefit fit;
        CHECK(begin(&fit, &p, &books) == AX_OK);
        CHECK(ax_sizefit_check(&fit, NULL) == AX_OK && fit.exact && fit.monge == 1);
        double best[MOST];
        for (uint32_t k = fit.forced; k <= fit.m; k++) {
            best[k] = all_subsets(&fit, k);
            for (int method = 0; method < AX_SIZEFIT_GREEDY; method++) {
                CHECK(run(&fit, (enum ax_sizefit_method)method, k, 0,
                          1 + next_random(&state) % 99) == AX_OK);
                CHECK(fit.cost == best[k] && fit.bound == best[k] && fit.classes == k);
                CHECK(ax_sizefit_check(&fit, NULL) == AX_OK);
            }
            CHECK(run(&fit, AX_SIZEFIT_GREEDY, k, 0, 1) == AX_OK);
            CHECK(fit.bound == best[k] && fit.cost >= best[k] && fit.classes <= k);
            CHECK(ax_sizefit_check(&fit, NULL) == AX_OK);
        }
        for (int method = 0; method < AX_SIZEFIT_GREEDY; method++) {
            CHECK(run(&fit, (enum ax_sizefit_method)method, 100, 1, 1) == AX_OK);
            CHECK(fit.wanted == fit.m);
            for (uint32_t k = 1; k <= fit.m; k++) {
                CHECK(k < fit.forced ? isinf(fit.opt[k]) : fit.opt[k] == best[k]);
            }
        }
        ax_sizefit_release(&fit);
        ax_sizefit_release(&fit); /* twice is nothing */
        CHECK(books.bytes_held == 0);
    }
}

/* A larger problem, in which the ends of prices move and splices happen. */
static void test_solvers_agree(void)
{
    enum { N = 600 };
    static uint64_t sizes[N];
    static double counts[N];
    uint64_t state = 7;
    uint64_t size = 0;
    for (size_t i = 0; i < N; i++) {
        size += 1 + next_random(&state) % 30;
        sizes[i] = size;
        /* equal counts make ties, in which prices have to be spliced */
        counts[i] = i % 2 ? 3 : (double)(1 + next_random(&state) % 1000);
    }
    for (int kind = 0; kind < 4; kind++) {
        ax_sizefit_params params = plain();
        params.cap_bytes = kind == 1 ? 512 : 0;
        params.bits = kind == 2 ? 6 : 0;
        if (kind == 3) {
            for (size_t i = 0; i < N; i++) {
                counts[i] = 1;
                sizes[i] = 8 * i + 8;
            }
        }
        ax_seam books;
        ax_seam_init(&books, AX_BACKING_REAL);
        ax_sizefit fit;
        CHECK(ax_sizefit_begin(&fit, sizes, counts, N, &params, NULL, 0, &books, NULL) == AX_OK);
        CHECK(run(&fit, AX_SIZEFIT_QUADRATIC, 80, 1, 1000) == AX_OK);
        double values[81];
        memcpy(values, fit.opt, sizeof values);
        CHECK(run(&fit, AX_SIZEFIT_DIVIDE, 80, 1, 1000) == AX_OK);
        CHECK(memcmp(values + 1, fit.opt + 1, 80 * sizeof *values) == 0);
        for (uint32_t k = 1; k <= 80; k++) {
            for (int method = AX_SIZEFIT_DIVIDE; method <= AX_SIZEFIT_PRICE; method++) {
                CHECK(run(&fit, (enum ax_sizefit_method)method, k, 0, UINT64_MAX) == AX_OK);
                CHECK(fit.cost == values[k] && fit.bound == values[k] && fit.classes == k);
                CHECK(ax_sizefit_check(&fit, NULL) == AX_OK);
            }
        }
        ax_sizefit_release(&fit);
        CHECK(books.bytes_held == 0);
    }
}

static void test_golden(void)
{
    const uint64_t sizes[] = {80, 96, 128};
    const double counts[] = {1000, 2, 2};
    const ax_sizefit_params params = {.align_bytes = 16,
                                      .header_bytes = 16,
                                      .largest_bytes = 65552,
                                      .cap_bytes = 8192,
                                      .bits = 5};
    ax_seam books;
    ax_seam_init(&books, AX_BACKING_REAL);
    ax_sizefit fit;
    CHECK(ax_sizefit_begin(&fit, sizes, counts, 3, &params, NULL, 0, &books, NULL) == AX_OK);
    CHECK(run(&fit, AX_SIZEFIT_AUTO, 3, 0, 1) == AX_OK && fit.cost == 64 && fit.bound == 64);
    double saved = 0;
    const uint32_t added = ax_sizefit_best_addition(&fit, fit.path, fit.classes, &saved);
    CHECK(fit.size[added] == 112 && saved == 64);
    CHECK(run(&fit, AX_SIZEFIT_GREEDY, 3, 0, 1) == AX_OK && fit.cost == 16000 && fit.bound == 64);
    /* damage is noticed */
    fit.cost = 15999;
    CHECK(ax_sizefit_check(&fit, NULL) == AX_ERR_CORRUPT);
    fit.cost = 16000;
    CHECK(ax_sizefit_check(&fit, NULL) == AX_OK);
    fit.size[1]++;
    CHECK(ax_sizefit_check(&fit, NULL) == AX_ERR_CORRUPT);
    ax_sizefit_release(&fit);
}

static void test_rounding(void)
{
    for (uint64_t align = 1; align <= 16; align *= 2) {
        for (uint64_t header = 0; header <= 24; header += 3) {
            for (uint32_t bits = 0; bits <= 4; bits++) {
                const ax_sizefit_params params = {
                    .align_bytes = align, .header_bytes = header, .bits = bits};
                unsigned wrong = 0;
                for (uint64_t need = 0; need < 300; need++) {
                    uint64_t size = header / align * align + align;
                    for (; size < 2048; size += align) {
                        const uint64_t above = size - header;
                        const uint64_t odd = above >> __builtin_ctzll(above);
                        if (size >= need && (bits == 0 || odd >> bits == 0)) {
                            break;
                        }
                    }
                    wrong += ax_sizefit_round(&params, need) != (size < 2048 ? size : 0);
                }
                CHECK(wrong == 0);
            }
        }
    }
}

/* Steps by size and a limit to the lowest set bit, against all multiples of one in order. */
static void test_rounding_in_steps(void)
{
    static const ax_sizefit_params shapes[] = {
        {.steps = 1, .step = {8}, .step_end = {UINT64_MAX}},
        {.steps = 2, .step = {2, 32}, .step_end = {64, UINT64_MAX}},
        {.steps = 3, .step = {1, 4, 16}, .step_end = {10, 101, UINT64_MAX}},
        {.steps = 0},
    };
    unsigned wrong = 0;
    for (unsigned at = 0; at < 4 * 3 * 4 * 6 * 5; at++) {
        ax_sizefit_params p = shapes[at % 4];
        p.align_bytes = UINT64_C(1) << (at / 4 % 3);
        p.bits = at / 12 % 4;
        p.odd_bits = at / 48 % 6;
        p.header_bytes = (const uint64_t[]){0, 5, 16, 24, 32}[at / 288];
        if (ax_sizefit_check_params(&p, NULL) != AX_OK) {
            wrong += p.bits == 0 || p.steps == 0;
            continue;
        }
        for (uint64_t need = 0; need < 300; need++) {
            uint64_t size = need > p.header_bytes ? need : p.header_bytes + 1;
            for (; size < 4096; size++) {
                const uint64_t above = size - p.header_bytes;
                const uint64_t odd = above >> __builtin_ctzll(above);
                uint32_t i = 0;
                while (i < p.steps && size > p.step_end[i]) {
                    i++;
                }
                if (size % p.align_bytes == 0 && (p.steps == 0 || size % p.step[i] == 0) &&
                    (p.bits == 0 || odd >> p.bits == 0) &&
                    (p.odd_bits == 0 || size % (UINT64_C(1) << p.odd_bits) != 0)) {
                    break;
                }
            }
            wrong += ax_sizefit_round(&p, need) != (size < 4096 ? size : 0);
        }
    }
    CHECK(wrong == 0);
}

static void test_spans(void)
{
    ax_sizefit_params params = plain();
    uint64_t pages = 9;
    CHECK(ax_sizefit_effective(&params, 72, &pages) == 72.0 && pages == 0);
    params.span_page_bytes = 64;
    params.span_max_pages = 3;
    params.tail_den = 1; /* no tail at all */
    CHECK(ax_sizefit_effective(&params, 48, &pages) == 48.0 && pages == 3);
    CHECK(ax_sizefit_effective(&params, 40, &pages) == 128.0 / 3 && pages == 2);
    CHECK(ax_sizefit_effective(&params, 320, &pages) == 320.0 && pages == 5);
    params.tail_num = 1;
    params.tail_den = 4;
    CHECK(ax_sizefit_effective(&params, 48, &pages) == 64.0 && pages == 1);
    params.span_move_bytes = 48 * 8; /* two objects */
    CHECK(ax_sizefit_effective(&params, 48, &pages) == 64.0 && pages == 2);
    CHECK(ax_sizefit_check_params(&params, NULL) == AX_OK);
    params.tail_den = 0;
    CHECK(ax_sizefit_check_params(&params, NULL) == AX_ERR_RANGE);
}

static void test_evaluation(void)
{
    const uint64_t sizes[] = {1, 30, 32, 33, 100, 200};
    const double counts[] = {1, 2, 3, 4, 5, 6};
    ax_sizefit_params params = plain();
    params.cap_bytes = 20;
    ax_sizefit_row rows[] = {{.class_bytes = 32}, {.class_bytes = 128}};
    double count;
    double bytes;
    ax_sizefit_evaluate(&params, sizes, counts, 6, rows, 2, &count, &bytes);
    CHECK(count == 6 && bytes == 1200);
    CHECK(rows[0].count == 6 && rows[0].requested == 157 && rows[1].count == 9);
    CHECK(rows[0].alignment == 7 + 2 * 2 && rows[0].rest == 24 && rows[0].cut == 11);
    CHECK(rows[1].alignment == 4 * 7 + 5 * 4 && rows[1].rest == 4 * 88 + 5 * 24);
    CHECK(rows[1].cut == 4 * 75 + 5 * 8 && isinf(rows[1].loss));
    CHECK(rows[0].loss == 0 + 2 * 18 + 3 * 20); /* each of them wastes 20 without it */
}

/* A forced class that a larger one dominates: the condition is broken and found to be. */
static void test_broken_condition(void)
{
    enum { N = 24 };
    uint64_t sizes[N];
    double counts[N];
    for (uint64_t i = 0; i < N; i++) {
        sizes[i] = 8 * i + 8;
        counts[i] = (double)(1 + i * 7 % 5);
    }
    ax_sizefit_params params = plain();
    params.span_page_bytes = 64;
    params.span_max_pages = 3;
    params.span_largest = 1;
    params.tail_den = 1;
    int broken = 0;
    for (uint64_t forced = 8; forced < 8 * N; forced += 8) {
        ax_seam books;
        ax_seam_init(&books, AX_BACKING_REAL);
        ax_sizefit fit;
        CHECK(ax_sizefit_begin(&fit, sizes, counts, N, &params, &forced, 1, &books, NULL) == AX_OK);
        CHECK(run(&fit, AX_SIZEFIT_QUADRATIC, 6, 0, 1) == AX_OK);
        const double cost = fit.cost;
        CHECK(run(&fit, AX_SIZEFIT_PRICE, 6, 0, 1) == AX_OK);
        broken += fit.monge == 0;
        CHECK(fabs(fit.cost - cost) < 1e-9 && fabs(fit.bound - cost) < 1e-9);
        CHECK((fit.monge == 1) == (fit.method == AX_SIZEFIT_PRICE));
        CHECK(ax_sizefit_check(&fit, NULL) == AX_OK);
        CHECK(run(&fit, AX_SIZEFIT_GREEDY, 6, 0, 1) == AX_OK);
        CHECK(fit.cost >= cost - 1e-9 && fit.bound <= fit.cost + 1e-9);
        CHECK(run(&fit, AX_SIZEFIT_GREEDY, 6, 1, 1) == AX_OK && fit.opt[6] >= cost - 1e-9);
        CHECK((fit.monge == 1) == (fit.method == AX_SIZEFIT_DIVIDE));
        ax_sizefit_release(&fit);
        CHECK(books.bytes_held == 0);
    }
    CHECK(broken > 0);
}

static void test_refusals(void)
{
    const uint64_t sizes[] = {16, 32, 48};
    const double counts[] = {1, 1, 1};
    const double nan_counts[] = {1, NAN, 1};
    const double zero_counts[] = {1, 0, 1};
    const uint64_t falling[] = {16, 32, 32};
    const uint64_t off[] = {20};
    const uint64_t far[] = {4096};
    ax_seam books;
    ax_seam_init(&books, AX_BACKING_REAL);
    ax_sizefit fit;
    ax_detail detail;
    ax_sizefit_params params = plain();
#define REFUSED(s, c, n, f, nf)                                                              \
    CHECK(ax_sizefit_begin(&fit, s, c, n, &params, f, nf, &books, &detail) == AX_ERR_RANGE); \
    ax_sizefit_release(&fit);                                                                \
    CHECK(books.bytes_held == 0)
    REFUSED(sizes, counts, 0, NULL, 0);
    REFUSED(sizes, nan_counts, 3, NULL, 0);
    CHECK(detail.value == 32 && detail.where == 1);
    REFUSED(sizes, zero_counts, 3, NULL, 0);
    REFUSED(falling, counts, 3, NULL, 0);
    REFUSED(sizes, counts, 3, off, 1);
    params.largest_bytes = 64;
    REFUSED(sizes, counts, 3, far, 1);
    params.largest_bytes = 8;
    REFUSED(sizes, counts, 3, NULL, 0);
    params.largest_bytes = 60;
    REFUSED(sizes, counts, 3, NULL, 0);
    params = plain();
    params.header_bytes = 4;
    params.bits = 1;
    REFUSED(sizes, counts, 3, NULL, 0);
    params = plain();
    params.align_bytes = 12;
    REFUSED(sizes, counts, 3, NULL, 0);
    params = plain();
    params.steps = AX_SIZEFIT_STEPS + 1;
    REFUSED(sizes, counts, 3, NULL, 0);
    params.steps = 1;
    REFUSED(sizes, counts, 3, NULL, 0);
    params.step[0] = 16;
    REFUSED(sizes, counts, 3, NULL, 0);
    params.step_end[0] = UINT64_MAX;
    params.header_bytes = 8;
    params.bits = 9;
    REFUSED(sizes, counts, 3, NULL, 0);
    params.bits = 0;
    params.step[0] = 24;
    REFUSED(sizes, counts, 3, NULL, 0);
    params = plain();
    params.odd_bits = 64;
    REFUSED(sizes, counts, 3, NULL, 0);
    params = plain();
    CHECK(ax_sizefit_begin(&fit, sizes, counts, 3, &params, sizes, 2, &books, NULL) == AX_OK);
    CHECK(ax_sizefit_start(&fit, AX_SIZEFIT_AUTO, 2, 0, &detail) == AX_ERR_RANGE);
    CHECK(detail.low == 3);
    CHECK(ax_sizefit_start(&fit, AX_SIZEFIT_AUTO, 0, 1, &detail) == AX_ERR_RANGE);
    ax_sizefit_release(&fit);
    CHECK(books.bytes_held == 0);
}

static void test_every_allocation_can_fail(void)
{
    enum { N = 900 };
    static uint64_t sizes[N];
    static double counts[N];
    for (uint64_t i = 0; i < N; i++) {
        sizes[i] = 16 * i + 1;
        counts[i] = 1;
    }
    for (int method = AX_SIZEFIT_QUADRATIC; method < AX_SIZEFIT_METHODS; method++) {
        for (int curve = 0; curve < 2; curve++) {
            uint64_t refused = 0;
            for (uint64_t n = 1;; n++) {
                ax_sizefit_params params = plain();
                params.span_page_bytes = n % 2 ? 4096 : 0;
                params.span_max_pages = 4;
                params.tail_num = 1;
                params.tail_den = 8;
                ax_seam books;
                ax_seam_init(&books, AX_BACKING_REAL);
                books.fail_at = n;
                ax_sizefit fit;
                int status =
                    ax_sizefit_begin(&fit, sizes, counts, N, &params, NULL, 0, &books, NULL);
                if (status == AX_OK) {
                    const uint32_t k = method == AX_SIZEFIT_GREEDY ? 2 : 5;
                    status = run(&fit, (enum ax_sizefit_method)method, k, curve, UINT64_MAX);
                    if (status != AX_OK) { /* and again, now that memory is there */
                        books.fail_at = 0;
                        CHECK(run(&fit, (enum ax_sizefit_method)method, k, curve, 1) == AX_OK);
                        CHECK(ax_sizefit_check(&fit, NULL) == AX_OK);
                    }
                }
                ax_sizefit_release(&fit);
                CHECK(books.bytes_held == 0);
                if (status == AX_OK) {
                    break;
                }
                CHECK(status == AX_ERR_NOMEM);
                refused++;
            }
            CHECK(refused > 8);
        }
    }
}

int main(void)
{
    test_rounding();
    test_rounding_in_steps();
    test_spans();
    test_evaluation();
    test_golden();
    test_against_all_subsets();
    test_solvers_agree();
    test_broken_condition();
    test_refusals();
    test_every_allocation_can_fail();
    return check_report();
}
