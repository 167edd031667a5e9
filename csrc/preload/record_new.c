/* operator new and delete, under their names in C++ (Itanium ABI, 64 bits).
 *
 * That of libstdc++ and libc++ calls malloc, which is recorded there, once, as what the allocator
 * was asked for; here it only has to be found. With SITES, malloc is told who called operator new.
 * That of an allocator library does not come back to malloc, so it is an event here.
 *
 * An exception passes through these functions: there is nothing in them to clean up. One out of an
 * allocator library's operator new is noticed on its way, and recorded as the failure that it is:
 * the frame below it has a personality routine, which is asked whether it has a handler.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <unwind.h>

#include "record.h"

typedef struct ax_operator {
    void (*real)(void);
    bool direct; /* an allocator library's */
} ax_operator;

static void *operator_of(void *library, const char *name)
{
    return library ? dlsym(library, name) : NULL;
}

/* Where a program loads its C++ library with one of its plugins, the plugin's calls come to us but
 * RTLD_NEXT does not look there. */
static void *elsewhere(const char *name, uintptr_t caller)
{
    static const char *const libraries[] = {"libstdc++.so.6", "libc++.so.1", "libc++abi.so.1"};
    void *found = NULL;
    for (size_t k = 0; !found && k < sizeof libraries / sizeof *libraries; k++) {
        found = operator_of(dlopen(libraries[k], RTLD_LAZY | RTLD_NOLOAD), name);
    }
    Dl_info info;
    void *place = NULL;
    __builtin_memcpy(&place, &caller, sizeof place);
    if (!found && dladdr(place, &info) && info.dli_fname) {
        found = operator_of(dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD), name);
    }
    return found;
}

static __attribute__((noinline)) void find(ax_operator *kept, const char *name,
                                           void (*last_resort)(void), uintptr_t caller)
{
    const int error = errno;
    void *found = ax_next(name);
    if (!found) {
        found = elsewhere(name, caller);
    }
    ax_resolve(); /* says where the allocator is */
    kept->direct = ax_mode & AX_MODE_FOREIGN && (uintptr_t)found >= ax_allocator_low &&
                   (uintptr_t)found < ax_allocator_high;
    if (!found && ax_mode & AX_MODE_FOREIGN) {
        kept->direct = true; /* what a foreign allocator is asked from here counts as its own */
    }
    void (*function)(void) = last_resort;
    if (found) {
        __builtin_memcpy(&function, &found, sizeof function);
    }
    __atomic_store_n(&kept->real, function, __ATOMIC_RELEASE);
    errno = error;
}

/* Without any C++ library there is nobody who could throw. */
static void *last_new(size_t size)
{
    void *address = malloc(size ? size : 1);
    if (!address) {
        abort();
    }
    return address;
}

static void *last_new_nothrow(size_t size)
{
    return malloc(size ? size : 1);
}

static void *last_new_aligned(size_t size, size_t align)
{
    void *address = NULL;
    if (posix_memalign(&address, align < sizeof(void *) ? sizeof(void *) : align, size)) {
        abort();
    }
    return address;
}

static void *last_new_aligned_nothrow(size_t size, size_t align)
{
    void *address = NULL;
    const int refused =
        posix_memalign(&address, align < sizeof(void *) ? sizeof(void *) : align, size);
    return refused ? NULL : address;
}

static void last_delete(void *address)
{
    free(address);
}

static __attribute__((noinline)) void note_new(const void *address, size_t size, size_t align,
                                               uintptr_t caller)
{
    const ax_event event = {.kind = AX_RAWLOG_NEW | (address ? 0 : AX_RAWLOG_FAILED),
                            .address = (uintptr_t)address,
                            .size = size,
                            .align = align,
                            .caller = caller};
    ax_record(&event);
}

/* The calls of this thread that are inside of an allocator library's operator new, the outermost
 * first: several where a new_handler allocates. Deeper ones are not noted if they throw. */
#define MOST_ASKED 4u

static __thread struct {
    uint32_t depth;
    struct asked {
        uintptr_t frame;
        size_t size, align;
        uintptr_t caller;
    } calls[MOST_ASKED];
} asking;

/* How many of them are above a frame, that is, not left by a longjmp. (On a stack of another place
 * in memory this may forget one, or keep one; then a failure is not noted.) */
static uint32_t depth_above(uintptr_t frame)
{
    uint32_t depth = asking.depth;
    while (depth > 0 && asking.calls[depth - 1].frame <= frame) {
        depth--;
    }
    return depth;
}

/* The unwinder asks each frame twice. First, from the throw upwards, for a handler: that reaches us
 * if the exception will leave the call, or if nobody catches it and the program ends. Where the
 * thread is cancelled there is only the second time, and that call has not failed. */
_Unwind_Reason_Code ax_new_throws(int version, _Unwind_Action actions,
                                  _Unwind_Exception_Class class, struct _Unwind_Exception *thrown,
                                  struct _Unwind_Context *context);
_Unwind_Reason_Code ax_new_throws(int version, _Unwind_Action actions,
                                  _Unwind_Exception_Class class, struct _Unwind_Exception *thrown,
                                  struct _Unwind_Context *context)
{
    (void)version;
    (void)class;
    (void)thrown;
    (void)context;
    if (actions & _UA_SEARCH_PHASE) {
        const uint32_t depth = depth_above((uintptr_t)__builtin_frame_address(0));
        if (depth > 0) {
            const struct asked call = asking.calls[depth - 1];
            asking.depth = depth - 1;
            note_new(NULL, call.size, call.align, call.caller);
        }
    }
    return _URC_CONTINUE_UNWIND;
}

/* A form that throws. What `real` is called with and what it is called from never changes. */
static __attribute__((noinline)) void *new_or_throw(void (*real)(void), size_t size, size_t align,
                                                    bool aligned, uintptr_t caller)
{
    const uintptr_t frame = (uintptr_t)__builtin_frame_address(0);
    const uint32_t depth = depth_above(frame);
    if (depth < MOST_ASKED) {
        asking.depth = depth + 1; /* first, for a signal handler that allocates */
        AX_BARRIER();
        asking.calls[depth] = (struct asked){frame, size, align, caller};
        AX_BARRIER();
    }
    /* Of this whole function; relative to here, in four bytes. */
    __asm__ volatile(".cfi_personality 0x1b, ax_new_throws");
    void *address =
        aligned ? ((void *(*)(size_t, size_t))real)(size, align) : ((void *(*)(size_t))real)(size);
    asking.depth = depth;
    note_new(address, size, align, caller);
    return address;
}

static __attribute__((noinline)) void note_delete(const void *address, uintptr_t caller)
{
    const ax_event event = {
        .kind = AX_RAWLOG_DELETE, .address = (uintptr_t)address, .caller = caller};
    if (address) {
        ax_record(&event);
    } else {
        ax_count_free_of_null(); /* as where it goes through free */
    }
}

/* One of the outermost call only: operator new[] may call operator new. */
static bool set_site(uintptr_t caller)
{
    if (ax_self.new_site > AX_NEW_RECORDED) {
        return false;
    }
    ax_self.new_site = caller;
    return true;
}

#define OPERATOR(name, parameters, result) \
    AX_EXPORT result name parameters;      \
    static ax_operator of##name;           \
    AX_EXPORT result name parameters

#define REAL(name, result, types, last_resort)                             \
    if (AX_UNLIKELY(!__atomic_load_n(&of##name.real, __ATOMIC_ACQUIRE))) { \
        find(&of##name, #name, (void (*)(void))(last_resort), AX_CALLER);  \
    }                                                                      \
    result(*const real) types = (result(*) types)of##name.real

#define NEW(name, parameters, types, arguments, direct_call, last_resort) \
    OPERATOR(name, parameters, void *)                                    \
    {                                                                     \
        REAL(name, void *, types, last_resort);                           \
        if (AX_LIKELY(!(ax_mode & (AX_MODE_SITES | AX_MODE_FOREIGN)))) {  \
            return real arguments;                                        \
        }                                                                 \
        if (of##name.direct) {                                            \
            direct_call;                                                  \
        }                                                                 \
        const bool ours = set_site(AX_CALLER);                            \
        void *address = real arguments;                                   \
        if (ours) {                                                       \
            ax_self.new_site = 0;                                         \
        }                                                                 \
        return address;                                                   \
    }

#define THROWING(name, align, aligned) \
    return new_or_throw(of##name.real, size, align, aligned, AX_CALLER)
#define ANSWERING(arguments, align)            \
    void *address = real arguments;            \
    note_new(address, size, align, AX_CALLER); \
    return address

#define DELETE(name, parameters, types, arguments) \
    OPERATOR(name, parameters, void)               \
    {                                              \
        REAL(name, void, types, last_delete);      \
        if (AX_UNLIKELY(of##name.direct)) {        \
            note_delete(address, AX_CALLER);       \
            real arguments;                        \
            AX_STAY();                             \
            return;                                \
        }                                          \
        real arguments;                            \
    }

/* m: size_t; St11align_val_t: the alignment; RKSt9nothrow_t: a reference that is only a tag. */
#define PLAIN(name) NEW(name, (size_t size), (size_t), (size), THROWING(name, 0, false), last_new)
#define NOTHROW(name)                                                              \
    NEW(name, (size_t size, const void *tag), (size_t, const void *), (size, tag), \
        ANSWERING((size, tag), 0), last_new_nothrow)
#define ALIGNED(name)                                                       \
    NEW(name, (size_t size, size_t align), (size_t, size_t), (size, align), \
        THROWING(name, align, true), last_new_aligned)
#define ALIGNED_NOTHROW(name)                                                               \
    NEW(name, (size_t size, size_t align, const void *tag), (size_t, size_t, const void *), \
        (size, align, tag), ANSWERING((size, align, tag), align), last_new_aligned_nothrow)

PLAIN(_Znwm)
PLAIN(_Znam)
NOTHROW(_ZnwmRKSt9nothrow_t)
NOTHROW(_ZnamRKSt9nothrow_t)
ALIGNED(_ZnwmSt11align_val_t)
ALIGNED(_ZnamSt11align_val_t)
ALIGNED_NOTHROW(_ZnwmSt11align_val_tRKSt9nothrow_t)
ALIGNED_NOTHROW(_ZnamSt11align_val_tRKSt9nothrow_t)

#define DELETE1(name) DELETE(name, (void *address), (void *), (address))
#define DELETE2(name) \
    DELETE(name, (void *address, size_t second), (void *, size_t), (address, second))
#define DELETE3(name)                                                                    \
    DELETE(name, (void *address, size_t second, size_t third), (void *, size_t, size_t), \
           (address, second, third))

DELETE1(_ZdlPv)
DELETE1(_ZdaPv)
DELETE2(_ZdlPvm)
DELETE2(_ZdaPvm)
DELETE2(_ZdlPvRKSt9nothrow_t)
DELETE2(_ZdaPvRKSt9nothrow_t)
DELETE2(_ZdlPvSt11align_val_t)
DELETE2(_ZdaPvSt11align_val_t)
DELETE3(_ZdlPvmSt11align_val_t)
DELETE3(_ZdaPvmSt11align_val_t)
DELETE3(_ZdlPvSt11align_val_tRKSt9nothrow_t)
DELETE3(_ZdaPvSt11align_val_tRKSt9nothrow_t)
