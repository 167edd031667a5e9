/* What a free costs among more and more free blocks.
 *
 * 2n + 1 methods are allocated and every second one is freed: n free blocks that touch no other.
 * Then used blocks between two of them are freed, in the order of addresses or at random; each joins
 * both sides, so that two blocks leave their lists and one comes. These frees alone are timed, a
 * quarter of those that there are, 20000 at most.
 *
 *   code_free byte_limit|segregated FREE_BLOCKS address|random
 *
 * Prints nanoseconds per free, the least of several repetitions, and list_scan_steps per free.
 */
#define _POSIX_C_SOURCE 200809L

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "../csrc/core/codeheap.h"

#define METHOD_BYTES 256
#define MOST_TIMED 20000
#define SECONDS 2.0

static double now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static void must(int status)
{
    if (status) {
        fprintf(stderr, "code_free: status %d\n", status);
        exit(1);
    }
}

int main(int argc, char **argv)
{
    if (argc != 4) {
        fprintf(stderr, "usage: code_free byte_limit|segregated FREE_BLOCKS address|random\n");
        return 2;
    }
    const size_t n = strtoull(argv[2], NULL, 10);
    const int random = strcmp(argv[3], "random") == 0;
    const size_t timed = n / 4 < MOST_TIMED ? n / 4 : MOST_TIMED;
    uint32_t *blocks = malloc((2 * n + 1) * sizeof *blocks);
    size_t *victims = malloc(n * sizeof *victims);
    ax_code_params params;
    ax_code_params_default(&params);
    params.policy = strcmp(argv[1], "segregated") ? AX_CODE_BYTE_LIMIT : AX_CODE_SEGREGATED;
    params.byte_limit = METHOD_BYTES;
    params.chunk_bytes = 1 << 20;
    params.wx = AX_WX_RWX;
    double least_ns = 1e18;
    double steps = 0;
    const double until = now_ns() + SECONDS * 1e9;
    for (int r = 0; r < 3 || (r < 1000 && now_ns() < until); r++) {
        ax_seam seam;
        ax_seam books;
        ax_codeheap heap;
        ax_seam_init(&seam, AX_BACKING_MODELLED);
        ax_seam_init(&books, AX_BACKING_REAL);
        must(ax_codeheap_init(&heap, &params, &seam, &books, NULL));
        for (size_t i = 0; i < 2 * n + 1; i++) {
            must(ax_codeheap_alloc(&heap, METHOD_BYTES, &blocks[i]));
        }
        /* The newest block of a list is the last one freed: shuffled, so that no list is in the
         * order of addresses by chance. */
        uint64_t x = 88172645463325252u + (uint64_t)r;
        for (size_t i = 0; i < n; i++) {
            x ^= x << 13;
            x ^= x >> 7;
            x ^= x << 17;
            const size_t k = x % (i + 1);
            victims[i] = victims[k];
            victims[k] = i;
        }
        for (size_t i = 0; i < n; i++) {
            must(ax_codeheap_free(&heap, blocks[2 * victims[i] + 1]));
        }
        const uint64_t before = heap.counters.list_scan_steps;
        const double start = now_ns();
        for (size_t i = 0; i < timed; i++) {
            const size_t k = random ? victims[n - 1 - i] : i;
            must(ax_codeheap_free(&heap, blocks[2 * k]));
        }
        const double ns = (now_ns() - start) / (double)timed;
        least_ns = ns < least_ns ? ns : least_ns;
        steps = (double)(heap.counters.list_scan_steps - before) / (double)timed;
        ax_codeheap_release(&heap);
    }
    printf("%.1f %.1f\n", least_ns, steps);
    free(blocks);
    free(victims);
    return 0;
}
