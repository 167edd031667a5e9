/* What an alloc+free pair of code memory costs: the live heap's, and asmjit's JitAllocator's, in
 * one process. Neither writes code or flips anything: the blocks lie in pages with all rights.
 *
 *   pair      alloc, free, sizes from a table
 *   batch     64 allocs, then 64 frees in the same order, as phases of a compiler do
 *   replace   1000 live blocks; free a random one, alloc another size
 *
 * Prints one line per pattern: name, then nanoseconds per pair of asmjit and of the live heap,
 * the least of many short repetitions that take turns: what others do with the machine's cores and
 * caches only ever adds to a time.
 */
#define _POSIX_C_SOURCE 200809L

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "../csrc/core/livecode.h"

void *asmjit_open(void);
void *asmjit_take(void *allocator, size_t bytes);
void asmjit_give(void *allocator, void *code);
void asmjit_close(void *allocator);

#define PAIRS 16000 /* whole batches */
#define REPETITIONS 301
#define LIVE 1000
#define BATCH 64
#define STEPS (1 << 14)

static uint32_t sizes[STEPS];
static uint16_t victims[STEPS];
static void *asmjit;
static ax_livecode live;

static double now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static void *theirs_take(uint32_t bytes)
{
    void *code = asmjit_take(asmjit, bytes);
    if (!code) {
        abort();
    }
    return code;
}

static ax_code_handle ours_take(uint32_t bytes)
{
    ax_code_handle handle;
    if (ax_livecode_alloc(&live, bytes, &handle, NULL)) {
        abort();
    }
    return handle;
}

static void ours_give(ax_code_handle handle)
{
    if (ax_livecode_free(&live, handle, NULL)) {
        abort();
    }
}

static double pair_theirs(void)
{
    double start = now_ns();
    for (unsigned i = 0; i < PAIRS; i++) {
        asmjit_give(asmjit, theirs_take(sizes[i % STEPS]));
    }
    return (now_ns() - start) / PAIRS;
}

static double pair_ours(void)
{
    double start = now_ns();
    for (unsigned i = 0; i < PAIRS; i++) {
        ours_give(ours_take(sizes[i % STEPS]));
    }
    return (now_ns() - start) / PAIRS;
}

static double batch_theirs(void)
{
    void *held[BATCH];
    double start = now_ns();
    for (unsigned i = 0; i < PAIRS; i += BATCH) {
        for (unsigned k = 0; k < BATCH; k++) {
            held[k] = theirs_take(sizes[(i + k) % STEPS]);
        }
        for (unsigned k = 0; k < BATCH; k++) {
            asmjit_give(asmjit, held[k]);
        }
    }
    return (now_ns() - start) / PAIRS;
}

static double batch_ours(void)
{
    ax_code_handle held[BATCH];
    double start = now_ns();
    for (unsigned i = 0; i < PAIRS; i += BATCH) {
        for (unsigned k = 0; k < BATCH; k++) {
            held[k] = ours_take(sizes[(i + k) % STEPS]);
        }
        for (unsigned k = 0; k < BATCH; k++) {
            ours_give(held[k]);
        }
    }
    return (now_ns() - start) / PAIRS;
}

static double replace_theirs(void)
{
    static void *held[LIVE];
    for (unsigned k = 0; k < LIVE; k++) {
        held[k] = theirs_take(sizes[k]);
    }
    double start = now_ns();
    for (unsigned i = 0; i < PAIRS; i++) {
        unsigned k = victims[i % STEPS];
        asmjit_give(asmjit, held[k]);
        held[k] = theirs_take(sizes[i % STEPS]);
    }
    double ns = (now_ns() - start) / PAIRS;
    for (unsigned k = 0; k < LIVE; k++) {
        asmjit_give(asmjit, held[k]);
    }
    return ns;
}

static double replace_ours(void)
{
    static ax_code_handle held[LIVE];
    for (unsigned k = 0; k < LIVE; k++) {
        held[k] = ours_take(sizes[k]);
    }
    double start = now_ns();
    for (unsigned i = 0; i < PAIRS; i++) {
        unsigned k = victims[i % STEPS];
        ours_give(held[k]);
        held[k] = ours_take(sizes[i % STEPS]);
    }
    double ns = (now_ns() - start) / PAIRS;
    for (unsigned k = 0; k < LIVE; k++) {
        ours_give(held[k]);
    }
    return ns;
}

int main(void)
{
    static const struct {
        const char *name;
        double (*run[2])(void);
    } patterns[] = {
        {"pair", {pair_theirs, pair_ours}},
        {"batch", {batch_theirs, batch_ours}},
        {"replace", {replace_theirs, replace_ours}},
    };
    ax_code_params params;
    ax_code_params_default(&params);
    params.page_bytes = ax_page_bytes();
    params.wx = AX_WX_RWX;
    asmjit = asmjit_open();
    if (ax_livecode_open(&live, &params, NULL)) {
        return 1;
    }
    uint64_t x = 88172645463325252u;
    for (unsigned i = 0; i < STEPS; i++) {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        /* 64 to 4096 bytes, as many of each doubling */
        unsigned doubling = (unsigned)(x % 6);
        sizes[i] = (uint32_t)((64u << doubling) + (x >> 20) % (64u << doubling));
        victims[i] = (uint16_t)((x >> 40) % LIVE);
    }
    for (unsigned p = 0; p < sizeof patterns / sizeof patterns[0]; p++) {
        double least[2] = {1e18, 1e18};
        for (unsigned r = 0; r < REPETITIONS; r++) {
            for (unsigned s = 0; s < 2; s++) {
                const double ns = patterns[p].run[s]();
                least[s] = ns < least[s] ? ns : least[s];
            }
        }
        printf("%s %.1f %.1f\n", patterns[p].name, least[0], least[1]);
    }
    ax_livecode_release(&live);
    asmjit_close(asmjit);
    return 0;
}
