/* rawlog: the raw log of the recorder, version 1. Written by csrc/preload/record*.c inside of the
 * recorded program, read by csrc/core/readers/rawlog.c.
 *
 *     DIRECTORY/pyallocx-PID-N.axlog          one file for each process image, N from 0
 *
 *     0           65536                                            header.next        end of file
 *     | header     | window        | window | maps | (no magic) | ...  |  hole           |
 *                  <- multiples of 16384 bytes, back to back ------->
 *
 * A file of 0 bytes is what is left where there was no room for its header: the process ran, and is
 * not recorded. Where it was forked by one that is, that one's children_not_recorded counts it,
 * too.
 *
 * All numbers are little endian. The file is sparse and longer than what is used of it. A program
 * may be killed at any moment, so the log is readable at any moment:
 *
 * - a granule below header.next without one of the two magics is a window whose owner died before
 * it wrote, or that could not be had: skip a granule and look again;
 * - records stand from byte 64 of a window up to a zero word or the window's end, and never cross
 *   its end; word 0 of a record is written last.
 *
 *     word 0   | kind 0-5 | WIDE 6 | FAILED 7 | align_log2 8-13 | 0 0 | address 16-63 |
 *     word 1   | dt 0-31                        | size 32-63                          |
 *
 * dt is the record's stamp less that of the record before it in this window (of the first record:
 * less base_stamp). A WIDE record, needed where dt, size or address do not fit or an alignment is
 * no power of two, has instead
 *
 *     word 1 the alignment as asked    word 2 stamp    word 3 size    word 4 address
 *
 * and bits 8-63 of its word 0 are zero. After these 2 or 5 words:
 *
 * - with flag SITES one word more in the kinds 2..15 and 21: the return address of the caller;
 * - MMAP: prot | flags << 32; MPROTECT: prot; MREMAP: the old address, the old length.
 *
 * A section is what one thread wrote at a stretch: it begins with a THREAD record, or with the
 * window's first record (then of window.thread), and ends at the next THREAD record or the window's
 * end. Stamps never decrease within a section. The sections of one thread do not overlap in time
 * but may be anywhere in the file: put them in the order of their first stamps.
 *
 * Order across threads is that of the stamps: what ends an object's life (a free, the begin of a
 * realloc) is stamped before the call, what begins one after it. Ties and the skew of clocks are
 * decided by addresses.
 */
#ifndef AX_RAWLOG_H
#define AX_RAWLOG_H

#include <stdint.h>

#define AX_RAWLOG_MAGIC UINT64_C(0x474f4c5741525841)        /* "AXRAWLOG" */
#define AX_RAWLOG_WINDOW_MAGIC UINT64_C(0x574f444e49575841) /* "AXWINDOW": records */
#define AX_RAWLOG_MAPS_MAGIC UINT64_C(0x58545350414d5841)   /* "AXMAPSTX": text, NUL padded */
#define AX_RAWLOG_VERSION 1u
#define AX_RAWLOG_HEADER_BYTES 65536u
#define AX_RAWLOG_GRANULE 16384u
#define AX_RAWLOG_WINDOW_HEADER_BYTES 64u
#define AX_RAWLOG_PARENT_FILE_BYTES 256u
#define AX_RAWLOG_EXE_BYTES 4096u
#define AX_RAWLOG_COMMAND_BYTES 32768u

enum ax_rawlog_flag {
    AX_RAWLOG_SITES = 1,
    AX_RAWLOG_MAPS = 2,
    AX_RAWLOG_USABLE = 4,
    AX_RAWLOG_FORKED = 8 /* set by the recorder: the process came from a fork, not from an exec */
};

enum ax_rawlog_clock {
    AX_RAWLOG_TSC = 0,
    AX_RAWLOG_MONOTONIC = 1, /* nanoseconds of CLOCK_MONOTONIC */
    AX_RAWLOG_CNTVCT = 2
};

enum ax_rawlog_ended {
    AX_RAWLOG_RUNNING = 0, /* still, or it was killed */
    AX_RAWLOG_EXIT = 1,
    AX_RAWLOG_UNDERSCORE_EXIT = 2,
    AX_RAWLOG_EXEC = 3
};

enum ax_rawlog_cut {
    AX_RAWLOG_WHOLE = 0,
    AX_RAWLOG_CUT_MAX_BYTES = 1,
    AX_RAWLOG_CUT_DISK = 2,
    AX_RAWLOG_CUT_SECCOMP = 3,
    AX_RAWLOG_CUT_OTHER = 4,
    AX_RAWLOG_CUT_LIMIT = 5 /* of the length of files: RLIMIT_FSIZE */
};

typedef struct ax_rawlog_header {
    uint64_t magic;
    uint32_t version;
    uint32_t header_bytes; /* where the first window begins */
    uint64_t flags;
    uint32_t clock;
    uint32_t pid;
    uint32_t ppid;
    uint32_t ended;
    uint64_t start_realtime_ns;
    uint64_t stamp0; /* one moment by both clocks, at the start */
    uint64_t mono0_ns;
    uint64_t stamp1; /* and another, the last that was taken; 0: none */
    uint64_t mono1_ns;
    uint64_t next;                  /* atomic: offset of the first byte that is not taken */
    uint32_t threads;               /* atomic: numbers given out, from 0 */
    uint32_t cut;                   /* atomic: enum ax_rawlog_cut */
    uint64_t cut_stamp;             /* of the first thing lost: do not use later events */
    uint64_t lost;                  /* atomic: events; others are counted by the windows */
    uint32_t forks;                 /* atomic */
    uint32_t children_not_recorded; /* atomic */
    uint64_t fork_stamp;            /* FORKED: the parent's clock at the fork */
    char parent_file[AX_RAWLOG_PARENT_FILE_BYTES]; /* FORKED: base name of its log */
    uint32_t own_malloc; /* 1: the program defines malloc, its own calls do not reach us */
    uint32_t reserved;
    /* Byte 392, atomic; 0 as the recorder makes it. Whoever reads the log may set it to 1, also
     * after its name is gone: the recorder sees it where it would take the next window, takes none
     * any more, lets go of the file, and makes no logs of later children. */
    uint32_t stop;
    uint32_t command_bytes; /* of `command` */
    char exe[AX_RAWLOG_EXE_BYTES];
    char command[AX_RAWLOG_COMMAND_BYTES]; /* argv, each word ended by NUL */
} ax_rawlog_header;

typedef struct ax_rawlog_window {
    uint64_t magic;
    uint32_t bytes;  /* of the whole window */
    uint32_t thread; /* number of the thread that the first records are of */
    uint64_t base_stamp;
    uint64_t mono_ns;       /* of base_stamp; 0: not taken */
    uint64_t frees_of_null; /* free(NULL) is counted, not recorded */
    uint64_t lost;          /* events that found no room after this window */
    uint64_t reserved[2];
} ax_rawlog_window;

enum ax_rawlog_kind {
    AX_RAWLOG_END = 0,
    /* Address: thread number, size: the system's thread id. The records that follow are of this
     * thread. */
    AX_RAWLOG_THREAD = 1,
    /* Stamped after the call; address 0 and FAILED where it failed; alignment as asked. */
    AX_RAWLOG_MALLOC = 2,
    AX_RAWLOG_CALLOC = 3,       /* size: the product, all ones where it overflows */
    AX_RAWLOG_REALLOC = 4,      /* realloc(NULL, size) */
    AX_RAWLOG_REALLOCARRAY = 5, /* reallocarray(NULL, ...) */
    AX_RAWLOG_POSIX_MEMALIGN = 6,
    AX_RAWLOG_ALIGNED_ALLOC = 7,
    AX_RAWLOG_MEMALIGN = 8,
    AX_RAWLOG_VALLOC = 9,   /* alignment 0 */
    AX_RAWLOG_PVALLOC = 10, /* alignment 0 */
    AX_RAWLOG_NEW = 11,     /* only an operator new that does not call malloc */
    AX_RAWLOG_LAST_SITE = 15,
    /* Stamped before the call. */
    AX_RAWLOG_FREE = 16,
    AX_RAWLOG_DELETE = 17, /* only an operator delete that does not call free */
    /* Begin: the old address and the size as asked, stamped before the call. End: the new address,
     * stamped after it; 0 and FAILED: the old object lives on; 0 without FAILED: it was freed. A
     * begin without an end did not happen. */
    AX_RAWLOG_REALLOC_BEGIN = 20,
    AX_RAWLOG_REALLOC_END = 21,
    AX_RAWLOG_REALLOCARRAY_BEGIN = 22, /* its end is a REALLOC_END, too */
    AX_RAWLOG_USABLE_SIZE = 24,        /* size: the answer, stamped after */
    AX_RAWLOG_MMAP = 32,               /* stamped after */
    AX_RAWLOG_MUNMAP = 33,             /* stamped before */
    AX_RAWLOG_MPROTECT = 34,           /* stamped after */
    AX_RAWLOG_MREMAP = 35,             /* new address and length, stamped after */
    AX_RAWLOG_FORK = 40                /* size: the child's pid; by the parent, stamped after */
};

#define AX_RAWLOG_KIND_MASK UINT64_C(63)
#define AX_RAWLOG_WIDE UINT64_C(64)
#define AX_RAWLOG_FAILED UINT64_C(128)
#define AX_RAWLOG_ALIGN_SHIFT 8
#define AX_RAWLOG_ALIGN_MASK UINT64_C(63)
#define AX_RAWLOG_ADDRESS_SHIFT 16
#define AX_RAWLOG_WORDS 2
#define AX_RAWLOG_WIDE_WORDS 5

_Static_assert(sizeof(ax_rawlog_header) == 37264, "the header's layout is part of the format");
_Static_assert(sizeof(ax_rawlog_window) == AX_RAWLOG_WINDOW_HEADER_BYTES, "so is the window's");

#endif
