/* What an alloc+free pair costs: the arena's, and malloc+free of the same sizes in the same
 * process.
 *
 * Which malloc that is, the runner chooses (LD_PRELOAD), so ours and the peer stand in one run.
 * Prints one line per pattern: name, then nanoseconds per pair of malloc, of the arena by list, of
 * the arena by key, as medians over repetitions that take turns.
 *
 *   pair      alloc, free, the same size each time from a table of 16
 *   stack     64 allocs of mixed sizes, then 64 frees
 *   replace   1000 live objects; free a random one, alloc another size
 */
#define _POSIX_C_SOURCE 200809L

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "../csrc/core/arena.h"

#define PAIRS 2000000
#define REPETITIONS 9
#define KEYS 16
#define LIVE 1000
#define STACK 64
#define STEPS (1 << 16)

enum side { MALLOC, BY_LIST, BY_KEY, SIDES };

typedef struct bench {
    ax_arenas set;
    ax_seam seam, books;
    uint32_t arena;
    uint32_t list[KEYS];
    uint64_t size[KEYS];
    uint8_t key[STEPS];
    uint16_t victim[STEPS];
} bench;

static double now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static inline __attribute__((always_inline)) uint64_t take(bench *b, enum side side, unsigned key)
{
    uint64_t address = 0;
    if (side == MALLOC) {
        void *p = malloc(b->size[key]);
        /* The compiler must not pair this malloc with its free and drop both. */
        __asm__ volatile("" : : "r"(p) : "memory");
        return (uint64_t)(uintptr_t)p;
    }
    uint32_t list = b->list[key];
    if (side == BY_KEY && ax_arenas_list(&b->set, b->arena, key, b->size[key], &list, NULL)) {
        abort();
    }
    if (ax_arena_alloc(&b->set, list, &address, NULL)) {
        abort();
    }
    return address;
}

static inline __attribute__((always_inline)) void give(bench *b, enum side side, unsigned key,
                                                       uint64_t address)
{
    if (side == MALLOC) {
        free((void *)(uintptr_t)address);
        return;
    }
    uint32_t list = b->list[key];
    if (side == BY_KEY && ax_arenas_list(&b->set, b->arena, key, b->size[key], &list, NULL)) {
        abort();
    }
    if (ax_arena_free(&b->set, list, address)) {
        abort();
    }
}

static inline __attribute__((always_inline)) double pair(bench *b, enum side side)
{
    double start = now_ns();
    for (unsigned i = 0; i < PAIRS; i++) {
        unsigned key = b->key[i % STEPS];
        give(b, side, key, take(b, side, key));
    }
    return (now_ns() - start) / PAIRS;
}

static inline __attribute__((always_inline)) double stack(bench *b, enum side side)
{
    uint64_t held[STACK];
    double start = now_ns();
    for (unsigned i = 0; i < PAIRS / STACK; i++) {
        const uint8_t *key = &b->key[i * STACK % STEPS];
        for (unsigned k = 0; k < STACK; k++) {
            held[k] = take(b, side, key[k]);
        }
        for (unsigned k = STACK; k-- > 0;) {
            give(b, side, key[k], held[k]);
        }
    }
    return (now_ns() - start) / (PAIRS / STACK * STACK);
}

static inline __attribute__((always_inline)) double replace(bench *b, enum side side)
{
    uint64_t held[LIVE];
    uint8_t key[LIVE];
    for (unsigned k = 0; k < LIVE; k++) {
        key[k] = b->key[k];
        held[k] = take(b, side, key[k]);
    }
    double start = now_ns();
    for (unsigned i = 0; i < PAIRS; i++) {
        unsigned k = b->victim[i % STEPS];
        give(b, side, key[k], held[k]);
        key[k] = b->key[i % STEPS];
        held[k] = take(b, side, key[k]);
    }
    double ns = (now_ns() - start) / PAIRS;
    for (unsigned k = 0; k < LIVE; k++) {
        give(b, side, key[k], held[k]);
    }
    return ns;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a;
    double y = *(const double *)b;
    return (x > y) - (x < y);
}

/* One function per pattern and side, so that the side is a constant in each loop. */
#define SIDE(pattern, side)                  \
    static double pattern##_##side(bench *b) \
    {                                        \
        return pattern(b, side);             \
    }
SIDE(pair, MALLOC)
SIDE(pair, BY_LIST)
SIDE(pair, BY_KEY)
SIDE(stack, MALLOC)
SIDE(stack, BY_LIST)
SIDE(stack, BY_KEY)
SIDE(replace, MALLOC)
SIDE(replace, BY_LIST)
SIDE(replace, BY_KEY)

int main(void)
{
    static const struct {
        const char *name;
        double (*run[SIDES])(bench *);
    } patterns[] = {
        {"pair", {pair_MALLOC, pair_BY_LIST, pair_BY_KEY}},
        {"stack", {stack_MALLOC, stack_BY_LIST, stack_BY_KEY}},
        {"replace", {replace_MALLOC, replace_BY_LIST, replace_BY_KEY}},
    };
    bench *b = calloc(1, sizeof *b);
    ax_arena_params params;
    ax_arena_params_default(&params);
    params.poison = 0;
    params.metered = 0;
    ax_seam_init(&b->seam, AX_BACKING_REAL);
    ax_seam_init(&b->books, AX_BACKING_REAL);
    if (ax_arenas_init(&b->set, &params, &b->seam, &b->books, NULL) ||
        ax_arenas_open(&b->set, &b->arena)) {
        return 1;
    }
    for (unsigned k = 0; k < KEYS; k++) {
        b->size[k] = 16 + 16 * (uint64_t)k;
        if (ax_arenas_list(&b->set, b->arena, k, b->size[k], &b->list[k], NULL)) {
            return 1;
        }
    }
    uint64_t x = 88172645463325252u;
    for (unsigned i = 0; i < STEPS; i++) {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        b->key[i] = (uint8_t)(x % KEYS);
        b->victim[i] = (uint16_t)((x >> 20) % LIVE);
    }
    for (unsigned p = 0; p < sizeof patterns / sizeof patterns[0]; p++) {
        double ns[SIDES][REPETITIONS];
        for (unsigned r = 0; r < REPETITIONS; r++) {
            for (unsigned s = 0; s < SIDES; s++) {
                ns[s][r] = patterns[p].run[s](b);
            }
        }
        printf("%s", patterns[p].name);
        for (unsigned s = 0; s < SIDES; s++) {
            qsort(ns[s], REPETITIONS, sizeof(double), by_value);
            printf(" %.3f", ns[s][REPETITIONS / 2]);
        }
        printf("\n");
    }
    ax_arenas_release(&b->set);
    free(b);
    return 0;
}
