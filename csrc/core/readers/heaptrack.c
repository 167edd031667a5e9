/* heaptrack, as its recorder writes it (raw) and as heaptrack_interpret makes it of that; all
 * numbers hexadecimal. From version 3 of the file on, strings have their length before them.
 *
 *     v HEAPTRACK VERSION        the first line
 *     t IP PARENT                the next call stack, from 1: an instruction pointer on another
 * stack c MILLISECONDS             the time from here on X I R A S x m #            the program,
 * its memory, modules, comments: not looked at
 *
 * raw:                           interpreted:
 *     + SIZE TRACE PTR               s STRING               the next string, from 1
 *     - PTR                          i IP MODULE [FUNCTION ...]     the next instruction pointer
 *                                    a SIZE TRACE           the next kind of allocation, from 0
 *                                    + KIND     - KIND
 *
 * A realloc is a free and an allocation. Interpreted, the addresses are gone: a free ends the last
 * object of its kind that still lives. Call stacks get keys in the order in which they are first
 * used.
 */
#include "reader.h"

#include <string.h>

static const char *const want_hex = "expected a hexadecimal number that fits 64 bits";
static const char *const want_end = "expected the end of the line";

void ax_heaptrack_release(ax_reader *reader)
{
    ax_heaptrack *h = &reader->heaptrack;
    ax_seam *books = &reader->books;
    ax_grow_free(books, &h->infos, &h->infos_capacity, sizeof *h->infos);
    ax_grow_free(books, &h->below, &h->below_capacity, sizeof *h->below);
    ax_grow_free(books, &h->text, &h->text_capacity, 1);
    ax_grow_free(books, &h->ends, &h->ends_capacity, sizeof *h->ends);
    ax_grow_free(books, &h->functions, &h->functions_capacity, sizeof *h->functions);
    ax_grow_free(books, &h->leaves, &h->leaves_capacity, sizeof *h->leaves);
    ax_grow_free(books, &h->key_of, &h->key_of_capacity, sizeof *h->key_of);
    ax_grow_free(books, &h->trace_of, &h->trace_of_capacity, sizeof *h->trace_of);
}

int ax_heaptrack_finish(ax_reader *reader)
{
    ax_heaptrack *h = &reader->heaptrack;
    /* The names stay. */
    ax_grow_free(&reader->books, &h->infos, &h->infos_capacity, sizeof *h->infos);
    ax_grow_free(&reader->books, &h->below, &h->below_capacity, sizeof *h->below);
    if (h->version == 0) {
        return ax_read_drop(reader, AX_DROPPED_COUNT_WRONG, AX_ERR_SYNTAX,
                            "expected a line 'v HEAPTRACK VERSION', found the end of the file");
    }
    if (h->string_left > 0) {
        return ax_read_drop(reader, AX_DROPPED_COUNT_WRONG, AX_ERR_SYNTAX,
                            "expected the rest of a string, found the end of the file");
    }
    return AX_OK;
}

size_t ax_heaptrack_keys(const ax_reader *reader)
{
    return reader->heaptrack.n_keys;
}

int ax_heaptrack_name(const ax_reader *reader, size_t key, uint64_t *address, const char **p,
                      size_t *length)
{
    const ax_heaptrack *h = &reader->heaptrack;
    *p = NULL;
    *length = 0;
    *address = 0;
    if (key >= h->n_keys) {
        return 0;
    }
    const uint32_t trace = h->trace_of[key];
    const uint64_t ip = trace ? h->leaves[trace - 1] : 0;
    if (reader->format == AX_READ_HEAPTRACK) {
        *address = ip;
        return 1;
    }
    const uint32_t function = ip > 0 && ip <= h->n_ips ? h->functions[ip - 1] : 0;
    if (function > 0 && function <= h->n_strings) {
        const uint64_t start = function > 1 ? h->ends[function - 2] : 0;
        *p = h->text ? h->text + start : ""; /* none where all strings are empty */
        *length = (size_t)(h->ends[function - 1] - start);
    }
    return 1;
}

/* A blank and a number. */
static int next_hex(const char **p, const char *end, uint64_t *out)
{
    ax_skip_blanks(p, end);
    return ax_parse_hex_digits(p, end, out) && (*p == end || **p == ' ');
}

/* A number of 32 bits, of something that is listed in the file. */
static int next_index(const char **p, const char *end, uint32_t *out)
{
    uint64_t number;
    if (!next_hex(p, end, &number) || number >= UINT32_MAX) {
        return 0;
    }
    *out = (uint32_t)number;
    return 1;
}

static const char *const want_index = "expected a hexadecimal number below ffffffff";

static int no_memory(ax_reader *reader, int status)
{
    return status == AX_OK ? AX_OK : ax_read_refuse(reader, status, NULL);
}

static int read_version(ax_reader *reader, const char *p, const char *end)
{
    uint64_t tool, version;
    if (!next_hex(&p, end, &tool) || !next_hex(&p, end, &version)) {
        return ax_read_syntax(reader, "expected 'v HEAPTRACK VERSION' in hexadecimal");
    }
    if (version < 1 || version > 3) {
        return ax_read_syntax(reader, "expected version 1, 2 or 3 of the file");
    }
    reader->heaptrack.version = version;
    return AX_OK;
}

static int keep_text(ax_reader *reader, const char *p, size_t length)
{
    ax_heaptrack *h = &reader->heaptrack;
    if (!h->into_text || length == 0) {
        return AX_OK;
    }
    const int status =
        ax_grow_array(&reader->books, &h->text, &h->text_capacity, h->text_bytes + length, 1);
    if (status == AX_OK) {
        memcpy(h->text + h->text_bytes, p, length);
        h->text_bytes += length;
        h->ends[h->n_strings - 1] = h->text_bytes;
    }
    return no_memory(reader, status);
}

/* The rest of a string that holds ends of lines. */
static int go_on_with_string(ax_reader *reader, const char *p, const char *end)
{
    ax_heaptrack *h = &reader->heaptrack;
    /* The end of the line before is part of it. */
    h->string_left--;
    int status = keep_text(reader, "\n", 1);
    const uint64_t length = (uint64_t)(end - p);
    const uint64_t taken = length < h->string_left ? length : h->string_left;
    if (status == AX_OK) {
        status = keep_text(reader, p, (size_t)taken);
    }
    h->string_left -= taken;
    return status;
}

/* A string, from version 3 on with its length; what follows it on the line nobody needs. */
static int read_string(ax_reader *reader, const char *p, const char *end, int keep)
{
    ax_heaptrack *h = &reader->heaptrack;
    uint64_t length = (uint64_t)(end - p);
    if (p < end && *p == ' ') {
        p++;
        length--;
    }
    if (h->version >= 3) {
        if (!ax_parse_hex_digits(&p, end, &length) || (length > 0 && (p == end || *p != ' '))) {
            return ax_read_syntax(reader, "expected the length of a string in hexadecimal");
        }
        p += p < end;
    }
    const uint64_t here = (uint64_t)(end - p) < length ? (uint64_t)(end - p) : length;
    h->into_text = keep;
    if (keep) {
        const int status = ax_grow_array(&reader->books, &h->ends, &h->ends_capacity,
                                         h->n_strings + 1, sizeof *h->ends);
        if (status != AX_OK) {
            return ax_read_refuse(reader, status, NULL);
        }
        h->ends[h->n_strings++] = h->text_bytes;
    }
    h->string_left = length - here;
    return keep_text(reader, p, (size_t)here);
}

static int read_time(ax_reader *reader, const char *p, const char *end)
{
    uint64_t ms;
    if (!next_hex(&p, end, &ms) || ms > UINT64_MAX / 1000000) {
        return ax_read_syntax(reader, "expected milliseconds that fit 64 bits in nanoseconds");
    }
    reader->time_ns = ms * 1000000;
    return AX_OK;
}

/* What both kinds of file have; *known is 0 where the line is none of it. */
static int common_line(ax_reader *reader, const char *p, const char *end, int *known)
{
    *known = 1;
    if (reader->heaptrack.string_left > 0) {
        return go_on_with_string(reader, p, end);
    }
    if (p == end) {
        return AX_OK;
    }
    if (reader->heaptrack.version == 0 && *p != 'v' && *p != '#') {
        return ax_read_syntax(reader, "expected 'v HEAPTRACK VERSION' before all else");
    }
    if (end - p > 1 && p[1] != ' ' && *p != '#') {
        return ax_read_syntax(reader, "expected one letter or sign and a blank");
    }
    switch (*p) {
    case 'v':
        return read_version(reader, p + 1, end);
    case 'c':
        return read_time(reader, p + 1, end);
    case '#':
    case 'X':
    case 'I':
    case 'R':
    case 'A':
    case 'S':
        reader->counts[AX_READ_OTHER_LINES]++;
        return AX_OK;
    default:
        *known = 0;
        return AX_OK;
    }
}

static const char *const want_trace = "expected the number of a line 't' further up, or 0";

static int add_trace(ax_reader *reader, uint64_t leaf)
{
    ax_heaptrack *h = &reader->heaptrack;
    ax_seam *books = &reader->books;
    if (h->n_traces + 1 >= UINT32_MAX) {
        return ax_read_refuse(reader, AX_ERR_OVERFLOW, "more call stacks than a trace can hold");
    }
    int status =
        ax_grow_array(books, &h->leaves, &h->leaves_capacity, h->n_traces + 1, sizeof *h->leaves);
    if (status == AX_OK) {
        h->leaves[h->n_traces++] = leaf;
    }
    return no_memory(reader, status);
}

static int read_trace(ax_reader *reader, const char *p, const char *end)
{
    uint64_t ip;
    uint32_t parent;
    if (!next_hex(&p, end, &ip)) {
        return ax_read_syntax(reader, want_hex);
    }
    if (!next_index(&p, end, &parent)) {
        return ax_read_syntax(reader, want_index);
    }
    ax_skip_blanks(&p, end);
    if (p < end) {
        return ax_read_syntax(reader, want_end);
    }
    return parent > reader->heaptrack.n_traces ? ax_read_syntax(reader, want_trace)
                                               : add_trace(reader, ip);
}

/* Makes the key of a call stack that exists the one of the line at hand. */
static int use_trace(ax_reader *reader, uint32_t trace)
{
    ax_heaptrack *h = &reader->heaptrack;
    ax_seam *books = &reader->books;
    if (trace >= h->key_of_capacity) {
        const size_t had = h->key_of_capacity;
        const int status = ax_grow_array(books, &h->key_of, &h->key_of_capacity, h->n_traces + 1,
                                         sizeof *h->key_of);
        if (status != AX_OK) {
            return ax_read_refuse(reader, status, NULL);
        }
        memset(h->key_of + had, 0, (h->key_of_capacity - had) * sizeof *h->key_of);
    }
    if (h->key_of[trace] == 0) {
        const int status = ax_grow_array(books, &h->trace_of, &h->trace_of_capacity, h->n_keys + 1,
                                         sizeof *h->trace_of);
        if (status != AX_OK) {
            return ax_read_refuse(reader, status, NULL);
        }
        h->trace_of[h->n_keys++] = trace;
        h->key_of[trace] = (uint32_t)h->n_keys;
    }
    reader->key = h->key_of[trace] - 1;
    return AX_OK;
}

int ax_heaptrack_line(ax_reader *reader, const char *p, const char *end)
{
    uint64_t size, address;
    uint32_t trace = 0;
    int known;
    const int status = common_line(reader, p, end, &known);
    if (status != AX_OK || known) {
        return status;
    }
    const char op = *p++;
    switch (op) {
    case '+':
        if (!next_hex(&p, end, &size)) {
            return ax_read_syntax(reader, want_hex);
        }
        if (!next_index(&p, end, &trace)) {
            return ax_read_syntax(reader, want_index);
        }
        break;
    case '-':
        size = 0;
        break;
    case 'x':
    case 'm':
        reader->counts[AX_READ_OTHER_LINES]++;
        return read_string(reader, p, end, 0);
    case 't':
        return read_trace(reader, p, end);
    default:
        return ax_read_syntax(reader, "expected one of + - t c v X I R A x m #");
    }
    if (!next_hex(&p, end, &address)) {
        return ax_read_syntax(reader, want_hex);
    }
    ax_skip_blanks(&p, end);
    if (p < end) {
        return ax_read_syntax(reader, want_end);
    }
    if (op == '-') {
        return ax_read_free(reader, address);
    }
    if (trace > reader->heaptrack.n_traces) {
        return ax_read_syntax(reader, want_trace);
    }
    const int keyed = use_trace(reader, trace);
    return keyed == AX_OK ? ax_read_alloc(reader, address, size, 0) : keyed;
}

static int add_number(ax_reader *reader, uint32_t **array, size_t *n, size_t *capacity,
                      uint32_t number)
{
    const int status = ax_grow_array(&reader->books, array, capacity, *n + 1, sizeof **array);
    if (status == AX_OK) {
        (*array)[(*n)++] = number;
    }
    return no_memory(reader, status);
}

/* i IP MODULE [FUNCTION [FILE LINE] ...] */
static int read_ip(ax_reader *reader, const char *p, const char *end)
{
    ax_heaptrack *h = &reader->heaptrack;
    uint64_t address;
    uint32_t module, function = 0;
    if (!next_hex(&p, end, &address)) {
        return ax_read_syntax(reader, want_hex);
    }
    if (!next_index(&p, end, &module)) {
        return ax_read_syntax(reader, want_index);
    }
    ax_skip_blanks(&p, end);
    if (p < end && !next_index(&p, end, &function)) {
        return ax_read_syntax(reader, want_index);
    }
    return add_number(reader, &h->functions, &h->n_ips, &h->functions_capacity, function);
}

static int read_info(ax_reader *reader, const char *p, const char *end)
{
    ax_heaptrack *h = &reader->heaptrack;
    struct ax_heap_info info = {0};
    if (!next_hex(&p, end, &info.size_bytes)) {
        return ax_read_syntax(reader, want_hex);
    }
    if (!next_index(&p, end, &info.trace)) {
        return ax_read_syntax(reader, want_index);
    }
    if (info.trace > h->n_traces) {
        return ax_read_syntax(reader, want_trace);
    }
    const int status = ax_grow_array(&reader->books, &h->infos, &h->infos_capacity, h->n_infos + 1,
                                     sizeof *h->infos);
    if (status == AX_OK) {
        h->infos[h->n_infos++] = info;
    }
    return no_memory(reader, status);
}

static int alloc_of_kind(ax_reader *reader, struct ax_heap_info *info)
{
    ax_heaptrack *h = &reader->heaptrack;
    uint32_t object = AX_READ_NO_OBJECT;
    int status = ax_grow_array(&reader->books, &h->below, &h->below_capacity,
                               (size_t)reader->objects + 1, sizeof *h->below);
    if (status != AX_OK) {
        return ax_read_refuse(reader, status, NULL);
    }
    status = use_trace(reader, info->trace);
    if (status != AX_OK) {
        return status;
    }
    status = ax_read_new(reader, info->size_bytes, 0, &object);
    if (status == AX_OK) {
        h->below[object] = info->top;
        info->top = object + 1;
    }
    return status;
}

static int free_of_kind(ax_reader *reader, struct ax_heap_info *info)
{
    if (info->top == 0) {
        return ax_read_drop(reader, AX_DROPPED_FREE_OF_UNKNOWN, AX_ERR_EVENT_OBJECT,
                            "free of a kind of which nothing lives: expected one of which "
                            "something was allocated earlier and not freed since");
    }
    const uint32_t object = info->top - 1;
    info->top = reader->heaptrack.below[object];
    return ax_read_end(reader, object);
}

int ax_heaptrack_interpreted_line(ax_reader *reader, const char *p, const char *end)
{
    ax_heaptrack *h = &reader->heaptrack;
    uint64_t kind;
    int known;
    const int status = common_line(reader, p, end, &known);
    if (status != AX_OK || known) {
        return status;
    }
    const char op = *p++;
    switch (op) {
    case 's':
        return read_string(reader, p, end, 1);
    case 'i':
        return read_ip(reader, p, end);
    case 't':
        return read_trace(reader, p, end);
    case 'a':
        return read_info(reader, p, end);
    case '+':
    case '-':
        break;
    default:
        return ax_read_syntax(reader, "expected one of + - a s i t c v X I R A S #");
    }
    if (!next_hex(&p, end, &kind)) {
        return ax_read_syntax(reader, want_hex);
    }
    ax_skip_blanks(&p, end);
    if (p < end) {
        return ax_read_syntax(reader, want_end);
    }
    if (kind >= h->n_infos) {
        return ax_read_syntax(reader, "expected the number of a line 'a' further up");
    }
    return op == '+' ? alloc_of_kind(reader, &h->infos[kind])
                     : free_of_kind(reader, &h->infos[kind]);
}
