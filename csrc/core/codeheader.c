#include "codeheader.h"

#include <string.h>

#include "codepolicy.h"

#define WORDS 4
#define WORD_BYTES (WORDS * sizeof(uint32_t))
#define LARGEST_HEADER 4096
#define FILL 0xccu
#define IS_FREE 1u
#define IS_TERMINATOR 2u
#define NO_LOWER UINT32_MAX

static const char *const fields[] = {"end", "lower neighbour", "flags", "check word", "fill"};

/* Any bit of any word changes about half of the bits. */
static uint32_t mixed(const uint32_t word[WORDS], uint64_t offset)
{
    uint64_t z = (uint64_t)word[1] << 32 | word[0];
    z = (z ^ offset ^ (uint64_t)word[2] << 40) * UINT64_C(0x9E3779B97F4A7C15);
    z = (z ^ (z >> 32)) * UINT64_C(0xBF58476D1CE4E5B9);
    return (uint32_t)(z >> 32);
}

static uint64_t offset_of(const ax_codeheap *heap, uint32_t chunk, uint32_t block)
{
    return heap->blocks[block].start - heap->chunks[chunk].base;
}

/* The header of a block, or the terminator above the last one. */
static void words_of(const ax_codeheap *heap, uint32_t chunk, uint32_t block, uint32_t last,
                     uint64_t *offset, uint32_t word[WORDS])
{
    const ax_code_chunk *c = &heap->chunks[chunk];
    uint32_t lower = last;
    if (block == AX_NO_BLOCK) {
        *offset = c->bytes - heap->params.header_bytes;
        word[0] = 0;
        word[2] = IS_TERMINATOR;
    } else {
        const ax_block *b = &heap->blocks[block];
        lower = b->lower;
        *offset = offset_of(heap, chunk, block);
        word[0] = (uint32_t)(b->end - c->base);
        word[2] = b->is_free ? IS_FREE : 0;
    }
    word[1] = lower == AX_NO_BLOCK ? NO_LOWER : (uint32_t)offset_of(heap, chunk, lower);
    word[3] = mixed(word, *offset);
}

static uint8_t byte_of(const uint32_t word[WORDS], uint64_t at)
{
    return (uint8_t)(at < WORD_BYTES ? word[at / 4] >> (at % 4 * 8) : FILL);
}

static void put(const ax_codeheap *heap, uint32_t chunk, uint32_t block, uint32_t last)
{
    const ax_code_chunk *c = &heap->chunks[chunk];
    const uint64_t header = heap->params.header_bytes;
    uint32_t word[WORDS];
    uint64_t offset;
    uint8_t image[LARGEST_HEADER];
    words_of(heap, chunk, block, last, &offset, word);
    if (offset > c->bytes - header) {
        return; /* records that a wrong policy broke; the check names that */
    }
    for (uint64_t i = 0; i < header; i++) {
        image[i] = byte_of(word, i);
    }
    memcpy(ax_at((c->alias ? c->alias : c->base) + offset), image, header);
}

void ax_codeheader_write(ax_codeheap *heap, uint32_t block)
{
    const uint32_t chunk = heap->blocks[block].chunk;
    heap->blocks[block].header_due = heap->chunks[chunk].exec;
    heap->chunks[chunk].headers_due |= heap->chunks[chunk].exec;
    if (!heap->chunks[chunk].exec) {
        put(heap, chunk, block, AX_NO_BLOCK);
    }
}

void ax_codeheader_write_above(ax_codeheap *heap, uint32_t block)
{
    const ax_block *b = &heap->blocks[block];
    ax_code_chunk *chunk = &heap->chunks[b->chunk];
    if (b->higher != AX_NO_BLOCK) {
        ax_codeheader_write(heap, b->higher);
        return;
    }
    chunk->terminator_due = chunk->exec;
    chunk->headers_due |= chunk->exec;
    if (!chunk->exec) {
        put(heap, b->chunk, AX_NO_BLOCK, block);
    }
}

void ax_codeheader_freed(ax_codeheap *heap, uint32_t block)
{
    if (heap->in_band) {
        ax_codeheader_write(heap, block);
    } else if (heap->policy->sized) {
        /* The history counts by itself: it writes into other chunks, too. */
        ax_code_note_header_write(heap, block);
    }
}

void ax_codeheader_catch_up(ax_codeheap *heap, uint32_t chunk)
{
    ax_code_chunk *c = &heap->chunks[chunk];
    uint32_t last = AX_NO_BLOCK;
    for (uint32_t i = c->first; i != AX_NO_BLOCK; i = heap->blocks[i].higher) {
        if (heap->blocks[i].header_due) {
            heap->blocks[i].header_due = 0;
            put(heap, chunk, i, AX_NO_BLOCK);
        }
        last = i;
    }
    if (c->terminator_due) {
        c->terminator_due = 0;
        put(heap, chunk, AX_NO_BLOCK, last);
    }
    c->headers_due = 0;
}

/* --- the check
 * ------------------------------------------------------------------------------------ */

/* Names the first field in which memory is not what the records say. */
static int compare(const ax_codeheap *heap, uint32_t chunk, uint32_t block, uint32_t last,
                   uint64_t which, ax_detail *detail)
{
    const uint64_t header = heap->params.header_bytes;
    uint32_t word[WORDS];
    uint64_t offset;
    words_of(heap, chunk, block, last, &offset, word);
    const uint64_t address = heap->chunks[chunk].base + offset;
    const uint8_t *memory = ax_at(address);
    uint64_t at = 0;
    while (at < header && memory[at] == byte_of(word, at)) {
        at++;
    }
    if (at == header) {
        return AX_OK;
    }
    const uint64_t field = at < WORD_BYTES ? at / 4 : WORDS;
    uint64_t from = field < WORDS ? field * 4 : at;
    const uint64_t to = field < WORDS && from + 4 < header ? from + 4 : header;
    uint64_t found = memory[from];
    uint64_t expected = byte_of(word, from);
    for (uint64_t i = from + 1; field < WORDS && i < to; i++) {
        found |= (uint64_t)memory[i] << ((i - from) * 8);
        expected |= (uint64_t)byte_of(word, i) << ((i - from) * 8);
    }
    return ax_fail(detail, AX_ERR_HEADER, fields[field], found, expected, which, address + from);
}

int ax_codeheader_check(const ax_codeheap *heap, ax_detail *detail)
{
    int status = AX_OK;
    for (uint32_t place = 0; status == AX_OK && place < heap->chunks_alive; place++) {
        const uint32_t index = heap->by_address[place];
        const ax_code_chunk *chunk = &heap->chunks[index];
        uint32_t last = AX_NO_BLOCK;
        uint64_t which = (uint64_t)place << 32;
        int due = chunk->terminator_due;
        for (uint32_t i = chunk->first; status == AX_OK && i != AX_NO_BLOCK;
             i = heap->blocks[i].higher) {
            due |= heap->blocks[i].header_due;
            if (!heap->blocks[i].header_due) {
                status = compare(heap, index, i, AX_NO_BLOCK, which, detail);
            }
            which++;
            last = i;
        }
        if (status == AX_OK && !chunk->terminator_due) {
            status = compare(heap, index, AX_NO_BLOCK, last, which | AX_NO_BLOCK, detail);
        }
        if (status == AX_OK && due && !chunk->headers_due) {
            return ax_fail(detail, AX_ERR_CORRUPT, "a chunk does not know that headers are due", 0,
                           1, 0, place);
        }
        if (status == AX_OK && due && !chunk->exec) {
            return ax_fail(detail, AX_ERR_CORRUPT,
                           "headers are due in a chunk that can be written to", 1, 0, 0, place);
        }
    }
    return status;
}
