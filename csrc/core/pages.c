#define _GNU_SOURCE /* MAP_ANONYMOUS and memfd_create under -std=c11 */

#include "pages.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* Modelled addresses start above the page at 0 and stay below 2^32 as long as a 32-bit program's
 * would. */
#define MODEL_BASE UINT64_C(0x10000)

void ax_seam_init(ax_seam *seam, enum ax_backing backing)
{
    memset(seam, 0, sizeof *seam);
    seam->backing = backing;
    seam->next = MODEL_BASE;
}

uint64_t ax_page_bytes(void)
{
    long bytes = sysconf(_SC_PAGESIZE);
    return bytes > 0 ? (uint64_t)bytes : 4096;
}

/* Whether this attempt is the one that a test wants to fail. */
static int injected(ax_seam *seam, enum ax_call call)
{
    seam->attempts++;
    if (seam->attempts == seam->fail_at) {
        seam->failed[call]++;
        return 1;
    }
    return 0;
}

static int refused(ax_seam *seam, enum ax_call call)
{
    seam->failed[call]++;
    return AX_ERR_NOMEM;
}

static uint64_t model_take(ax_seam *seam, uint64_t bytes, uint64_t alignment)
{
    uint64_t address = (seam->next + alignment - 1) & ~(alignment - 1);
    seam->next = address + bytes;
    return address;
}

static void held(ax_seam *seam, uint64_t more, uint64_t less)
{
    seam->bytes_held += more - less;
    if (seam->bytes_held > seam->bytes_peak) {
        seam->bytes_peak = seam->bytes_held;
    }
}

int ax_seam_malloc(ax_seam *seam, uint64_t bytes, uint64_t *address)
{
    if (injected(seam, AX_CALL_MALLOC)) {
        return AX_ERR_NOMEM;
    }
    if (seam->backing == AX_BACKING_MODELLED) {
        *address = model_take(seam, bytes, 16);
    } else {
        void *p = bytes <= PTRDIFF_MAX ? malloc(bytes) : NULL;
        if (!p) {
            return refused(seam, AX_CALL_MALLOC);
        }
        *address = (uint64_t)(uintptr_t)p;
    }
    seam->calls[AX_CALL_MALLOC]++;
    held(seam, bytes, 0);
    return AX_OK;
}

int ax_seam_realloc(ax_seam *seam, uint64_t old_address, uint64_t old_bytes, uint64_t bytes,
                    uint64_t *address)
{
    if (injected(seam, AX_CALL_REALLOC)) {
        return AX_ERR_NOMEM;
    }
    if (seam->backing == AX_BACKING_MODELLED) {
        *address = model_take(seam, bytes, 16);
    } else {
        void *p = bytes <= PTRDIFF_MAX ? realloc(ax_at(old_address), bytes) : NULL;
        if (!p) {
            return refused(seam, AX_CALL_REALLOC);
        }
        *address = (uint64_t)(uintptr_t)p;
    }
    seam->calls[AX_CALL_REALLOC]++;
    held(seam, bytes, old_bytes);
    return AX_OK;
}

void ax_seam_free(ax_seam *seam, uint64_t address, uint64_t bytes)
{
    if (seam->backing == AX_BACKING_REAL) {
        free(ax_at(address));
    }
    seam->calls[AX_CALL_FREE]++;
    held(seam, 0, bytes);
}

void ax_seam_hand_over(ax_seam *from, ax_seam *to, uint64_t bytes)
{
    held(from, 0, bytes);
    held(to, bytes, 0);
}

static const int protection_flags[] = {
    [AX_PROT_NONE] = PROT_NONE,
    [AX_PROT_READ] = PROT_READ,
    [AX_PROT_READ_WRITE] = PROT_READ | PROT_WRITE,
    [AX_PROT_READ_EXEC] = PROT_READ | PROT_EXEC,
    [AX_PROT_READ_WRITE_EXEC] = PROT_READ | PROT_WRITE | PROT_EXEC,
};

/* One call of map. file -1: memory of its own. */
static int map(ax_seam *seam, uint64_t bytes, enum ax_protection protection, int file,
               uint64_t *address)
{
    if (injected(seam, AX_CALL_MAP)) {
        return AX_ERR_NOMEM;
    }
    if (seam->backing == AX_BACKING_MODELLED) {
        *address = model_take(seam, bytes, ax_page_bytes());
    } else {
        const int kind = file < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED;
        void *p = bytes && bytes <= PTRDIFF_MAX
                      ? mmap(NULL, bytes, protection_flags[protection], kind, file, 0)
                      : MAP_FAILED;
        if (p == MAP_FAILED) {
            return refused(seam, AX_CALL_MAP);
        }
        *address = (uint64_t)(uintptr_t)p;
    }
    seam->calls[AX_CALL_MAP]++;
    seam->mapped_bytes += bytes;
    if (seam->mapped_bytes > seam->mapped_peak) {
        seam->mapped_peak = seam->mapped_bytes;
    }
    return AX_OK;
}

int ax_seam_map(ax_seam *seam, uint64_t bytes, uint64_t *address)
{
    return map(seam, bytes, AX_PROT_READ_WRITE, -1, address);
}

int ax_seam_map_as(ax_seam *seam, uint64_t bytes, enum ax_protection protection, uint64_t *address)
{
    return map(seam, bytes, protection, -1, address);
}

/* The mappings hold the file; its number is not needed any longer. */
static void close_file(ax_seam *seam, int file)
{
    if (file >= 0) {
        (void)close(file);
    }
    seam->calls[AX_CALL_FILE]++;
}

/* A file of zeroes in memory, without a name. The model has none, and counts its calls. */
static int make_file(ax_seam *seam, uint64_t bytes, int *file)
{
    const int real = seam->backing == AX_BACKING_REAL;
    if (injected(seam, AX_CALL_FILE)) {
        return AX_ERR_NOMEM;
    }
    if (real) {
        *file = bytes && bytes <= PTRDIFF_MAX ? memfd_create("pyallocx", MFD_CLOEXEC) : -1;
        if (*file < 0) {
            return refused(seam, AX_CALL_FILE);
        }
    }
    seam->calls[AX_CALL_FILE]++;
    int status = AX_OK;
    if (injected(seam, AX_CALL_FILE)) {
        status = AX_ERR_NOMEM;
    } else if (real && ftruncate(*file, (off_t)bytes) != 0) {
        status = refused(seam, AX_CALL_FILE);
    }
    if (status != AX_OK) {
        close_file(seam, *file);
        return status;
    }
    seam->calls[AX_CALL_FILE]++;
    return AX_OK;
}

int ax_seam_map_dual(ax_seam *seam, uint64_t bytes, uint64_t *executable, uint64_t *writable)
{
    int file = -1;
    uint64_t first = 0;
    uint64_t second = 0;
    int status = make_file(seam, bytes, &file);
    if (status != AX_OK) {
        return status;
    }
    status = map(seam, bytes, AX_PROT_READ_EXEC, file, &first);
    if (status == AX_OK) {
        status = map(seam, bytes, AX_PROT_READ_WRITE, file, &second);
        if (status != AX_OK) {
            (void)ax_seam_unmap(seam, first, bytes);
        }
    }
    close_file(seam, file);
    if (status == AX_OK) {
        *executable = first;
        *writable = second;
    }
    return status;
}

int ax_seam_unmap(ax_seam *seam, uint64_t address, uint64_t bytes)
{
    /* munmap can fail where it would have to split a mapping, so a test may make it fail too. */
    if (injected(seam, AX_CALL_UNMAP)) {
        return AX_ERR_NOMEM;
    }
    if (seam->backing == AX_BACKING_REAL && munmap(ax_at(address), bytes) != 0) {
        return refused(seam, AX_CALL_UNMAP);
    }
    seam->calls[AX_CALL_UNMAP]++;
    seam->mapped_bytes -= bytes;
    return AX_OK;
}

void ax_seam_discard(ax_seam *seam, uint64_t address, uint64_t bytes)
{
    if (seam->backing == AX_BACKING_REAL) {
        (void)madvise(ax_at(address), bytes, MADV_DONTNEED);
    }
}

void ax_seam_prefer_huge(ax_seam *seam, uint64_t address, uint64_t bytes)
{
#ifdef MADV_HUGEPAGE
    if (seam->backing == AX_BACKING_REAL) {
        const uint64_t page = ax_page_bytes();
        const uint64_t start = (address + page - 1) & ~(page - 1);
        const uint64_t end = (address + bytes) & ~(page - 1);
        if (start < end) {
            (void)madvise(ax_at(start), end - start, MADV_HUGEPAGE);
        }
    }
#else
    (void)seam;
    (void)address;
    (void)bytes;
#endif
}

int ax_seam_protect(ax_seam *seam, uint64_t address, uint64_t bytes, enum ax_protection protection)
{
    if (injected(seam, AX_CALL_PROTECT)) {
        return AX_ERR_NOMEM;
    }
    if (seam->backing == AX_BACKING_REAL &&
        mprotect(ax_at(address), bytes, protection_flags[protection]) != 0) {
        return refused(seam, AX_CALL_PROTECT);
    }
    seam->calls[AX_CALL_PROTECT]++;
    return AX_OK;
}
