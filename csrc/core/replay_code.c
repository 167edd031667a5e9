#include "replay_code.h"

#include <stdlib.h>
#include <string.h>

#include "codepolicy.h"

/* No compiler makes more, and a design without sizes would fill memory with its blocks. */
#define LARGEST_METHOD (UINT64_C(1) << 28)

static uint64_t table_bytes(uint64_t count, uint64_t item_bytes)
{
    uint64_t page = ax_page_bytes();
    return (count * item_bytes + page) & ~(page - 1);
}

int ax_code_replay_begin(ax_code_replay *r, const ax_trace_view *trace,
                         const ax_code_replay_options *options, ax_detail *detail)
{
    memset(r, 0, sizeof *r);
    ax_seam_init(&r->seam, options->backing);
    ax_seam_init(&r->books, AX_BACKING_REAL);
    r->trace = *trace;
    r->objects = options->objects;
    r->jump_bytes = options->jump_bytes;
    r->hot_methods = options->hot_methods;
    if (options->hot_methods > (1u << 20)) {
        return ax_fail(detail, AX_ERR_RANGE, "hot_methods", options->hot_methods, 0, 1u << 20, 0);
    }
    if (options->objects > (UINT64_C(1) << 40)) {
        return AX_ERR_OVERFLOW;
    }
    int status = ax_codeheap_init(&r->heap, &options->params, &r->seam, &r->books, detail);
    if (status != AX_OK) {
        return status;
    }
    const int sized = r->heap.policy->sized;
    if (!sized && options->params.min_payload_bytes <= options->jump_bytes) {
        return ax_fail(detail, AX_ERR_RANGE, "jump_bytes (below min_payload_bytes)",
                       options->jump_bytes, 0, options->params.min_payload_bytes - 1, 0);
    }
    uint64_t address;
    r->recent_room = 4 * (uint64_t)options->hot_methods + 1;
    status = ax_seam_malloc(&r->books, r->recent_room * sizeof *r->recent, &address);
    if (status == AX_OK) {
        r->recent = ax_at(address);
        memset(r->recent, 0, r->recent_room * sizeof *r->recent);
        status = ax_seam_map(&r->books, table_bytes(r->objects, sizeof *r->word), &address);
    }
    if (status == AX_OK) {
        r->word = ax_at(address);
        r->seam.fail_at = options->fail_at;
    } else {
        ax_code_replay_end(r);
    }
    return status;
}

void ax_code_replay_end(ax_code_replay *r)
{
    ax_codeheap_release(&r->heap);
    if (r->recent) {
        ax_seam_free(&r->books, (uint64_t)(uintptr_t)r->recent, r->recent_room * sizeof *r->recent);
    }
    if (r->word) {
        (void)ax_seam_unmap(&r->books, (uint64_t)(uintptr_t)r->word,
                            table_bytes(r->objects, sizeof *r->word));
    }
    r->recent = NULL;
    r->word = NULL;
}

static void note_recent(ax_code_replay *r, uint32_t block)
{
    const ax_block *b = &r->heap.blocks[block];
    r->recent[r->recent_next] = (ax_code_range){b->start, b->end, r->methods + 1};
    r->recent_next = r->recent_next + 1 == r->recent_room ? 0 : r->recent_next + 1;
}

/* Frees the blocks of a code list in its order. */
static int free_list(ax_code_replay *r, uint32_t list)
{
    int status = AX_OK;
    while (list != AX_NO_BLOCK && status == AX_OK) {
        uint32_t next = r->heap.blocks[list].next;
        status = ax_codeheap_free(&r->heap, list);
        list = next;
    }
    return status;
}

/* A method of a design without sizes: blocks filled from the high end. */
static int compile_in_blocks(ax_code_replay *r, uint64_t size_bytes, uint32_t *list)
{
    ax_codeheap *heap = &r->heap;
    uint64_t need = size_bytes ? size_bytes : 1;
    *list = AX_NO_BLOCK;
    while (need > 0) {
        uint32_t block;
        int status = ax_codeheap_alloc(heap, 0, &block);
        if (status != AX_OK) {
            (void)free_list(r, *list);
            return status;
        }
        const uint64_t payload = ax_block_payload(heap, block);
        r->undersized_blocks += payload < heap->params.min_payload_bytes;
        const uint64_t room = payload > r->jump_bytes ? payload - r->jump_bytes : 0;
        /* A policy whose arithmetic is wrong can hand out a block of no use or no sense. */
        if (room == 0 || payload > heap->params.chunk_bytes) {
            (void)free_list(r, *list);
            return ax_fail(&r->detail, AX_ERR_CORRUPT, "alloc returned a block without room",
                           payload, r->jump_bytes + 1, 0, block);
        }
        if (room < need) {
            ax_codeheap_set_code(heap, block, room);
            need -= room;
            heap->blocks[block].next = *list;
            *list = block;
            continue;
        }
        const uint64_t start = ax_block_address(heap, block);
        const uint64_t end = heap->blocks[block].end;
        ax_codeheap_set_code(heap, block, need);
        status = ax_codeheap_add_remainder(heap, list, block, start, end - need);
        if (status != AX_OK) {
            (void)ax_codeheap_free(heap, block);
            (void)free_list(r, *list);
            return status;
        }
        need = 0;
    }
    return AX_OK;
}

static int compile(ax_code_replay *r, uint64_t size_bytes, uint64_t *word)
{
    ax_codeheap *heap = &r->heap;
    uint32_t list;
    int status = heap->policy->sized ? ax_codeheap_alloc(heap, size_bytes, &list)
                                     : compile_in_blocks(r, size_bytes, &list);
    for (uint32_t b = list; status == AX_OK && b != AX_NO_BLOCK; b = heap->blocks[b].next) {
        note_recent(r, b);
        status = ax_codeheap_mark_exec(heap, heap->blocks[b].chunk);
    }
    if (status == AX_OK) {
        r->methods++;
        *word = heap->counters.flushes << 32 | (list + 1);
    }
    return status;
}

static int end_method(ax_code_replay *r, uint64_t word)
{
    if (word >> 32 != (uint32_t)r->heap.counters.flushes) {
        return AX_OK; /* a flush took it */
    }
    return free_list(r, (uint32_t)word - 1);
}

static int one_event(ax_code_replay *r, size_t i)
{
    const uint8_t op = r->trace.op[i];
    const uint64_t object = ax_trace_object(&r->trace, i);
    if (op > AX_OP_REALLOC) {
        return ax_fail(&r->detail, AX_ERR_EVENT_OP, NULL, op, 0, AX_OP_REALLOC, i);
    }
    if (object >= r->objects) {
        return ax_fail(&r->detail, AX_ERR_EVENT_OBJECT, NULL, object, 0, r->objects, i);
    }
    /* An alloc writes first: a page that is read first is mapped twice, and the second time stops
     * every other thread of a sweep. */
    const uint64_t before = op == AX_OP_ALLOC ? 0 : r->word[object];
    if (op != AX_OP_ALLOC && before == 0) {
        return ax_fail(&r->detail, AX_ERR_EVENT_DEAD, NULL, object, 0, 0, i);
    }
    uint64_t after = 0;
    int status = AX_OK;
    if (op != AX_OP_FREE && r->trace.size_bytes[i] > LARGEST_METHOD) {
        return ax_fail(&r->detail, AX_ERR_EVENT_SIZE, "no chunk holds a method of this size",
                       r->trace.size_bytes[i], 0, LARGEST_METHOD, i);
    }
    if (op != AX_OP_FREE) {
        status = compile(r, r->trace.size_bytes[i], &after);
    }
    if (status == AX_OK && op != AX_OP_ALLOC) {
        status = end_method(r, before);
    }
    if (status == AX_OK) {
        r->word[object] = after;
    }
    return status;
}

/* What a replay has done until now, in steps of a search. */
static uint64_t work_done(const ax_code_replay *r)
{
    return r->heap.counters.list_scan_steps + AX_CODE_EVENT_WORK * (uint64_t)r->at +
           AX_CODE_CALL_WORK * r->seam.attempts;
}

int ax_code_replay_step(ax_code_replay *r, size_t events, uint64_t work, size_t *left,
                        ax_detail *detail)
{
    const size_t rest = r->trace.events - r->at;
    const size_t end = r->at + (events < rest ? events : rest);
    const uint64_t before = work_done(r);
    for (; r->status == AX_OK && r->at < end && work_done(r) - before < work; r->at++) {
        r->status = one_event(r, r->at);
        if (r->status != AX_OK) {
            break;
        }
        const ax_codeheap *heap = &r->heap;
        const uint64_t wastage = heap->mapped_bytes - heap->code_bytes;
        r->mapped_events += heap->mapped_bytes;
        r->wastage_events += wastage;
        if (wastage > r->largest_wastage) {
            r->largest_wastage = wastage;
        }
        if (heap->code_bytes > r->code_bytes_peak) {
            r->code_bytes_peak = heap->code_bytes;
        }
    }
    *left = r->trace.events - r->at;
    if (r->status != AX_OK && detail) {
        *detail = r->detail;
    }
    return r->status;
}

/* --- results
 * -------------------------------------------------------------------------------------- */

static int by_number(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a;
    const uint64_t y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* Different pages of 2^shift bytes under the blocks of the last hot_methods methods. */
static int hot_pages(const ax_code_replay *r, unsigned shift, uint64_t *out)
{
    ax_seam books;
    uint64_t count = 0;
    const uint64_t first = r->methods > r->hot_methods ? r->methods - r->hot_methods + 1 : 1;
    for (uint64_t i = 0; i < r->recent_room; i++) {
        const ax_code_range *range = &r->recent[i];
        if (range->end && range->method >= first) {
            count += ((range->end - 1) >> shift) - (range->start >> shift) + 1;
        }
    }
    uint64_t address;
    ax_seam_init(&books, AX_BACKING_REAL);
    int status = ax_seam_malloc(&books, (count + 1) * sizeof(uint64_t), &address);
    if (status != AX_OK) {
        return status;
    }
    uint64_t *pages = ax_at(address);
    uint64_t n = 0;
    for (uint64_t i = 0; i < r->recent_room; i++) {
        const ax_code_range *range = &r->recent[i];
        if (range->end && range->method >= first) {
            for (uint64_t p = range->start >> shift; p <= (range->end - 1) >> shift; p++) {
                pages[n++] = p;
            }
        }
    }
    qsort(pages, n, sizeof *pages, by_number);
    *out = 0;
    for (uint64_t i = 0; i < n; i++) {
        *out += i == 0 || pages[i] != pages[i - 1];
    }
    ax_seam_free(&books, address, (count + 1) * sizeof(uint64_t));
    return AX_OK;
}

int ax_code_replay_row(const ax_code_replay *r, ax_code_row *out)
{
    static const unsigned shifts[AX_HOT_SIZES] = {12, 16, 21};
    if (r->status != AX_OK || r->at != r->trace.events) {
        return AX_ERR_STATE;
    }
    const ax_codeheap *heap = &r->heap;
    const double events = r->trace.events ? (double)r->trace.events : 1.0;
    ax_code_totals t;
    ax_codeheap_totals(heap, &t);
    memset(out, 0, sizeof *out);
    out->methods = r->methods;
    out->chunk_maps = r->seam.calls[AX_CALL_MAP];
    out->chunk_unmaps = r->seam.calls[AX_CALL_UNMAP];
    out->protect_calls = r->seam.calls[AX_CALL_PROTECT];
    out->file_calls = r->seam.calls[AX_CALL_FILE];
    out->mapped_bytes_end = heap->mapped_bytes;
    out->mapped_bytes_peak = heap->mapped_bytes_peak;
    out->mapped_bytes_mean = (double)r->mapped_events / events;
    out->wastage_bytes_mean = (double)r->wastage_events / events;
    out->wastage_bytes_peak = r->largest_wastage;
    out->code_bytes_end = heap->code_bytes;
    out->code_bytes_peak = r->code_bytes_peak;
    out->header_bytes = t.header_bytes;
    out->dead_bytes = t.dead_bytes;
    out->free_bytes = t.free_bytes;
    out->largest_free_block = t.largest_free_bytes;
    out->internal_fragmentation = t.payload_bytes - t.code_bytes;
    out->external_fragmentation = t.free_bytes - t.largest_free_bytes;
    out->blocks_end = t.blocks;
    out->chunks_end = heap->chunks_alive;
    out->undersized_blocks = r->undersized_blocks;
    out->counters = heap->counters;
    out->pages_flipped_per_method =
        r->methods ? (double)heap->counters.pages_flipped / (double)r->methods : 0.0;
    for (int i = 0; i < AX_HOT_SIZES; i++) {
        int status = hot_pages(r, shifts[i], &out->hot_pages[i]);
        if (status != AX_OK) {
            return status;
        }
    }
    return AX_OK;
}
