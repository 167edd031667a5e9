/* writer: a trace as text, in pieces of any length.
 *
 *     event columns --step--> lines in a buffer of the caller's
 *
 *     aosp   what Android's memory_replay reads; csv   one row an event; c   the rows of a C array
 *
 * A trace names objects, programs name addresses. A live object has a slot: the one that was freed
 * last, or the next that nobody had, so that there are as many slots as objects live at a time. The
 * rows for C name slots; an address is made of one:
 *
 *     (2 * slot + 1) << max(4, align_log2)
 *
 * The odd factor tells live objects apart whatever they are aligned to, so an address is never 0,
 * never that of another live object, and a multiple of the alignment asked for (of 16 at least). It
 * names a block and does not place it: blocks written like this overlap. Where an alignment is so
 * large that 64 bits do not hold the address, as many zeros as fit are used instead.
 *
 * Memory: 4 bytes an object and 4 a slot, and a byte an object where there are alignments; none for
 * csv. All of it goes through the seam `books`. The columns are borrowed, and none of their values
 * is trusted: a file that changes under us makes a refusal or wrong text, never a write astray.
 */
#ifndef AX_WRITER_H
#define AX_WRITER_H

#include <stddef.h>
#include <stdint.h>

#include "../trace.h"

enum ax_write_format { AX_WRITE_AOSP = 0, AX_WRITE_CSV = 1, AX_WRITE_C = 2, AX_WRITE_FORMATS = 3 };

#define AX_WRITE_EVENT_BYTES 320 /* what one event takes at most, a thread_done line with it */
#define AX_WRITE_FIELDS 5        /* of a row for C */

/* What is written. `trace.key`, `.arena`: csv only. */
typedef struct ax_write_source {
    ax_trace_view trace;
    const uint8_t *align_log2;   /* NULL: none */
    const uint8_t *call;         /* NULL: unknown; an ax_made_by */
    const uint64_t *thread_ends; /* aosp: rising events, each the last of its thread */
    size_t thread_end_count;
    const uint32_t *tids; /* aosp: thread -> its number in the file; NULL: the thread + 1 */
    size_t tid_count;
    const char *fields; /* c: the fields of a row in order: z size, s slot, t thread, o op, a
                           align_log2 */
} ax_write_source;

typedef struct ax_writer {
    ax_seam books;
    enum ax_write_format format;
    ax_write_source source;
    char fields[AX_WRITE_FIELDS + 1];
    size_t next; /* events before this one are written */
    size_t next_end;
    uint64_t objects;
    uint32_t *slot_of; /* object -> slot */
    size_t slot_of_capacity;
    uint8_t *log2_of; /* object -> what its address is aligned to; NULL: 4 for all */
    size_t log2_of_capacity;
    uint32_t *free_slots; /* a stack, with room for all slots */
    size_t free_slots_capacity;
    size_t free_count;
    uint32_t slots; /* given out so far */
} ax_writer;

/* The name of a call ("malloc"; "unknown" for 0), NULL where there is no such call. */
const char *ax_call_name(int call);

/* AX_ERR_RANGE: no such format, or a field that there is not. The source must outlive the writer,
 * except for its fields. */
int ax_writer_begin(ax_writer *writer, int format, const ax_write_source *source,
                    ax_detail *detail);

/* Writes at most `events` further events, and no more than surely fit. `*length` is what was
 * written, also where the answer is a refusal: AX_ERR_EVENT_* of an event that no trace has (and of
 * a destroy in aosp and c), AX_ERR_OVERFLOW, AX_ERR_NOMEM. The event refused is `next`; after
 * AX_ERR_NOMEM a further step may succeed. */
int ax_writer_step(ax_writer *writer, size_t events, char *out, size_t capacity, size_t *length,
                   ax_detail *detail);

void ax_writer_free(ax_writer *writer);

#endif
