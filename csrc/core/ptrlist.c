#include "ptrlist.h"

#include <string.h>

#define MIB (UINT64_C(1) << 20)
#define EIGHTHS_FROM (8 * MIB)

static uint64_t power_of_two_from(uint64_t n)
{
    uint64_t p = 1;
    while (p < n) {
        p <<= 1;
    }
    return p;
}

int ax_ladder_init(ax_ladder *ladder, uint32_t header_bytes, uint32_t pointer_bytes,
                   ax_detail *detail)
{
    if (header_bytes > 64) {
        return ax_fail(detail, AX_ERR_RANGE, "list_header_bytes", header_bytes, 0, 64, 0);
    }
    if (pointer_bytes != 4 && pointer_bytes != 8) {
        return ax_fail(detail, AX_ERR_RANGE, "pointer_bytes (4 or 8)", pointer_bytes, 4, 8, 0);
    }
    memset(ladder, 0, sizeof *ladder);
    ladder->header_bytes = header_bytes;
    ladder->pointer_bytes = pointer_bytes;
    uint64_t bytes = header_bytes + pointer_bytes;
    uint32_t rung = 1;
    for (;;) {
        uint64_t capacity = (bytes - header_bytes) / pointer_bytes;
        ladder->bytes[rung] = bytes;
        ladder->capacity[rung] = (uint32_t)capacity;
        rung++;
        uint64_t request = header_bytes + (capacity + 1) * pointer_bytes;
        if (2 * request > UINT32_MAX || rung == AX_RUNGS) {
            break;
        }
        if (request < EIGHTHS_FROM) {
            bytes = power_of_two_from(request);
        } else {
            uint64_t larger = bytes + bytes / 8;
            bytes = ((larger > request ? larger : request) + MIB - 1) & ~(MIB - 1);
        }
    }
    ladder->rungs = rung;
    return AX_OK;
}

uint32_t ax_ladder_rung(const ax_ladder *ladder, uint32_t entries)
{
    uint32_t rung = 0;
    while (rung < ladder->rungs && ladder->capacity[rung] < entries) {
        rung++;
    }
    return rung;
}

int ax_ptrlist_set_rung(ax_ptrlist *list, const ax_ladder *ladder, ax_seam *seam, uint32_t rung)
{
    int status = AX_OK;
    if (rung >= ladder->rungs) {
        return AX_ERR_OVERFLOW;
    }
    if (ladder->capacity[rung] < list->len) {
        return AX_ERR_STATE;
    }
    if (rung == list->rung) {
        return AX_OK;
    }
    uint64_t base = list->rung ? list->buffer - ladder->header_bytes : 0;
    uint64_t base_bytes = ladder->bytes[list->rung];
    if (rung == 0) {
        ax_seam_free(seam, base, base_bytes);
    } else if (list->rung == 0) {
        status = ax_seam_malloc(seam, ladder->bytes[rung], &base);
    } else {
        status = ax_seam_realloc(seam, base, base_bytes, ladder->bytes[rung], &base);
    }
    if (status == AX_OK) {
        list->buffer = rung ? base + ladder->header_bytes : 0;
        list->rung = rung;
        list->capacity = ladder->capacity[rung];
    }
    return status;
}
