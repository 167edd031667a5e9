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

/* All that is mapped would be made and locked, and our addresses are far more than there is memory.
 */
#define LOCKED_BYTES (UINT64_C(4) << 30)

WRAPPER(int, mlockall, (int flags))
{
    REAL(int, mlockall, (int))
    if (flags & MCL_CURRENT) {
        ax_shrink(LOCKED_BYTES);
    }
    return real(flags);
}

SETRLIMIT(setrlimit)
SETRLIMIT(setrlimit64)
PRLIMIT(prlimit)
PRLIMIT(prlimit64)

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
