#include "codeheap.h"

#include <string.h>

#include "codeheader.h"
#include "codepolicy.h"

/* From here on records are far more pages than a TLB holds, and a free that comes by five of them
 * waits for pages more than for memory. */
#define LARGE_RECORDS (UINT64_C(4) << 20)
#define LARGEST_CHUNK AX_CODE_LARGEST_CHUNK

void ax_code_params_default(ax_code_params *params)
{
    *params = (ax_code_params){
        .page_bytes = 4096,
        .chunk_bytes = 65536,
        .byte_limit = 0,
        .header_bytes = AX_CODE_OWN,
        .min_payload_bytes = 32,
        .pointer_bytes = 8,
        .granule_bytes = AX_CODE_OWN,
        .min_rest_bytes = AX_CODE_OWN,
        .policy = AX_CODE_SEGREGATED,
        .min_hole = AX_HOLE_3H_M,
        .wx = AX_WX_FLIP,
        .partitions = 16,
        .max_code_bytes = UINT64_C(2) << 20,
        .reach_bytes = 0,
        .keep_bytes = UINT64_MAX,
        .keep_operations = 0,
        .keep_chunks = AX_CODE_OWN_CHUNKS,
    };
}

const ax_code_policy *ax_code_policy_get(uint32_t policy)
{
    if (policy >= AX_CODE_POLICIES) {
        return NULL;
    }
    return policy < AX_CODE_FIRST_FIT ? &ax_code_history[policy]
                                      : &ax_code_designs[policy - AX_CODE_FIRST_FIT];
}

const char *ax_code_policy_name(uint32_t policy)
{
    const ax_code_policy *p = ax_code_policy_get(policy);
    return p ? p->name : NULL;
}

static int check_params(const ax_code_params *p, const ax_code_policy *policy, ax_detail *detail)
{
    const uint64_t page = p->page_bytes;
    if (page < 1 || page > (UINT64_C(1) << 30) || (page & (page - 1))) {
        return ax_fail(detail, AX_ERR_RANGE, "page_bytes (a power of two)", page, 1,
                       UINT64_C(1) << 30, 0);
    }
    if (p->pointer_bytes != 4 && p->pointer_bytes != 8) {
        return ax_fail(detail, AX_ERR_RANGE, "pointer_bytes (4 or 8)", p->pointer_bytes, 4, 8, 0);
    }
    if (p->header_bytes > 4096) {
        return ax_fail(detail, AX_ERR_RANGE, "header_bytes", p->header_bytes, 0, 4096, 0);
    }
    if (p->min_payload_bytes < 1 || p->min_payload_bytes > 65536) {
        return ax_fail(detail, AX_ERR_RANGE, "min_payload_bytes", p->min_payload_bytes, 1, 65536,
                       0);
    }
    uint64_t least = 2 * (uint64_t)p->header_bytes + p->min_payload_bytes;
    if (p->chunk_bytes < least || p->chunk_bytes > LARGEST_CHUNK || p->chunk_bytes % page) {
        return ax_fail(detail, AX_ERR_RANGE, "chunk_bytes (a multiple of page_bytes)",
                       p->chunk_bytes, (least + page - 1) / page * page, LARGEST_CHUNK, page);
    }
    if (p->granule_bytes < 1 || p->granule_bytes > 65536) {
        return ax_fail(detail, AX_ERR_RANGE, "granule_bytes", p->granule_bytes, 1, 65536, 0);
    }
    if (p->min_hole >= AX_HOLES) {
        return ax_fail(detail, AX_ERR_RANGE, "min_hole", p->min_hole, 0, AX_HOLES - 1, 0);
    }
    if (p->wx >= AX_WXS) {
        return ax_fail(detail, AX_ERR_RANGE, "wx", p->wx, 0, AX_WXS - 1, 0);
    }
    return policy->check ? policy->check(p, detail) : AX_OK;
}

int ax_codeheap_init(ax_codeheap *heap, const ax_code_params *params, ax_seam *seam, ax_seam *books,
                     ax_detail *detail)
{
    const ax_code_policy *policy = ax_code_policy_get(params->policy);
    memset(heap, 0, sizeof *heap);
    if (!policy) {
        return ax_fail(detail, AX_ERR_RANGE, "policy", params->policy, 0, AX_CODE_POLICIES - 1, 0);
    }
    ax_code_params given = *params;
    given.header_bytes =
        given.header_bytes == AX_CODE_OWN ? policy->header_bytes : given.header_bytes;
    given.granule_bytes =
        given.granule_bytes == AX_CODE_OWN ? policy->granule_bytes : given.granule_bytes;
    given.min_rest_bytes =
        given.min_rest_bytes == AX_CODE_OWN ? policy->min_rest_bytes : given.min_rest_bytes;
    if (given.keep_chunks == AX_CODE_OWN_CHUNKS) {
        given.keep_chunks = policy->keeps_one_chunk ? 1 : UINT64_MAX;
    }
    int status = check_params(&given, policy, detail);
    if (status != AX_OK) {
        return status;
    }
    if (seam->backing == AX_BACKING_REAL && given.page_bytes % ax_page_bytes()) {
        return ax_fail(detail, AX_ERR_RANGE, "page_bytes (a multiple of the system's page)",
                       given.page_bytes, ax_page_bytes(), UINT64_C(1) << 30, 0);
    }
    heap->policy = policy;
    heap->seam = seam;
    heap->books = books;
    heap->params = given;
    const uint64_t granule = given.granule_bytes;
    heap->granule_mask = granule & (granule - 1) ? 0 : granule - 1;
    /* A rest that may not be listed is none. */
    const uint64_t rest =
        given.min_rest_bytes + (policy->whole_granules ? 0 : (uint64_t)given.header_bytes);
    heap->least_rest = given.header_bytes + granule > rest ? given.header_bytes + granule : rest;
    heap->quick = !policy->own_pages && !given.header_bytes &&
                  (granule == 1 || heap->granule_mask) && !given.reach_bytes &&
                  !given.keep_operations && given.keep_bytes == UINT64_MAX &&
                  given.keep_chunks == UINT64_MAX;
    heap->free_record = heap->cursor = AX_NO_BLOCK;
    heap->newest = heap->oldest = AX_NO_CHUNK;
    heap->free_chunk_record = heap->leaving = AX_NO_CHUNK;
    heap->least_binned = UINT64_MAX;
    for (uint32_t i = 0; i < AX_CODE_BINS; i++) {
        heap->bin_head[i] = AX_NO_BLOCK;
    }
    return AX_OK;
}

/* --- records and lists: the rest of them is inline, in codepolicy.h
 * ------------------------------------------------------------------------------ */

int ax_code_more_records(ax_codeheap *heap, uint32_t n)
{
    if (heap->blocks_used > AX_NO_BLOCK - 1 - n) {
        return AX_ERR_OVERFLOW;
    }
    int status = ax_grow_array(heap->books, &heap->blocks, &heap->blocks_room,
                               (size_t)heap->blocks_used + n, sizeof(ax_block));
    const size_t bytes = heap->blocks_room * sizeof(ax_block);
    if (status == AX_OK && bytes >= LARGE_RECORDS) {
        ax_seam_prefer_huge(heap->books, (uint64_t)(uintptr_t)heap->blocks, bytes);
    }
    if (status == AX_OK && heap->policy->indexed) {
        /* A free may need a place for any of them, and must not fail. */
        status = ax_grow_array(heap->books, &heap->index_start, &heap->index_start_room,
                               heap->blocks_room, sizeof *heap->index_start);
        if (status == AX_OK) {
            status = ax_grow_array(heap->books, &heap->index_payload, &heap->index_payload_room,
                                   heap->blocks_room, sizeof *heap->index_payload);
        }
        if (status == AX_OK) {
            status = ax_grow_array(heap->books, &heap->index_block, &heap->index_block_room,
                                   heap->blocks_room, sizeof *heap->index_block);
        }
    }
    if (status == AX_OK) {
        heap->records_room = heap->blocks_room;
    }
    return status;
}

uint32_t ax_code_unlink_walking(ax_codeheap *heap, uint32_t block)
{
    uint32_t before = AX_NO_BLOCK;
    for (uint32_t i = heap->bin_head[heap->blocks[block].bin]; i != block;
         i = heap->blocks[i].next) {
        before = i;
        heap->counters.list_scan_steps++;
    }
    ax_code_unlink(heap, block);
    return before;
}

/* --- chunks
 * --------------------------------------------------------------------------------------- */

/* Where a chunk stands, or would stand, among the chunks by address. */
static uint32_t place_of(const ax_codeheap *heap, uint64_t base)
{
    uint32_t low = 0;
    uint32_t high = heap->chunks_alive;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (heap->chunks[heap->by_address[middle]].base < base) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

int ax_code_same_vma(const ax_codeheap *heap, uint32_t low, uint32_t high)
{
    const ax_code_chunk *a = &heap->chunks[low];
    const ax_code_chunk *b = &heap->chunks[high];
    return a->base + a->bytes == b->base && (a->exec == b->exec || heap->params.wx != AX_WX_FLIP);
}

/* A chunk has come to a place among the chunks by address, or leaves it: neighbours that are one
 * VMA with it. */
static void link_chunk(ax_codeheap *heap, uint32_t place)
{
    const uint32_t index = heap->by_address[place];
    ax_code_chunk *chunk = &heap->chunks[index];
    chunk->below = chunk->above = AX_NO_CHUNK;
    heap->vmas++;
    if (place > 0) {
        const uint32_t low = heap->by_address[place - 1];
        if (heap->chunks[low].base + heap->chunks[low].bytes == chunk->base) {
            chunk->below = low;
            heap->chunks[low].above = index;
            heap->vmas -= (uint64_t)ax_code_same_vma(heap, low, index);
        }
    }
    if (place + 1 < heap->chunks_alive) {
        const uint32_t high = heap->by_address[place + 1];
        if (chunk->base + chunk->bytes == heap->chunks[high].base) {
            chunk->above = high;
            heap->chunks[high].below = index;
            heap->vmas -= (uint64_t)ax_code_same_vma(heap, index, high);
        }
    }
}

static void unlink_chunk(ax_codeheap *heap, uint32_t index)
{
    const ax_code_chunk *chunk = &heap->chunks[index];
    heap->vmas--;
    if (chunk->below != AX_NO_CHUNK) {
        heap->vmas += (uint64_t)ax_code_same_vma(heap, chunk->below, index);
        heap->chunks[chunk->below].above = AX_NO_CHUNK;
    }
    if (chunk->above != AX_NO_CHUNK) {
        heap->vmas += (uint64_t)ax_code_same_vma(heap, index, chunk->above);
        heap->chunks[chunk->above].below = AX_NO_CHUNK;
    }
}

static void note_vmas(ax_codeheap *heap)
{
    /* Of each mapping there is a second one beside it, in the same shape. */
    const uint64_t vmas = heap->params.wx == AX_WX_DUAL ? 2 * heap->vmas : heap->vmas;
    if (vmas > heap->counters.vma_peak) {
        heap->counters.vma_peak = vmas;
    }
}

/* A chunk that touches one that has just been flipped: they are one VMA now, or two. */
static void note_border(ax_codeheap *heap, uint32_t neighbour, int exec)
{
    if (neighbour != AX_NO_CHUNK) {
        heap->vmas += heap->chunks[neighbour].exec == exec ? UINT64_MAX : 1;
    }
}

static int set_exec(ax_codeheap *heap, uint32_t index, int exec)
{
    ax_code_chunk *chunk = &heap->chunks[index];
    if (heap->params.wx == AX_WX_RWX || heap->params.wx == AX_WX_DUAL || chunk->exec == exec) {
        return AX_OK;
    }
    if (heap->params.wx == AX_WX_FLIP) {
        int status = ax_seam_protect(heap->seam, chunk->base, chunk->bytes,
                                     exec ? AX_PROT_READ_EXEC : AX_PROT_READ_WRITE);
        if (status != AX_OK) {
            return status;
        }
        heap->counters.pages_flipped += chunk->pages;
        chunk->exec = (uint8_t)exec;
        note_border(heap, chunk->below, exec);
        note_border(heap, chunk->above, exec);
        note_vmas(heap);
        if (chunk->headers_due) {
            ax_codeheader_catch_up(heap, index);
        }
    } else {
        /* Protection keys: a register of the thread, no page and no call. */
        chunk->exec = (uint8_t)exec;
    }
    if (exec) {
        heap->counters.flips_to_exec++;
    } else {
        heap->counters.flips_to_write++;
    }
    return AX_OK;
}

int ax_codeheap_mark_write(ax_codeheap *heap, uint32_t chunk)
{
    return set_exec(heap, chunk, 0);
}

int ax_codeheap_mark_exec(ax_codeheap *heap, uint32_t chunk)
{
    return set_exec(heap, chunk, 1);
}

/* A chunk and its one block on memory that is mapped; there is room for the records. */
static void add_chunk(ax_codeheap *heap, uint64_t base, uint64_t alias, uint64_t bytes)
{
    uint32_t index = heap->free_chunk_record;
    if (index != AX_NO_CHUNK) {
        heap->free_chunk_record = heap->chunks[index].older;
    } else {
        index = heap->chunks_used++;
    }
    const uint64_t end = base + bytes - heap->params.header_bytes;
    const uint32_t block = ax_code_new_record(heap, base, end, index, AX_NO_BLOCK, AX_NO_BLOCK, 0);
    heap->chunks[index] = (ax_code_chunk){
        .base = base,
        .alias = alias,
        .bytes = bytes,
        .pages = bytes / heap->params.page_bytes,
        .empty_since = ax_code_operations(heap) + 1,
        .bound = UINT64_MAX,
        .blocks = 1,
        .first = block,
        .last = block,
        .older = heap->newest,
        .younger = AX_NO_CHUNK,
        .alive = 1,
    };
    if (heap->newest != AX_NO_CHUNK) {
        heap->chunks[heap->newest].younger = index;
    } else {
        heap->oldest = index;
    }
    heap->newest = index;
    uint32_t place = place_of(heap, base);
    memmove(&heap->by_address[place + 1], &heap->by_address[place],
            (heap->chunks_alive - place) * sizeof(uint32_t));
    heap->by_address[place] = index;
    heap->chunks_alive++;
    heap->mapped_bytes += bytes;
    if (heap->mapped_bytes > heap->mapped_bytes_peak) {
        heap->mapped_bytes_peak = heap->mapped_bytes;
    }
    heap->empty_bytes += bytes;
    heap->empty_chunks++;
    if (heap->in_band) {
        ax_codeheader_write(heap, block);
        ax_codeheader_write_above(heap, block);
    }
    link_chunk(heap, place);
    note_vmas(heap);
    if (heap->policy->fresh) {
        heap->policy->fresh(heap, block);
    }
}

static int new_chunk(ax_codeheap *heap, uint64_t size_bytes)
{
    const uint64_t page = heap->params.page_bytes;
    /* The rejected design asks for several chunks at once. */
    const uint32_t pieces = heap->params.policy == AX_CODE_PARTITION ? heap->params.partitions : 1;
    uint64_t bytes = heap->policy->chunk_bytes ? heap->policy->chunk_bytes(heap, size_bytes)
                                               : heap->params.chunk_bytes;
    bytes = (bytes + page - 1) & ~(page - 1);
    /* One more, so that the cut that follows finds its room: nothing fails once there is a chunk.
     */
    int status = ax_code_reserve(heap, pieces + 1);
    if (status == AX_OK) {
        status = ax_grow_array(heap->books, &heap->chunks, &heap->chunks_room,
                               (size_t)heap->chunks_used + pieces, sizeof(ax_code_chunk));
    }
    if (status == AX_OK) {
        status = ax_grow_array(heap->books, &heap->by_address, &heap->by_address_room,
                               (size_t)heap->chunks_alive + pieces, sizeof(uint32_t));
    }
    uint64_t base = 0;
    uint64_t alias = 0;
    if (status == AX_OK && heap->params.wx == AX_WX_DUAL) {
        status = ax_seam_map_dual(heap->seam, bytes * pieces, &base, &alias);
    } else if (status == AX_OK) {
        status = ax_seam_map_as(
            heap->seam, bytes * pieces,
            heap->params.wx == AX_WX_RWX ? AX_PROT_READ_WRITE_EXEC : AX_PROT_READ_WRITE, &base);
    }
    for (uint32_t i = 0; status == AX_OK && i < pieces; i++) {
        add_chunk(heap, base + i * bytes, alias ? alias + i * bytes : 0, bytes);
    }
    return status;
}

/* The record of a chunk whose memory is gone. */
static void drop_chunk_record(ax_codeheap *heap, uint32_t index)
{
    heap->chunks[index].older = heap->free_chunk_record;
    heap->free_chunk_record = index;
}

/* Takes a chunk and its blocks, whatever they are, out of the heap. Where all chunks go, nobody
 * searches the list for the blocks of each. */
static void take_out(ax_codeheap *heap, uint32_t index, int all)
{
    ax_code_chunk *chunk = &heap->chunks[index];
    for (uint32_t i = chunk->first; i != AX_NO_BLOCK;) {
        uint32_t higher = heap->blocks[i].higher;
        if (heap->blocks[i].listed && all && !heap->policy->sized) {
            ax_code_unlink(heap, i);
        } else if (heap->blocks[i].listed) {
            heap->policy->unlist(heap, i);
        }
        if (!heap->blocks[i].is_free) {
            ax_code_unuse(heap, i);
        }
        if (heap->cursor == i) {
            heap->cursor = AX_NO_BLOCK;
        }
        ax_code_drop_record(heap, i);
        i = higher;
    }
    uint32_t place = place_of(heap, chunk->base);
    unlink_chunk(heap, index);
    heap->chunks_alive--;
    memmove(&heap->by_address[place], &heap->by_address[place + 1],
            (heap->chunks_alive - place) * sizeof(uint32_t));
    if (chunk->younger != AX_NO_CHUNK) {
        heap->chunks[chunk->younger].older = chunk->older;
    } else {
        heap->newest = chunk->older;
    }
    if (chunk->older != AX_NO_CHUNK) {
        heap->chunks[chunk->older].younger = chunk->younger;
    } else {
        heap->oldest = chunk->younger;
    }
    heap->mapped_bytes -= chunk->bytes;
    heap->empty_bytes -= chunk->bytes;
    heap->empty_chunks--;
    heap->exec_gone += chunk->exec;
    chunk->alive = 0;
}

/* Gives a chunk back, whatever its blocks are. On failure it stays; but with one of its two
 * mappings gone it is of no use to anybody, and waits among the leaving for the next try. */
static int drop_chunk(ax_codeheap *heap, uint32_t index, int all)
{
    ax_code_chunk *chunk = &heap->chunks[index];
    int status = AX_OK;
    if (chunk->alias) {
        status = ax_seam_unmap(heap->seam, chunk->alias, chunk->bytes);
        if (status != AX_OK) {
            return status;
        }
    }
    status = ax_seam_unmap(heap->seam, chunk->base, chunk->bytes);
    if (status != AX_OK && !chunk->alias) {
        return status;
    }
    take_out(heap, index, all);
    if (status == AX_OK) {
        drop_chunk_record(heap, index);
    } else {
        chunk->older = heap->leaving;
        heap->leaving = index;
        heap->quick = 0;
    }
    return status;
}

static int drop_leaving(ax_codeheap *heap)
{
    while (heap->leaving != AX_NO_CHUNK) {
        const uint32_t index = heap->leaving;
        const ax_code_chunk *chunk = &heap->chunks[index];
        const int status = ax_seam_unmap(heap->seam, chunk->base, chunk->bytes);
        if (status != AX_OK) {
            return status;
        }
        heap->leaving = chunk->older;
        drop_chunk_record(heap, index);
    }
    return AX_OK;
}

void ax_codeheap_release(ax_codeheap *heap)
{
    if (!heap->books) {
        return;
    }
    heap->seam->fail_at = 0;
    (void)ax_codeheap_reset(heap);
    ax_grow_free(heap->books, &heap->blocks, &heap->blocks_room, sizeof(ax_block));
    ax_grow_free(heap->books, &heap->index_start, &heap->index_start_room,
                 sizeof *heap->index_start);
    ax_grow_free(heap->books, &heap->index_payload, &heap->index_payload_room,
                 sizeof *heap->index_payload);
    ax_grow_free(heap->books, &heap->index_block, &heap->index_block_room,
                 sizeof *heap->index_block);
    ax_grow_free(heap->books, &heap->chunks, &heap->chunks_room, sizeof(ax_code_chunk));
    ax_grow_free(heap->books, &heap->by_address, &heap->by_address_room, sizeof(uint32_t));
    memset(heap, 0, sizeof *heap);
}

int ax_codeheap_reset(ax_codeheap *heap)
{
    int worst = drop_leaving(heap);
    for (uint32_t i = heap->newest; i != AX_NO_CHUNK;) {
        uint32_t older = heap->chunks[i].older;
        int status = drop_chunk(heap, i, 1);
        worst = status == AX_OK ? worst : status;
        i = older;
    }
    return worst;
}

int ax_codeheap_sweep(ax_codeheap *heap)
{
    int worst = drop_leaving(heap);
    for (uint32_t i = heap->newest; i != AX_NO_CHUNK;) {
        uint32_t older = heap->chunks[i].older;
        if (heap->chunks[i].used_blocks == 0) {
            int status = drop_chunk(heap, i, 0);
            worst = status == AX_OK ? worst : status;
        }
        i = older;
    }
    return worst;
}

/* What the retention of empty chunks asks for: bytes over the budget, chunks over their number (of
 * their pool, where the design has pools), and chunks past their age, go, the newest first. A
 * refusal of the system keeps the chunk, nothing else. */
static void give_empty_back(ax_codeheap *heap)
{
    const ax_code_params *p = &heap->params;
    uint64_t empty[AX_CODE_POOLS] = {0};
    heap->own_pages_empty = 0;
    (void)drop_leaving(heap);
    for (uint32_t i = heap->newest; i != AX_NO_CHUNK; i = heap->chunks[i].older) {
        empty[heap->chunks[i].pool] += heap->chunks[i].used_blocks == 0;
    }
    for (uint32_t i = heap->newest; i != AX_NO_CHUNK;) {
        const ax_code_chunk *chunk = &heap->chunks[i];
        const uint32_t older = chunk->older;
        const uint32_t pool = chunk->pool;
        const int own = heap->policy->own_pages && chunk->bytes > p->chunk_bytes;
        const int old = p->keep_operations &&
                        ax_code_operations(heap) - chunk->empty_since >= p->keep_operations;
        if (chunk->used_blocks == 0 &&
            (heap->empty_bytes > p->keep_bytes || empty[pool] > p->keep_chunks || old || own)) {
            if (drop_chunk(heap, i, 0) == AX_OK) {
                empty[pool]--;
            } else {
                heap->own_pages_empty |= own;
            }
        }
        i = older;
    }
}

/* The same, if there are any. */
static void retain(ax_codeheap *heap)
{
    if (heap->leaving != AX_NO_CHUNK || heap->own_pages_empty ||
        heap->empty_bytes > heap->params.keep_bytes ||
        heap->empty_chunks > heap->params.keep_chunks ||
        (heap->params.keep_operations && heap->empty_bytes)) {
        give_empty_back(heap);
    }
}

/* --- alloc and free
 * ------------------------------------------------------------------------------- */

static void note_reach(ax_codeheap *heap, uint32_t block)
{
    const uint64_t reach = heap->params.reach_bytes;
    const uint64_t lowest = heap->chunks[heap->by_address[0]].base;
    const ax_code_chunk *last = &heap->chunks[heap->by_address[heap->chunks_alive - 1]];
    if (heap->blocks[block].end - lowest > reach ||
        last->base + last->bytes - heap->blocks[block].start > reach) {
        heap->counters.reach_failures++;
    }
}

/* No block will do, so there must be a new chunk. */
static int alloc_in_new_chunk(ax_codeheap *heap, uint64_t size_bytes, uint32_t *block)
{
    int status = new_chunk(heap, size_bytes);
    if (status == AX_OK) {
        status = heap->policy->alloc(heap, size_bytes, block);
    }
    /* Larger than a chunk of this design can be. */
    return status == AX_CODE_AGAIN ? AX_ERR_OVERFLOW : status;
}

int ax_code_alloc_by_policy(ax_codeheap *heap, uint64_t size_bytes, uint32_t *block)
{
    if (size_bytes > LARGEST_CHUNK / 2) {
        return AX_ERR_OVERFLOW;
    }
    int status = heap->policy->alloc(heap, size_bytes, block);
    if (status == AX_CODE_AGAIN) {
        status = alloc_in_new_chunk(heap, size_bytes, block);
    }
    if (status == AX_OK) {
        heap->counters.allocs++;
        if (!heap->quick) {
            if (heap->params.reach_bytes) {
                note_reach(heap, *block);
            }
            retain(heap);
        }
    }
    return status;
}

void ax_code_free_slowly(ax_codeheap *heap, uint32_t block)
{
    ax_code_unuse(heap, block);
    if (heap->params.header_bytes) {
        ax_codeheader_freed(heap, block);
    }
    heap->counters.frees++;
    heap->policy->give(heap, block);
    retain(heap);
}

int ax_codeheap_alloc(ax_codeheap *heap, uint64_t size_bytes, uint32_t *block)
{
    *block = ax_code_cut_victim(heap, size_bytes);
    return *block != AX_NO_BLOCK ? AX_OK : ax_code_alloc_by_policy(heap, size_bytes, block);
}

int ax_codeheap_free(ax_codeheap *heap, uint32_t block)
{
    if (block >= heap->blocks_used || !heap->blocks[block].alive) {
        return AX_ERR_FOREIGN;
    }
    if (heap->blocks[block].is_free) {
        return AX_ERR_DOUBLE_FREE;
    }
    ax_code_free_used(heap, block);
    return AX_OK;
}

void ax_codeheap_set_code(ax_codeheap *heap, uint32_t block, uint64_t code_bytes)
{
    heap->code_bytes += code_bytes - heap->blocks[block].code_bytes;
    heap->blocks[block].code_bytes = code_bytes;
}
