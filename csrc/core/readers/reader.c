#include "reader.h"

#include <string.h>

static const ax_read_rules all_rules[AX_READ_FORMATS] = {
    [AX_READ_AOSP] = {"aosp", ax_aosp_line, .threads = 1, .calls = 1},
    [AX_READ_MTRACE] = {"mtrace", ax_mtrace_line, ax_mtrace_finish},
    [AX_READ_LOGALLOC] = {"logalloc", ax_logalloc_line, .threads = 1, .calls = 1},
    [AX_READ_LTRACE] = {"ltrace", ax_ltrace_line, ax_ltrace_finish, ax_ltrace_release, .threads = 1,
                        .calls = 1},
    [AX_READ_VALGRIND] = {"valgrind", ax_valgrind_line, .threads = 1, .calls = 1},
    [AX_READ_UTRACE] = {"utrace", ax_utrace_line, .threads = 1, .calls = 1},
    [AX_READ_WEE_ALLOC] = {"wee_alloc", ax_wee_alloc_line},
    [AX_READ_REP] = {"rep", ax_rep_line, ax_rep_finish},
    [AX_READ_HEAPTRACK] = {"heaptrack", ax_heaptrack_line, ax_heaptrack_finish,
                           ax_heaptrack_release, .keys = 1, .times = 1, .exact_lines = 1},
    [AX_READ_HEAPTRACK_INTERPRETED] = {"heaptrack_interpreted", ax_heaptrack_interpreted_line,
                                       ax_heaptrack_finish, ax_heaptrack_release, .keys = 1,
                                       .times = 1, .exact_lines = 1},
    [AX_READ_MINIMALLOC] = {"minimalloc", ax_minimalloc_line, ax_minimalloc_finish,
                            ax_minimalloc_release},
    [AX_READ_MALLOC_SQL] = {"malloc_sql", ax_malloc_sql_line, .calls = 1},
};

const char *ax_read_format_name(int format)
{
    return format >= 0 && format < AX_READ_FORMATS ? all_rules[format].name : NULL;
}

const char *ax_read_count_name(int count)
{
    static const char *const names[AX_READ_COUNTS] = {
        [AX_READ_LINES] = "lines",
        [AX_READ_REALLOCS_OF_NULL] = "reallocs_of_null",
        [AX_READ_REALLOCS_TO_NULL] = "reallocs_to_null",
        [AX_READ_FAILED_ALLOCS] = "failed_allocs",
        [AX_READ_FAILED_REALLOCS] = "failed_reallocs",
        [AX_READ_FREES_OF_NULL] = "frees_of_null",
        [AX_READ_THREADS_DONE] = "threads_done",
        [AX_READ_LINES_AFTER_END] = "lines_after_end",
        [AX_READ_TIMES_RAISED] = "times_raised",
        [AX_READ_ALIGNMENTS_RAISED] = "alignments_raised",
        [AX_READ_PRESENT_BYTES] = "present_bytes",
        [AX_READ_USABLE_SIZES] = "usable_sizes",
        [AX_READ_OTHER_CALLS] = "other_calls",
        [AX_READ_OTHER_LINES] = "other_lines",
        [AX_READ_NESTED_CALLS] = "nested_calls",
        [AX_READ_UNFINISHED_CALLS] = "unfinished_calls",
        [AX_DROPPED_SYNTAX] = "syntax",
        [AX_DROPPED_ALLOC_OF_LIVE] = "alloc_of_live",
        [AX_DROPPED_FREE_OF_UNKNOWN] = "free_of_unknown",
        [AX_DROPPED_REALLOC_OF_UNKNOWN] = "realloc_of_unknown",
        [AX_DROPPED_REALLOC_TO_LIVE] = "realloc_to_live",
        [AX_DROPPED_SIZE_OVERFLOW] = "size_overflow",
        [AX_DROPPED_REALLOC_UNPAIRED] = "realloc_unpaired",
        [AX_DROPPED_CALL_UNPAIRED] = "call_unpaired",
        [AX_DROPPED_RESULT_UNSEEN] = "result_unseen",
        [AX_DROPPED_COUNT_WRONG] = "count_wrong",
    };
    return count >= 0 && count < AX_READ_COUNTS ? names[count] : NULL;
}

int ax_reader_begin(ax_reader *reader, int format, int skip)
{
    memset(reader, 0, sizeof *reader);
    ax_seam_init(&reader->books, AX_BACKING_REAL);
    if (format < 0 || format >= AX_READ_FORMATS) {
        return ax_fail(&reader->detail, AX_ERR_RANGE, "format", (uint64_t)format, 0,
                       AX_READ_FORMATS - 1, 0);
    }
    reader->format = (enum ax_read_format)format;
    reader->rules = &all_rules[format];
    reader->skip = skip;
    reader->timed = reader->rules->times ? 1 : -1;
    reader->line = reader->line_end = "";
    return AX_OK;
}

/* A column, as it is grown and freed. */
typedef struct column {
    void *array;
    size_t *capacity;
    size_t item_bytes;
    int wanted; /* known so far to be needed */
} column;

enum { ALIGN_LOG2 = 5, COLUMNS = 8 };

static void columns_of(ax_reader *reader, column columns[COLUMNS])
{
    ax_read_columns *c = &reader->columns;
    const column all[COLUMNS] = {
        {&c->op, &c->capacity.op, sizeof *c->op, 1},
        {&c->object, &c->capacity.object, sizeof *c->object, 1},
        {&c->size_bytes, &c->capacity.size_bytes, sizeof *c->size_bytes, 1},
        {&c->thread, &c->capacity.thread, sizeof *c->thread, reader->rules->threads},
        {&c->time_ns, &c->capacity.time_ns, sizeof *c->time_ns, reader->timed == 1},
        [ALIGN_LOG2] = {&c->align_log2, &c->capacity.align_log2, sizeof *c->align_log2,
                        c->align_log2 != NULL},
        {&c->key, &c->capacity.key, sizeof *c->key, reader->rules->keys},
        {&c->call, &c->capacity.call, sizeof *c->call, reader->rules->calls},
    };
    memcpy(columns, all, sizeof all);
}

static void free_carry(ax_reader *reader)
{
    ax_grow_free(&reader->books, &reader->carry, &reader->carry_capacity, 1);
}

/* What only the reading needs: which addresses live, and what the format keeps. */
static void free_working(ax_reader *reader)
{
    ax_seam *books = &reader->books;
    for (size_t i = 0; i < reader->n_spaces; i++) {
        if (i != reader->space) {
            ax_idmap_free(&reader->spaces[i].live, books);
        }
    }
    ax_grow_free(books, &reader->spaces, &reader->spaces_capacity, sizeof *reader->spaces);
    reader->n_spaces = 0;
    ax_idmap_free(&reader->pids, books);
    ax_idmap_free(&reader->live, books);
    ax_grow_free(books, &reader->object_keys, &reader->object_keys_capacity,
                 sizeof *reader->object_keys);
    free_carry(reader);
}

void ax_reader_free(ax_reader *reader)
{
    ax_seam *books = &reader->books;
    column columns[COLUMNS];
    if (!reader->rules) {
        return; /* never begun */
    }
    columns_of(reader, columns);
    for (int i = 0; i < COLUMNS; i++) {
        ax_grow_free(books, columns[i].array, columns[i].capacity, columns[i].item_bytes);
    }
    ax_grow_free(books, &reader->tids, &reader->tids_capacity, sizeof *reader->tids);
    free_working(reader);
    if (reader->rules->release) {
        reader->rules->release(reader);
    }
    ax_idmap_free(&reader->threads, books);
    reader->columns.events = 0;
    reader->state = AX_READER_REFUSED;
}

/* ---- refusals ---------------------------------------------------------------------------------
 */

int ax_read_refuse(ax_reader *reader, int status, const char *what)
{
    size_t length = 0;
    for (const char *p = reader->line; p < reader->line_end && length < AX_EXCERPT_BYTES; p++) {
        reader->excerpt[length++] = *p;
        if (*p < ' ' || *p > '~') {
            reader->excerpt[length - 1] = '?';
        }
    }
    if (length < (size_t)(reader->line_end - reader->line)) {
        memcpy(reader->excerpt + length - 3, "...", 3);
    }
    reader->excerpt[length] = 0;
    reader->state = AX_READER_REFUSED;
    return ax_fail(&reader->detail, status, what, 0, 0, 0, reader->counts[AX_READ_LINES]);
}

int ax_read_drop(ax_reader *reader, enum ax_read_count kind, int status, const char *what)
{
    if (reader->skip) {
        reader->counts[kind]++;
        return AX_OK;
    }
    return ax_read_refuse(reader, status, what);
}

int ax_read_syntax(ax_reader *reader, const char *expected)
{
    return ax_read_drop(reader, AX_DROPPED_SYNTAX, AX_ERR_SYNTAX, expected);
}

/* ---- events -----------------------------------------------------------------------------------
 */

static int grow_columns(ax_reader *reader, int with_align)
{
    ax_read_columns *c = &reader->columns;
    const int begins = with_align && !c->align_log2;
    size_t capacity = reader->capacity;
    int status = AX_OK;
    column columns[COLUMNS];
    columns_of(reader, columns);
    columns[ALIGN_LOG2].wanted |= begins;
    if (c->events == capacity) {
        status = ax_grow_capacity(capacity, c->events + 1, sizeof(uint64_t), &capacity);
    }
    for (int i = 0; i < COLUMNS && status == AX_OK; i++) {
        const column *one = &columns[i];
        if (one->wanted && *one->capacity < capacity) {
            status =
                ax_grow_to(&reader->books, one->array, one->capacity, capacity, one->item_bytes);
        }
    }
    if (status == AX_OK) {
        if (begins) {
            memset(c->align_log2, 0, c->events);
        }
        reader->capacity = capacity;
    }
    return status;
}

static int thread_of(ax_reader *reader, uint64_t tid, uint32_t *out)
{
    if (reader->threads.used > 0 && tid == reader->last_tid) {
        *out = reader->last_thread;
        return AX_OK;
    }
    ax_idmap_slot *slot = ax_idmap_find(&reader->threads, tid + 1);
    if (slot) {
        *out = (uint32_t)slot->value;
    } else {
        const size_t thread = reader->threads.used;
        int status = ax_idmap_reserve(&reader->threads, sizeof *slot, &reader->books);
        if (status == AX_OK) {
            status = ax_grow_array(&reader->books, &reader->tids, &reader->tids_capacity,
                                   thread + 1, sizeof *reader->tids);
        }
        if (status != AX_OK) {
            return status;
        }
        reader->tids[thread] = tid;
        slot = ax_idmap_add(&reader->threads, tid + 1);
        slot->value = thread;
        *out = (uint32_t)thread;
    }
    reader->last_tid = tid;
    reader->last_thread = *out;
    return AX_OK;
}

static int append(ax_reader *reader, enum ax_op op, uint32_t object, uint64_t size_bytes,
                  uint8_t align_log2)
{
    ax_read_columns *c = &reader->columns;
    if (c->events == reader->capacity || (align_log2 && !c->align_log2)) {
        const int status = grow_columns(reader, align_log2 != 0);
        if (status != AX_OK) {
            return ax_read_refuse(reader, status, NULL);
        }
    }
    const size_t i = c->events;
    if (c->thread) {
        const int status = thread_of(reader, reader->tid, &c->thread[i]);
        if (status != AX_OK) {
            return ax_read_refuse(reader, status, NULL);
        }
    }
    if (c->time_ns) {
        if (reader->time_ns < reader->last_time_ns) {
            reader->counts[AX_READ_TIMES_RAISED]++;
        } else {
            reader->last_time_ns = reader->time_ns;
        }
        c->time_ns[i] = reader->last_time_ns;
    }
    if (c->align_log2) {
        c->align_log2[i] = align_log2;
    }
    if (c->key) {
        c->key[i] = op == AX_OP_ALLOC ? reader->key : reader->object_keys[object];
    }
    if (c->call) {
        c->call[i] = reader->call;
    }
    c->op[i] = (uint8_t)op;
    c->object[i] = object;
    c->size_bytes[i] = size_bytes;
    c->events++;
    return AX_OK;
}

/* The binary logarithm of an alignment, or -1 where there is no power of two to raise it to. */
static int log2_of(ax_reader *reader, uint64_t alignment)
{
    int log2 = 0;
    if (alignment > UINT64_C(1) << 63) {
        return -1;
    }
    while (UINT64_C(1) << log2 < alignment) {
        log2++;
    }
    reader->counts[AX_READ_ALIGNMENTS_RAISED] += alignment && UINT64_C(1) << log2 != alignment;
    return log2;
}

int ax_read_new(ax_reader *reader, uint64_t size_bytes, uint64_t alignment, uint32_t *object)
{
    int status = AX_OK;
    const int align_log2 = log2_of(reader, alignment);
    if (align_log2 < 0) {
        return ax_read_syntax(reader, "expected an alignment of at most 2**63");
    }
    if (reader->objects == AX_READ_NO_OBJECT) {
        return ax_read_refuse(reader, AX_ERR_OVERFLOW,
                              "more allocations than a trace read here can hold");
    }
    const uint32_t made = (uint32_t)reader->objects;
    if (reader->rules->keys) {
        status = ax_grow_array(&reader->books, &reader->object_keys, &reader->object_keys_capacity,
                               (size_t)made + 1, sizeof *reader->object_keys);
        if (status != AX_OK) {
            return ax_read_refuse(reader, status, NULL);
        }
        reader->object_keys[made] = reader->key;
    }
    status = append(reader, AX_OP_ALLOC, made, size_bytes, (uint8_t)align_log2);
    if (status == AX_OK) {
        reader->objects++;
        *object = made;
    }
    return status;
}

int ax_read_end(ax_reader *reader, uint32_t object)
{
    return append(reader, AX_OP_FREE, object, 0, 0);
}

int ax_read_alloc(ax_reader *reader, uint64_t address, uint64_t size_bytes, uint64_t alignment)
{
    if (address == 0) {
        reader->counts[AX_READ_FAILED_ALLOCS]++;
        return AX_OK;
    }
    if (ax_idmap_find(&reader->live, address)) {
        return ax_read_drop(reader, AX_DROPPED_ALLOC_OF_LIVE, AX_ERR_EVENT_OBJECT,
                            "allocation at an address that is live: expected one that is not");
    }
    int status = ax_idmap_reserve(&reader->live, sizeof(ax_idmap_slot), &reader->books);
    if (status != AX_OK) {
        return ax_read_refuse(reader, status, NULL);
    }
    uint32_t object = AX_READ_NO_OBJECT;
    status = ax_read_new(reader, size_bytes, alignment, &object);
    if (status == AX_OK && object != AX_READ_NO_OBJECT) {
        ax_idmap_slot *slot = ax_idmap_add(&reader->live, address);
        slot->value = object;
    }
    return status;
}

static const char *const realloc_of_unknown =
    "realloc of an address that is not live: expected one that was allocated earlier and not freed "
    "since";
static const char *const realloc_to_live =
    "realloc to an address of another live object: expected one that is not live";

int ax_read_free(ax_reader *reader, uint64_t address)
{
    if (address == 0) {
        reader->counts[AX_READ_FREES_OF_NULL]++;
        return AX_OK;
    }
    ax_idmap_slot *slot = ax_idmap_find(&reader->live, address);
    if (!slot) {
        return ax_read_drop(reader, AX_DROPPED_FREE_OF_UNKNOWN, AX_ERR_EVENT_OBJECT,
                            "free of an address that is not live: expected one that was allocated "
                            "earlier and not freed since");
    }
    const uint32_t object = (uint32_t)slot->value;
    ax_idmap_remove(&reader->live, slot);
    return append(reader, AX_OP_FREE, object, 0, 0);
}

int ax_read_realloc(ax_reader *reader, uint64_t old_address, uint64_t new_address,
                    uint64_t size_bytes)
{
    if (old_address == 0) {
        reader->counts[AX_READ_REALLOCS_OF_NULL]++;
        return ax_read_alloc(reader, new_address, size_bytes, 0);
    }
    ax_idmap_slot *slot = ax_idmap_find(&reader->live, old_address);
    if (!slot) {
        return ax_read_drop(reader, AX_DROPPED_REALLOC_OF_UNKNOWN, AX_ERR_EVENT_OBJECT,
                            realloc_of_unknown);
    }
    if (new_address == 0) {
        if (size_bytes == 0) {
            reader->counts[AX_READ_REALLOCS_TO_NULL]++;
            return ax_read_free(reader, old_address);
        }
        reader->counts[AX_READ_FAILED_REALLOCS]++;
        return AX_OK;
    }
    const uint32_t object = (uint32_t)slot->value;
    if (new_address != old_address) {
        if (ax_idmap_find(&reader->live, new_address)) {
            return ax_read_drop(reader, AX_DROPPED_REALLOC_TO_LIVE, AX_ERR_EVENT_OBJECT,
                                realloc_to_live);
        }
        /* The entry removed leaves the room for the one added. */
        ax_idmap_remove(&reader->live, slot);
        slot = ax_idmap_add(&reader->live, new_address);
        slot->value = object;
    }
    return append(reader, AX_OP_REALLOC, object, size_bytes, 0);
}

int ax_read_realloc_begin(ax_reader *reader, uint64_t old_address, uint32_t *object)
{
    *object = AX_READ_NO_OBJECT;
    if (old_address == 0) {
        return AX_OK;
    }
    ax_idmap_slot *slot = ax_idmap_find(&reader->live, old_address);
    if (!slot) {
        return ax_read_drop(reader, AX_DROPPED_REALLOC_OF_UNKNOWN, AX_ERR_EVENT_OBJECT,
                            realloc_of_unknown);
    }
    *object = (uint32_t)slot->value;
    ax_idmap_remove(&reader->live, slot);
    return AX_OK;
}

int ax_read_realloc_end(ax_reader *reader, uint64_t old_address, uint32_t object,
                        uint64_t new_address, uint64_t size_bytes)
{
    if (object == AX_READ_NO_OBJECT) {
        /* What was not live was refused, or dropped with its answer. */
        return old_address == 0 ? ax_read_realloc(reader, 0, new_address, size_bytes) : AX_OK;
    }
    const int failed = new_address == 0;
    if (failed && size_bytes == 0) {
        reader->counts[AX_READ_REALLOCS_TO_NULL]++;
        return append(reader, AX_OP_FREE, object, 0, 0);
    }
    reader->counts[AX_READ_FAILED_REALLOCS] += (unsigned)failed;
    const uint64_t address = failed ? old_address : new_address;
    if (ax_idmap_find(&reader->live, address)) {
        /* The object has no address any longer: nobody can end it. */
        return ax_read_drop(reader, AX_DROPPED_REALLOC_TO_LIVE, AX_ERR_EVENT_OBJECT,
                            realloc_to_live);
    }
    const int status = ax_idmap_reserve(&reader->live, sizeof(ax_idmap_slot), &reader->books);
    if (status != AX_OK) {
        return ax_read_refuse(reader, status, NULL);
    }
    ax_idmap_slot *slot = ax_idmap_add(&reader->live, address);
    slot->value = object;
    return failed ? AX_OK : append(reader, AX_OP_REALLOC, object, size_bytes, 0);
}

static int new_space(ax_reader *reader, uint64_t pid)
{
    const size_t space = reader->n_spaces;
    int status = ax_idmap_reserve(&reader->pids, sizeof(ax_idmap_slot), &reader->books);
    if (status == AX_OK) {
        status = ax_grow_array(&reader->books, &reader->spaces, &reader->spaces_capacity, space + 1,
                               sizeof *reader->spaces);
    }
    if (status != AX_OK) {
        return ax_read_refuse(reader, status, NULL);
    }
    memset(&reader->spaces[space], 0, sizeof *reader->spaces);
    reader->spaces[space].pid = pid;
    reader->n_spaces++;
    ax_idmap_slot *slot = ax_idmap_add(&reader->pids, pid + 1);
    slot->value = space;
    return AX_OK;
}

int ax_read_process(ax_reader *reader, uint64_t pid)
{
    if (reader->n_spaces > 0 && reader->spaces[reader->space].pid == pid) {
        return AX_OK;
    }
    ax_idmap_slot *slot = ax_idmap_find(&reader->pids, pid + 1);
    size_t space = reader->n_spaces;
    if (slot) {
        space = (size_t)slot->value;
    } else {
        const int status = new_space(reader, pid);
        if (status != AX_OK) {
            return status;
        }
    }
    if (reader->n_spaces > 1) {
        reader->spaces[reader->space].live = reader->live;
        reader->live = reader->spaces[space].live;
    }
    reader->space = space;
    return AX_OK;
}

/* ---- lines ------------------------------------------------------------------------------------
 */

static int read_line(ax_reader *reader, const char *p, const char *end)
{
    reader->counts[AX_READ_LINES]++;
    if (end > p && end[-1] == '\r' && !reader->rules->exact_lines) {
        end--;
    }
    reader->line = p;
    reader->line_end = end;
    if ((size_t)(end - p) > AX_LINE_BYTES) {
        return ax_read_syntax(reader, "expected a line of at most 65536 bytes");
    }
    return reader->rules->line(reader, p, end);
}

/* Keeps the start of a line. What is too long to be a line is refused as soon as that is known, and
 * under `skip` its rest is passed over. */
static int carry(ax_reader *reader, const char *bytes, size_t length)
{
    /* Two more than a line: the return that may end it, and one to see that it is too long. */
    const size_t most = AX_LINE_BYTES + 2;
    const size_t taken = length < most - reader->carried ? length : most - reader->carried;
    if (taken == 0) {
        return AX_OK;
    }
    const int status = ax_grow_array(&reader->books, &reader->carry, &reader->carry_capacity,
                                     reader->carried + taken, 1);
    if (status != AX_OK) {
        return ax_read_refuse(reader, status, NULL);
    }
    memcpy(reader->carry + reader->carried, bytes, taken);
    reader->carried += taken;
    if (reader->carried == most) {
        reader->in_long_line = 1;
        reader->carried = 0;
        return read_line(reader, reader->carry, reader->carry + most);
    }
    return AX_OK;
}

static int feed(ax_reader *reader, const char *p, const char *end)
{
    while (p < end) {
        const char *newline = memchr(p, '\n', (size_t)(end - p));
        const char *stop = newline ? newline : end;
        int status = AX_OK;
        if (!reader->in_long_line) {
            if (newline && reader->carried == 0 && (size_t)(stop - p) < AX_LINE_BYTES + 2) {
                status = read_line(reader, p, stop);
            } else {
                status = carry(reader, p, (size_t)(stop - p));
                if (status == AX_OK && newline && !reader->in_long_line) {
                    const size_t length = reader->carried;
                    reader->carried = 0;
                    status = read_line(reader, reader->carry, reader->carry + length);
                }
            }
        }
        if (status != AX_OK) {
            return status;
        }
        if (!newline) {
            break;
        }
        reader->in_long_line = 0;
        p = newline + 1;
    }
    return AX_OK;
}

int ax_reader_feed(ax_reader *reader, const char *bytes, size_t length)
{
    if (reader->state != AX_READER_READING) {
        return ax_fail(&reader->detail, AX_ERR_STATE, "the reader is finished", 0, 0, 0, 0);
    }
    const int status = feed(reader, bytes, bytes + length);
    /* The caller's bytes are not ours to look at any longer. */
    reader->line = reader->line_end = "";
    return status;
}

/* Gives back the room for further events; a column that is refused to keeps it. */
static void trim_columns(ax_reader *reader)
{
    const size_t events = reader->columns.events;
    column columns[COLUMNS];
    columns_of(reader, columns);
    for (int i = 0; i < COLUMNS; i++) {
        const column *one = &columns[i];
        if (*one->capacity > events && events > 0) {
            (void)ax_grow_to(&reader->books, one->array, one->capacity, events, one->item_bytes);
        }
    }
}

int ax_reader_finish(ax_reader *reader)
{
    int status = AX_OK;
    if (reader->state != AX_READER_READING) {
        return ax_fail(&reader->detail, AX_ERR_STATE, "the reader is finished", 0, 0, 0, 0);
    }
    if (reader->carried > 0) {
        status = read_line(reader, reader->carry, reader->carry + reader->carried);
        reader->carried = 0;
    }
    if (status == AX_OK && reader->rules->finish) {
        status = reader->rules->finish(reader);
    }
    if (status != AX_OK) {
        return status;
    }
    /* Only the columns outlive the reading, and the names of keys. */
    free_working(reader);
    reader->line = reader->line_end = "";
    trim_columns(reader);
    reader->state = AX_READER_FINISHED;
    return AX_OK;
}
