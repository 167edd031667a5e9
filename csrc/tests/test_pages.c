/* pages: both backings count alike, and the n-th call that may fail can be made to. */
#include "check.h"

#include <string.h>

#include "../core/pages.h"

static void test_modelled(void)
{
    ax_seam seam;
    ax_seam_init(&seam, AX_BACKING_MODELLED);
    uint64_t before = 0;
    for (uint64_t bytes = 1; bytes < 100; bytes++) {
        uint64_t address = 0;
        CHECK(ax_seam_malloc(&seam, bytes, &address) == AX_OK);
        CHECK(address % 16 == 0);
        CHECK(address > before); /* of the last byte handed out: none overlap, none is 0 */
        before = address + bytes - 1;
    }
    CHECK(seam.calls[AX_CALL_MALLOC] == 99);
    CHECK(seam.bytes_held == 99 * 100 / 2 && seam.bytes_peak == seam.bytes_held);
    CHECK(seam.mapped_bytes == 0);

    uint64_t moved = 0;
    CHECK(ax_seam_realloc(&seam, before, 99, 1000, &moved) == AX_OK);
    CHECK(moved > before && moved % 16 == 0);
    CHECK(seam.bytes_held == 4950 - 99 + 1000);
    ax_seam_free(&seam, moved, 1000);
    CHECK(seam.bytes_held == 4950 - 99 && seam.bytes_peak == 4950 - 99 + 1000);

    uint64_t page = ax_page_bytes();
    uint64_t mapped = 0;
    CHECK(page >= 4096 && (page & (page - 1)) == 0);
    CHECK(ax_seam_map(&seam, 3 * page, &mapped) == AX_OK);
    CHECK(mapped % page == 0 && mapped > moved);
    CHECK(seam.mapped_bytes == 3 * page);
    CHECK(ax_seam_protect(&seam, mapped, page, AX_PROT_NONE) == AX_OK);
    CHECK(ax_seam_unmap(&seam, mapped, 3 * page) == AX_OK);
    CHECK(seam.mapped_bytes == 0 && seam.mapped_peak == 3 * page);
    CHECK(seam.bytes_held == 4950 - 99);
}

static void test_real(void)
{
    ax_seam seam;
    ax_seam_init(&seam, AX_BACKING_REAL);
    uint64_t address = 0;
    CHECK(ax_seam_malloc(&seam, 100, &address) == AX_OK);
    memset(ax_at(address), 7, 100);
    CHECK(ax_seam_realloc(&seam, address, 100, 5000, &address) == AX_OK);
    uint8_t sevens[100];
    memset(sevens, 7, sizeof sevens);
    CHECK(memcmp(ax_at(address), sevens, sizeof sevens) == 0);
    CHECK(seam.bytes_held == 5000);

    /* What the system refuses is counted, and nothing is lost. */
    uint64_t untouched = 1;
    CHECK(ax_seam_malloc(&seam, UINT64_MAX, &untouched) == AX_ERR_NOMEM);
    CHECK(ax_seam_realloc(&seam, address, 5000, UINT64_MAX, &untouched) == AX_ERR_NOMEM);
    CHECK(ax_seam_map(&seam, UINT64_MAX, &untouched) == AX_ERR_NOMEM);
    CHECK(ax_seam_map(&seam, 0, &untouched) == AX_ERR_NOMEM);
    CHECK(untouched == 1);
    CHECK(seam.failed[AX_CALL_MALLOC] == 1 && seam.failed[AX_CALL_REALLOC] == 1);
    CHECK(seam.failed[AX_CALL_MAP] == 2);
    CHECK(seam.bytes_held == 5000 && seam.mapped_bytes == 0);
    CHECK(memcmp(ax_at(address), sevens, sizeof sevens) == 0);
    ax_seam_free(&seam, address, 5000);
    CHECK(seam.bytes_held == 0 && seam.bytes_peak == 5000);

    uint64_t page = ax_page_bytes();
    CHECK(ax_seam_map(&seam, 2 * page, &address) == AX_OK);
    uint8_t *bytes = ax_at(address);
    uint64_t nonzero = 0;
    for (uint64_t i = 0; i < 2 * page; i++) {
        nonzero += bytes[i] != 0;
    }
    CHECK(nonzero == 0);
    bytes[page] = 9;
    CHECK(ax_seam_protect(&seam, address, 2 * page, AX_PROT_NONE) == AX_OK);
    CHECK(ax_seam_protect(&seam, address, 2 * page, AX_PROT_READ_EXEC) == AX_OK);
    CHECK(ax_seam_protect(&seam, address, 2 * page, AX_PROT_READ) == AX_OK);
    CHECK(bytes[page] == 9);
    CHECK(ax_seam_protect(&seam, address, 2 * page, AX_PROT_READ_WRITE) == AX_OK);
    bytes[0] = 1;
    ax_seam_discard(&seam, address + page, page); /* reads as 0 again; the rest stays */
    CHECK(bytes[page] == 0 && bytes[0] == 1 && seam.mapped_bytes == 2 * page);
    CHECK(ax_seam_protect(&seam, address + 1, page, AX_PROT_READ) == AX_ERR_NOMEM);
    CHECK(ax_seam_unmap(&seam, address + 1, page) == AX_ERR_NOMEM);
    CHECK(seam.failed[AX_CALL_PROTECT] == 1 && seam.failed[AX_CALL_UNMAP] == 1);
    CHECK(seam.calls[AX_CALL_PROTECT] == 4 && seam.mapped_bytes == 2 * page);
    CHECK(ax_seam_unmap(&seam, address, 2 * page) == AX_OK);
    CHECK(seam.mapped_bytes == 0 && seam.calls[AX_CALL_UNMAP] == 1);
}

/* Six calls that may fail and a free that may not; the n-th of the six is told to. */
static void test_injection(enum ax_backing backing, uint64_t n)
{
    static const enum ax_call kinds[] = {AX_CALL_MALLOC,  AX_CALL_REALLOC, AX_CALL_MAP,
                                         AX_CALL_PROTECT, AX_CALL_UNMAP,   AX_CALL_MALLOC};
    ax_seam seam;
    ax_seam_init(&seam, backing);
    seam.fail_at = n;
    uint64_t page = ax_page_bytes();
    uint64_t a = 0;
    uint64_t m = 0;
    uint64_t b = 0;
    uint64_t held = 0;
    int status[6];
    status[0] = ax_seam_malloc(&seam, 64, &a);
    if (status[0] != AX_OK) {
        CHECK(a == 0);
        seam.fail_at = 0;
        CHECK(ax_seam_malloc(&seam, 64, &a) == AX_OK);
        seam.attempts = 1;
        seam.fail_at = n;
    }
    status[1] = ax_seam_realloc(&seam, a, 64, 640, &a);
    held = status[1] == AX_OK ? 640 : 64;
    CHECK(seam.bytes_held == held);
    ax_seam_free(&seam, a, held);
    status[2] = ax_seam_map(&seam, page, &m);
    if (status[2] != AX_OK) {
        CHECK(m == 0 && seam.mapped_bytes == 0);
        seam.fail_at = 0;
        CHECK(ax_seam_map(&seam, page, &m) == AX_OK);
        seam.attempts = 3;
        seam.fail_at = n;
    }
    status[3] = ax_seam_protect(&seam, m, page, AX_PROT_READ);
    status[4] = ax_seam_unmap(&seam, m, page);
    CHECK(seam.mapped_bytes == (status[4] == AX_OK ? 0 : page));
    status[5] = ax_seam_malloc(&seam, 1, &b);
    CHECK(seam.attempts == 6);
    for (uint64_t i = 0; i < 6; i++) {
        CHECK(status[i] == (i + 1 == n ? AX_ERR_NOMEM : AX_OK));
    }
    uint64_t failed = 0;
    for (int call = 0; call < AX_CALLS; call++) {
        failed += seam.failed[call];
    }
    CHECK(failed == (n >= 1 && n <= 6));
    CHECK(n < 1 || n > 6 || seam.failed[kinds[n - 1]] == 1);
    CHECK(seam.failed[AX_CALL_FREE] == 0);
    if (status[4] != AX_OK) {
        CHECK(ax_seam_unmap(&seam, m, page) == AX_OK);
    }
    if (status[5] == AX_OK) {
        ax_seam_free(&seam, b, 1);
    }
    CHECK(seam.bytes_held == 0 && seam.mapped_bytes == 0);
}

/* Two mappings of the same pages, of which each call may fail; then there is neither. */
static void test_dual(enum ax_backing backing)
{
    const uint64_t bytes = 3 * ax_page_bytes();
    for (uint64_t n = 0; n <= 5; n++) {
        ax_seam seam;
        ax_seam_init(&seam, backing);
        seam.fail_at = n;
        uint64_t executable = 0;
        uint64_t writable = 0;
        int status = ax_seam_map_dual(&seam, bytes, &executable, &writable);
        CHECK(status == (n >= 1 && n <= 4 ? AX_ERR_NOMEM : AX_OK));
        CHECK(seam.mapped_bytes == (status == AX_OK ? 2 * bytes : 0));
        CHECK(seam.failed[AX_CALL_FILE] == (n == 1 || n == 2));
        CHECK(seam.failed[AX_CALL_MAP] == (n == 3 || n == 4));
        /* The file is closed, whatever became of it. */
        CHECK(seam.calls[AX_CALL_FILE] == (n == 1 ? 0 : n == 2 ? 2 : 3));
        if (status != AX_OK) {
            CHECK(executable == 0 && writable == 0);
            CHECK(seam.calls[AX_CALL_MAP] == (n == 4) && seam.calls[AX_CALL_UNMAP] == (n == 4));
            continue;
        }
        CHECK(executable != writable && executable % ax_page_bytes() == 0);
        CHECK(seam.calls[AX_CALL_MAP] == 2);
        if (backing == AX_BACKING_REAL) {
            uint8_t *to = ax_at(writable);
            const uint8_t *from = ax_at(executable);
            CHECK(from[0] == 0 && from[bytes - 1] == 0);
            to[0] = 1;
            to[bytes - 1] = 2;
            CHECK(from[0] == 1 && from[bytes - 1] == 2);
        }
        seam.fail_at = 0;
        CHECK(ax_seam_unmap(&seam, writable, bytes) == AX_OK);
        CHECK(ax_seam_unmap(&seam, executable, bytes) == AX_OK);
        CHECK(seam.mapped_bytes == 0 && seam.mapped_peak == 2 * bytes);
    }
    ax_seam seam;
    ax_seam_init(&seam, AX_BACKING_REAL);
    uint64_t executable = 0;
    uint64_t writable = 0;
    CHECK(ax_seam_map_dual(&seam, 0, &executable, &writable) == AX_ERR_NOMEM);
    CHECK(ax_seam_map_dual(&seam, UINT64_MAX, &executable, &writable) == AX_ERR_NOMEM);
    CHECK(seam.failed[AX_CALL_FILE] == 2 && seam.mapped_bytes == 0);
    CHECK(seam.calls[AX_CALL_FILE] == 0);
    CHECK(ax_seam_map_as(&seam, bytes, AX_PROT_READ_WRITE_EXEC, &writable) == AX_OK);
    *(uint8_t *)ax_at(writable) = 1;
    CHECK(ax_seam_unmap(&seam, writable, bytes) == AX_OK && seam.mapped_bytes == 0);
}

int main(void)
{
    test_modelled();
    test_real();
    test_dual(AX_BACKING_REAL);
    test_dual(AX_BACKING_MODELLED);
    for (uint64_t n = 0; n <= 7; n++) {
        test_injection(AX_BACKING_REAL, n);
        test_injection(AX_BACKING_MODELLED, n);
    }
    return check_report();
}
