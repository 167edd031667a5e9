/* What a code heap holds, and whether its state makes sense. */
#include <string.h>

#include "codepolicy.h"

int ax_codeheap_is_dead(const ax_codeheap *heap, uint32_t block)
{
    return heap->blocks[block].is_free && ax_block_payload(heap, block) < heap->policy->least(heap);
}

void ax_codeheap_totals(const ax_codeheap *heap, ax_code_totals *out)
{
    const uint64_t header = heap->params.header_bytes;
    memset(out, 0, sizeof *out);
    out->header_bytes = heap->chunks_alive * header;
    for (uint32_t i = 0; i < heap->blocks_used; i++) {
        const ax_block *b = &heap->blocks[i];
        if (!b->alive) {
            continue;
        }
        uint64_t payload = b->end - b->start - header;
        out->blocks++;
        out->header_bytes += header;
        if (!b->is_free) {
            out->payload_bytes += payload;
            out->code_bytes += b->code_bytes;
            continue;
        }
        out->free_blocks++;
        out->listed_blocks += b->listed;
        out->free_bytes += payload;
        out->dead_bytes += ax_codeheap_is_dead(heap, i) ? payload : 0;
        if (payload > out->largest_free_bytes) {
            out->largest_free_bytes = payload;
        }
    }
}

static int corrupt(ax_detail *detail, const char *what, uint64_t found, uint64_t expected,
                   uint64_t where)
{
    return ax_fail(detail, AX_ERR_CORRUPT, what, found, expected, 0, where);
}

/* What every header's address is a multiple of, seen from its chunk: the pointer, where all that
 * blocks are made of is; 1 where nothing can be said. */
static uint64_t alignment_of_headers(const ax_codeheap *heap)
{
    const ax_code_params *p = &heap->params;
    const uint64_t pointer = p->pointer_bytes;
    uint64_t parts = p->header_bytes | p->chunk_bytes;
    if (heap->policy->sized) {
        parts |= p->granule_bytes;
    } else {
        parts |= p->min_payload_bytes | p->byte_limit;
        if (p->policy == AX_CODE_HALVING || p->policy == AX_CODE_HALVING_PAYLOAD) {
            parts |= p->byte_limit ? (p->byte_limit + p->header_bytes) / 2 : 0;
        }
    }
    return parts % pointer ? 1 : pointer;
}

static int check_block(const ax_codeheap *heap, uint32_t index, uint32_t chunk, uint32_t lower,
                       ax_detail *detail)
{
    const ax_block *b = &heap->blocks[index];
    const uint64_t header = heap->params.header_bytes;
    if (!b->alive || b->chunk != chunk || b->lower != lower) {
        return corrupt(detail, "neighbours of a block", b->lower, lower, index);
    }
    if (b->end < b->start || b->end - b->start < header) {
        return corrupt(detail, "a block is smaller than its header", b->end - b->start, header,
                       index);
    }
    uint64_t payload = b->end - b->start - header;
    if (!b->is_free && b->code_bytes > payload) {
        return corrupt(detail, "a block holds more code than it has room for", b->code_bytes,
                       payload, index);
    }
    if (b->is_free && lower != AX_NO_BLOCK && heap->blocks[lower].is_free &&
        !heap->policy->never_joins) {
        return corrupt(detail, "two neighbouring blocks are free", index, 0, chunk);
    }
    int should = b->is_free && payload >= heap->policy->least(heap) &&
                 heap->policy->listing == AX_LISTED_BY_SIZE;
    if (b->listed != should && heap->policy->listing != AX_LISTED_ITS_WAY) {
        return corrupt(detail, "a block is listed though it should not be, or not though it should",
                       payload, heap->policy->least(heap), index);
    }
    return AX_OK;
}

static int check_chunk(const ax_codeheap *heap, uint32_t index, uint64_t alignment,
                       uint64_t *blocks, ax_detail *detail)
{
    const ax_code_chunk *chunk = &heap->chunks[index];
    uint64_t at = chunk->base;
    uint32_t lower = AX_NO_BLOCK;
    uint32_t used = 0;
    for (uint32_t i = chunk->first; i != AX_NO_BLOCK; i = heap->blocks[i].higher) {
        int status = check_block(heap, i, index, lower, detail);
        if (status != AX_OK) {
            return status;
        }
        if (heap->blocks[i].start != at) {
            return corrupt(detail, "blocks do not tile their chunk", heap->blocks[i].start, at, i);
        }
        if (at % alignment) {
            return corrupt(detail, "a header is not aligned", at, alignment, i);
        }
        at = heap->blocks[i].end;
        used += !heap->blocks[i].is_free;
        lower = i;
        if (++*blocks > heap->blocks_used) {
            return corrupt(detail, "blocks of a chunk form a ring", i, 0, index);
        }
    }
    if (at != chunk->base + chunk->bytes - heap->params.header_bytes) {
        return corrupt(detail, "blocks do not reach their chunk's terminator", at,
                       chunk->base + chunk->bytes - heap->params.header_bytes, index);
    }
    if (used != chunk->used_blocks) {
        return corrupt(detail, "used blocks of a chunk", chunk->used_blocks, used, index);
    }
    return AX_OK;
}

static int check_lists(const ax_codeheap *heap, uint64_t listed, ax_detail *detail)
{
    uint64_t found = 0;
    for (uint32_t bin = 0; bin < AX_CODE_BINS; bin++) {
        uint32_t before = AX_NO_BLOCK;
        for (uint32_t i = heap->bin_head[bin]; i != AX_NO_BLOCK; i = heap->blocks[i].next) {
            const ax_block *b = &heap->blocks[i];
            if (!b->alive || !b->listed || !b->is_free || b->bin != bin || b->prev != before) {
                return corrupt(detail, "the list of free blocks", i, before, bin);
            }
            before = i;
            if (++found > listed) {
                return corrupt(detail, "the list of free blocks has too many", found, listed, bin);
            }
        }
        int mapped = (int)(heap->bin_map[bin / 64] >> (bin % 64) & 1);
        if (mapped != (heap->bin_head[bin] != AX_NO_BLOCK)) {
            return corrupt(detail, "the map of the free lists", (uint64_t)mapped, 0, bin);
        }
    }
    return found == listed ? AX_OK : corrupt(detail, "blocks on the free lists", found, listed, 0);
}

/* A chunk stands above the one of the place before, and knows it if they touch. */
static int check_place(const ax_codeheap *heap, uint32_t place, ax_detail *detail)
{
    const uint32_t index = heap->by_address[place];
    const uint32_t before = place ? heap->by_address[place - 1] : AX_NO_CHUNK;
    const ax_code_chunk *chunk = &heap->chunks[index];
    uint32_t below = AX_NO_CHUNK;
    uint32_t above = AX_NO_CHUNK;
    if (before != AX_NO_CHUNK) {
        const ax_code_chunk *low = &heap->chunks[before];
        if (low->base >= chunk->base) {
            return corrupt(detail, "chunks by address", chunk->base, low->base, place);
        }
        if (low->base + low->bytes == chunk->base) {
            below = before;
            above = index;
        }
        if (low->above != above) {
            return corrupt(detail, "chunks that touch", low->above, above, place);
        }
    }
    if (chunk->below != below) {
        return corrupt(detail, "chunks that touch", chunk->below, below, place);
    }
    if (place + 1 == heap->chunks_alive && chunk->above != AX_NO_CHUNK) {
        return corrupt(detail, "chunks that touch", chunk->above, AX_NO_CHUNK, place);
    }
    return AX_OK;
}

/* The chunks once more, from the newest to the oldest. */
static int check_age(const ax_codeheap *heap, ax_detail *detail)
{
    uint64_t found = 0;
    uint32_t younger = AX_NO_CHUNK;
    for (uint32_t i = heap->newest; i != AX_NO_CHUNK; i = heap->chunks[i].older) {
        const ax_code_chunk *chunk = &heap->chunks[i];
        if (!chunk->alive || chunk->younger != younger || ++found > heap->chunks_alive) {
            return corrupt(detail, "chunks by age", chunk->younger, younger, i);
        }
        younger = i;
    }
    return found == heap->chunks_alive
               ? AX_OK
               : corrupt(detail, "chunks by age", found, heap->chunks_alive, 0);
}

/* Every flip has left its chunk as it is, or as it was when it left; and only who wants a block to
 * write to flips one to be written. */
static int check_flips(const ax_codeheap *heap, uint64_t exec, ax_detail *detail)
{
    const ax_code_counters *c = &heap->counters;
    if (c->flips_to_exec != c->flips_to_write + exec + heap->exec_gone) {
        return corrupt(detail, "flips and executable chunks", c->flips_to_exec,
                       c->flips_to_write + exec + heap->exec_gone, 0);
    }
    return c->flips_to_write <= c->allocs + heap->openings
               ? AX_OK
               : corrupt(detail, "flips to write without an alloc", c->flips_to_write,
                         c->allocs + heap->openings, 0);
}

int ax_codeheap_check(const ax_codeheap *heap, ax_detail *detail)
{
    uint64_t chunks = 0;
    uint64_t blocks = 0;
    uint64_t bytes = 0;
    uint64_t exec = 0;
    uint64_t vmas = 0;
    uint64_t empty = 0;
    uint64_t empty_chunks = 0;
    const uint64_t alignment = alignment_of_headers(heap);
    for (uint32_t place = 0; place < heap->chunks_alive; place++) {
        const ax_code_chunk *chunk = &heap->chunks[heap->by_address[place]];
        int status = check_chunk(heap, heap->by_address[place], alignment, &blocks, detail);
        if (status != AX_OK) {
            return status;
        }
        chunks++;
        bytes += chunk->bytes;
        exec += chunk->exec;
        empty += chunk->used_blocks == 0 ? chunk->bytes : 0;
        empty_chunks += chunk->used_blocks == 0;
        vmas += place == 0 ||
                !ax_code_same_vma(heap, heap->by_address[place - 1], heap->by_address[place]);
        status = check_place(heap, place, detail);
        if (status != AX_OK) {
            return status;
        }
    }
    ax_code_totals t;
    ax_codeheap_totals(heap, &t);
    if (t.blocks != blocks) {
        return corrupt(detail, "blocks outside every chunk", t.blocks, blocks, 0);
    }
    /* Conservation: every byte is header, free, or a used payload. */
    if (t.header_bytes + t.free_bytes + t.payload_bytes != bytes || bytes != heap->mapped_bytes) {
        return corrupt(detail, "bytes of blocks and chunks",
                       t.header_bytes + t.free_bytes + t.payload_bytes, bytes, 0);
    }
    if (t.code_bytes != heap->code_bytes) {
        return corrupt(detail, "bytes of code", heap->code_bytes, t.code_bytes, 0);
    }
    if (empty != heap->empty_bytes) {
        return corrupt(detail, "bytes of empty chunks", heap->empty_bytes, empty, 0);
    }
    if (empty_chunks != heap->empty_chunks) {
        return corrupt(detail, "number of empty chunks", heap->empty_chunks, empty_chunks, 0);
    }
    if (vmas != heap->vmas) {
        return corrupt(detail, "VMAs", heap->vmas, vmas, 0);
    }
    int status = check_flips(heap, exec, detail);
    status = status == AX_OK ? check_age(heap, detail) : status;
    return status == AX_OK ? check_lists(heap, t.listed_blocks, detail) : status;
}
