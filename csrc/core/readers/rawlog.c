/* The file, its windows, and the merge of them; what a record means is in rawlog_events.c. */
#include "rawlog.h"

#include <stdlib.h>
#include <string.h>

enum { BUFFER_BYTES = 16384, WORD = 8, MOST_WORDS = 8, MOST_AHEAD = 1 << 20 };

/* ---- the clock --------------------------------------------------------------------------------
 */

uint64_t ax_rawlog_clock_span_ns(const ax_rawlog *log)
{
    return log->last_ns - log->first_ns;
}

void ax_rawlog_set_rate(ax_rawlog *log, double ns_per_tick)
{
    /* A file can claim anything; with such a clock the order is all that is left. */
    log->ns_per_tick = ns_per_tick > 1e-6 && ns_per_tick < 1e6 ? ns_per_tick : 1.0;
}

uint64_t ax_rawlog_ns(const ax_rawlog *log, uint64_t stamp)
{
    if (stamp <= log->first_stamp) {
        return 0;
    }
    const uint64_t ticks = stamp - log->first_stamp;
    if (log->header.clock == AX_RAWLOG_MONOTONIC) {
        return ticks;
    }
    const double ns = (double)ticks * log->ns_per_tick;
    return ns < 18e18 ? (uint64_t)ns : UINT64_C(18000000000000000000);
}

/* The last of the pairs in the file: the one that is furthest from the first. */
static void see_pair(ax_rawlog *log, uint64_t stamp, uint64_t ns)
{
    if (stamp > log->last_stamp && ns > log->last_ns) {
        log->last_stamp = stamp;
        log->last_ns = ns;
    }
}

/* ---- reading ----------------------------------------------------------------------------------
 */

static int refuse(ax_rawlog *log, int status, const char *what, uint64_t offset)
{
    log->state = AX_RAWLOG_REFUSED;
    return ax_fail(&log->detail, status, what, 0, 0, 0, offset);
}

static int drop(ax_rawlog *log, enum ax_rawlog_count kind, uint64_t offset, const char *what)
{
    if (log->skip) {
        log->counts[kind]++;
        return AX_OK;
    }
    return refuse(log, AX_ERR_SYNTAX, what, offset);
}

static int damaged(ax_rawlog *log, uint64_t offset, const char *what)
{
    return drop(log, AX_RAWLOG_DROPPED_DAMAGED, offset, what);
}

/* Reads `bytes` bytes or refuses; what the file does not hold is zero. */
static int read_at(ax_rawlog *log, uint64_t offset, void *to, size_t bytes, size_t *got)
{
    const int status = log->read(log->source, offset, to, bytes, got);
    if (status != AX_OK) {
        return refuse(log, status, "the file could not be read", offset);
    }
    memset((unsigned char *)to + *got, 0, bytes - *got);
    return AX_OK;
}

static int keep_place(ax_rawlog *log, ax_rawlog_place **places, size_t *found, size_t *capacity,
                      const ax_rawlog_place *place)
{
    const int status = ax_grow_array(&log->books, places, capacity, *found + 1, sizeof **places);
    if (status != AX_OK) {
        return refuse(log, status, NULL, place->offset);
    }
    (*places)[(*found)++] = *place;
    return AX_OK;
}

/* The stamp of a window's first record that is not about its thread: a call that was stamped before
 * the window was taken is older than its base. */
static uint64_t first_stamp_of(const ax_rawlog_window *head, const uint64_t *words, size_t count)
{
    const int wide = count > 2 && (words[0] & AX_RAWLOG_WIDE);
    const uint64_t first = wide ? words[2] : head->base_stamp;
    return first < head->base_stamp ? first : head->base_stamp;
}

static int find_windows(ax_rawlog *log)
{
    const uint64_t taken = log->header.next;
    const uint64_t end = taken < log->file_bytes ? taken : log->file_bytes;
    uint64_t at = AX_RAWLOG_HEADER_BYTES;
    int status = AX_OK;
    while (status == AX_OK && at < end) {
        struct {
            ax_rawlog_window head;
            uint64_t words[5];
        } seen;
        size_t got;
        status = read_at(log, at, &seen, sizeof seen, &got);
        if (status != AX_OK) {
            break;
        }
        const ax_rawlog_window *head = &seen.head;
        const int maps = head->magic == AX_RAWLOG_MAPS_MAGIC;
        if (head->magic != AX_RAWLOG_WINDOW_MAGIC && !maps) {
            /* Zero: nobody wrote here. The next window may begin at any granule. */
            if (head->magic != 0) {
                status = damaged(log, at, "expected the magic of a window");
            }
            log->counts[AX_RAWLOG_WINDOWS_UNUSED] += head->magic == 0;
            at += AX_RAWLOG_GRANULE;
            continue;
        }
        if (head->bytes == 0 || head->bytes % AX_RAWLOG_GRANULE != 0) {
            status = damaged(log, at, "expected a window of whole granules");
            at += AX_RAWLOG_GRANULE;
            continue;
        }
        const uint64_t bytes = head->bytes < end - at ? head->bytes : end - at;
        if (bytes < head->bytes) {
            status =
                drop(log, AX_RAWLOG_DROPPED_TRUNCATED, at, "the file ends before this window does");
            if (bytes <= sizeof *head) {
                break;
            }
        }
        ax_rawlog_place place = {at, first_stamp_of(head, seen.words, 5), (uint32_t)bytes,
                                 head->thread};
        if (status == AX_OK && maps) {
            status = keep_place(log, &log->texts, &log->texts_found, &log->texts_capacity, &place);
        } else if (status == AX_OK) {
            see_pair(log, head->base_stamp, head->mono_ns);
            log->counts[AX_RAWLOG_WINDOWS]++;
            log->counts[AX_RAWLOG_FREES_OF_NULL] += head->frees_of_null;
            log->counts[AX_RAWLOG_LOST] += head->lost;
            log->bytes_total += bytes;
            status =
                keep_place(log, &log->windows, &log->windows_found, &log->windows_capacity, &place);
        }
        at += head->bytes;
    }
    if (status == AX_OK && taken > log->file_bytes && log->file_bytes <= at) {
        if (log->counts[AX_RAWLOG_DROPPED_TRUNCATED] == 0) {
            status = drop(log, AX_RAWLOG_DROPPED_TRUNCATED, log->file_bytes,
                          "the file ends before its windows do");
        }
    }
    return status;
}

static int by_stamp(const void *one, const void *other)
{
    const ax_rawlog_place *a = one, *b = other;
    if (a->stamp != b->stamp) {
        return a->stamp < b->stamp ? -1 : 1;
    }
    return a->offset < b->offset ? -1 : a->offset > b->offset;
}

int ax_rawlog_begin(ax_rawlog *log, ax_rawlog_reading read, void *source, uint64_t file_bytes,
                    int skip)
{
    size_t got;
    memset(log, 0, sizeof *log);
    ax_seam_init(&log->books, AX_BACKING_REAL);
    log->read = read;
    log->source = source;
    log->file_bytes = file_bytes;
    log->skip = skip;
    int status = read_at(log, 0, &log->header, sizeof log->header, &got);
    if (status != AX_OK) {
        return status;
    }
    ax_rawlog_header *h = &log->header;
    if (got < sizeof h->magic || h->magic != AX_RAWLOG_MAGIC) {
        return refuse(log, AX_ERR_SYNTAX, "expected a raw log of the recorder", 0);
    }
    if (got < sizeof *h) {
        return refuse(log, AX_ERR_SYNTAX, "the raw log ends inside its header", got);
    }
    if (h->version != AX_RAWLOG_VERSION || h->header_bytes != AX_RAWLOG_HEADER_BYTES) {
        return refuse(log, AX_ERR_SYNTAX, "a raw log of another version", 8);
    }
    if (h->clock > AX_RAWLOG_CNTVCT) {
        return refuse(log, AX_ERR_SYNTAX, "expected a known clock", 0);
    }
    log->first_stamp = log->last_stamp = h->stamp0;
    log->first_ns = log->last_ns = h->mono0_ns;
    see_pair(log, h->stamp1, h->mono1_ns);
    log->counts[AX_RAWLOG_LOST] = h->lost;
    status = find_windows(log);
    if (status == AX_OK) {
        status = ax_rawlog_make_tables(log);
    }
    if (status != AX_OK) {
        return status;
    }
    if (log->windows_found > 1) {
        qsort(log->windows, log->windows_found, sizeof *log->windows, by_stamp);
    }
    const uint64_t ticks = log->last_stamp - log->first_stamp;
    ax_rawlog_set_rate(log, ticks ? (double)ax_rawlog_clock_span_ns(log) / (double)ticks : 1.0);
    return AX_OK;
}

/* ---- records ----------------------------------------------------------------------------------
 */

/* Makes `bytes` bytes from the record on be in the buffer. */
static int fill(ax_rawlog *log, ax_rawlog_stream *s, size_t bytes)
{
    if (s->filled - s->begin >= bytes) {
        return AX_OK;
    }
    const size_t kept = s->filled - s->begin;
    memmove(s->buffer, s->buffer + s->begin, kept);
    s->begin = 0;
    s->filled = kept;
    const uint64_t rest = s->end - s->at - kept;
    const size_t wanted = rest < BUFFER_BYTES - kept ? (size_t)rest : BUFFER_BYTES - kept;
    size_t got;
    const int status = read_at(log, s->at + kept, s->buffer + kept, wanted, &got);
    s->filled += wanted;
    return status;
}

static uint64_t word_of(const unsigned char *at, size_t i)
{
    uint64_t word;
    memcpy(&word, at + i * WORD, sizeof word);
    return word;
}

/* What follows the words that all records have: 0 nothing, 1 a return address, else 2 + words. */
enum { PLAIN = 1, SITED = 2, EXTRA_1 = 3, EXTRA_2 = 4 };
static const uint8_t shapes[64] = {
    [AX_RAWLOG_THREAD] = PLAIN,        [AX_RAWLOG_MALLOC] = SITED,
    [AX_RAWLOG_CALLOC] = SITED,        [AX_RAWLOG_REALLOC] = SITED,
    [AX_RAWLOG_REALLOCARRAY] = SITED,  [AX_RAWLOG_POSIX_MEMALIGN] = SITED,
    [AX_RAWLOG_ALIGNED_ALLOC] = SITED, [AX_RAWLOG_MEMALIGN] = SITED,
    [AX_RAWLOG_VALLOC] = SITED,        [AX_RAWLOG_PVALLOC] = SITED,
    [AX_RAWLOG_NEW] = SITED,           [AX_RAWLOG_FREE] = PLAIN,
    [AX_RAWLOG_DELETE] = PLAIN,        [AX_RAWLOG_REALLOC_BEGIN] = PLAIN,
    [AX_RAWLOG_REALLOC_END] = SITED,   [AX_RAWLOG_REALLOCARRAY_BEGIN] = PLAIN,
    [AX_RAWLOG_USABLE_SIZE] = PLAIN,   [AX_RAWLOG_MMAP] = EXTRA_1,
    [AX_RAWLOG_MUNMAP] = PLAIN,        [AX_RAWLOG_MPROTECT] = EXTRA_1,
    [AX_RAWLOG_MREMAP] = EXTRA_2,      [AX_RAWLOG_FORK] = PLAIN,
};

/* Decodes the record at `at`, of whose window `rest` bytes are left and MOST_WORDS there: its
 * length in words, 0 at the end, -1 where no recorder wrote it. `before` is the stamp of the last
 * one. */
static int decode(const ax_rawlog *log, const unsigned char *at, uint64_t rest, uint64_t before,
                  ax_rawlog_record *r)
{
    const uint64_t word0 = rest < 2 * WORD ? 0 : word_of(at, 0);
    if (word0 == 0) {
        return 0;
    }
    const unsigned kind = word0 & AX_RAWLOG_KIND_MASK;
    const unsigned shape = shapes[kind];
    const unsigned extra = shape == EXTRA_1 ? 1 : shape == EXTRA_2 ? 2 : 0;
    const int sited = shape == SITED && (log->header.flags & AX_RAWLOG_SITES);
    const int wide = (word0 & AX_RAWLOG_WIDE) != 0;
    const unsigned fixed = wide ? AX_RAWLOG_WIDE_WORDS : AX_RAWLOG_WORDS;
    const unsigned words = fixed + extra + (sited ? 1 : 0);
    if (shape == 0 || (word0 >> 14 & 3) != 0 || (wide && word0 >> 8) || words * WORD > rest) {
        return -1;
    }
    r->kind = (uint8_t)kind;
    r->failed = (word0 & AX_RAWLOG_FAILED) != 0;
    if (wide) {
        r->alignment = word_of(at, 1);
        r->stamp = word_of(at, 2);
        r->size = word_of(at, 3);
        r->address = word_of(at, 4);
    } else {
        const uint64_t word1 = word_of(at, 1);
        const unsigned log2 = word0 >> AX_RAWLOG_ALIGN_SHIFT & AX_RAWLOG_ALIGN_MASK;
        r->address = word0 >> AX_RAWLOG_ADDRESS_SHIFT;
        r->alignment = log2 ? UINT64_C(1) << log2 : 0;
        r->size = word1 >> 32;
        r->stamp = before + (uint32_t)word1;
    }
    r->extra[0] = extra > 0 ? word_of(at, fixed) : 0;
    r->extra[1] = extra > 1 ? word_of(at, fixed + 1) : 0;
    r->site = sited ? word_of(at, fixed) : 0;
    return (int)words;
}

static int next_record(ax_rawlog *log, ax_rawlog_stream *s)
{
    const uint64_t rest = s->end - s->at;
    int status = fill(log, s, rest < MOST_WORDS * WORD ? (size_t)rest : MOST_WORDS * WORD);
    if (status != AX_OK) {
        return status;
    }
    const int words = decode(log, s->buffer + s->begin, rest, s->stamp, &s->record);
    if (words < 0) {
        status = damaged(log, s->at, "expected a record");
        return status == AX_OK ? 0 : status;
    }
    if (words > 0) {
        s->stamp = s->record.stamp;
        s->key = s->record.stamp > s->key ? s->record.stamp : s->key;
        s->at += (uint64_t)words * WORD;
        s->begin += (size_t)words * WORD;
    }
    return words > 0;
}

/* Whether a record gives an address to an object; a realloc that failed gives back the old one. */
static int brings(const ax_rawlog *log, const ax_rawlog_record *r, uint32_t thread,
                  uint64_t address)
{
    if (r->kind == AX_RAWLOG_REALLOC_END && r->failed) {
        return log->threads[thread].old_address == address;
    }
    return r->address == address && !r->failed &&
           (r->kind == AX_RAWLOG_REALLOC_END ||
            (r->kind >= AX_RAWLOG_MALLOC && r->kind <= AX_RAWLOG_NEW));
}

/* Whether a stream brings an address to life within its next buffer, up to a stamp; also where that
 * cannot be told. */
static int stream_brings(ax_rawlog *log, ax_rawlog_stream *s, uint64_t address, uint64_t until,
                         int *status)
{
    ax_rawlog_record r = s->record;
    if (brings(log, &r, s->thread, address)) {
        return 1;
    }
    const uint64_t rest = s->end - s->at;
    *status = fill(log, s, rest < BUFFER_BYTES ? (size_t)rest : BUFFER_BYTES);
    size_t at = s->begin;
    uint64_t stamp = s->stamp;
    while (*status == AX_OK && stamp <= until) {
        const uint64_t left = rest - (at - s->begin);
        if (s->filled - at < MOST_WORDS * WORD && s->filled - at < left) {
            return 1;
        }
        const int words = decode(log, s->buffer + at, left, stamp, &r);
        log->looked_ahead++;
        if (words <= 0) {
            return 0;
        }
        if (brings(log, &r, s->thread, address)) {
            return 1;
        }
        stamp = r.stamp;
        at += (size_t)words * WORD;
    }
    return 0;
}

int ax_rawlog_may_come(ax_rawlog *log, const ax_rawlog_stream *s, uint64_t address, uint64_t until)
{
    int status = AX_OK;
    /* Looking must not cost more than reading, whatever is in the file. */
    if (log->looked_ahead > MOST_AHEAD + 4 * log->counts[AX_RAWLOG_RECORDS]) {
        return 1;
    }
    if (log->windows_opened < log->windows_found &&
        log->windows[log->windows_opened].stamp <= until) {
        return 1;
    }
    for (size_t i = 0; i < log->heap_used + log->held_used; i++) {
        ax_rawlog_stream *other = i < log->heap_used ? log->heap[i] : log->held[i - log->heap_used];
        if (other == s || other->key > until) {
            continue;
        }
        if (stream_brings(log, other, address, until, &status)) {
            return 1;
        }
        if (status != AX_OK) {
            return status;
        }
    }
    return 0;
}

static int find_thread(ax_rawlog *log, uint32_t number, uint32_t *place)
{
    const uint64_t id = (uint64_t)number + 1;
    ax_idmap_slot *slot = ax_idmap_find(&log->thread_places, id);
    if (!slot) {
        int status = ax_idmap_reserve(&log->thread_places, sizeof *slot, &log->books);
        if (status == AX_OK) {
            status = ax_grow_array(&log->books, &log->threads, &log->threads_capacity,
                                   log->threads_found + 1, sizeof *log->threads);
        }
        if (status != AX_OK) {
            return refuse(log, status, NULL, 0);
        }
        log->threads[log->threads_found] = (ax_rawlog_thread){.dense = UINT32_MAX};
        slot = ax_idmap_add(&log->thread_places, id);
        slot->value = log->threads_found++;
    }
    *place = (uint32_t)slot->value;
    return AX_OK;
}

/* ---- streams ----------------------------------------------------------------------------------
 */

static int comes_before(const ax_rawlog_stream *a, const ax_rawlog_stream *b)
{
    return a->key != b->key ? a->key < b->key : a->window < b->window;
}

/* Puts `s` where the heap has a hole, at `at` or above. */
static void sift_up(ax_rawlog *log, size_t at, ax_rawlog_stream *s)
{
    while (at > 0 && comes_before(s, log->heap[(at - 1) / 2])) {
        log->heap[at] = log->heap[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    log->heap[at] = s;
}

/* Puts `s` at the top or below. */
static void sift_down(ax_rawlog *log, ax_rawlog_stream *s)
{
    size_t at = 0;
    for (size_t child; (child = 2 * at + 1) < log->heap_used; at = child) {
        if (child + 1 < log->heap_used && comes_before(log->heap[child + 1], log->heap[child])) {
            child++;
        }
        if (!comes_before(log->heap[child], s)) {
            break;
        }
        log->heap[at] = log->heap[child];
    }
    log->heap[at] = s;
}

static void pop(ax_rawlog *log)
{
    ax_rawlog_stream *last = log->heap[--log->heap_used];
    if (log->heap_used > 0) {
        sift_down(log, last);
    }
}

static void release(ax_rawlog *log, ax_rawlog_stream *s)
{
    s->next_unused = log->unused;
    log->unused = s;
}

/* Reads the next record that is to be taken: 1, 0 at the end, or a status. Thread numbers are taken
 * here, since they say whose the records are that may be held. */
static int advance(ax_rawlog *log, ax_rawlog_stream *s)
{
    const uint64_t cut = log->header.cut ? log->header.cut_stamp : UINT64_MAX;
    for (;;) {
        const int status = next_record(log, s);
        if (status <= 0) {
            return status;
        }
        log->counts[AX_RAWLOG_RECORDS]++;
        if (s->key >= cut) {
            log->counts[AX_RAWLOG_RECORDS_AFTER_CUT]++;
            return 0;
        }
        if (s->record.kind != AX_RAWLOG_THREAD) {
            return 1;
        }
        if (s->record.address > UINT32_MAX) {
            const int wrong = damaged(log, s->at, "expected a thread number");
            return wrong == AX_OK ? 0 : wrong;
        }
        const int found = find_thread(log, (uint32_t)s->record.address, &s->thread);
        if (found != AX_OK) {
            return found;
        }
        log->threads[s->thread].tid = s->record.size;
    }
}

static int open_window(ax_rawlog *log)
{
    const ax_rawlog_place *place = &log->windows[log->windows_opened];
    int status = ax_grow_array(&log->books, &log->heap, &log->heap_capacity,
                               log->heap_used + log->held_used + 1, sizeof(void *));
    ax_rawlog_stream *s = log->unused;
    if (status == AX_OK && s) {
        log->unused = s->next_unused;
    } else if (status == AX_OK) {
        size_t none = 0;
        status = ax_grow_to(&log->books, &s, &none, 1, sizeof *s + BUFFER_BYTES);
    }
    if (status != AX_OK) {
        return refuse(log, status, NULL, place->offset);
    }
    memset(s, 0, sizeof *s);
    s->buffer = (unsigned char *)(s + 1);
    s->window = place->offset;
    s->end = place->offset + place->bytes;
    s->at = place->offset;
    log->windows_opened++;
    ax_rawlog_window head;
    if (place->bytes < sizeof head) {
        release(log, s);
        return AX_OK;
    }
    status = fill(log, s, sizeof head);
    if (status == AX_OK) {
        memcpy(&head, s->buffer, sizeof head);
        s->begin = sizeof head;
        s->at += sizeof head;
        s->stamp = head.base_stamp;
        status = find_thread(log, place->thread, &s->thread);
    }
    if (status == AX_OK) {
        status = advance(log, s);
    }
    if (status > 0) {
        sift_up(log, log->heap_used++, s);
        return AX_OK;
    }
    log->bytes_done += place->bytes;
    release(log, s);
    return status;
}

/* ---- the merge --------------------------------------------------------------------------------
 */

/* Whether an earlier one of the first `before` that are held has this stream's thread. */
static int thread_is_held(const ax_rawlog *log, const ax_rawlog_stream *s, size_t before)
{
    for (size_t i = 0; i < before; i++) {
        if (log->held[i]->thread == s->thread) {
            return 1;
        }
    }
    return 0;
}

static void unhold(ax_rawlog *log, size_t i)
{
    ax_rawlog_stream *s = log->held[i];
    log->held_used--;
    memmove(&log->held[i], &log->held[i + 1], (log->held_used - i) * sizeof *log->held);
    sift_up(log, log->heap_used++, s);
}

/* Lets go on what has waited for what is now so. */
static void wake(ax_rawlog *log)
{
    for (size_t i = 0; i < log->held_used;) {
        ax_rawlog_stream *s = log->held[i];
        if (s->wait_address == 0) {
            if (thread_is_held(log, s, i)) {
                i++;
                continue;
            }
        } else if ((ax_idmap_find(&log->live, s->wait_address) != NULL) != s->wait_live) {
            i++;
            continue;
        } else {
            log->counts[AX_RAWLOG_ORDER_REPAIRS]++;
        }
        unhold(log, i);
    }
}

/* Ends the waits that are not worth it any longer, as nothing else comes before `key`. */
static void give_up(ax_rawlog *log, uint64_t key, int nothing_else)
{
    size_t oldest = log->held_used;
    for (size_t i = 0; i < log->held_used; i++) {
        const ax_rawlog_stream *s = log->held[i];
        if (s->wait_address &&
            (oldest == log->held_used || s->wait_until < log->held[oldest]->wait_until)) {
            oldest = i;
        }
    }
    if (oldest < log->held_used && (nothing_else || log->held[oldest]->wait_until < key)) {
        log->held[oldest]->waited = 1;
        unhold(log, oldest);
        wake(log);
    }
}

/* What stands at the top of the heap when it may be taken; opens windows that are due. NULL with
 * AX_OK: there is nothing left. */
static int choose(ax_rawlog *log, ax_rawlog_stream **out)
{
    for (;;) {
        const int more = log->windows_opened < log->windows_found;
        const uint64_t due = more ? log->windows[log->windows_opened].stamp : UINT64_MAX;
        ax_rawlog_stream *top = log->heap_used ? log->heap[0] : NULL;
        if (log->held_used) {
            const uint64_t key = top && top->key < due ? top->key : due;
            const size_t before = log->held_used;
            give_up(log, key, !top && !more);
            if (log->held_used != before) {
                continue;
            }
        }
        if (more && (!top || due <= top->key)) {
            const int status = open_window(log);
            if (status != AX_OK) {
                return status;
            }
            continue;
        }
        if (top && log->held_used && log->held_used < AX_RAWLOG_MOST_HELD && !top->waited &&
            thread_is_held(log, top, log->held_used)) {
            pop(log);
            top->wait_address = 0;
            log->held[log->held_used++] = top;
            continue;
        }
        *out = top;
        return AX_OK;
    }
}

static int take_one(ax_rawlog *log, ax_rawlog_stream *s)
{
    const int others = log->heap_used > 1 || log->windows_opened < log->windows_found;
    const int may_wait =
        !s->waited && log->held_used < AX_RAWLOG_MOST_HELD && (others || log->held_used > 0);
    int status = ax_rawlog_take(log, s, may_wait);
    if (status == AX_RAWLOG_HELD) {
        pop(log);
        log->held[log->held_used++] = s;
        return AX_OK;
    }
    if (status != AX_OK) {
        return refuse(log, status,
                      status == AX_ERR_OVERFLOW ? "more allocations than a trace read here can hold"
                                                : NULL,
                      s->at);
    }
    s->waited = 0;
    status = advance(log, s);
    if (status > 0) {
        sift_down(log, s);
    } else {
        log->bytes_done += s->end - s->window;
        pop(log);
        release(log, s);
    }
    if (log->held_used) {
        wake(log);
    }
    return status > 0 ? AX_OK : status;
}

/* Gives back what only the merge needs. */
static void free_merge(ax_rawlog *log)
{
    size_t one;
    for (size_t i = 0; i < log->heap_used; i++) {
        release(log, log->heap[i]);
    }
    for (size_t i = 0; i < log->held_used; i++) {
        release(log, log->held[i]);
    }
    log->heap_used = log->held_used = 0;
    while (log->unused) {
        ax_rawlog_stream *s = log->unused;
        log->unused = s->next_unused;
        one = 1;
        ax_grow_free(&log->books, &s, &one, sizeof *s + BUFFER_BYTES);
    }
    ax_grow_free(&log->books, &log->heap, &log->heap_capacity, sizeof(void *));
    ax_grow_free(&log->books, &log->windows, &log->windows_capacity, sizeof *log->windows);
    ax_grow_free(&log->books, &log->threads, &log->threads_capacity, sizeof *log->threads);
    ax_idmap_free(&log->thread_places, &log->books);
    ax_idmap_free(&log->live, &log->books);
    ax_idmap_free(&log->site_places, &log->books);
    log->windows_found = log->windows_opened = log->threads_found = 0;
}

int ax_rawlog_step(ax_rawlog *log, size_t records)
{
    if (log->state != AX_RAWLOG_MERGING) {
        return ax_fail(&log->detail, AX_ERR_STATE, "the log is read", 0, 0, 0, 0);
    }
    for (size_t i = 0; i < records; i++) {
        ax_rawlog_stream *s = NULL;
        int status = choose(log, &s);
        if (status == AX_OK && s) {
            status = take_one(log, s);
        }
        if (status != AX_OK) {
            return status;
        }
        if (!s) {
            ax_rawlog_end_events(log);
            free_merge(log);
            log->state = AX_RAWLOG_FINISHED;
            return AX_OK;
        }
    }
    return AX_OK;
}

void ax_rawlog_free(ax_rawlog *log)
{
    free_merge(log);
    ax_rawlog_free_tables(log);
    ax_grow_free(&log->books, &log->texts, &log->texts_capacity, sizeof *log->texts);
    ax_grow_free(&log->books, &log->tids, &log->tids_capacity, sizeof *log->tids);
    ax_grow_free(&log->books, &log->sites, &log->sites_capacity, sizeof *log->sites);
    log->texts_found = log->tids_found = log->sites_found = 0;
    log->state = AX_RAWLOG_REFUSED;
}
