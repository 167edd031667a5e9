/* A text of every format that has every kind of its lines, and what must hold of any text. */
#ifndef AX_TESTS_READER_CASES_H
#define AX_TESTS_READER_CASES_H

#include <string.h>

#include "../core/readers/reader.h"

static const char *const reader_texts[AX_READ_FORMATS] = {
    [AX_READ_AOSP] = "7: malloc 0x10 48\n"
                     "7: calloc 0x20 3 5\r\n"
                     "\n"
                     "9: memalign 0x30 24 100\n"
                     "  9:\trealloc 0x40  0x10 64 \n"
                     "7: realloc 0x50 0x0 1\n"
                     "7: realloc 0x0 0x20 0\n"
                     "7: realloc 0x0 0x50 99 4096\n"
                     "7: malloc 0x0 18446744073709551615\n"
                     "8: free 0x0 -1\n"
                     "8: thread_done 0x0\n"
                     "9: free 0x40 8192\n",
    [AX_READ_MTRACE] = "= Start\n"
                       "@ ./t:[0x11a0] + 0x10 0xa\n"
                       "@ a b (c + 0x1 2):(main+0x5)[0x11b5] < 0x10\n"
                       "@ ./t:[0x11b5] > 0x20 0x186a0\n"
                       "+ 0x30 0\n"
                       "@ ./t:[0x1] ! 0x30 0x7fffffff\n"
                       "+ (nil) 0x10\n"
                       "- 0x20\n"
                       "= End\n"
                       "any text\n",
    [AX_READ_LOGALLOC] = "18545 18545 malloc(32)=0x7f90495120e0\n"
                         "18545 18546 calloc(3,5)=#2\n"
                         "18545 18545 realloc(0x7f90495120e0,84)=0x7f9049512100\n"
                         "18545 18545 realloc(#0,7)=#3\n"
                         "18545 18545 realloc(#3,0)=#0\n"
                         "1 posix_memalign(64,100)=#4\n"
                         "1 1 aligned_alloc(32,64)=#5\n"
                         "1 1 memalign(16,1)=#6\n"
                         "1 1 valloc(5)=0x7f90495120e0\n"
                         "1 1 malloc(18446744073709551615)=(nil)\n"
                         "18545 18546 free(#2)\n"
                         "1 1 free(#0)\n"
                         "1 1 jemalloc_stats()\n",
    [AX_READ_LTRACE] = "p->malloc(16)                                   = 0x55b76f2d22a0\n"
                       "[pid 22405] p->realloc(0x55b76f2d22a0, 84 <unfinished ...>\n"
                       "[pid 22406] malloc(17 <unfinished ...>\n"
                       "[pid 22405] <... realloc resumed> )  = 0x55b76f2d22f0\n"
                       "[pid 22406] <... malloc resumed> )   = 0x55b76f2d22a0\n"
                       "22406 p->reallocarray(0, 3, 7, 0 <unfinished ...>\n"
                       "22406 libc.so.6->calloc(0, 21)         = 0x55610a367000\n"
                       "22406 <... reallocarray resumed> )     = 0x55610a367000\n"
                       "22406 calloc@libc.so.6(3, 5)           = 0x10 <0.000123>\n"
                       "22406 memalign(32, 10, 0x55610a366, -5)  = 0x20\n"
                       "22406 strlen(\"(\")                    = 1\n"
                       "free(0x55b76f2d22f0 <unfinished ...>\n"
                       "<... free resumed> )                   = <void>\n"
                       "free(nil)                              = <void>\n"
                       "[pid 9] malloc(1 <unfinished ...>\n"
                       "[pid 9] +++ killed by SIGKILL +++\n"
                       "[pid 10] malloc(1 <unfinished ...>\n"
                       "+++ exited (status 0) +++\n",
    [AX_READ_VALGRIND] = "==7== Memcheck, a memory error detector\n"
                         "--7-- malloc(10) = 0x4A42040\n"
                         "--7-- memalign(al 64, size 100) = 0x4A40080\n"
                         "--7-- realloc(0x0,7)malloc(7) = 0x4A40220\n"
                         "--7-- realloc(0x4A42040,0)free(0x4A42040)\n"
                         "--7--  = 0\n"
                         "--7-- realloc(0x4A40220,1000) = 0x4A40360\n"
                         "--7-- malloc_usable_size(0x4A40360) = 1000\n"
                         "--8-- _Znwm(41) = 0x4A40360\n"
                         "--8-- _ZdlPvm(0x4A40360)\n"
                         "--7-- calloc(3,5) = 0x0\n"
                         "--7-- free(0x4A40360)\n",
    [AX_READ_UTRACE] = "<jemalloc>:utrace: 7 malloc_init()\n"
                       "<jemalloc>:utrace: 7 0x801006000 = malloc(10)\n"
                       "<jemalloc>:utrace: 7 0x801007000 = realloc(0x801006000, 45)\n"
                       "<jemalloc>:utrace: 8 0x801007000 = realloc(0x0, 45)\n"
                       "<jemalloc>:utrace: 7 free(0x801007000)\n",
    [AX_READ_WEE_ALLOC] = "Alloc(552),\nAlloc(120),\nFree(1),\nAlloc(0)\nFree(0)\n",
    [AX_READ_REP] = "20000\n3\n7\n1\na 0 512\na 1 128\nr 0 640\nr 1 0\nf 1\nf -1\na 2 5\n",
    [AX_READ_HEAPTRACK] = "v 10400 3\n"
                          "x 4 /a\nb\n"
                          "X ./p -x\n"
                          "I 1000 5e298f\n"
                          "m 1 -\n"
                          "m f linux-vdso.so.1 7fe6752ea000 0 1522\n"
                          "t 7fe675306b9f 0\n"
                          "t 7fe6752f0b03 1\n"
                          "+ 11c00 2 55c834fc2530\n"
                          "c a\n"
                          "R 1d30\n"
                          "+ 64 0 55c834fd4200\n"
                          "- 55c834fd4200\n",
    [AX_READ_HEAPTRACK_INTERPRETED] = "v 10400 3\n"
                                      "# a comment\n"
                                      "X ./p\n"
                                      "I 1000 5e298f\n"
                                      "s 2 ab\ns 8 _dl\ninit\ns 0 \n"
                                      "i 7fe675306b9f 1 2 3 0\n"
                                      "i 7fe675306ba0 1\n"
                                      "t 1 0\n"
                                      "t 2 1\n"
                                      "a 11c00 1\n"
                                      "+ 0\n"
                                      "a 64 2\n"
                                      "+ 1\n+ 1\n"
                                      "c 14\n"
                                      "- 1\n"
                                      "A\nR 1d30\nS x\n",
    [AX_READ_MINIMALLOC] = "id,lower,upper,size\nb1,0,3,4\nb2,3,9,4\n b 3 , 0 , 9 , 2 \n",
    [AX_READ_MALLOC_SQL] = "/* a table */\n"
                           "#include <x.h>\n"
                           "static const struct entry table[] = {\n"
                           "    {MALLOC, 0, 48, 0},\n"
                           "    {CALLOC, 1, 3, 5}, \n"
                           "  { MEMALIGN , 2 , 100 , 24 },\n"
                           "    {REALLOC, 3, 64, 1},\n"
                           "    {REALLOC, 0, 1, 0},\n"
                           "    {FREE, 3, 0, 0}\n"
                           "};\n",
};

/* Feeds all of it to a reader that was just begun. */
static inline int reader_feed_all(ax_reader *reader, const char *text, size_t length, size_t chunk)
{
    int status = AX_OK;
    for (size_t at = 0; at < length && status == AX_OK; at += chunk) {
        status = ax_reader_feed(reader, text + at, length - at < chunk ? length - at : chunk);
    }
    return status == AX_OK ? ax_reader_finish(reader) : status;
}

static inline int reader_read_all(ax_reader *reader, int format, int skip, const char *text,
                                  size_t length, size_t chunk)
{
    const int status = ax_reader_begin(reader, format, skip);
    return status == AX_OK ? reader_feed_all(reader, text, length, chunk) : status;
}

/* The columns are those of a valid trace. */
static inline int reader_is_valid(const ax_reader *reader)
{
    const ax_read_columns *c = &reader->columns;
    const ax_trace_view view = {.events = c->events,
                                .op = c->op,
                                .object = c->object,
                                .size_bytes = c->size_bytes,
                                .thread = c->thread,
                                .key = c->key,
                                .time_ns = c->time_ns};
    return ax_trace_validate(&view, NULL) == AX_OK;
}

static inline int reader_same_column(const void *a, const void *b, size_t events, size_t item)
{
    return !a == !b && (!a || events == 0 || memcmp(a, b, events * item) == 0);
}

static inline int reader_same(const ax_reader *a, const ax_reader *b)
{
    const ax_read_columns *c = &a->columns, *d = &b->columns;
    const size_t n = c->events;
    return memcmp(a->counts, b->counts, sizeof a->counts) == 0 && n == d->events &&
           reader_same_column(c->op, d->op, n, sizeof *c->op) &&
           reader_same_column(c->object, d->object, n, sizeof *c->object) &&
           reader_same_column(c->size_bytes, d->size_bytes, n, sizeof *c->size_bytes) &&
           reader_same_column(c->thread, d->thread, n, sizeof *c->thread) &&
           reader_same_column(c->time_ns, d->time_ns, n, sizeof *c->time_ns) &&
           reader_same_column(c->align_log2, d->align_log2, n, sizeof *c->align_log2) &&
           reader_same_column(c->key, d->key, n, sizeof *c->key) &&
           reader_same_column(c->call, d->call, n, sizeof *c->call) &&
           a->threads.used == b->threads.used && ax_heaptrack_keys(a) == ax_heaptrack_keys(b);
}

/* The names of keys lie in memory of the reader; a sum, so that all of it is looked at. */
static inline uint64_t reader_touch_names(const ax_reader *reader)
{
    uint64_t sum = 0, address;
    const char *p;
    size_t length;
    for (size_t key = 0; ax_heaptrack_name(reader, key, &address, &p, &length); key++) {
        sum += address;
        for (size_t i = 0; i < length; i++) {
            sum += (unsigned char)p[i];
        }
    }
    return sum;
}

/* Frees it, and answers whether its books say so. */
static inline int reader_released(ax_reader *reader)
{
    ax_reader_free(reader);
    return reader->books.bytes_held == 0 &&
           reader->books.calls[AX_CALL_MALLOC] == reader->books.calls[AX_CALL_FREE];
}

/* What holds of any bytes: a trace or a refusal with its line, the same in pieces of any length,
 * nothing but a valid trace where what is wrong is dropped, and no memory left. NULL, or what does
 * not hold. */
static inline const char *reader_property(int format, const char *text, size_t length, size_t chunk)
{
    for (int skip = 0; skip < 2; skip++) {
        const char *wrong = NULL;
        ax_reader one, other;
        const int status = reader_read_all(&one, format, skip, text, length, length + 1);
        if (reader_read_all(&other, format, skip, text, length, chunk) != status) {
            wrong = "another status in pieces";
        } else if (status == AX_OK) {
            wrong = !reader_same(&one, &other) ? "another trace in pieces"
                    : !reader_is_valid(&one)   ? "no valid trace"
                    : reader_touch_names(&one) != reader_touch_names(&other)
                        ? "other names in pieces"
                        : NULL;
        } else if (skip || (status != AX_ERR_SYNTAX && status != AX_ERR_EVENT_OBJECT &&
                            status != AX_ERR_OVERFLOW)) {
            wrong = "a refusal that may not be";
        } else if (one.detail.where > length + 1 || !one.detail.what ||
                   strlen(one.excerpt) > AX_EXCERPT_BYTES) {
            wrong = "a refusal without its place";
        } else if (one.detail.where != other.detail.where || one.detail.what != other.detail.what ||
                   strcmp(one.excerpt, other.excerpt) != 0) {
            wrong = "another refusal in pieces";
        }
        const int released = reader_released(&one);
        if (!reader_released(&other) || !released) {
            wrong = wrong ? wrong : "memory that was not freed";
        }
        if (wrong) {
            return wrong;
        }
    }
    return NULL;
}

#endif
