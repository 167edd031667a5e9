/* What ends or changes the process, or maps memory. Under names of our own in C, since the headers'
 * prototypes have types (variadic, enumerations) that a wrapper has no use for. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdarg.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>

#include "record.h"

#define WRAPPER(result, name, parameters)                      \
    AX_EXPORT result ax_wrap_##name parameters __asm__(#name); \
    AX_EXPORT result ax_wrap_##name parameters

/* The real function of a wrapper, as `real`. */
#define REAL(result, name, types)                     \
    static result(*real) types;                       \
    if (AX_UNLIKELY(!real)) {                         \
        void *found = ax_next(#name);                 \
        __builtin_memcpy(&real, &found, sizeof real); \
    }

/* --- fork ------------------------------------------------------------------------------------- */

static void note_fork(pid_t child)
{
    if (child <= 0 || ax_set.off || !ax_all || !ax_all->alive) {
        return;
    }
    ax_rawlog_header *header = ax_set.header;
    __atomic_fetch_add(&header->forks, 1, __ATOMIC_RELAXED);
    if (!ax_set.follow) {
        __atomic_fetch_add(&header->children_not_recorded, 1, __ATOMIC_RELAXED);
    }
    const ax_event event = {.kind = AX_RAWLOG_FORK, .size = (uint64_t)child};
    ax_record(&event);
}

/* The child is noticed at its first event. The clock of the parent is read by a handler that glibc
 * calls in fork. */
WRAPPER(pid_t, fork, (void))
{
    REAL(pid_t, fork, (void))
    const pid_t child = real();
    note_fork(child);
    return child;
}

WRAPPER(pid_t, _Fork, (void))
{
    REAL(pid_t, _Fork, (void))
    if (!real) {
        errno = ENOSYS;
        return -1;
    }
    ax_self.fork_stamp = ax_mode & AX_MODE_ENDED ? 0 : ax_stamp();
    const pid_t child = real();
    if (child) {
        ax_self.fork_stamp = 0;
    }
    note_fork(child);
    return child;
}

/* --- exec: what returns has failed --------------------------------------------------------------
 */

#define EXEC(name, parameters, types, arguments) \
    WRAPPER(int, name, parameters)               \
    {                                            \
        REAL(int, name, types)                   \
        ax_end(AX_RAWLOG_EXEC);                  \
        const int answer = real arguments;       \
        ax_end(AX_RAWLOG_RUNNING);               \
        return answer;                           \
    }

EXEC(execve, (const char *path, char *const *argv, char *const *envp),
     (const char *, char *const *, char *const *), (path, argv, envp))
EXEC(execv, (const char *path, char *const *argv), (const char *, char *const *), (path, argv))
EXEC(execvp, (const char *file, char *const *argv), (const char *, char *const *), (file, argv))
EXEC(execvpe, (const char *file, char *const *argv, char *const *envp),
     (const char *, char *const *, char *const *), (file, argv, envp))
EXEC(fexecve, (int fd, char *const *argv, char *const *envp), (int, char *const *, char *const *),
     (fd, argv, envp))
EXEC(execveat, (int fd, const char *path, char *const *argv, char *const *envp, int flags),
     (int, const char *, char *const *, char *const *, int), (fd, path, argv, envp, flags))

/* The forms with a list: as an array on the stack, for those above. */
#define EXEC_LIST(name, call)                                                                      \
    WRAPPER(int, name, (const char *path, const char *first, ...))                                 \
    {                                                                                              \
        va_list list;                                                                              \
        size_t n = 1;                                                                              \
        va_start(list, first);                                                                     \
        for (const char *word = first; word; n++) {                                                \
            word = va_arg(list, const char *);                                                     \
        }                                                                                          \
        va_end(list);                                                                              \
        const char *words[n];                                                                      \
        words[0] = first;                                                                          \
        va_start(list, first);                                                                     \
        for (size_t k = 1; k < n; k++) {                                                           \
            words[k] = va_arg(list, const char *);                                                 \
        }                                                                                          \
        char *const *envp = va_arg(list, char *const *); /* of execle; else it is not looked at */ \
        va_end(list);                                                                              \
        char *const *argv;                                                                         \
        const char *const *source = words;                                                         \
        __builtin_memcpy(&argv, &source, sizeof argv);                                             \
        (void)envp;                                                                                \
        return call;                                                                               \
    }

EXEC_LIST(execl, ax_wrap_execv(path, argv))
EXEC_LIST(execlp, ax_wrap_execvp(path, argv))
EXEC_LIST(execle, ax_wrap_execve(path, argv, envp))

/* --- exit ------------------------------------------------------------------------------------- */

#define EXIT(name, how)                         \
    WRAPPER(_Noreturn void, name, (int status)) \
    {                                           \
        REAL(void, name, (int))                 \
        ax_end(how);                            \
        real(status);                           \
        __builtin_unreachable();                \
    }

EXIT(_exit, AX_RAWLOG_UNDERSCORE_EXIT)
EXIT(_Exit, AX_RAWLOG_UNDERSCORE_EXIT)
EXIT(quick_exit, AX_RAWLOG_UNDERSCORE_EXIT)

/* --- seccomp: no system call of ours may be the program's end -----------------------------------
 */

/* Filters let pass what they let pass: windows that are open are used up. The strict mode takes
 * away the processor's counter too, and so may the program itself: then this moment is the end. */
typedef struct state {
    uint32_t sealed, mode, cut, stopped;
    uint64_t cut_stamp;
} state;

static bool recording(void)
{
    return !ax_set.off && ax_all && ax_all->alive;
}

static state seal(bool strictly, uint32_t cut)
{
    state before = {.sealed = ax_set.sealed, .mode = ax_mode};
    /* That clock is a system call. */
    strictly |= cut == AX_RAWLOG_CUT_SECCOMP && ax_set.clock == AX_RAWLOG_MONOTONIC;
    if (recording()) {
        before.cut = ax_set.header->cut;
        before.cut_stamp = ax_set.header->cut_stamp;
        before.stopped = ax_all->stopped;
        if (strictly) {
            ax_stop(cut, ax_stamp());
        }
    }
    if (cut == AX_RAWLOG_CUT_SECCOMP) {
        ax_set.sealed = 1;
    }
    if (strictly) {
        __atomic_fetch_or(&ax_mode, AX_MODE_ENDED, __ATOMIC_SEQ_CST);
    }
    return before;
}

/* It was refused. */
static void unseal(state before)
{
    ax_set.sealed = before.sealed;
    ax_mode = before.mode | (ax_mode & AX_MODE_FENCE);
    if (recording()) {
        ax_set.header->cut = before.cut;
        ax_set.header->cut_stamp = before.cut_stamp;
        ax_all->stopped = before.stopped;
    }
}

WRAPPER(int, prctl,
        (int option, unsigned long a, unsigned long b, unsigned long c, unsigned long d))
{
    REAL(int, prctl, (int, unsigned long, unsigned long, unsigned long, unsigned long))
    const bool seccomp = option == PR_SET_SECCOMP, blind = option == PR_SET_TSC && a == 2;
    if (AX_LIKELY(!seccomp && !blind)) {
        return real(option, a, b, c, d);
    }
    const state before =
        seal(blind || a == 1, seccomp ? AX_RAWLOG_CUT_SECCOMP : AX_RAWLOG_CUT_OTHER);
    const int answer = real(option, a, b, c, d);
    if (answer) {
        unseal(before);
    }
    return answer;
}

AX_EXPORT int ax_wrap_mlockall(int flags) __asm__("mlockall");

/* Six arguments whatever the call has, as the C library's own; nothing is done after a call, since
 * one that is like vfork returns twice. */
WRAPPER(long, syscall, (long number, long a, long b, long c, long d, long e, long f))
{
    REAL(long, syscall, (long, long, long, long, long, long, long))
    if (AX_UNLIKELY(number == SYS_seccomp && (a == 0 || a == 1))) {
        const state before = seal(a == 0, AX_RAWLOG_CUT_SECCOMP);
        const long answer = real(number, a, b, c, d, e, f);
        if (answer == -1) {
            unseal(before);
        }
        return answer;
    }
    if (AX_UNLIKELY(number == SYS_prctl && (a == PR_SET_SECCOMP || a == PR_SET_TSC))) {
        return ax_wrap_prctl((int)a, (unsigned long)b, (unsigned long)c, (unsigned long)d,
                             (unsigned long)e);
    }
    if (AX_UNLIKELY(number == SYS_mlockall)) {
        return ax_wrap_mlockall((int)a);
    }
    return real(number, a, b, c, d, e, f);
}

/* --- limits ----------------------------------------------------------------------------------- */

static void before_limit(int resource, const struct rlimit *limit)
{
    if (resource == RLIMIT_AS && limit && limit->rlim_cur != RLIM_INFINITY) {
        ax_shrink(limit->rlim_cur);
    }
}

#define SETRLIMIT(name)                                            \
    WRAPPER(int, name, (int resource, const struct rlimit *limit)) \
    {                                                              \
        REAL(int, name, (int, const struct rlimit *))              \
        before_limit(resource, limit);                             \
        return real(resource, limit);                              \
    }

#define PRLIMIT(name)                                                                             \
    WRAPPER(int, name, (pid_t pid, int resource, const struct rlimit *limit, struct rlimit *old)) \
    {                                                                                             \
        REAL(int, name, (pid_t, int, const struct rlimit *, struct rlimit *))                     \
        if (!ax_set.sealed && (pid == 0 || pid == (pid_t)AX_SYS0(SYS_getpid))) {                  \
            before_limit(resource, limit);                                                        \
        }                                                                                         \
        return real(pid, resource, limit, old);                                                   \
    }

SETRLIMIT(setrlimit)
SETRLIMIT(setrlimit64)
PRLIMIT(prlimit)
PRLIMIT(prlimit64)

/* --- memory that is locked -------------------------------------------------------------------- */

/* mlockall would count all our addresses, and make all their pages: meanwhile there are only those
 * in use, and what other threads may need. Afterwards these are not locked, and more can be had
 * behind them: that is a mapping's growth, which takes the locks of the mapping and not those that
 * were announced for new ones. */
#define MOST_SPARE_BYTES (UINT64_C(4) << 20)
#define SPARE_CURSORS 256u

typedef struct aside {
    uint64_t capacity, shared_bytes, capacity_cut;
    ax_cursor *cursors_end;
} aside;

static uint32_t set_aside; /* under the lock: some thread does so */

static unsigned char *bytes_of_log(void)
{
    return (unsigned char *)ax_set.header;
}

static unsigned char *bytes_of_cursors(void)
{
    return (unsigned char *)ax_all;
}

/* False: nothing was changed. */
static bool put_aside(aside *before)
{
    if (!recording() || ax_set.sealed || (uint32_t)AX_SYS0(SYS_getpid) != ax_set.header->pid) {
        return false;
    }
    struct rlimit limit = {RLIM_INFINITY, RLIM_INFINITY};
    AX_SYS4(SYS_prlimit64, 0, RLIMIT_MEMLOCK, 0, &limit);
    const uint64_t granule = AX_RAWLOG_GRANULE, page = 4096;
    uint64_t spare = limit.rlim_cur / 16 & ~(granule - 1);
    spare = spare < MOST_SPARE_BYTES ? spare : MOST_SPARE_BYTES;
    const uint64_t signals = ax_block_signals();
    ax_lock();
    const bool ours = !set_aside && !ax_all->let_go;
    if (ours) {
        set_aside = 1;
        *before =
            (aside){ax_set.capacity, ax_set.shared_bytes, ax_set.capacity_cut, ax_all->cursors_end};
        const uint64_t next = __atomic_load_n(&ax_set.header->next, __ATOMIC_SEQ_CST);
        const uint64_t keep = ((next + granule - 1) & ~(granule - 1)) + spare;
        if (keep < ax_set.mapped_bytes) {
            if (keep < ax_set.capacity) {
                __atomic_store_n(&ax_set.capacity, keep, __ATOMIC_SEQ_CST);
                ax_set.capacity_cut = AX_RAWLOG_CUT_OTHER;
            }
            /* As in ax_shrink. */
            if (__atomic_load_n(&ax_set.header->next, __ATOMIC_SEQ_CST) <= keep) {
                AX_SYS2(SYS_munmap, bytes_of_log() + keep, ax_set.mapped_bytes - keep);
                ax_set.mapped_bytes = keep;
            }
        }
        ax_cursor *end = ax_all->cursors + SPARE_CURSORS;
        const uint64_t used = (uint64_t)((unsigned char *)end - bytes_of_cursors());
        const uint64_t rest = (used + page - 1) & ~(page - 1);
        if (rest < ax_set.shared_bytes) {
            ax_all->cursors_end = end;
            AX_SYS2(SYS_munmap, bytes_of_cursors() + rest, ax_set.shared_bytes - rest);
            ax_set.shared_bytes = rest;
        }
    }
    ax_unlock();
    ax_unblock_signals(signals);
    return ours;
}

/* Where it stands; as much as there is, since another thread may have been given addresses there,
 * which are the last of them. Returns what the mapping has now. */
static uint64_t grow(void *mapping, uint64_t bytes, uint64_t wanted)
{
    const uint64_t granule = AX_RAWLOG_GRANULE;
    for (; wanted > bytes; wanted = (bytes + (wanted - bytes) / 2) & ~(granule - 1)) {
        if (!ax_sys_failed(AX_SYS4(SYS_mremap, mapping, bytes, wanted, 0))) {
            return wanted;
        }
    }
    return bytes;
}

static void take_back(const aside *before, bool locked)
{
    const uint64_t signals = ax_block_signals();
    ax_lock();
    if (locked) {
        AX_SYS2(SYS_munlock, ax_set.header, ax_set.mapped_bytes);
        AX_SYS2(SYS_munlock, ax_all, ax_set.shared_bytes);
    }
    ax_set.shared_bytes = grow(ax_all, ax_set.shared_bytes, before->shared_bytes);
    if (ax_set.shared_bytes == before->shared_bytes) {
        ax_all->cursors_end = before->cursors_end;
    } else {
        ax_all->cursors_end = (ax_cursor *)(void *)(bytes_of_cursors() + ax_set.shared_bytes) - 1;
    }
    if (!ax_all->let_go && ax_set.capacity < before->capacity) {
        ax_set.mapped_bytes = grow(ax_set.header, ax_set.mapped_bytes, before->capacity);
        uint64_t capacity = ax_set.mapped_bytes;
        if (capacity >= before->capacity) {
            capacity = before->capacity;
            ax_set.capacity_cut = (uint32_t)before->capacity_cut;
        }
        __atomic_store_n(&ax_set.capacity, capacity, __ATOMIC_SEQ_CST);
    }
    set_aside = 0;
    ax_unlock();
    ax_unblock_signals(signals);
}

WRAPPER(int, mlockall, (int flags))
{
    REAL(int, mlockall, (int))
    aside before;
    if (!(flags & MCL_CURRENT) || !put_aside(&before)) {
        return real(flags);
    }
    const int answer = real(flags);
    const int error = errno;
    take_back(&before, answer == 0);
    errno = error;
    return answer;
}

/* --- libraries: call sites in one that goes are to be named, too -------------------------------
 */

WRAPPER(int, dlclose, (void *library))
{
    REAL(int, dlclose, (void *))
    if (ax_set.flags & AX_RAWLOG_SITES && !ax_set.off && !ax_set.sealed && ax_all &&
        ax_all->alive) {
        const uint64_t signals = ax_block_signals();
        ax_write_maps();
        ax_unblock_signals(signals);
    }
    return real(library);
}

/* --- mappings --------------------------------------------------------------------------------- */

static bool maps_wanted(void)
{
    return AX_UNLIKELY(ax_set.flags & AX_RAWLOG_MAPS) && !ax_set.off;
}

#define MMAP(name)                                                                                 \
    WRAPPER(void *, name, (void *address, size_t size, int prot, int flags, int fd, off_t offset)) \
    {                                                                                              \
        REAL(void *, name, (void *, size_t, int, int, int, off_t))                                 \
        void *answer = real(address, size, prot, flags, fd, offset);                               \
        if (maps_wanted()) {                                                                       \
            const bool failed = answer == MAP_FAILED;                                              \
            const ax_event event = {.kind = AX_RAWLOG_MMAP | (failed ? AX_RAWLOG_FAILED : 0),      \
                                    .address = failed ? 0 : (uintptr_t)answer,                     \
                                    .size = size,                                                  \
                                    .extra = {(uint32_t)prot | (uint64_t)(uint32_t)flags << 32},   \
                                    .extras = 1};                                                  \
            ax_record(&event);                                                                     \
        }                                                                                          \
        return answer;                                                                             \
    }

MMAP(mmap)
MMAP(mmap64)

WRAPPER(int, munmap, (void *address, size_t size))
{
    REAL(int, munmap, (void *, size_t))
    if (maps_wanted()) {
        const ax_event event = {
            .kind = AX_RAWLOG_MUNMAP, .address = (uintptr_t)address, .size = size};
        ax_record(&event);
    }
    return real(address, size);
}

WRAPPER(int, mprotect, (void *address, size_t size, int prot))
{
    REAL(int, mprotect, (void *, size_t, int))
    const int answer = real(address, size, prot);
    if (maps_wanted()) {
        const ax_event event = {.kind = AX_RAWLOG_MPROTECT | (answer ? AX_RAWLOG_FAILED : 0),
                                .address = (uintptr_t)address,
                                .size = size,
                                .extra = {(uint32_t)prot},
                                .extras = 1};
        ax_record(&event);
    }
    return answer;
}

WRAPPER(void *, mremap, (void *old, size_t old_size, size_t size, int flags, void *wanted))
{
    REAL(void *, mremap, (void *, size_t, size_t, int, void *))
    void *answer = real(old, old_size, size, flags, wanted);
    if (maps_wanted()) {
        const bool failed = answer == MAP_FAILED;
        const ax_event event = {.kind = AX_RAWLOG_MREMAP | (failed ? AX_RAWLOG_FAILED : 0),
                                .address = failed ? 0 : (uintptr_t)answer,
                                .size = size,
                                .extra = {(uintptr_t)old, old_size},
                                .extras = 2};
        ax_record(&event);
    }
    return answer;
}
