/* malloc and its family, in front of the program's. */
#define _GNU_SOURCE
#include <errno.h>
#include <malloc.h>
#include <stdlib.h>
#include <string.h>

#include "record.h"

/* By its public name one gets the program's, if it has one; or a jump to ours that the linker has
 * put into the program, which can only be told by trying. */
bool ax_own_malloc(void)
{
    void *(*volatile theirs)(size_t) = malloc;
    void (*volatile and_free)(void *) = free;
    if ((uintptr_t)theirs - ax_our_low < ax_our_high - ax_our_low) {
        return false;
    }
    const uint32_t before = ax_self.refused;
    and_free(theirs(1));
    return ax_self.refused == before;
}

/* With the caller of operator new, where that calls us. */
static inline uintptr_t site_of(uintptr_t caller)
{
    if (AX_LIKELY(ax_self.new_site == 0)) {
        return caller;
    }
    const uintptr_t site = ax_self.new_site;
    ax_self.new_site = AX_NEW_RECORDED;
    return site == AX_NEW_RECORDED ? caller : site;
}

static __attribute__((noinline)) void record_alloc(uint64_t kind, const void *address, size_t size,
                                                   size_t align, uintptr_t caller)
{
    if (address && ax_is_early(address)) {
        return;
    }
    const ax_event event = {.kind = address ? kind : kind | AX_RAWLOG_FAILED,
                            .address = (uintptr_t)address,
                            .size = size,
                            .align = align,
                            .caller = site_of(caller)};
    ax_record(&event);
}

static __attribute__((noinline)) void record_before(uint64_t kind, const void *address, size_t size,
                                                    uintptr_t caller)
{
    const ax_event event = {
        .kind = kind, .address = (uintptr_t)address, .size = size, .caller = caller};
    ax_record(&event);
}

AX_EXPORT void *malloc(size_t size)
{
    void *address = ax_real.malloc(size);
    if (AX_UNLIKELY(!ax_quick(AX_RAWLOG_MALLOC, address, size))) {
        record_alloc(AX_RAWLOG_MALLOC, address, size, 0, AX_CALLER);
    }
    return address;
}

AX_EXPORT void *calloc(size_t count, size_t size)
{
    size_t bytes;
    void *address = ax_real.calloc(count, size);
    if (AX_UNLIKELY(__builtin_mul_overflow(count, size, &bytes))) {
        bytes = SIZE_MAX;
    }
    if (AX_UNLIKELY(!ax_quick(AX_RAWLOG_CALLOC, address, bytes))) {
        record_alloc(AX_RAWLOG_CALLOC, address, bytes, 0, AX_CALLER);
    }
    return address;
}

static __attribute__((noinline)) void free_slowly(void *address, uintptr_t caller)
{
    record_before(AX_RAWLOG_FREE, address, 0, caller);
    ax_real.free(address);
    AX_STAY();
}

/* What free leaves in errno is what was there before; the real one sees to that itself since glibc
 * 2.33, and the hot path makes no call that could. */
AX_EXPORT void free(void *address)
{
    if (AX_UNLIKELY(address == NULL)) {
        if (AX_UNLIKELY(ax_called_back(AX_CALLER))) {
            return;
        }
        ax_rawlog_window *window = ax_self.cursor->window;
        if (AX_LIKELY(window != NULL)) {
            window->frees_of_null++;
        } else {
            ax_count_free_of_null();
        }
        return;
    }
    if (AX_UNLIKELY(ax_is_early(address))) {
        return;
    }
    if (AX_UNLIKELY(!ax_quick(AX_RAWLOG_FREE, address, 0))) {
        free_slowly(address, AX_CALLER);
        return;
    }
    ax_real.free(address);
}

/* Gone from glibc since 2.26, but old programs ask for it. */
AX_EXPORT void cfree(void *address);
AX_EXPORT void cfree(void *address)
{
    if (address && !ax_is_early(address)) {
        free_slowly(address, AX_CALLER);
    }
}

/* Memory from before the real functions were known moves to the real allocator. */
static void *move_early(void *old, size_t size, uintptr_t caller)
{
    size_t had;
    memcpy(&had, (unsigned char *)old - sizeof had, sizeof had);
    void *fresh = ax_real.malloc(size);
    if (fresh && !ax_is_early(fresh)) {
        memcpy(fresh, old, had < size ? had : size);
    }
    record_alloc(AX_RAWLOG_REALLOC, fresh, size, 0, caller);
    return fresh;
}

static inline __attribute__((always_inline)) void *
resize(void *old, size_t size, size_t asked, uint64_t first, uint64_t begin, uintptr_t caller)
{
    const bool overflow = size != asked;
    if (old == NULL) {
        void *fresh = overflow ? NULL : ax_real.realloc(NULL, size);
        if (AX_UNLIKELY(!ax_quick(first, fresh, asked))) {
            record_alloc(first, fresh, asked, 0, caller);
        }
        return fresh;
    }
    if (AX_UNLIKELY(ax_is_early(old)) && !ax_resolving) {
        return move_early(old, size, caller);
    }
    if (AX_UNLIKELY(!ax_quick(begin, old, asked))) {
        record_before(begin, old, asked, caller);
    }
    void *fresh = overflow ? NULL : ax_real.realloc(old, size);
    if (AX_UNLIKELY(!ax_quick(AX_RAWLOG_REALLOC_END, fresh, 0))) {
        /* realloc(p, 0) is a free where it answers NULL, and leaves no object behind. */
        const bool failed = fresh == NULL && asked != 0;
        const ax_event event = {.kind = AX_RAWLOG_REALLOC_END | (failed ? AX_RAWLOG_FAILED : 0),
                                .address = (uintptr_t)fresh,
                                .caller = caller};
        ax_record(&event);
    }
    return fresh;
}

AX_EXPORT void *realloc(void *old, size_t size)
{
    return resize(old, size, size, AX_RAWLOG_REALLOC, AX_RAWLOG_REALLOC_BEGIN, AX_CALLER);
}

/* Without the real one, which may call realloc by its public name. */
AX_EXPORT void *reallocarray(void *old, size_t count, size_t size)
{
    size_t bytes;
    if (__builtin_mul_overflow(count, size, &bytes)) {
        void *fresh = resize(old, 0, SIZE_MAX, AX_RAWLOG_REALLOCARRAY, AX_RAWLOG_REALLOCARRAY_BEGIN,
                             AX_CALLER);
        errno = ENOMEM;
        return fresh;
    }
    return resize(old, bytes, bytes, AX_RAWLOG_REALLOCARRAY, AX_RAWLOG_REALLOCARRAY_BEGIN,
                  AX_CALLER);
}

AX_EXPORT int posix_memalign(void **out, size_t align, size_t size)
{
    const int answer = ax_real.posix_memalign(out, align, size);
    record_alloc(AX_RAWLOG_POSIX_MEMALIGN, answer ? NULL : *out, size, align, AX_CALLER);
    return answer;
}

AX_EXPORT void *aligned_alloc(size_t align, size_t size)
{
    void *address = ax_real.aligned_alloc(align, size);
    record_alloc(AX_RAWLOG_ALIGNED_ALLOC, address, size, align, AX_CALLER);
    return address;
}

AX_EXPORT void *memalign(size_t align, size_t size)
{
    void *address = ax_real.memalign(align, size);
    record_alloc(AX_RAWLOG_MEMALIGN, address, size, align, AX_CALLER);
    return address;
}

AX_EXPORT void *valloc(size_t size)
{
    void *address = ax_real.valloc(size);
    record_alloc(AX_RAWLOG_VALLOC, address, size, 0, AX_CALLER);
    return address;
}

AX_EXPORT void *pvalloc(size_t size)
{
    void *address = ax_real.pvalloc(size);
    record_alloc(AX_RAWLOG_PVALLOC, address, size, 0, AX_CALLER);
    return address;
}

AX_EXPORT size_t malloc_usable_size(void *address)
{
    if (address && ax_is_early(address)) {
        size_t bytes;
        memcpy(&bytes, (unsigned char *)address - sizeof bytes, sizeof bytes);
        return bytes;
    }
    const size_t answer = ax_real.malloc_usable_size(address);
    if (address && ax_set.flags & AX_RAWLOG_USABLE &&
        AX_UNLIKELY(!ax_quick(AX_RAWLOG_USABLE_SIZE, address, answer))) {
        const ax_event event = {.kind = AX_RAWLOG_USABLE_SIZE,
                                .address = (uintptr_t)address,
                                .size = answer,
                                .caller = AX_CALLER};
        ax_record(&event);
    }
    return answer;
}
