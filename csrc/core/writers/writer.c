#include "writer.h"

#include <string.h>

enum { LEAST_LOG2 = 4, PAGE_LOG2 = 12 };

const char *ax_call_name(int call)
{
    static const char *const names[AX_MADE_BY] = {
        "unknown",       "malloc",   "calloc", "realloc", "reallocarray", "posix_memalign",
        "aligned_alloc", "memalign", "valloc", "pvalloc", "new",          "free",
        "delete",
    };
    return call >= 0 && call < AX_MADE_BY ? names[call] : NULL;
}

int ax_writer_begin(ax_writer *writer, int format, const ax_write_source *source, ax_detail *detail)
{
    memset(writer, 0, sizeof *writer);
    ax_seam_init(&writer->books, AX_BACKING_REAL);
    if (format < 0 || format >= AX_WRITE_FORMATS) {
        return ax_fail(detail, AX_ERR_RANGE, "format", (uint64_t)format, 0, AX_WRITE_FORMATS - 1,
                       0);
    }
    writer->format = (enum ax_write_format)format;
    writer->source = *source;
    writer->source.fields = NULL;
    if (format == AX_WRITE_C) {
        const size_t count = source->fields ? strlen(source->fields) : 0;
        if (count < 1 || count > AX_WRITE_FIELDS || strspn(source->fields, "zstoa") != count) {
            return ax_fail(detail, AX_ERR_RANGE, "fields", count, 1, AX_WRITE_FIELDS, 0);
        }
        memcpy(writer->fields, source->fields, count);
    }
    return AX_OK;
}

void ax_writer_free(ax_writer *writer)
{
    ax_seam *books = &writer->books;
    ax_grow_free(books, &writer->slot_of, &writer->slot_of_capacity, sizeof *writer->slot_of);
    ax_grow_free(books, &writer->log2_of, &writer->log2_of_capacity, sizeof *writer->log2_of);
    ax_grow_free(books, &writer->free_slots, &writer->free_slots_capacity,
                 sizeof *writer->free_slots);
}

/* ---- text -------------------------------------------------------------------------------------
 */

static char *put_text(char *p, const char *text)
{
    const size_t length = strlen(text);
    memcpy(p, text, length);
    return p + length;
}

static char *put_decimal(char *p, uint64_t value)
{
    char digits[20];
    size_t first = sizeof digits;
    do {
        digits[--first] = (char)('0' + value % 10);
        value /= 10;
    } while (value);
    memcpy(p, digits + first, sizeof digits - first);
    return p + (sizeof digits - first);
}

static char *put_address(char *p, uint64_t value)
{
    static const char digits[] = "0123456789abcdef";
    int shift = 60;
    *p++ = '0';
    *p++ = 'x';
    while (shift > 0 && !(value >> shift)) {
        shift -= 4;
    }
    for (; shift >= 0; shift -= 4) {
        *p++ = digits[(value >> shift) & 15];
    }
    return p;
}

/* ---- objects ----------------------------------------------------------------------------------
 */

static unsigned align_of(const ax_write_source *source, size_t i)
{
    return source->align_log2 ? source->align_log2[i] & 63u : 0;
}

/* What an alloc is aligned to in the file: what was asked for, or what its function gives. */
static unsigned asked_log2(const ax_write_source *source, size_t i)
{
    const unsigned log2 = align_of(source, i);
    const int call = source->call ? source->call[i] : 0;
    return log2 == 0 && (call == AX_MADE_BY_VALLOC || call == AX_MADE_BY_PVALLOC) ? PAGE_LOG2
                                                                                  : log2;
}

static int new_object(ax_writer *writer, size_t i, uint32_t *out)
{
    ax_seam *books = &writer->books;
    const int reused = writer->free_count > 0;
    if (!reused && writer->slots == UINT32_MAX) {
        return AX_ERR_OVERFLOW;
    }
    int status = ax_grow_array(books, &writer->slot_of, &writer->slot_of_capacity,
                               (size_t)writer->objects + 1, sizeof *writer->slot_of);
    if (status == AX_OK && writer->format == AX_WRITE_AOSP) {
        status = ax_grow_array(books, &writer->log2_of, &writer->log2_of_capacity,
                               (size_t)writer->objects + 1, sizeof *writer->log2_of);
    }
    if (status == AX_OK && !reused) {
        status = ax_grow_array(books, &writer->free_slots, &writer->free_slots_capacity,
                               (size_t)writer->slots + 1, sizeof *writer->free_slots);
    }
    if (status != AX_OK) {
        return status;
    }
    *out = reused ? writer->free_slots[--writer->free_count] : writer->slots++;
    if (writer->log2_of) {
        const unsigned log2 = asked_log2(&writer->source, i);
        writer->log2_of[writer->objects] = (uint8_t)(log2 < LEAST_LOG2 ? LEAST_LOG2 : log2);
    }
    writer->slot_of[writer->objects++] = *out;
    return AX_OK;
}

/* The slot of the object of an event; a free gives it back. */
static int slot_of_event(ax_writer *writer, size_t i, uint32_t *out, ax_detail *detail)
{
    const ax_trace_view *t = &writer->source.trace;
    const uint8_t op = t->op[i];
    const uint64_t object = ax_trace_object(t, i);
    if (op >= AX_OP_DESTROY) {
        return ax_fail(detail, AX_ERR_EVENT_OP, "op", op, 0, AX_OP_DESTROY - 1, i);
    }
    if (op == AX_OP_ALLOC) {
        if (object != writer->objects) {
            return ax_fail(detail, AX_ERR_EVENT_ORDER, "object", object, writer->objects,
                           writer->objects, i);
        }
        const int status = new_object(writer, i, out);
        return status == AX_OK
                   ? status
                   : ax_fail(detail, status, "live objects", writer->slots, 0, UINT32_MAX, i);
    }
    if (object >= writer->objects) {
        return ax_fail(detail, AX_ERR_EVENT_OBJECT, "object", object, 0, writer->objects - 1, i);
    }
    *out = writer->slot_of[object];
    if (op == AX_OP_FREE) {
        if (writer->free_count >= writer->slots) {
            return ax_fail(detail, AX_ERR_EVENT_DEAD, "object", object, 1, 0, i);
        }
        writer->free_slots[writer->free_count++] = *out;
    }
    return AX_OK;
}

static uint64_t address_of(const ax_writer *writer, size_t i, uint32_t slot)
{
    const uint64_t odd = 2 * (uint64_t)slot + 1;
    unsigned log2 = writer->log2_of[ax_trace_object(&writer->source.trace, i)];
    while (odd << log2 >> log2 != odd) {
        log2--;
    }
    return odd << log2;
}

/* ---- lines ------------------------------------------------------------------------------------
 */

static char *put_times(const ax_trace_view *t, char *p, size_t i, int both)
{
    if (t->time_ns) {
        for (int k = 0; k <= both; k++) {
            *p++ = ' ';
            p = put_decimal(p, t->time_ns[i]);
        }
    }
    return p;
}

static int put_aosp(ax_writer *writer, size_t i, char **out, ax_detail *detail)
{
    const ax_write_source *source = &writer->source;
    const ax_trace_view *t = &source->trace;
    const uint32_t thread = t->thread ? t->thread[i] : 0;
    uint32_t slot = 0;
    const int status = slot_of_event(writer, i, &slot, detail);
    if (status != AX_OK) {
        return status;
    }
    const uint64_t address = address_of(writer, i, slot);
    const uint64_t tid =
        source->tids && thread < source->tid_count ? source->tids[thread] : (uint64_t)thread + 1;
    const int call = source->call ? source->call[i] : 0;
    char *p = put_decimal(*out, tid);
    if (t->op[i] == AX_OP_FREE) {
        p = put_address(put_text(p, ": free "), address);
    } else if (t->op[i] == AX_OP_REALLOC) {
        p = put_address(put_text(p, ": realloc "), address);
        *p++ = ' ';
        p = put_address(p, address);
    } else if (asked_log2(source, i)) {
        p = put_address(put_text(p, ": memalign "), address);
        *p++ = ' ';
        p = put_decimal(p, UINT64_C(1) << asked_log2(source, i));
    } else if (call == AX_MADE_BY_CALLOC) {
        p = put_text(put_address(put_text(p, ": calloc "), address), " 1");
    } else if (call == AX_MADE_BY_REALLOC || call == AX_MADE_BY_REALLOCARRAY) {
        p = put_text(put_address(put_text(p, ": realloc "), address), " 0x0");
    } else {
        p = put_address(put_text(p, ": malloc "), address);
    }
    if (t->op[i] != AX_OP_FREE) {
        *p++ = ' ';
        p = put_decimal(p, t->size_bytes[i]);
    }
    p = put_times(t, p, i, 1);
    *p++ = '\n';
    if (writer->next_end < source->thread_end_count && source->thread_ends[writer->next_end] == i) {
        writer->next_end++;
        p = put_text(put_decimal(p, tid), ": thread_done 0x0");
        p = put_times(t, p, i, 0);
        *p++ = '\n';
    }
    *out = p;
    return AX_OK;
}

static int put_csv(const ax_writer *writer, size_t i, char **out, ax_detail *detail)
{
    static const char *const ops[AX_OPS] = {"alloc", "free", "realloc", "destroy"};
    const ax_write_source *source = &writer->source;
    const ax_trace_view *t = &source->trace;
    if (t->op[i] >= AX_OPS) {
        return ax_fail(detail, AX_ERR_EVENT_OP, "op", t->op[i], 0, AX_OPS - 1, i);
    }
    char *p = put_text(*out, ops[t->op[i]]);
    *p++ = ',';
    p = put_decimal(p, t->thread ? t->thread[i] : 0);
    *p++ = ',';
    if (t->op[i] != AX_OP_DESTROY) {
        p = put_decimal(p, ax_trace_object(t, i));
    }
    *p++ = ',';
    p = put_decimal(p, t->size_bytes[i]);
    if (source->align_log2) {
        *p++ = ',';
        p = put_decimal(p, source->align_log2[i]);
    }
    if (t->time_ns) {
        *p++ = ',';
        p = put_decimal(p, t->time_ns[i]);
    }
    if (t->key) {
        *p++ = ',';
        p = put_decimal(p, t->key[i]);
    }
    if (t->arena) {
        *p++ = ',';
        p = put_decimal(p, t->arena[i]);
    }
    if (source->call) {
        const char *name = ax_call_name(source->call[i]);
        if (!name) {
            return ax_fail(detail, AX_ERR_EVENT_OP, "call", source->call[i], 0, AX_MADE_BY - 1, i);
        }
        *p++ = ',';
        p = put_text(p, name);
    }
    *p++ = '\n';
    *out = p;
    return AX_OK;
}

static int put_c(ax_writer *writer, size_t i, char **out, ax_detail *detail)
{
    const ax_write_source *source = &writer->source;
    const ax_trace_view *t = &source->trace;
    uint32_t slot = 0;
    const int status = slot_of_event(writer, i, &slot, detail);
    if (status != AX_OK) {
        return status;
    }
    const int sized = t->op[i] != AX_OP_FREE;
    char *p = *out;
    for (const char *field = writer->fields; *field; field++) {
        *p++ = field == writer->fields ? '{' : ',';
        p = put_decimal(p, *field == 'z'             ? (sized ? t->size_bytes[i] : 0)
                           : *field == 's'           ? slot
                           : *field == 't'           ? (t->thread ? t->thread[i] : 0)
                           : *field == 'o'           ? t->op[i]
                           : t->op[i] == AX_OP_ALLOC ? align_of(source, i)
                                                     : 0);
        if (*field == 'z' && sized && t->size_bytes[i] > INT32_MAX) {
            p = put_text(p, "u"); /* else C takes it for a signed number, or for none at all */
        }
    }
    *out = put_text(p, "},\n");
    return AX_OK;
}

int ax_writer_step(ax_writer *writer, size_t events, char *out, size_t capacity, size_t *length,
                   ax_detail *detail)
{
    char *p = out;
    int status = AX_OK;
    const size_t all = writer->source.trace.events;
    while (writer->next < all && events-- > 0 &&
           capacity - (size_t)(p - out) >= AX_WRITE_EVENT_BYTES) {
        status = writer->format == AX_WRITE_AOSP  ? put_aosp(writer, writer->next, &p, detail)
                 : writer->format == AX_WRITE_CSV ? put_csv(writer, writer->next, &p, detail)
                                                  : put_c(writer, writer->next, &p, detail);
        if (status != AX_OK) {
            break;
        }
        writer->next++;
    }
    *length = (size_t)(p - out);
    return status;
}
