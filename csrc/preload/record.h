/* record: writes down what a program asks of malloc, from inside of it (LD_PRELOAD).
 *
 *     record.c          malloc and its family
 *     record_new.c      operator new and delete
 *     record_process.c  what ends or changes a process: fork, exec, exit, seccomp, limits; mmap
 *     record_real.c     the functions that ours stand in front of
 *     record_log.c      windows, threads, everything off the hot path
 *     record_file.c     the log file: made once, mapped once; what it says of the process
 *     rawlog.h          what is in the file
 *
 *     thread-local           memory that a fork zeroes           mapping of the log file
 *     self.cursor ---------> | ready pos limit last window | --> | window | records ...   |
 *                            | (another cursor)            |
 *
 * An event on the hot path: clear `ready`, write the record at `pos`, move `pos`, set `ready`
 * again. No lock, no system call. What can interrupt it:
 *
 * - A signal handler that allocates. It finds `ready` 0 and a `limit`, and goes on in a window of
 * its own with another cursor, which is the thread's from then on; what was interrupted finishes
 * its record in the old one, whose events are all older. So it also does not matter whether it is
 * ever finished (a handler may longjmp).
 * - A fork, in a library or by a raw system call. The child finds zeroes and makes a log of its
 * own. Locks are in that memory too, so none is ever held in a child. A vfork shares all.
 * - The end, at any instruction: records are in the file's pages, not in a buffer.
 */
#ifndef AX_RECORD_H
#define AX_RECORD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "rawlog.h"
#include "record_sys.h"

#define AX_EXPORT __attribute__((visibility("default")))
#define AX_LIKELY(x) __builtin_expect(!!(x), 1)
#define AX_UNLIKELY(x) __builtin_expect(!!(x), 0)
#define AX_CALLER ((uintptr_t)__builtin_return_address(0))
/* After a call, so that it is one and not a jump: its callee sees us as the caller. */
#define AX_STAY() __asm__ volatile("" ::: "memory")
/* Between instructions of one thread, which is all that a signal handler can see. */
#define AX_BARRIER() __atomic_signal_fence(__ATOMIC_SEQ_CST)

/* Where a thread writes. In memory that is zero after a fork. */
typedef struct ax_cursor {
    uint32_t ready;  /* 0: a record is being written, the window is full, or there is none */
    uint32_t thread; /* the thread's number */
    uint64_t *pos;
    uint64_t *limit; /* NULL: no window */
    uint64_t last;   /* stamp of the last record */
    ax_rawlog_window *window;
    struct ax_cursor *next; /* in the list of those whose threads are dead */
    uint64_t fill[2];
} ax_cursor;

/* What all threads share, in memory that is zero after a fork. */
typedef struct ax_shared {
    uint32_t alive;       /* this process has a log, or was found to get none */
    uint32_t stopped;     /* atomic: no window is taken any more */
    uint32_t lock;        /* atomic */
    uint32_t let_go;      /* under the lock: of the file */
    ax_cursor late;       /* under the lock: of threads that have given back their window */
    ax_cursor *abandoned; /* under the lock: of dead threads */
    ax_cursor *cursors;   /* under the lock: the first one unused */
    ax_cursor *cursors_end;
} ax_shared;

typedef struct ax_thread {
    ax_cursor *cursor;
    uint32_t number;
    uint32_t rounds;     /* of key destructors that have run; AX_DEAD: the window is given back */
    uint32_t starting;   /* inside of ax_start */
    uint32_t refused;    /* events from there */
    uint64_t fork_stamp; /* set while fork runs */
    uintptr_t new_site;  /* with SITES: the caller of operator new, while that runs */
} ax_thread;

#define AX_NEW_RECORDED ((uintptr_t)1) /* and it has called malloc */

#define AX_DEAD 99u

enum ax_mode {
    AX_MODE_FENCE = 1, /* there was a second thread: stamps wait for what was before them */
    /* Everything above goes the long way. */
    AX_MODE_SITES = 2,
    AX_MODE_FOREIGN = 4, /* the allocator is a library of its own and may call back */
    AX_MODE_MONOTONIC = 8,
    AX_MODE_ENDED = 16 /* not even the clock may be read any more; events are lost */
};

/* What the recorder was told, what it found; kept over forks. */
typedef struct ax_settings {
    uint32_t known; /* the environment was read */
    uint32_t off;   /* not to be recorded */
    uint32_t flags;
    uint32_t follow; /* forked children too */
    uint32_t sealed; /* no system calls any more */
    uint32_t stop;   /* atomic: somebody has said so in the log, which is wanted no longer */
    uint64_t max_bytes;
    ax_rawlog_header *header; /* the mapping of the log; NULL: none */
    uint64_t mapped_bytes;
    uint64_t capacity; /* of the file, at most mapped_bytes */
    uint32_t capacity_cut;
    char directory[4096];
    char name[AX_RAWLOG_PARENT_FILE_BYTES];
    uint64_t device, inode;
    uint64_t shared_bytes;
    uint32_t clock;
    uint32_t by_faults; /* the kernel cannot populate */
} ax_settings;

typedef struct ax_event {
    uint64_t kind; /* with FAILED */
    uint64_t address;
    uint64_t size;
    uint64_t align;
    uint64_t extra[2];
    unsigned extras;
    uintptr_t caller;
} ax_event;

#pragma GCC visibility push(hidden)

extern __thread ax_thread ax_self;
extern uint32_t ax_mode;
extern ax_settings ax_set;
extern ax_shared *ax_all;
extern ax_cursor ax_nobody;

/* record_log.c */
void ax_record(const ax_event *event);
void ax_count_free_of_null(void);
uint64_t ax_stamp(void);
void ax_lock(void);
void ax_unlock(void);
void ax_stop(uint32_t cut, uint64_t stamp);
void ax_make_key(void);
ax_rawlog_window *ax_take_window(uint64_t *bytes, uint32_t thread, uint64_t magic);

/* record_file.c */
void ax_start(void);       /* a process that has no log yet; signals blocked */
void ax_give_up(void);     /* this process is not recorded, though it should be */
void ax_end(uint32_t how); /* enum ax_rawlog_ended, or RUNNING where it did not end after all */
void ax_write_maps(void);
long ax_populate(uint64_t offset, uint64_t bytes); /* 0, or a negated errno */
void ax_shrink(uint64_t address_space);            /* the program limits its own */
void ax_let_go(void); /* of the file, after `stop`; signals blocked, without the lock */

/* record_real.c */
typedef struct ax_real_functions {
    void *(*malloc)(size_t);
    void *(*calloc)(size_t, size_t);
    void *(*realloc)(void *, size_t);
    void (*free)(void *);
    int (*posix_memalign)(void **, size_t, size_t);
    void *(*aligned_alloc)(size_t, size_t);
    void *(*memalign)(size_t, size_t);
    void *(*valloc)(size_t);
    void *(*pvalloc)(size_t);
    size_t (*malloc_usable_size)(void *);
} ax_real_functions;

extern ax_real_functions ax_real;
extern uintptr_t ax_allocator_low, ax_allocator_high; /* FOREIGN: where that library is */
extern uintptr_t ax_our_low, ax_our_high;             /* where this library is */
extern uint32_t ax_resolving;
extern unsigned char ax_early[]; /* memory from before the real functions were known */
#define AX_EARLY_BYTES 65536u

void ax_resolve(void);
bool ax_own_malloc(void);        /* the program has a malloc of its own */
void *ax_next(const char *name); /* NULL: there is none */
void ax_object_range(const void *address, uintptr_t *low, uintptr_t *high);

#pragma GCC visibility pop

static inline bool ax_is_early(const void *address)
{
    return (uintptr_t)address - (uintptr_t)ax_early < AX_EARLY_BYTES;
}

/* An allocator that works by calling itself through its public names. Where it ends in a jump to
 * one of them, the caller is whoever called it, which is a function of ours. */
static inline bool ax_called_back(uintptr_t caller)
{
    return ax_mode & AX_MODE_FOREIGN &&
           (caller - ax_allocator_low < ax_allocator_high - ax_allocator_low ||
            caller - ax_our_low < ax_our_high - ax_our_low);
}

/* The hot path. False: it is an event for ax_record. */
static inline __attribute__((always_inline)) bool ax_quick(uint64_t kind, const void *address,
                                                           uint64_t size)
{
    ax_cursor *cursor = ax_self.cursor;
    const uint32_t mode = ax_mode;
    if (AX_UNLIKELY(mode > AX_MODE_FENCE || !cursor->ready)) {
        return false;
    }
    /* With threads, not before the instructions that came before: an allocation's stamp would be
     * before another thread's free of the memory, or a free's before the allocation that the
     * pointer comes from. */
    const uint64_t now = mode ? ax_counter_fenced() : ax_counter();
    cursor->ready = 0;
    AX_BARRIER();
    /* The position before the limit: a fork in between leaves a limit of 0. */
    uint64_t *pos = cursor->pos;
    AX_BARRIER();
    const uint64_t dt = now - cursor->last;
    /* NULL and what has more than 48 bits; a dt or size of more than 32. */
    const uint64_t misfit = (dt | size) >> 32 | ((uintptr_t)address - 1) >> 48;
    if (AX_UNLIKELY(pos + AX_RAWLOG_WORDS > cursor->limit || misfit)) {
        AX_BARRIER();
        cursor->ready = 1;
        return false;
    }
    cursor->last = now;
    pos[1] = dt | size << 32;
    AX_BARRIER();
    pos[0] = kind | (uintptr_t)address << AX_RAWLOG_ADDRESS_SHIFT;
    cursor->pos = pos + AX_RAWLOG_WORDS;
    AX_BARRIER();
    cursor->ready = 1;
    return true;
}

#endif
