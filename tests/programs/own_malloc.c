/* A program with an allocator of its own: what it asks of that is not to be seen from outside. With
 * -DLIBRARY an allocator library, one that works by calling itself through its public names. */
#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

static unsigned char memory[64 << 20] __attribute__((aligned(4096)));
static size_t used;

void *memalign(size_t align, size_t size)
{
    if (size > sizeof memory / 2) {
        errno = ENOMEM;
        return NULL;
    }
    align = align < 32 ? 32 : align;
    size_t at = (__atomic_fetch_add(&used, size + align + 64, __ATOMIC_SEQ_CST) + 32 + align - 1) /
                align * align;
    if (at > sizeof memory - size) {
        errno = ENOMEM;
        return NULL;
    }
    memcpy(memory + at - sizeof size, &size, sizeof size);
    return memory + at;
}

void *malloc(size_t size)
{
    return memalign(32, size);
}

void free(void *p)
{
    (void)p;
}

size_t malloc_usable_size(void *p)
{
    size_t size = 0;
    if (p) {
        memcpy(&size, (unsigned char *)p - sizeof size, sizeof size);
    }
    return size;
}

void *calloc(size_t count, size_t size)
{
    size_t bytes;
    if (__builtin_mul_overflow(count, size, &bytes)) {
        errno = ENOMEM;
        return NULL;
    }
    void *p = malloc(bytes);
    return p ? memset(p, 0, bytes) : NULL;
}

void *realloc(void *old, size_t size)
{
    void *p = malloc(size);
    if (p && old) {
        size_t had = malloc_usable_size(old);
        memcpy(p, old, had < size ? had : size);
        free(old);
    }
    return p;
}

void *aligned_alloc(size_t align, size_t size)
{
    return memalign(align, size);
}

int posix_memalign(void **out, size_t align, size_t size)
{
    if (align & (align - 1) || align < sizeof(void *)) {
        return EINVAL;
    }
    *out = memalign(align, size);
    return *out ? 0 : ENOMEM;
}

void *valloc(size_t size)
{
    return memalign(4096, size);
}

void *pvalloc(size_t size)
{
    return memalign(4096, (size + 4095) & ~(size_t)4095);
}

#ifndef LIBRARY
int main(void)
{
    for (int k = 0; k < 1000; k++) {
        char *volatile p = malloc(100);
        p[0] = 1;
        free(realloc(p, 200));
    }
    puts("ok");
    return 0;
}
#endif
