/* The functions that ours stand in front of. They are looked for at the first call of any; what the
 * dynamic linker itself asks for meanwhile comes out of a small piece of memory of our own, which
 * is never given back and never recorded. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <stdlib.h>
#include <string.h>

#include "record.h"

uintptr_t ax_allocator_low, ax_allocator_high;
uintptr_t ax_our_low, ax_our_high;
uint32_t ax_resolving;
_Alignas(4096) unsigned char ax_early[AX_EARLY_BYTES];

static size_t early_used;

static void *early(size_t bytes, size_t align)
{
    const size_t at = (early_used + 16 + align - 1) & ~(align - 1);
    if (align > 4096 || bytes > AX_EARLY_BYTES || at > AX_EARLY_BYTES - bytes) {
        errno = ENOMEM;
        return NULL;
    }
    early_used = at + bytes;
    memcpy(ax_early + at - sizeof bytes, &bytes, sizeof bytes);
    return ax_early + at;
}

static size_t early_size(const void *address)
{
    size_t bytes;
    memcpy(&bytes, (const unsigned char *)address - sizeof bytes, sizeof bytes);
    return bytes;
}

/* The first call of each function, or a call while they are looked for. */

static bool resolved(void)
{
    if (!ax_resolving) {
        ax_resolve();
    }
    return !ax_resolving;
}

static void *first_malloc(size_t size)
{
    return resolved() ? ax_real.malloc(size) : early(size, 16);
}

static void *first_calloc(size_t count, size_t size)
{
    size_t bytes;
    if (resolved()) {
        return ax_real.calloc(count, size);
    }
    return __builtin_mul_overflow(count, size, &bytes) ? NULL : early(bytes, 16);
}

static void *first_realloc(void *old, size_t size)
{
    if (resolved()) {
        return ax_real.realloc(old, size);
    }
    void *fresh = early(size, 16);
    if (fresh && old) {
        const size_t had = early_size(old);
        memcpy(fresh, old, had < size ? had : size);
    }
    return fresh;
}

static void first_free(void *address)
{
    if (resolved()) {
        ax_real.free(address);
    }
}

static int first_posix_memalign(void **out, size_t align, size_t size)
{
    if (resolved()) {
        return ax_real.posix_memalign(out, align, size);
    }
    *out = early(size, align);
    return *out ? 0 : ENOMEM;
}

static void *first_aligned_alloc(size_t align, size_t size)
{
    return resolved() ? ax_real.aligned_alloc(align, size) : early(size, align);
}

static void *first_memalign(size_t align, size_t size)
{
    return resolved() ? ax_real.memalign(align, size) : early(size, align);
}

static void *first_valloc(size_t size)
{
    return resolved() ? ax_real.valloc(size) : early(size, 4096);
}

static void *first_pvalloc(size_t size)
{
    return resolved() ? ax_real.pvalloc(size) : early((size + 4095) & ~(size_t)4095, 4096);
}

static size_t first_usable_size(void *address)
{
    return resolved() ? ax_real.malloc_usable_size(address) : early_size(address);
}

ax_real_functions ax_real = {
    .malloc = first_malloc,
    .calloc = first_calloc,
    .realloc = first_realloc,
    .free = first_free,
    .posix_memalign = first_posix_memalign,
    .aligned_alloc = first_aligned_alloc,
    .memalign = first_memalign,
    .valloc = first_valloc,
    .pvalloc = first_pvalloc,
    .malloc_usable_size = first_usable_size,
};

void *ax_next(const char *name)
{
    return dlsym(RTLD_NEXT, name);
}

struct range {
    uintptr_t address, low, high;
};

static int look_at_object(struct dl_phdr_info *info, size_t bytes, void *data)
{
    struct range *range = data;
    uintptr_t low = UINTPTR_MAX, high = 0;
    (void)bytes;
    for (unsigned k = 0; k < info->dlpi_phnum; k++) {
        const ElfW(Phdr) *header = &info->dlpi_phdr[k];
        if (header->p_type == PT_LOAD) {
            const uintptr_t at = info->dlpi_addr + header->p_vaddr;
            low = at < low ? at : low;
            high = at + header->p_memsz > high ? at + header->p_memsz : high;
        }
    }
    if (range->address < low || range->address >= high) {
        return 0;
    }
    range->low = low;
    range->high = high;
    return 1;
}

/* Where the object lies that an address is in; an empty range where in none. */
void ax_object_range(const void *address, uintptr_t *low, uintptr_t *high)
{
    struct range range = {(uintptr_t)address, 0, 0};
    dl_iterate_phdr(look_at_object, &range);
    *low = range.low;
    *high = range.high;
}

static void resolve(void *to, const char *name)
{
    void *found = ax_next(name);
    if (found) {
        memcpy(to, &found, sizeof found);
    }
}

/* For a C library that has none (musl). */
static void *page_aligned(size_t size)
{
    return ax_real.memalign(4096, size);
}

static void *page_aligned_whole(size_t size)
{
    return size > SIZE_MAX - 4095 ? NULL : ax_real.memalign(4096, (size + 4095) & ~(size_t)4095);
}

void ax_resolve(void)
{
    if (ax_resolving || ax_real.malloc != first_malloc) {
        return;
    }
    const int error = errno;
    ax_resolving = 1;
    ax_real_functions real = ax_real;
    real.valloc = page_aligned;
    real.pvalloc = page_aligned_whole;
    resolve(&real.malloc, "malloc");
    resolve(&real.calloc, "calloc");
    resolve(&real.realloc, "realloc");
    resolve(&real.free, "free");
    resolve(&real.posix_memalign, "posix_memalign");
    resolve(&real.aligned_alloc, "aligned_alloc");
    resolve(&real.memalign, "memalign");
    resolve(&real.valloc, "valloc");
    resolve(&real.pvalloc, "pvalloc");
    resolve(&real.malloc_usable_size, "malloc_usable_size");
    ax_object_range(ax_early, &ax_our_low, &ax_our_high);
    uintptr_t low, high;
    const void *library = NULL;
    resolve(&library, "qsort");
    ax_object_range(library, &low, &high);
    const void *allocator = NULL;
    memcpy(&allocator, &real.malloc, sizeof allocator);
    if ((uintptr_t)allocator < low || (uintptr_t)allocator >= high) {
        ax_object_range(allocator, &ax_allocator_low, &ax_allocator_high);
        ax_mode |= AX_MODE_FOREIGN;
    }
    ax_real = real;
    ax_resolving = 0;
    errno = error;
}
