/* What is off the hot path: a thread's first event and its last, a full window, records of unusual
 * form, and the end of the log before the end of the program. */
#define _GNU_SOURCE
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <sys/mman.h>

#include "record.h"

#ifndef PTHREAD_DESTRUCTOR_ITERATIONS
#define PTHREAD_DESTRUCTOR_ITERATIONS 4
#endif

/* Small at first, since a program may have thousands of threads. */
#define FIRST_WINDOW_BYTES 65536u
#define THREAD_WINDOW_BYTES 16384u
#define LARGEST_WINDOW_BYTES 262144u
#define LONGEST_RECORD (AX_RAWLOG_WIDE_WORDS + 3)

ax_cursor ax_nobody;
__thread ax_thread ax_self = {.cursor = &ax_nobody};
uint32_t ax_mode = AX_MODE_MONOTONIC; /* until the clock is known */
ax_settings ax_set;
ax_shared *ax_all;

static pthread_key_t key;
static bool have_key;

uint64_t ax_stamp(void)
{
    if (AX_UNLIKELY(ax_set.clock == AX_RAWLOG_MONOTONIC)) {
        return ax_clock_ns(CLOCK_MONOTONIC);
    }
    return ax_counter_fenced();
}

/* Held for a few instructions, by threads whose signals are blocked. */
void ax_lock(void)
{
    for (unsigned tries = 0; __atomic_exchange_n(&ax_all->lock, 1, __ATOMIC_ACQUIRE); tries++) {
        if (tries < 100) {
            AX_SYS0(SYS_sched_yield);
        } else {
            /* Whoever holds it may have a lower priority, and yielding is for equals. */
            const struct timespec a_while = {0, 50000};
            AX_SYS2(SYS_nanosleep, &a_while, 0);
        }
    }
}

void ax_unlock(void)
{
    __atomic_store_n(&ax_all->lock, 0, __ATOMIC_RELEASE);
}

/* No window is taken any more; the stamp is that of an event that is lost. Whoever finds `stopped`
 * set takes its stamp after that, so the smallest stamp is that of one of those who set it. */
void ax_stop(uint32_t cut, uint64_t stamp)
{
    ax_rawlog_header *header = ax_set.header;
    uint64_t known = __atomic_load_n(&header->cut_stamp, __ATOMIC_RELAXED);
    while ((known == 0 || stamp < known) &&
           !__atomic_compare_exchange_n(&header->cut_stamp, &known, stamp, false, __ATOMIC_SEQ_CST,
                                        __ATOMIC_RELAXED)) {
    }
    uint32_t whole = AX_RAWLOG_WHOLE;
    __atomic_compare_exchange_n(&header->cut, &whole, cut, false, __ATOMIC_SEQ_CST,
                                __ATOMIC_RELAXED);
    __atomic_store_n(&ax_all->stopped, 1, __ATOMIC_SEQ_CST);
}

static void count_lost(const ax_cursor *cursor)
{
    if (cursor->window) {
        __atomic_fetch_add(&cursor->window->lost, 1, __ATOMIC_RELAXED);
    } else if (ax_set.header) {
        __atomic_fetch_add(&ax_set.header->lost, 1, __ATOMIC_RELAXED);
    }
}

static uint32_t cut_by(long error)
{
    switch (-error) {
    case EFAULT: /* of populating: there would have been a SIGBUS */
    case ENOSPC:
    case EDQUOT:
        return AX_RAWLOG_CUT_DISK;
    case EFBIG:
        return AX_RAWLOG_CUT_LIMIT;
    default:
        return AX_RAWLOG_CUT_OTHER;
    }
}

/* Signals blocked. The window may be smaller than wanted. NULL: the log has ended, and says why.
 * What is in the file is not looked at again: others may write there, too. */
ax_rawlog_window *ax_take_window(uint64_t *wanted, uint32_t thread, uint64_t magic)
{
    ax_rawlog_header *header = ax_set.header;
    uint64_t bytes = *wanted;
    if (AX_UNLIKELY(__atomic_load_n(&header->stop, __ATOMIC_RELAXED))) {
        __atomic_store_n(&ax_set.stop, 1, __ATOMIC_SEQ_CST);
        ax_stop(AX_RAWLOG_CUT_OTHER, ax_stamp());
        return NULL;
    }
    uint64_t offset = __atomic_load_n(&header->next, __ATOMIC_RELAXED);
    do {
        const uint64_t capacity = __atomic_load_n(&ax_set.capacity, __ATOMIC_RELAXED);
        const uint64_t room = offset < capacity ? capacity - offset : 0;
        if (bytes > room && magic == AX_RAWLOG_WINDOW_MAGIC) {
            bytes = AX_RAWLOG_GRANULE;
        }
        if (bytes > room) {
            if (magic == AX_RAWLOG_WINDOW_MAGIC) {
                ax_stop(ax_set.capacity_cut, ax_stamp());
            }
            return NULL;
        }
    } while (!__atomic_compare_exchange_n(&header->next, &offset, offset + bytes, true,
                                          __ATOMIC_SEQ_CST, __ATOMIC_RELAXED));
    const uint64_t stamp = ax_stamp();
    const uint64_t mono_ns = ax_clock_ns(CLOCK_MONOTONIC);
    const long error = ax_populate(offset, bytes);
    if (error) {
        if (magic == AX_RAWLOG_WINDOW_MAGIC) {
            ax_stop(cut_by(error), stamp);
        }
        return NULL;
    }
    *wanted = bytes;
    ax_rawlog_window *window = (ax_rawlog_window *)(void *)((unsigned char *)header + offset);
    window->bytes = (uint32_t)bytes;
    window->thread = thread;
    window->base_stamp = stamp;
    window->mono_ns = mono_ns;
    AX_BARRIER();
    window->magic = magic;
    if (thread == 0) {
        /* The last pair of a program that is killed; by one thread, so that it is one pair. */
        header->stamp1 = stamp;
        header->mono1_ns = mono_ns;
    }
    return window;
}

/* Writes a record that fits; returns where the next one begins. */
static uint64_t *put(uint64_t *pos, const ax_event *event, uint64_t dt, uint64_t stamp)
{
    const unsigned log2 = event->align ? (unsigned)__builtin_ctzll(event->align) : 0;
    const bool odd = event->align && event->align != UINT64_C(1) << log2;
    const bool refused = !event->align && (event->kind & AX_RAWLOG_KIND_MASK) != 0 &&
                         (event->kind & AX_RAWLOG_KIND_MASK) >= AX_RAWLOG_POSIX_MEMALIGN &&
                         (event->kind & AX_RAWLOG_KIND_MASK) <= AX_RAWLOG_MEMALIGN;
    const bool wide = (dt | event->size) >> 32 || event->address >> 48 || odd || refused;
    uint64_t *end = pos + (wide ? AX_RAWLOG_WIDE_WORDS : AX_RAWLOG_WORDS);
    uint64_t word0 = event->kind;
    if (wide) {
        word0 |= AX_RAWLOG_WIDE;
        pos[1] = event->align;
        pos[2] = stamp;
        pos[3] = event->size;
        pos[4] = event->address;
    } else {
        word0 |= (uint64_t)log2 << AX_RAWLOG_ALIGN_SHIFT;
        word0 |= event->address << AX_RAWLOG_ADDRESS_SHIFT;
        pos[1] = dt | event->size << 32;
    }
    for (unsigned k = 0; k < event->extras; k++) {
        *end++ = event->extra[k];
    }
    const uint64_t kind = event->kind & AX_RAWLOG_KIND_MASK;
    if (ax_set.flags & AX_RAWLOG_SITES &&
        ((kind >= AX_RAWLOG_MALLOC && kind <= AX_RAWLOG_LAST_SITE) ||
         kind == AX_RAWLOG_REALLOC_END)) {
        *end++ = event->caller;
    }
    AX_BARRIER();
    pos[0] = word0;
    return end;
}

static uint64_t *put_thread(uint64_t *pos, uint32_t number)
{
    const ax_event event = {
        .kind = AX_RAWLOG_THREAD, .address = number, .size = (uint64_t)AX_SYS0(SYS_gettid)};
    return put(pos, &event, 0, 0);
}

static void open_window(ax_cursor *cursor, ax_rawlog_window *window, uint64_t bytes,
                        uint32_t thread)
{
    cursor->thread = thread;
    cursor->window = window;
    cursor->pos = (uint64_t *)(void *)(window + 1);
    cursor->last = window->base_stamp;
    cursor->limit = (uint64_t *)(void *)((unsigned char *)window + bytes);
}

static ax_cursor *new_cursor(void)
{
    ax_lock();
    ax_cursor *cursor = ax_all->cursors;
    if (cursor < ax_all->cursors_end) {
        ax_all->cursors++;
    } else {
        cursor = NULL;
    }
    ax_unlock();
    if (!cursor) {
        ax_stop(AX_RAWLOG_CUT_OTHER, ax_stamp());
    }
    return cursor;
}

/* The thread's first cursor: the rest of a dead thread's window, or a new one. */
static ax_cursor *first_cursor(void)
{
    const uint32_t number = __atomic_fetch_add(&ax_set.header->threads, 1, __ATOMIC_SEQ_CST);
    ax_self.number = number;
    if (number > 0) {
        /* Before any of this thread's frees can be seen by another. */
        __atomic_fetch_or(&ax_mode, AX_MODE_FENCE, __ATOMIC_SEQ_CST);
    }
    ax_lock();
    ax_cursor *cursor = ax_all->abandoned;
    if (cursor) {
        ax_all->abandoned = cursor->next;
    }
    ax_unlock();
    if (!cursor) {
        uint64_t bytes = number ? THREAD_WINDOW_BYTES : FIRST_WINDOW_BYTES;
        ax_rawlog_window *window = ax_take_window(&bytes, number, AX_RAWLOG_WINDOW_MAGIC);
        cursor = window ? new_cursor() : NULL;
        if (!cursor) {
            return NULL;
        }
        open_window(cursor, window, bytes, number);
    }
    cursor->thread = number;
    cursor->pos = put_thread(cursor->pos, number);
    return cursor;
}

/* A full window's successor; also that of one whose record a signal handler has interrupted. */
static ax_cursor *next_cursor(const ax_cursor *old)
{
    const bool full = old->limit - old->pos < LONGEST_RECORD;
    const uint64_t had = (uint64_t)((unsigned char *)old->limit - (unsigned char *)old->window);
    uint64_t bytes = had * 2;
    if (bytes > LARGEST_WINDOW_BYTES) {
        bytes = LARGEST_WINDOW_BYTES;
    }
    if (!full) {
        bytes = AX_RAWLOG_GRANULE; /* for a signal handler */
    }
    ax_rawlog_window *window = ax_take_window(&bytes, old->thread, AX_RAWLOG_WINDOW_MAGIC);
    ax_cursor *cursor = window ? new_cursor() : NULL;
    if (cursor) {
        open_window(cursor, window, bytes, old->thread);
        if (full) {
            /* Its pages are the file's; they need not count as the program's memory. */
            AX_SYS3(SYS_madvise, old->window, had, MADV_DONTNEED);
        }
    }
    return cursor;
}

/* Gives the thread a cursor that is ready. False: there is none to be had. */
static bool renew(void)
{
    const ax_cursor *old = ax_self.cursor;
    const bool alive = ax_all && ax_all->alive;
    if (ax_set.sealed) {
        if (!alive) {
            ax_give_up(); /* a child that may not open a file */
            return false;
        }
        if (!ax_all->stopped) {
            ax_stop(AX_RAWLOG_CUT_SECCOMP, ax_stamp());
        }
    }
    if (alive && ax_all->stopped) {
        count_lost(old);
        if (AX_UNLIKELY(__atomic_load_n(&ax_set.header->stop, __ATOMIC_RELAXED)) &&
            !ax_set.sealed && !ax_all->let_go) {
            const uint64_t blocked = ax_block_signals();
            __atomic_store_n(&ax_set.stop, 1, __ATOMIC_SEQ_CST);
            ax_let_go();
            ax_unblock_signals(blocked);
        }
        return false;
    }
    const int error = errno;
    const uint64_t signals = ax_block_signals();
    if (!alive) {
        ax_start();
    }
    ax_cursor *cursor = NULL;
    const bool first = old->limit == NULL;
    if (!ax_set.off && !ax_all->stopped) {
        cursor = first ? first_cursor() : next_cursor(old);
    }
    if (cursor) {
        cursor->ready = 1;
        ax_self.cursor = cursor;
        if (first && have_key) {
            ax_self.rounds = 0;
            pthread_setspecific(key, cursor);
        }
    } else if (!ax_set.off) {
        count_lost(old);
        ax_let_go();
    }
    ax_unblock_signals(signals);
    errno = error;
    return cursor != NULL;
}

/* Events of threads that have given back their window: few, so all share one, under the lock. */
static void record_late(const ax_event *event)
{
    if (ax_set.sealed || ax_all->stopped) {
        count_lost(&ax_all->late);
        return;
    }
    const uint64_t signals = ax_block_signals();
    ax_lock();
    ax_cursor *late = &ax_all->late;
    uint64_t *end = late->pos + AX_RAWLOG_WORDS + LONGEST_RECORD;
    if (late->limit == NULL || end > late->limit) {
        uint64_t bytes = AX_RAWLOG_GRANULE;
        ax_rawlog_window *window = ax_take_window(&bytes, ax_self.number, AX_RAWLOG_WINDOW_MAGIC);
        if (!window) {
            count_lost(late);
            goto out;
        }
        open_window(late, window, bytes, ax_self.number);
    }
    if (late->thread != ax_self.number) {
        late->pos = put_thread(late->pos, ax_self.number);
        late->thread = ax_self.number;
    }
    uint64_t stamp = ax_stamp();
    if (stamp < late->last) {
        stamp = late->last;
    }
    late->pos = put(late->pos, event, stamp - late->last, stamp);
    late->last = stamp;
out:
    ax_unlock();
    ax_let_go();
    ax_unblock_signals(signals);
}

void ax_record(const ax_event *event)
{
    if (AX_UNLIKELY(ax_set.off || ax_resolving || ax_self.starting)) {
        ax_self.refused += ax_self.starting;
        return;
    }
    /* An allocator that works by calling itself through its public names. Where it ends in a jump
     * to one of them, the caller is whoever called it, which is a function of ours. */
    if (ax_mode & AX_MODE_FOREIGN &&
        (event->caller - ax_allocator_low < ax_allocator_high - ax_allocator_low ||
         event->caller - ax_our_low < ax_our_high - ax_our_low)) {
        return;
    }
    if (AX_UNLIKELY(ax_mode & AX_MODE_ENDED)) {
        if (ax_all && ax_all->alive) {
            count_lost(ax_self.cursor);
        }
        return;
    }
    for (;;) {
        if (AX_UNLIKELY(ax_self.rounds == AX_DEAD)) {
            if (ax_all->alive) {
                record_late(event);
                return;
            }
            ax_self.rounds = 0; /* it has forked: a new process, a new thread */
        }
        ax_cursor *cursor = ax_self.cursor;
        if (!cursor->ready) {
            if (!renew()) {
                return;
            }
            continue;
        }
        uint64_t stamp = ax_stamp();
        cursor->ready = 0;
        AX_BARRIER();
        uint64_t *pos = cursor->pos;
        AX_BARRIER();
        if (cursor->limit == NULL || (size_t)(cursor->limit - pos) < LONGEST_RECORD) {
            continue; /* not ready: full */
        }
        if (stamp < cursor->last) {
            stamp = cursor->last; /* a signal handler came in between */
        }
        const uint64_t dt = stamp - cursor->last;
        cursor->last = stamp;
        cursor->pos = put(pos, event, dt, stamp);
        AX_BARRIER();
        cursor->ready = 1;
        return;
    }
}

void ax_count_free_of_null(void)
{
    const ax_cursor *cursor = ax_self.cursor;
    if (AX_LIKELY(cursor->window != NULL)) {
        cursor->window->frees_of_null++;
    } else if (!ax_set.off && !ax_resolving && !ax_self.starting && ax_self.rounds != AX_DEAD &&
               !(ax_mode & AX_MODE_ENDED) && !(ax_all && ax_all->alive && ax_all->stopped) &&
               renew()) {
        ax_self.cursor->window->frees_of_null++;
    }
}

/* A thread ends. Its destructors may free, and so may those of keys: the window is given back in
 * the last round of these. */
static void thread_ends(void *value)
{
    if (++ax_self.rounds < PTHREAD_DESTRUCTOR_ITERATIONS) {
        pthread_setspecific(key, value);
        return;
    }
    if (!ax_all->alive || ax_set.sealed) {
        return;
    }
    const uint64_t signals = ax_block_signals();
    ax_cursor *cursor = ax_self.cursor;
    ax_self.cursor = &ax_nobody;
    ax_self.rounds = AX_DEAD;
    if (cursor->ready && cursor->limit - cursor->pos >= 2 * LONGEST_RECORD) {
        ax_lock();
        cursor->next = ax_all->abandoned;
        ax_all->abandoned = cursor;
        ax_unlock();
    }
    ax_unblock_signals(signals);
}

void ax_make_key(void)
{
    have_key = pthread_key_create(&key, thread_ends) == 0;
}
