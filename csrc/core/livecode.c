#include "livecode.h"

#include <string.h>

#include "codeheader.h"
#include "codepolicy.h"

#define LARGEST_SIZE (UINT64_C(1) << 31)
#define LARGEST_LIMIT (UINT64_C(1) << 32)

/* A replay may ask what a wrong limit does. Here there is memory behind the blocks. */
static int check_limit(const ax_code_params *p, int sized, ax_detail *detail)
{
    const uint64_t least = ax_code_least_limit(p->policy, p->header_bytes, p->min_payload_bytes);
    if (p->byte_limit && p->byte_limit < least) {
        return ax_fail(detail, AX_ERR_RANGE,
                       "byte_limit (with a smaller one this policy cuts blocks that are too small)",
                       p->byte_limit, least, LARGEST_LIMIT, 0);
    }
    if (sized && p->byte_limit > LARGEST_SIZE) {
        return ax_fail(detail, AX_ERR_RANGE, "byte_limit", p->byte_limit, 0, LARGEST_SIZE, 0);
    }
    return AX_OK;
}

int ax_livecode_open(ax_livecode *live, const ax_code_params *params, ax_detail *detail)
{
    memset(live, 0, sizeof *live);
    if (params->wx == AX_WX_PER_THREAD) {
        return ax_fail(detail, AX_ERR_RANGE,
                       "wx (per_thread, protection keys, exists in the model only)", params->wx, 0,
                       AX_WX_RWX, 0);
    }
    ax_seam_init(&live->seam, AX_BACKING_REAL);
    ax_seam_init(&live->books, AX_BACKING_REAL);
    int status = ax_codeheap_init(&live->heap, params, &live->seam, &live->books, detail);
    if (status == AX_OK) {
        status = check_limit(&live->heap.params, live->heap.policy->sized, detail);
    }
    live->open = status == AX_OK;
    live->heap.in_band = live->heap.params.header_bytes > 0;
    return status;
}

void ax_livecode_release(ax_livecode *live)
{
    if (live->open) {
        ax_codeheap_release(&live->heap);
        live->open = 0;
    }
}

int ax_livecode_close(ax_livecode *live, ax_detail *detail)
{
    if (!live->open) {
        return AX_OK;
    }
    int status = ax_codeheap_reset(&live->heap);
    if (status != AX_OK) {
        return ax_fail(detail, status, "the system kept a chunk: the heap is open, close it again",
                       0, 0, 0, 0);
    }
    ax_livecode_release(live);
    return AX_OK;
}

/* Says why a handle is none of a live block. */
AX_APART static int refuse(const ax_livecode *live, ax_code_handle handle, ax_detail *detail)
{
    if (!live->open) {
        return ax_fail(detail, AX_ERR_CLOSED, "code heap is closed", 0, 0, 0, 0);
    }
    if (handle.block >= live->heap.blocks_used) {
        return ax_fail(detail, AX_ERR_FOREIGN, NULL, handle.address, 0, 0, 0);
    }
    const ax_block *b = &live->heap.blocks[handle.block];
    if (b->generation != handle.generation) {
        return ax_fail(detail, b->generation > handle.generation ? AX_ERR_STALE : AX_ERR_FOREIGN,
                       NULL, handle.address, b->generation, 0, handle.generation);
    }
    if (!b->alive || b->is_free) {
        return ax_fail(detail, AX_ERR_DOUBLE_FREE, NULL, handle.address, 0, 0, 0);
    }
    return ax_fail(detail, AX_ERR_FOREIGN, NULL, handle.address, 0, 0, 0);
}

static inline int is_live(const ax_livecode *live, ax_code_handle handle)
{
    /* A closed heap has no blocks. */
    if (handle.block >= live->heap.blocks_used) {
        return 0;
    }
    const ax_block *b = &live->heap.blocks[handle.block];
    /* A record that is unused is free as well. */
    return b->generation == handle.generation && !b->is_free &&
           ax_block_address(&live->heap, handle.block) == handle.address;
}

static inline int find(const ax_livecode *live, ax_code_handle handle, ax_detail *detail)
{
    return is_live(live, handle) ? AX_OK : refuse(live, handle, detail);
}

/* Nobody says, or may say, how much is needed: a block as the design gives it, all of it the
 * program's. */
static int alloc_unsized(ax_livecode *live, uint64_t size_bytes, uint32_t *block, ax_detail *detail)
{
    ax_codeheap *heap = &live->heap;
    if (heap->policy->sized) {
        uint64_t asked = heap->params.byte_limit ? heap->params.byte_limit : ax_code_largest(heap);
        return ax_codeheap_alloc(heap, asked < LARGEST_SIZE ? asked : LARGEST_SIZE, block);
    }
    if (size_bytes) {
        return ax_fail(detail, AX_ERR_RANGE, "size_bytes (a policy of the history is told none)",
                       size_bytes, 0, 0, 0);
    }
    int status = ax_codeheap_alloc(heap, 0, block);
    if (status != AX_OK) {
        return status;
    }
    /* Limits with which the arithmetic is wrong were refused; if it is wrong all the same, nobody
     * gets the block. */
    const ax_block *b = &heap->blocks[*block];
    const ax_code_chunk *chunk = &heap->chunks[b->chunk];
    const uint64_t header = heap->params.header_bytes;
    if (b->start < chunk->base || b->end <= b->start + header ||
        b->end > chunk->base + chunk->bytes - header) {
        return ax_fail(detail, AX_ERR_CORRUPT, "alloc returned a block without room",
                       b->end - b->start, header + 1, 0, *block);
    }
    ax_codeheap_set_code(heap, *block, ax_block_payload(heap, *block));
    return AX_OK;
}

/* A block has been allocated. */
static inline int open_block(ax_livecode *live, uint32_t block, ax_code_handle *handle)
{
    const ax_block *b = &live->heap.blocks[block];
    live->heap.chunks[b->chunk].open_blocks++;
    handle->address = ax_block_address(&live->heap, block);
    handle->block = block;
    handle->generation = b->generation;
    return AX_OK;
}

/* Where the victim alone does not do. The chunk is writable then, and nothing fails after it became
 * so. */
AX_APART static int alloc_by_policy(ax_livecode *live, uint64_t size_bytes, ax_code_handle *handle,
                                    ax_detail *detail)
{
    if (!live->open) {
        return ax_fail(detail, AX_ERR_CLOSED, "code heap is closed", 0, 0, 0, 0);
    }
    uint32_t block = 0;
    const int status = size_bytes && live->heap.policy->sized
                           ? ax_code_alloc_by_policy(&live->heap, size_bytes, &block)
                           : alloc_unsized(live, size_bytes, &block, detail);
    if (status == AX_OK) {
        return open_block(live, block, handle);
    }
    return status == AX_ERR_OVERFLOW
               ? ax_fail(detail, status, "size_bytes is more than a chunk can hold", size_bytes, 0,
                         0, 0)
               : status;
}

int ax_livecode_alloc(ax_livecode *live, uint64_t size_bytes, ax_code_handle *handle,
                      ax_detail *detail)
{
    if (size_bytes) {
        /* A closed heap is not quick. */
        const uint32_t block = ax_code_cut_victim(&live->heap, size_bytes);
        if (block != AX_NO_BLOCK) {
            return open_block(live, block, handle);
        }
    }
    return alloc_by_policy(live, size_bytes, handle, detail);
}

int ax_livecode_shrink(ax_livecode *live, ax_code_handle handle, uint64_t size_bytes,
                       ax_detail *detail)
{
    int status = find(live, handle, detail);
    if (status != AX_OK) {
        return status;
    }
    const ax_block *b = &live->heap.blocks[handle.block];
    if (b->sealed) {
        return ax_fail(detail, AX_ERR_SEALED, "block is sealed: open it before it is shrunk",
                       handle.address, 0, 0, 0);
    }
    if (size_bytes < 1 || size_bytes > b->code_bytes) {
        return ax_fail(detail, AX_ERR_RANGE, "size_bytes (of a block that shrinks)", size_bytes, 1,
                       b->code_bytes, 0);
    }
    return ax_codeheap_shrink(&live->heap, handle.block, size_bytes);
}

uint64_t ax_livecode_size(const ax_livecode *live, ax_code_handle handle)
{
    return live->heap.blocks[handle.block].code_bytes;
}

int ax_livecode_write(ax_livecode *live, ax_code_handle handle, uint64_t offset, const void *code,
                      uint64_t bytes, ax_detail *detail)
{
    int status = find(live, handle, detail);
    if (status != AX_OK) {
        return status;
    }
    const ax_block *b = &live->heap.blocks[handle.block];
    if (b->sealed) {
        return ax_fail(detail, AX_ERR_SEALED, "block is sealed: open it before it is written to",
                       handle.address, 0, 0, 0);
    }
    if (offset > b->code_bytes) {
        return ax_fail(detail, AX_ERR_RANGE, "offset", offset, 0, b->code_bytes, 0);
    }
    if (bytes > b->code_bytes - offset) {
        return ax_fail(detail, AX_ERR_RANGE, "size of the code (behind the offset)", bytes, 0,
                       b->code_bytes - offset, 0);
    }
    if (bytes) {
        const ax_code_chunk *chunk = &live->heap.chunks[b->chunk];
        const uint64_t writable = chunk->alias ? chunk->alias : chunk->base;
        memcpy(ax_at(handle.address - chunk->base + writable + offset), code, bytes);
    }
    return AX_OK;
}

int ax_livecode_seal(ax_livecode *live, ax_code_handle handle, ax_detail *detail)
{
    int status = find(live, handle, detail);
    if (status != AX_OK) {
        return status;
    }
    ax_block *b = &live->heap.blocks[handle.block];
    ax_code_chunk *chunk = &live->heap.chunks[b->chunk];
    if (b->sealed) {
        return ax_fail(detail, AX_ERR_SEALED, "block is sealed already", handle.address, 0, 0, 0);
    }
    /* Before anybody can execute it. */
    char *start = ax_at(handle.address);
    __builtin___clear_cache(start, start + b->code_bytes);
    if (chunk->open_blocks == 1) {
        status = ax_codeheap_mark_exec(&live->heap, b->chunk);
        if (status != AX_OK) {
            return ax_fail(detail, status,
                           "the system refused to make the chunk executable: the block is still "
                           "open, and no block of its chunk runs before it is sealed",
                           handle.address, 0, 0, 0);
        }
    }
    b->sealed = 1;
    chunk->open_blocks--;
    return AX_OK;
}

int ax_livecode_unseal(ax_livecode *live, ax_code_handle handle, ax_detail *detail)
{
    int status = find(live, handle, detail);
    if (status != AX_OK) {
        return status;
    }
    ax_block *b = &live->heap.blocks[handle.block];
    if (!b->sealed) {
        return ax_fail(detail, AX_ERR_SEALED, "block is open already", handle.address, 0, 0, 0);
    }
    status = ax_codeheap_mark_write(&live->heap, b->chunk);
    if (status != AX_OK) {
        return ax_fail(detail, status,
                       "the system refused to make the chunk writable: the block is still sealed",
                       handle.address, 0, 0, 0);
    }
    b->sealed = 0;
    live->heap.openings++;
    live->heap.chunks[b->chunk].open_blocks++;
    return AX_OK;
}

static inline int free_block(ax_livecode *live, ax_code_handle handle)
{
    const ax_block *b = &live->heap.blocks[handle.block];
    live->heap.chunks[b->chunk].open_blocks -= !b->sealed;
    ax_code_free_used(&live->heap, handle.block);
    return AX_OK;
}

/* The last open block of a chunk goes, and others stay. */
AX_APART static int free_and_run(ax_livecode *live, ax_code_handle handle, ax_detail *detail)
{
    const uint32_t chunk = live->heap.blocks[handle.block].chunk;
    const int status = ax_codeheap_mark_exec(&live->heap, chunk);
    return status == AX_OK
               ? free_block(live, handle)
               : ax_fail(detail, status,
                         "the system refused to make the chunk executable: the block is not "
                         "freed, and no block of its chunk runs before it is sealed or freed",
                         handle.address, 0, 0, 0);
}

int ax_livecode_free(ax_livecode *live, ax_code_handle handle, ax_detail *detail)
{
    if (!is_live(live, handle)) {
        return refuse(live, handle, detail);
    }
    const ax_block *b = &live->heap.blocks[handle.block];
    const ax_code_chunk *chunk = &live->heap.chunks[b->chunk];
    if (!b->sealed && chunk->open_blocks == 1 && chunk->used_blocks > 1) {
        return free_and_run(live, handle, detail);
    }
    return free_block(live, handle);
}

/* Whether the code of a chunk runs. Only flip has chunks whose code does not. */
static int runs(const ax_livecode *live, const ax_code_chunk *chunk)
{
    return live->heap.params.wx != AX_WX_FLIP || chunk->exec;
}

int ax_livecode_look(const ax_livecode *live, ax_code_handle handle, int *sealed, int *executable,
                     ax_detail *detail)
{
    int status = find(live, handle, detail);
    if (status == AX_OK) {
        const ax_block *b = &live->heap.blocks[handle.block];
        *sealed = b->sealed;
        *executable = b->sealed && runs(live, &live->heap.chunks[b->chunk]);
    }
    return status;
}

int ax_livecode_totals_now(const ax_livecode *live, ax_livecode_totals *out, ax_detail *detail)
{
    if (!live->open) {
        return ax_fail(detail, AX_ERR_CLOSED, "code heap is closed", 0, 0, 0, 0);
    }
    const ax_codeheap *heap = &live->heap;
    memset(out, 0, sizeof *out);
    ax_codeheap_totals(heap, &out->code);
    for (uint32_t i = 0; i < heap->chunks_alive; i++) {
        const ax_code_chunk *chunk = &heap->chunks[heap->by_address[i]];
        const uint64_t sealed = chunk->used_blocks - chunk->open_blocks;
        out->open_blocks += chunk->open_blocks;
        out->sealed_blocks += sealed;
        out->executable_blocks += runs(live, chunk) ? sealed : 0;
    }
    return AX_OK;
}

int ax_livecode_check(const ax_livecode *live, ax_detail *detail)
{
    if (!live->open) {
        return ax_fail(detail, AX_ERR_CLOSED, "code heap is closed", 0, 0, 0, 0);
    }
    const ax_codeheap *heap = &live->heap;
    int status = ax_codeheap_check(heap, detail);
    for (uint32_t place = 0; status == AX_OK && place < heap->chunks_alive; place++) {
        const uint32_t index = heap->by_address[place];
        const ax_code_chunk *chunk = &heap->chunks[index];
        uint32_t open_blocks = 0;
        for (uint32_t i = chunk->first; i != AX_NO_BLOCK; i = heap->blocks[i].higher) {
            open_blocks += !heap->blocks[i].is_free && !heap->blocks[i].sealed;
        }
        if (open_blocks != chunk->open_blocks) {
            return ax_fail(detail, AX_ERR_CORRUPT, "open blocks of a chunk", chunk->open_blocks,
                           open_blocks, 0, index);
        }
        if (open_blocks && chunk->exec) {
            return ax_fail(detail, AX_ERR_CORRUPT, "a chunk with an open block is executable",
                           open_blocks, 0, 0, index);
        }
        if (chunk->used_blocks > open_blocks && open_blocks == 0 && !runs(live, chunk)) {
            return ax_fail(detail, AX_ERR_CORRUPT, "a chunk of sealed blocks is not executable",
                           chunk->used_blocks, 0, 0, index);
        }
        if ((heap->params.wx == AX_WX_DUAL) != (chunk->alias != 0)) {
            return ax_fail(detail, AX_ERR_CORRUPT, "the second mapping of a chunk", chunk->alias, 0,
                           0, index);
        }
    }
    if (status == AX_OK && heap->in_band) {
        status = ax_codeheader_check(heap, detail);
    }
    return status;
}
