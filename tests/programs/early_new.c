/* Two in one. As a library (-DLIBRARY), it has a dlsym that allocates, as old C libraries' does, and
 * keeps what it got; the program then resizes and frees that. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST 8

#ifdef LIBRARY
void *early_things[MOST];
int early_count;

void *dlsym(void *handle, const char *name)
{
    static void *(*real)(void *, const char *);
    if (!real) {
        void *found = dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.2.5");
        if (!found) {
            found = dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.17");
        }
        memcpy(&real, &found, sizeof real);
    }
    if (early_count < MOST) {
        early_things[early_count] = malloc(100);
        if (early_things[early_count]) {
            memset(early_things[early_count++], 'e', 100);
        }
    }
    return real(handle, name);
}
#else
extern void *early_things[MOST];
extern int early_count;

int main(void)
{
    if (early_count != MOST) {
        return 1;
    }
    for (int k = 0; k < MOST; k++) {
        char *thing = early_things[k];
        if (k % 2) {
            thing = realloc(thing, 5000);
            if (!thing || memcmp(thing, "eeeeeeee", 8)) {
                return 2;
            }
        } else if (malloc_usable_size(thing) < 100) {
            return 3;
        }
        free(thing);
    }
    puts("ok");
    return 0;
}
#endif
