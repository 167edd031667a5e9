/* ptrlist: the ladder to its end, and buffers that move along it. */
#include "check.h"

#include <string.h>

#include "../core/ptrlist.h"

#define MIB (UINT64_C(1) << 20)

static void rung_is(const ax_ladder *ladder, uint32_t rung, uint64_t bytes, uint32_t capacity)
{
    CHECK(rung < ladder->rungs);
    CHECK(ladder->bytes[rung] == bytes);
    CHECK(ladder->capacity[rung] == capacity);
}

static void test_64_bit(void)
{
    ax_ladder l;
    CHECK(ax_ladder_init(&l, 8, 8, NULL) == AX_OK);
    rung_is(&l, 0, 0, 0);
    for (uint32_t r = 1; r <= 20; r++) { /* 16 (1), 32 (3), 64 (7), ..., 8 MiB */
        rung_is(&l, r, UINT64_C(8) << r, (1u << r) - 1);
    }
    rung_is(&l, 8, 2048, 255);
    rung_is(&l, 9, 4096, 511);
    static const uint64_t mib[] = {8, 9, 11, 13, 15, 17, 20, 23};
    for (uint32_t i = 0; i < 8; i++) {
        rung_is(&l, 20 + i, mib[i] * MIB, (uint32_t)(mib[i] * MIB / 8 - 1));
    }
    CHECK(l.rungs == 65);
    rung_is(&l, 64, 2208301056, 276037631);
}

static void test_32_bit(void)
{
    ax_ladder l;
    CHECK(ax_ladder_init(&l, 8, 4, NULL) == AX_OK);
    rung_is(&l, 0, 0, 0);
    rung_is(&l, 1, 12, 1);
    for (uint32_t r = 2; r <= 21; r++) { /* 16 (2), 32 (6), 64 (14), ..., 8 MiB */
        rung_is(&l, r, UINT64_C(4) << r, (1u << r) - 2);
    }
    rung_is(&l, 8, 1024, 254);
    rung_is(&l, 9, 2048, 510);
    rung_is(&l, 22, 9 * MIB, 2359294);
    CHECK(l.rungs == 66);
    rung_is(&l, 65, 2208301056, 552075262);
}

/* The rule in words, entry by entry as a list grows, against the table. */
static void test_rule(uint32_t header, uint32_t pointer, uint32_t rungs)
{
    ax_ladder l;
    CHECK(ax_ladder_init(&l, header, pointer, NULL) == AX_OK);
    CHECK(l.rungs == rungs && l.rungs <= AX_RUNGS);
    CHECK(l.header_bytes == header && l.pointer_bytes == pointer);
    uint64_t bytes = 0;
    uint64_t capacity = 0;
    uint32_t rung = 0;
    for (;;) {
        uint64_t request = header + (capacity + 1) * pointer;
        if (2 * request >= UINT64_C(1) << 32) {
            break;
        }
        if (bytes == 0) {
            bytes = request;
        } else if (request < 8 * MIB) {
            uint64_t p = 1;
            for (; p < request; p *= 2) {
            }
            bytes = p;
        } else {
            bytes = bytes * 9 / 8 > request ? bytes * 9 / 8 : request;
            bytes = (bytes + MIB - 1) / MIB * MIB;
        }
        capacity = (bytes - header) / pointer;
        rung_is(&l, ++rung, bytes, (uint32_t)capacity);
        CHECK(capacity > l.capacity[rung - 1] && bytes > l.bytes[rung - 1]);
        CHECK(ax_ladder_rung(&l, (uint32_t)capacity) == rung);
        CHECK(ax_ladder_rung(&l, l.capacity[rung - 1] + 1) == rung);
    }
    CHECK(rung == l.rungs - 1);
    CHECK(ax_ladder_rung(&l, 0) == 0);
    CHECK(ax_ladder_rung(&l, (uint32_t)capacity + 1) == l.rungs);
    CHECK(ax_ladder_rung(&l, UINT32_MAX) == l.rungs);
}

static void test_parameters(void)
{
    ax_ladder l;
    ax_detail detail = {0};
    CHECK(ax_ladder_init(&l, 65, 8, &detail) == AX_ERR_RANGE);
    CHECK(strcmp(detail.what, "list_header_bytes") == 0);
    CHECK(detail.value == 65 && detail.low == 0 && detail.high == 64);
    static const uint32_t widths[] = {0, 1, 5, 6, 7, 16};
    for (size_t i = 0; i < sizeof widths / sizeof widths[0]; i++) {
        CHECK(ax_ladder_init(&l, 8, widths[i], &detail) == AX_ERR_RANGE);
        CHECK(strcmp(detail.what, "pointer_bytes (4 or 8)") == 0 && detail.value == widths[i]);
    }
}

/* Up, down and off again; entries stay, refusals change nothing. */
static void test_set_rung(enum ax_backing backing)
{
    ax_ladder ladder;
    ax_seam seam;
    ax_ptrlist list = {0};
    CHECK(ax_ladder_init(&ladder, 8, 8, NULL) == AX_OK);
    ax_seam_init(&seam, backing);

    CHECK(ax_ptrlist_set_rung(&list, &ladder, &seam, 0) == AX_OK); /* there already */
    seam.fail_at = 1;
    CHECK(ax_ptrlist_set_rung(&list, &ladder, &seam, 2) == AX_ERR_NOMEM);
    CHECK(list.buffer == 0 && list.rung == 0 && list.capacity == 0 && seam.bytes_held == 0);

    CHECK(ax_ptrlist_set_rung(&list, &ladder, &seam, 2) == AX_OK);
    CHECK(list.capacity == 3 && list.rung == 2 && seam.bytes_held == 32);
    for (uint64_t i = 0; i < 3; i++) {
        if (backing == AX_BACKING_REAL) {
            ax_ptrlist_entries(&list)[i] = 100 + i;
        }
        list.len++;
    }
    ax_ptrlist before = list;
    seam.fail_at = seam.attempts + 1;
    CHECK(ax_ptrlist_set_rung(&list, &ladder, &seam, 7) == AX_ERR_NOMEM);
    CHECK(ax_ptrlist_set_rung(&list, &ladder, &seam, 1) == AX_ERR_STATE);
    CHECK(ax_ptrlist_set_rung(&list, &ladder, &seam, 0) == AX_ERR_STATE);
    CHECK(ax_ptrlist_set_rung(&list, &ladder, &seam, ladder.rungs) == AX_ERR_OVERFLOW);
    CHECK(ax_ptrlist_set_rung(&list, &ladder, &seam, UINT32_MAX) == AX_ERR_OVERFLOW);
    CHECK(memcmp(&before, &list, sizeof list) == 0);

    uint64_t attempts = seam.attempts;
    CHECK(ax_ptrlist_set_rung(&list, &ladder, &seam, 2) == AX_OK); /* no call at all */
    CHECK(seam.attempts == attempts);
    CHECK(ax_ptrlist_set_rung(&list, &ladder, &seam, 10) == AX_OK);
    CHECK(list.capacity == 1023 && seam.bytes_held == 8192);
    CHECK(ax_ptrlist_set_rung(&list, &ladder, &seam, 2) == AX_OK);
    CHECK(list.capacity == 3 && seam.bytes_held == 32);
    for (uint64_t i = 0; backing == AX_BACKING_REAL && i < 3; i++) {
        CHECK(ax_ptrlist_entries(&list)[i] == 100 + i);
    }
    list.len = 0;
    CHECK(ax_ptrlist_set_rung(&list, &ladder, &seam, 0) == AX_OK);
    CHECK(list.buffer == 0 && list.capacity == 0 && list.rung == 0);
    CHECK(seam.bytes_held == 0 && seam.bytes_peak == 8192);
    CHECK(seam.calls[AX_CALL_MALLOC] == 1 && seam.calls[AX_CALL_REALLOC] == 2);
    CHECK(seam.calls[AX_CALL_FREE] == 1);
}

int main(void)
{
    test_64_bit();
    test_32_bit();
    test_rule(8, 8, 65);
    test_rule(8, 4, 66);
    test_rule(0, 8, 66);
    test_rule(16, 8, 65);
    test_rule(64, 8, 63);
    test_rule(0, 4, 67);
    for (uint32_t header = 0; header <= 64; header++) {
        ax_ladder ladder;
        for (uint32_t pointer = 4; pointer <= 8; pointer += 4) {
            CHECK(ax_ladder_init(&ladder, header, pointer, NULL) == AX_OK);
            test_rule(header, pointer, ladder.rungs);
        }
    }
    test_parameters();
    test_set_rung(AX_BACKING_REAL);
    test_set_rung(AX_BACKING_MODELLED);
    return check_report();
}
