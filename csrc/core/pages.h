/* pages: the seam to the system. Every byte the core holds comes through here and is counted here.
 *
 *     allocator ──▶ ax_seam ──▶ AX_BACKING_REAL      malloc, realloc, free; mmap, munmap, mprotect
 *                      │   └──▶ AX_BACKING_MODELLED  addresses without memory: no system call
 *                      └─ counts calls and bytes; can be told to fail the n-th call that may fail
 *
 * Two twins share one struct: the malloc twin (chunks of an arena, buffers of its free lists) and
 * the page twin (map, unmap, protect). An allocator that needs memory for its own bookkeeping keeps
 * a second seam for it (its books), so that the counts of the first are exactly the churn of the
 * design under study. Whoever reads or walks traces has books only. On books, arrays grow by room
 * `grow`.
 *
 * Addresses are uint64_t everywhere, so that a 32-bit layout can be modelled on a 64-bit machine.
 * In the modelled backing they are distinct, aligned to 16 bytes (pages: to the page) and must not
 * be touched.
 */
#ifndef AX_PAGES_H
#define AX_PAGES_H

#include <stddef.h>
#include <stdint.h>

#include "status.h"

enum ax_backing { AX_BACKING_REAL = 0, AX_BACKING_MODELLED = 1 };

enum ax_call {
    AX_CALL_MALLOC,
    AX_CALL_REALLOC,
    AX_CALL_FREE,
    AX_CALL_MAP,
    AX_CALL_UNMAP,
    AX_CALL_PROTECT,
    AX_CALL_FILE, /* of the file behind two mappings: memfd_create, ftruncate, close */
    AX_CALLS
};

enum ax_protection {
    AX_PROT_NONE,
    AX_PROT_READ,
    AX_PROT_READ_WRITE,
    AX_PROT_READ_EXEC,
    AX_PROT_READ_WRITE_EXEC
};

typedef struct ax_seam {
    enum ax_backing backing;
    uint64_t calls[AX_CALLS];  /* that succeeded */
    uint64_t failed[AX_CALLS]; /* that failed, for real or by injection */
    uint64_t bytes_held;       /* by the malloc twin */
    uint64_t bytes_peak;
    uint64_t mapped_bytes; /* by the page twin */
    uint64_t mapped_peak;
    uint64_t attempts; /* calls so far that may fail (all but free and close) */
    uint64_t fail_at;  /* fail the attempt of this number, counted from 1; 0: none */
    uint64_t next;     /* modelled: the next address */
} ax_seam;

void ax_seam_init(ax_seam *seam, enum ax_backing backing);

int ax_seam_malloc(ax_seam *seam, uint64_t bytes, uint64_t *address);
int ax_seam_realloc(ax_seam *seam, uint64_t old_address, uint64_t old_bytes, uint64_t bytes,
                    uint64_t *address);
void ax_seam_free(ax_seam *seam, uint64_t address, uint64_t bytes);
/* Memory changes its owner: from now on it is the other seam, of the same backing, that holds and
 * frees it. No call to the backing; nothing else is counted. */
void ax_seam_hand_over(ax_seam *from, ax_seam *to, uint64_t bytes);

/* Zeroed pages, readable and writable. bytes must be a multiple of the page size. */
int ax_seam_map(ax_seam *seam, uint64_t bytes, uint64_t *address);
/* The same with another protection from the start. */
int ax_seam_map_as(ax_seam *seam, uint64_t bytes, enum ax_protection protection, uint64_t *address);
/* The same zeroed pages twice: what is written at *writable can be executed at *executable. Two
 * calls of map and three about the file behind them (memfd), each of which, but for the close, may
 * fail; then there is neither mapping. Each is unmapped by itself. The file has no name and goes
 * with the last of them. */
int ax_seam_map_dual(ax_seam *seam, uint64_t bytes, uint64_t *executable, uint64_t *writable);
int ax_seam_unmap(ax_seam *seam, uint64_t address, uint64_t bytes);
/* Tells the system that whole pages may be forgotten; they read as zero from now on. Advice: it may
 * be ignored, so it is not counted and cannot fail. */
void ax_seam_discard(ax_seam *seam, uint64_t address, uint64_t bytes);
/* Tells the system that memory is large and used all over, so that it may take large pages for it.
 * Advice, as well. */
void ax_seam_prefer_huge(ax_seam *seam, uint64_t address, uint64_t bytes);
int ax_seam_protect(ax_seam *seam, uint64_t address, uint64_t bytes, enum ax_protection protection);

/* The page size of the system. */
uint64_t ax_page_bytes(void);

/* The memory at an address of the real backing. */
static inline void *ax_at(uint64_t address)
{
    return (void *)(uintptr_t)address;
}

#endif
