/* The log file: made once in the life of a process image, mapped once, and held by no descriptor
 * after that; and what it says of the process. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include "record.h"

#ifndef MADV_WIPEONFORK
#define MADV_WIPEONFORK 18
#endif
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

/* Room for 16 thousand million events. Only addresses: a sparse file and its mapping cost nothing.
 */
#define MOST_BYTES (UINT64_C(1) << 38)
#define HEADER_PAGES ((sizeof(ax_rawlog_header) + 4095) & ~UINT64_C(4095))
#define FEWEST_BYTES (AX_RAWLOG_HEADER_BYTES + UINT64_C(16) * AX_RAWLOG_GRANULE)

_Static_assert(offsetof(ax_rawlog_header, stop) == 392, "known to those who write it");

static const char *setting(const char *name)
{
    const char *value = getenv(name);
    return value ? value : "";
}

static uint64_t number_setting(const char *name)
{
    uint64_t value = 0;
    for (const char *at = setting(name); *at >= '0' && *at <= '9'; at++) {
        value = value * 10 + (uint64_t)(*at - '0');
    }
    return value;
}

static long open_file(const char *path, int flags)
{
    return AX_SYS4(SYS_openat, AT_FDCWD, path, flags | O_CLOEXEC, 0600);
}

/* Reads what fits of a small file; returns the number of bytes. */
static size_t read_file(const char *path, char *into, size_t bytes)
{
    const long fd = open_file(path, O_RDONLY);
    size_t have = 0;
    if (ax_sys_failed(fd)) {
        return 0;
    }
    while (have < bytes) {
        const long got = AX_SYS3(SYS_read, fd, into + have, bytes - have);
        if (got == -EINTR) {
            continue;
        }
        if (got <= 0) {
            break;
        }
        have += (size_t)got;
    }
    AX_SYS1(SYS_close, fd);
    return have;
}

/* The processor's counter is a clock only where it runs at one speed on all cores and the kernel
 * trusts it, too. */
static uint32_t choose_clock(void)
{
#if defined(__x86_64__)
    unsigned a, b, c, d;
    char source[8] = "";
    if (!__get_cpuid(0x80000007, &a, &b, &c, &d) || !(d & 1u << 8)) {
        return AX_RAWLOG_MONOTONIC;
    }
    read_file("/sys/devices/system/clocksource/clocksource0/current_clocksource", source,
              sizeof source - 1);
    return strncmp(source, "tsc\n", 4) == 0 ? AX_RAWLOG_TSC : AX_RAWLOG_MONOTONIC;
#else
    return AX_RAWLOG_CNTVCT;
#endif
}

/* One moment by both clocks: of several tries the one that the scheduler disturbed least. */
static void pair_of_clocks(uint64_t *stamp, uint64_t *mono_ns)
{
    uint64_t best = UINT64_MAX;
    for (int k = 0; k < 3; k++) {
        const uint64_t before = ax_stamp();
        const uint64_t ns = ax_clock_ns(CLOCK_MONOTONIC);
        const uint64_t after = ax_stamp();
        if (after - before < best) {
            best = after - before;
            *stamp = before + best / 2;
            *mono_ns = ns;
        }
    }
}

static uint64_t limit_of(int resource)
{
    struct rlimit limit = {RLIM_INFINITY, RLIM_INFINITY};
    AX_SYS4(SYS_prlimit64, 0, resource, 0, &limit);
    return limit.rlim_cur;
}

/* What of a limited address space the log may have. */
static uint64_t share_of(uint64_t address_space)
{
    return address_space / 16 & ~(uint64_t)(AX_RAWLOG_GRANULE - 1);
}

/* How long the log may become, and what to say where that is reached. */
static uint64_t wanted_bytes(void)
{
    uint64_t bytes = MOST_BYTES;
    ax_set.capacity_cut = AX_RAWLOG_CUT_OTHER;
    const uint64_t space = limit_of(RLIMIT_AS);
    if (space != RLIM_INFINITY && share_of(space) < bytes) {
        bytes = share_of(space);
    }
    const uint64_t file = limit_of(RLIMIT_FSIZE);
    if (file != RLIM_INFINITY && file < bytes) {
        bytes = file;
        ax_set.capacity_cut = AX_RAWLOG_CUT_LIMIT;
    }
    if (ax_set.max_bytes && ax_set.max_bytes < bytes) {
        bytes = ax_set.max_bytes;
        ax_set.capacity_cut = AX_RAWLOG_CUT_MAX_BYTES;
    }
    return bytes & ~(uint64_t)(AX_RAWLOG_GRANULE - 1);
}

/* Joins the directory and the name of a log. */
static bool path_of(const char *name, char *path, size_t bytes)
{
    const size_t directory = strlen(ax_set.directory), rest = strlen(name);
    if (directory + rest + 2 > bytes) {
        return false;
    }
    memcpy(path, ax_set.directory, directory);
    path[directory] = '/';
    memcpy(path + directory + 1, name, rest + 1);
    return true;
}

static char *decimal(char *to, uint64_t value)
{
    char digits[24];
    int n = 0;
    do {
        digits[n++] = (char)('0' + value % 10);
        value /= 10;
    } while (value);
    while (n) {
        *to++ = digits[--n];
    }
    return to;
}

/* Makes a new file; its name goes into the settings. A process id may have had logs before: of
 * images that it executed before this one, or of a process that is dead. */
static long make_file(void)
{
    char name[64], path[sizeof ax_set.directory + 64];
    for (unsigned k = 0;; k++) {
        char *to = name;
        memcpy(to, "pyallocx-", 9);
        to = decimal(to + 9, (uint64_t)AX_SYS0(SYS_getpid));
        *to++ = '-';
        to = decimal(to, k);
        memcpy(to, ".axlog", 7);
        if (!path_of(name, path, sizeof path)) {
            return -ENAMETOOLONG;
        }
        const long fd = open_file(path, O_RDWR | O_CREAT | O_EXCL);
        if (fd != -EEXIST) {
            if (!ax_sys_failed(fd)) {
                memset(ax_set.name, 0, sizeof ax_set.name);
                memcpy(ax_set.name, name, strlen(name));
            }
            return fd;
        }
    }
}

/* Room in the file that is there whatever becomes of the disk, without a mapping. */
static long reserve(long fd, uint64_t offset, uint64_t bytes)
{
    static const char zeroes[4096];
    const long answer = AX_SYS4(SYS_fallocate, fd, 0, offset, bytes);
    if (answer != -EOPNOTSUPP) {
        return answer;
    }
    if (limit_of(RLIMIT_FSIZE) < offset + bytes) {
        return -EFBIG; /* writing there would be answered by a signal */
    }
    for (uint64_t done = 0; done < bytes;) {
        const uint64_t rest = bytes - done < sizeof zeroes ? bytes - done : sizeof zeroes;
        const long wrote = AX_SYS4(SYS_pwrite64, fd, zeroes, rest, offset + done);
        if (ax_sys_failed(wrote) && wrote != -EINTR) {
            return wrote;
        }
        done += wrote > 0 ? (uint64_t)wrote : 0;
    }
    return 0;
}

/* -EINVAL: a kernel before 5.14. */
static long populate_pages(void *at, uint64_t bytes)
{
    long answer;
    do {
        answer = ax_set.by_faults ? -EINVAL : AX_SYS3(SYS_madvise, at, bytes, MADV_POPULATE_WRITE);
    } while (answer == -EINTR || answer == -EAGAIN);
    return answer;
}

/* Room for the header, before anything depends on it: a child has its parent's mapping yet. */
static long reserve_header(long fd)
{
    const long at = AX_SYS6(SYS_mmap, 0, HEADER_PAGES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (ax_sys_failed(at)) {
        return at;
    }
    long answer = populate_pages((void *)at, HEADER_PAGES);
    AX_SYS2(SYS_munmap, at, HEADER_PAGES);
    if (answer == -EINVAL) {
        answer = reserve(fd, 0, HEADER_PAGES);
    }
    return answer;
}

/* The mapping of a file, as large as it can be had. In a child it takes the place of its parent's.
 */
static long map_file(long fd)
{
    uint64_t bytes = wanted_bytes();
    if ((bytes < FEWEST_BYTES && !ax_set.max_bytes) ||
        limit_of(RLIMIT_FSIZE) < AX_RAWLOG_HEADER_BYTES) {
        return -EFBIG;
    }
    if (bytes < AX_RAWLOG_HEADER_BYTES) {
        bytes = AX_RAWLOG_HEADER_BYTES;
    }
    ax_rawlog_header *old = ax_set.header;
    if (old && bytes > ax_set.mapped_bytes) {
        bytes = ax_set.mapped_bytes;
    }
    long answer = AX_SYS2(SYS_ftruncate, fd, AX_RAWLOG_HEADER_BYTES);
    if (!ax_sys_failed(answer)) {
        answer = reserve_header(fd);
    }
    if (ax_sys_failed(answer)) {
        return answer;
    }
    for (; bytes >= AX_RAWLOG_HEADER_BYTES;
         bytes = bytes / 2 & ~(uint64_t)(AX_RAWLOG_GRANULE - 1)) {
        answer = AX_SYS2(SYS_ftruncate, fd, bytes);
        if (!ax_sys_failed(answer)) {
            answer = AX_SYS6(SYS_mmap, old, bytes, PROT_READ | PROT_WRITE,
                             MAP_SHARED | MAP_NORESERVE | (old ? MAP_FIXED : 0), fd, 0);
        }
        if (!ax_sys_failed(answer)) {
            ax_set.header = (ax_rawlog_header *)answer;
            ax_set.capacity = bytes;
            /* Once its name is gone, a file in memory would be part of a core dump. */
            AX_SYS3(SYS_madvise, answer, bytes, MADV_DONTDUMP);
            if (!old) {
                ax_set.mapped_bytes = bytes;
            }
            return 0;
        }
        /* Longer than this file system can, or more than there are addresses. */
        ax_set.capacity_cut = AX_RAWLOG_CUT_OTHER;
    }
    return answer;
}

/* Makes pages of the log that can be written to whatever becomes of the disk. */
long ax_populate(uint64_t offset, uint64_t bytes)
{
    long answer = populate_pages((unsigned char *)ax_set.header + offset, bytes);
    if (answer != -EINVAL) {
        return answer;
    }
    /* The file is opened again, if it is still the same under its name. */
    ax_set.by_faults = 1;
    char path[sizeof ax_set.directory + sizeof ax_set.name];
    if (!path_of(ax_set.name, path, sizeof path)) {
        return -ENAMETOOLONG;
    }
    const long fd = open_file(path, O_RDWR);
    if (ax_sys_failed(fd)) {
        return fd;
    }
    struct stat now;
    if (ax_sys_failed(AX_SYS2(SYS_fstat, fd, &now)) || now.st_dev != ax_set.device ||
        now.st_ino != ax_set.inode) {
        answer = -ENOENT;
    } else {
        answer = reserve(fd, offset, bytes);
    }
    AX_SYS1(SYS_close, fd);
    return answer;
}

static void describe(uint64_t fork_stamp, const char *parent)
{
    ax_rawlog_header *header = ax_set.header;
    char link[AX_RAWLOG_EXE_BYTES] = "";
    static char command[AX_RAWLOG_COMMAND_BYTES];
    const long n = AX_SYS4(SYS_readlinkat, AT_FDCWD, "/proc/self/exe", link, sizeof link - 1);
    header->command_bytes = (uint32_t)read_file("/proc/self/cmdline", command, sizeof command);
    memcpy(header->command, command, header->command_bytes);
    memcpy(header->exe, link, n > 0 ? (size_t)n : 0);
    header->version = AX_RAWLOG_VERSION;
    header->header_bytes = AX_RAWLOG_HEADER_BYTES;
    header->flags = ax_set.flags & (AX_RAWLOG_SITES | AX_RAWLOG_MAPS | AX_RAWLOG_USABLE);
    header->clock = ax_set.clock;
    header->pid = (uint32_t)AX_SYS0(SYS_getpid);
    header->ppid = (uint32_t)AX_SYS0(SYS_getppid);
    header->start_realtime_ns = ax_clock_ns(CLOCK_REALTIME);
    header->next = AX_RAWLOG_HEADER_BYTES;
    header->own_malloc = ax_own_malloc();
    pair_of_clocks(&header->stamp0, &header->mono0_ns);
    if (parent) {
        header->flags |= AX_RAWLOG_FORKED;
        header->fork_stamp = fork_stamp ? fork_stamp : header->stamp0;
        memcpy(header->parent_file, parent, sizeof header->parent_file);
    }
    AX_BARRIER();
    header->magic = AX_RAWLOG_MAGIC;
}

/* A log of this process's own. */
static bool make_log(const char *parent)
{
    const long fd = make_file();
    if (ax_sys_failed(fd)) {
        return false;
    }
    struct stat made;
    long answer = AX_SYS2(SYS_fstat, fd, &made);
    if (!ax_sys_failed(answer)) {
        ax_set.device = made.st_dev;
        ax_set.inode = made.st_ino;
        answer = map_file(fd);
    }
    if (!ax_sys_failed(answer)) {
        answer = ax_populate(0, HEADER_PAGES);
        if (ax_sys_failed(answer)) {
            ax_set.header = NULL; /* not even to be read */
        }
    }
    if (answer == -EFAULT || answer == -ENOSPC || answer == -EDQUOT) {
        AX_SYS2(SYS_ftruncate, fd, 0); /* which tells why there is no log */
    } else if (ax_sys_failed(answer)) {
        char path[sizeof ax_set.directory + sizeof ax_set.name];
        if (path_of(ax_set.name, path, sizeof path)) {
            AX_SYS3(SYS_unlinkat, AT_FDCWD, path, 0);
        }
    }
    AX_SYS1(SYS_close, fd);
    if (ax_sys_failed(answer)) {
        return false;
    }
    describe(ax_self.fork_stamp, parent);
    return true;
}

/* In a child whose own log could not be made, the header is still its parent's. */
void ax_give_up(void)
{
    if (ax_set.header && !ax_set.off) {
        __atomic_fetch_add(&ax_set.header->children_not_recorded, 1, __ATOMIC_RELAXED);
    }
    ax_set.off = 1;
}

static void read_settings(void)
{
    const char *directory = setting("PYALLOCX_RECORD_DIR");
    const uint64_t parent = number_setting("PYALLOCX_RECORD_PARENT");
    const size_t length = strlen(directory);
    ax_set.flags = (uint32_t)number_setting("PYALLOCX_RECORD_FLAGS");
    ax_set.max_bytes = number_setting("PYALLOCX_RECORD_MAX_BYTES");
    ax_set.follow = parent == 0;
    if (directory[0] != '/' || length >= sizeof ax_set.directory ||
        (parent && (uint64_t)AX_SYS0(SYS_getppid) != parent)) {
        ax_set.off = 1;
        return;
    }
    memcpy(ax_set.directory, directory, length + 1);
    ax_set.clock = choose_clock();
}

static void before_fork(void)
{
    ax_self.fork_stamp = ax_mode & AX_MODE_ENDED ? 0 : ax_stamp();
}

static void forget_fork(void)
{
    ax_self.fork_stamp = 0;
}

/* Where the kernel cannot (before 4.14), and then not for a raw clone. */
static void wipe(void)
{
    unsigned char *from = (unsigned char *)ax_all, *to = (unsigned char *)ax_all->cursors;
    memset(from, 0, (size_t)(to - from));
}

/* A cursor for each window that there can be: of the smallest, where the log is small. */
static uint64_t cursor_bytes(uint64_t log_bytes)
{
    return (log_bytes / AX_RAWLOG_GRANULE * sizeof(ax_cursor) + 65536) & ~UINT64_C(4095);
}

static bool share(void)
{
    const uint64_t space = limit_of(RLIMIT_AS);
    const uint64_t bytes = cursor_bytes(
        space == RLIM_INFINITY || share_of(space) > MOST_BYTES ? MOST_BYTES / 16 : share_of(space));
    const long at = AX_SYS6(SYS_mmap, 0, bytes, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (ax_sys_failed(at)) {
        return false;
    }
    const bool by_hand = ax_sys_failed(AX_SYS3(SYS_madvise, at, bytes, MADV_WIPEONFORK));
    ax_all = (ax_shared *)at;
    ax_set.shared_bytes = bytes;
    pthread_atfork(before_fork, forget_fork, by_hand ? wipe : NULL);
    return true;
}

/* Puts memory that is nobody's in place of the file, up to where the log is used: somebody may be
 * in the middle of a record. First elsewhere, so that a refusal leaves everything as it is. */
static void leave_file(uint64_t used)
{
    const uint64_t mapped = ax_set.mapped_bytes;
    used = used < mapped ? used : mapped;
    const long at = AX_SYS6(SYS_mmap, 0, used, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (ax_sys_failed(at)) {
        return;
    }
    if (ax_sys_failed(
            AX_SYS6(SYS_mremap, at, used, used, MREMAP_MAYMOVE | MREMAP_FIXED, ax_set.header, 0))) {
        AX_SYS2(SYS_munmap, at, used);
    } else if (used < mapped) {
        AX_SYS2(SYS_munmap, (unsigned char *)ax_set.header + used, mapped - used);
        ax_set.mapped_bytes = used;
    }
}

/* A child that gets no log is not to keep its parent's on the disk. */
static void leave_parents_file(void)
{
    if (ax_set.header) {
        leave_file(__atomic_load_n(&ax_set.header->next, __ATOMIC_SEQ_CST));
    }
}

/* The first event of a process image, or of a forked child: with signals blocked. The first in an
 * image comes before there are threads; children begin with one. */
void ax_start(void)
{
    const int error = errno;
    const bool child = ax_set.known != 0;
    char parent[AX_RAWLOG_PARENT_FILE_BYTES];
    ax_self.starting = 1;
    if (!child) {
        ax_resolve();
        read_settings();
        ax_set.known = 1;
        if (ax_set.off) {
            goto out;
        }
        if (!share()) {
            ax_set.off = 1;
            goto out;
        }
        ax_make_key();
    } else if (ax_set.off || !ax_set.follow || ax_set.stop ||
               (ax_set.header && __atomic_load_n(&ax_set.header->stop, __ATOMIC_RELAXED))) {
        ax_set.off = 1;
        leave_parents_file();
        goto out;
    }
    memcpy(parent, ax_set.name, sizeof parent);
    ax_lock();
    if (!ax_all->alive) {
        ax_all->cursors = (ax_cursor *)(ax_all + 1);
        ax_all->cursors_end = ax_all->cursors + (ax_set.shared_bytes / sizeof(ax_cursor) - 8);
        if (make_log(child ? parent : NULL)) {
            ax_all->alive = 1;
        } else {
            ax_give_up();
            leave_parents_file();
        }
    }
    ax_unlock();
    if (!child && !ax_set.off) {
        uint32_t mode = ax_mode & AX_MODE_FOREIGN;
        mode |= ax_set.clock == AX_RAWLOG_MONOTONIC ? AX_MODE_MONOTONIC : 0;
        mode |= ax_set.flags & AX_RAWLOG_SITES ? AX_MODE_SITES : 0;
        ax_mode = mode;
    }
    if (!ax_set.off) {
        ax_write_maps();
    }
out:
    ax_self.fork_stamp = 0;
    ax_self.starting = 0;
    errno = error;
}

/* What is where in the address space, for names of call sites. */
void ax_write_maps(void)
{
    if (!(ax_set.flags & AX_RAWLOG_SITES) || ax_set.sealed || ax_all->stopped) {
        return;
    }
    char piece[4096];
    uint64_t bytes = AX_RAWLOG_WINDOW_HEADER_BYTES + 4096;
    const long fd = open_file("/proc/self/maps", O_RDONLY);
    if (ax_sys_failed(fd)) {
        return;
    }
    for (long got; (got = AX_SYS3(SYS_read, fd, piece, sizeof piece)) > 0;) {
        bytes += (uint64_t)got;
    }
    AX_SYS1(SYS_close, fd);
    bytes = (bytes + AX_RAWLOG_GRANULE - 1) & ~(uint64_t)(AX_RAWLOG_GRANULE - 1);
    ax_rawlog_window *window = ax_take_window(&bytes, 0, AX_RAWLOG_MAPS_MAGIC);
    if (window) {
        read_file("/proc/self/maps", (char *)(window + 1), bytes - sizeof *window);
    }
    ax_let_go();
}

/* A vfork shares our memory, so it may not be our own end. */
void ax_end(uint32_t how)
{
    ax_rawlog_header *header = ax_set.header;
    if (ax_set.off || !ax_all || !ax_all->alive || !header) {
        return;
    }
    if (ax_set.sealed) {
        header->ended = how;
        return;
    }
    if ((uint32_t)AX_SYS0(SYS_getpid) != header->pid) {
        return;
    }
    if (how != AX_RAWLOG_RUNNING && header->ended == AX_RAWLOG_RUNNING) {
        const uint64_t signals = ax_block_signals();
        if (!(ax_mode & AX_MODE_ENDED)) {
            pair_of_clocks(&header->stamp1, &header->mono1_ns);
        }
        ax_write_maps();
        ax_unblock_signals(signals);
    }
    header->ended = how;
}

/* The program limits its address space: it shall not notice ours in it. */
void ax_shrink(uint64_t address_space)
{
    if (ax_set.off || !ax_all || !ax_all->alive || ax_set.sealed ||
        (uint32_t)AX_SYS0(SYS_getpid) != ax_set.header->pid) {
        return;
    }
    const uint64_t signals = ax_block_signals();
    ax_lock();
    if (ax_all->let_go) {
        goto out;
    }
    const uint64_t next = __atomic_load_n(&ax_set.header->next, __ATOMIC_SEQ_CST);
    const uint64_t granule = AX_RAWLOG_GRANULE;
    const uint64_t keep = (next + share_of(address_space) + granule - 1) & ~(granule - 1);
    if (keep < ax_set.capacity) {
        __atomic_store_n(&ax_set.capacity, keep, __ATOMIC_SEQ_CST);
        ax_set.capacity_cut = AX_RAWLOG_CUT_OTHER;
    }
    if (keep < ax_set.mapped_bytes) {
        /* A window beyond that was taken in this moment: let it be, for once. */
        if (__atomic_load_n(&ax_set.header->next, __ATOMIC_SEQ_CST) <= keep) {
            AX_SYS2(SYS_munmap, (unsigned char *)ax_set.header + keep, ax_set.mapped_bytes - keep);
            ax_set.mapped_bytes = keep;
        }
    }
    unsigned char *used = (unsigned char *)ax_all->cursors;
    const uint64_t cursors = ((uint64_t)(used - (unsigned char *)ax_all) + 4095) & ~UINT64_C(4095);
    const uint64_t rest = cursors + cursor_bytes(share_of(address_space));
    if (rest < ax_set.shared_bytes) {
        ax_all->cursors_end = (ax_cursor *)(void *)((unsigned char *)ax_all + rest) - 1;
        AX_SYS2(SYS_munmap, (unsigned char *)ax_all + rest, ax_set.shared_bytes - rest);
        ax_set.shared_bytes = rest;
    }
out:
    ax_unlock();
    ax_unblock_signals(signals);
}

/* Nobody wants the log any more, but it takes room on the disk as long as it is mapped. Threads may
 * write in their windows yet: they go on in memory that is nobody's, until these are full. */
void ax_let_go(void)
{
    if (AX_LIKELY(!__atomic_load_n(&ax_set.stop, __ATOMIC_SEQ_CST)) || ax_set.sealed) {
        return;
    }
    ax_lock();
    if (!ax_all->let_go) {
        ax_all->let_go = 1;
        /* Whoever is about to take a window finds either of these. */
        __atomic_store_n(&ax_set.capacity, 0, __ATOMIC_SEQ_CST);
        const uint64_t used =
            __atomic_exchange_n(&ax_set.header->next, UINT64_C(1) << 62, __ATOMIC_SEQ_CST);
        leave_file(used);
    }
    ax_unlock();
}

__attribute__((constructor)) static void begin(void)
{
    if (!ax_set.known) {
        const uint64_t signals = ax_block_signals();
        ax_start();
        ax_unblock_signals(signals);
    }
}

__attribute__((destructor)) static void finish(void)
{
    ax_end(AX_RAWLOG_EXIT);
}
