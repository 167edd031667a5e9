/* Asks for memory in every way there is and prints how often: what a recording is compared with.
 * counts [CALLS [other]], "other" where the allocator is not glibc's and may be less exact; one line "name number" each, then "live OBJECTS BYTES". */
#define _GNU_SOURCE
#include <errno.h>
#include <malloc.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SLOTS = 512 };
static void *volatile slots[SLOTS];
static size_t sizes[SLOTS];
static uint64_t state = 88172645463325252u;

static uint64_t draw(void)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state;
}

#ifdef FIXED
void *(*volatile referred)(size_t) = malloc;
#endif

int main(int argc, char **argv)
{
    static const char *const names[] = {"malloc", "calloc", "realloc", "reallocarray",
                                        "posix_memalign", "aligned_alloc", "memalign", "valloc",
                                        "pvalloc", "free", "free_null", "realloc_begin",
                                        "reallocarray_begin", "failed", "usable_size"};
    unsigned long count[15] = {0};
    static char text[2048];
    const long calls = argc > 1 ? atol(argv[1]) : 20000;
    const int exact = argc <= 2;
    volatile size_t huge = SIZE_MAX / 2;
    setvbuf(stdout, NULL, _IONBF, 0);
    for (long k = 0; k < calls; k++) {
        const unsigned at = (unsigned)(draw() % SLOTS);
        const size_t size = 1 + draw() % (draw() % 64 ? 700 : 100000);
        void *old = slots[at], *p = NULL;
        errno = 12345;
        switch (draw() % 16) {
        case 0: {
            if (old) {
                count[11]++;
            } else {
                count[2]++;
            }
            p = realloc(old, size);
            slots[at] = p;
            sizes[at] = size;
            continue;
        }
        case 1:
            if (old) {
                count[12]++;
            } else {
                count[3]++;
            }
            slots[at] = reallocarray(old, 3, size);
            sizes[at] = 3 * size;
            continue;
        case 2: /* what cannot be had; the old object lives on */
            count[13]++;
            if (old) {
                count[11]++;
            } else {
                count[2]++;
            }
            if (realloc(old, huge) || (exact && errno != ENOMEM)) {
                return 3;
            }
            continue;
        case 3:
            count[13]++;
            count[1]++;
            if (calloc(huge, 3) || (exact && errno != ENOMEM)) {
                return 4;
            }
            continue;
        case 4:
            if (old) {
                count[14]++;
                if (malloc_usable_size(old) < sizes[at]) {
                    return 5;
                }
            }
            continue;
        case 5:
            count[10]++;
            free(NULL);
            continue;
        default:
            break;
        }
        if (old) {
            count[9]++;
            free(old);
            slots[at] = NULL;
            if (exact && errno != 12345) {
                return 6; /* free has changed errno */
            }
            continue;
        }
        switch (draw() % 10) {
        case 0:
            count[1]++;
            p = calloc(1 + size % 7, size);
            sizes[at] = size * (1 + size % 7);
            break;
        case 1: {
            void *out = NULL;
            count[4]++;
            if (posix_memalign(&out, 64, size) || (uintptr_t)out % 64) {
                return 7;
            }
            p = out;
            sizes[at] = size;
            break;
        }
        case 2:
            count[5]++;
            p = aligned_alloc(256, size);
            sizes[at] = size;
            break;
        case 3:
            count[6]++;
            p = memalign(exact ? 48 : 64, size); /* no power of two: glibc takes 64 */
            sizes[at] = size;
            break;
        case 4:
            if (draw() % 8 == 0) {
                const int pages = draw() % 2 == 0 && exact; /* jemalloc has no pvalloc */
                count[pages ? 8 : 7]++;
                p = pages ? pvalloc(size) : valloc(size);
                sizes[at] = size;
                break;
            } /* fall through */
        default:
            count[0]++;
            p = malloc(size);
            sizes[at] = size;
        }
        if (!p || (exact && errno != 12345)) {
            return 8;
        }
        memset(p, 1, size);
        slots[at] = p;
    }
    unsigned long live = 0, bytes = 0;
    for (unsigned k = 0; k < SLOTS; k++) {
        live += slots[k] != NULL;
        bytes += slots[k] ? sizes[k] : 0;
    }
    int n = 0;
    for (unsigned k = 0; k < sizeof names / sizeof *names; k++) {
        n += snprintf(text + n, sizeof text - (size_t)n, "%s %lu\n", names[k], count[k]);
    }
    n += snprintf(text + n, sizeof text - (size_t)n, "live %lu %lu\n", live, bytes);
    return write(1, text, (size_t)n) == n ? 0 : 9;
}
