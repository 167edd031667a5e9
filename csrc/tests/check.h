/* check: the whole test framework of the C tests. A test file calls its tests from main and ends
 * with `return check_report();`, which prints one line and is the exit status. */
#ifndef AX_TESTS_CHECK_H
#define AX_TESTS_CHECK_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

static unsigned long check_passed, check_failed;

#define CHECK(condition)                                                            \
    do {                                                                            \
        if (condition) {                                                            \
            check_passed++;                                                         \
        } else {                                                                    \
            check_failed++;                                                         \
            fprintf(stderr, "%s:%d: failed: %s\n", __FILE__, __LINE__, #condition); \
        }                                                                           \
    } while (0)

static inline int check_report(void)
{
    printf("%lu passed, %lu failed\n", check_passed, check_failed);
    return check_failed != 0;
}

/* The same numbers in every run: what fails once can be looked at again. */
static inline uint64_t next_random(uint64_t *state)
{
    *state += UINT64_C(0x9E3779B97F4A7C15);
    uint64_t z = *state;
    z = (z ^ (z >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94D049BB133111EB);
    return z ^ (z >> 31);
}

#endif
