/* What a program gives back of a block that it has: a hole anywhere in it, or all behind its low
 * bytes. */
#include "codeheader.h"
#include "codepolicy.h"

uint64_t ax_code_min_hole(uint32_t rule, uint64_t header, uint64_t least)
{
    switch (rule) {
    case AX_HOLE_MAX_M_2H:
        return least > 2 * header ? least : 2 * header;
    case AX_HOLE_H_M:
        return header + least;
    case AX_HOLE_2H_M:
        return 2 * header + least;
    case AX_HOLE_3H_M:
        return 3 * header + least;
    default:
        return 4 * header + 3 * least;
    }
}

int ax_codeheap_add_remainder(ax_codeheap *heap, uint32_t *list, uint32_t block,
                              uint64_t hole_start, uint64_t hole_end)
{
    const uint64_t header = heap->params.header_bytes;
    const uint64_t p = heap->params.pointer_bytes;
    const uint64_t hole_least =
        ax_code_min_hole(heap->params.min_hole, header, heap->params.min_payload_bytes);
    const uint64_t start = heap->blocks[block].start + header;
    const uint64_t end = heap->blocks[block].end;
    const uint64_t hs = (hole_start + p - 1) & ~(p - 1);
    const uint64_t he = hole_end & ~(p - 1);
    /* The first rule subtracts, as the code of its day did: a hole inside one pointer word wraps
     * and passes. The later ones add. */
    const int too_small =
        heap->params.min_hole == AX_HOLE_MAX_M_2H ? he - hs < hole_least : hs + hole_least > he;
    if (too_small) {
        heap->blocks[block].next = *list;
        *list = block;
        return AX_OK;
    }
    int status = ax_code_reserve(heap, 2);
    if (status != AX_OK) {
        return status;
    }
    const uint64_t code_bytes = heap->blocks[block].code_bytes;
    ax_code_unuse(heap, block);
    if (heap->in_band) {
        ax_codeheader_write(heap, block);
    }
    uint32_t hole = block;
    if (hs == start && he == end) {
        /* all of it */
    } else if (hs == start) {
        uint32_t rest = ax_code_cut(heap, block, he - header);
        ax_code_use(heap, rest, code_bytes);
        heap->blocks[rest].next = *list;
        *list = rest;
    } else {
        hole = ax_code_cut(heap, block, hs);
        uint32_t rest = AX_NO_BLOCK;
        if (he != end) {
            rest = ax_code_cut(heap, hole, he - header);
        }
        /* What the program keeps is not known piece by piece: the low piece is full, the high one
         * has the rest. */
        const uint64_t low_room = hs - start;
        const uint64_t low_bytes = code_bytes < low_room ? code_bytes : low_room;
        if (rest != AX_NO_BLOCK) {
            ax_code_use(heap, rest, code_bytes - low_bytes);
            heap->blocks[rest].next = *list;
            *list = rest;
        }
        ax_code_use(heap, block, low_bytes);
        heap->blocks[block].next = *list;
        *list = block;
    }
    heap->policy->give(heap, hole);
    return AX_OK;
}

int ax_codeheap_shrink(ax_codeheap *heap, uint32_t block, uint64_t size_bytes)
{
    const ax_code_params *p = &heap->params;
    const uint64_t header = p->header_bytes;
    const uint64_t start = ax_block_address(heap, block);
    uint64_t at;
    uint64_t hole_least;
    if (heap->policy->sized) {
        /* As an alloc of this size would have cut it. */
        at = start + ax_code_rounded(heap, size_bytes);
        hole_least = heap->least_rest;
    } else {
        const uint64_t pointer = p->pointer_bytes;
        at = (start + size_bytes + pointer - 1) & ~(pointer - 1);
        hole_least = ax_code_min_hole(p->min_hole, header, p->min_payload_bytes);
    }
    if (at + hole_least <= heap->blocks[block].end) {
        const int status = ax_code_reserve(heap, 1);
        if (status != AX_OK) {
            return status;
        }
        const uint32_t rest = ax_code_cut(heap, block, at);
        heap->policy->give(heap, rest);
    }
    ax_codeheap_set_code(heap, block, size_bytes);
    return AX_OK;
}
