/* record_sys: system calls and clocks for code that runs inside of a stranger's program.
 *
 * System calls are made directly: errno stays as the program left it, no lock of the C library is
 * taken, and none of the functions that the recorder itself replaces is called. An answer from
 * -4095 to -1 is a negated errno.
 */
#ifndef AX_RECORD_SYS_H
#define AX_RECORD_SYS_H

#include <stdint.h>
#include <sys/syscall.h>
#include <time.h>

static inline long ax_sys(long number, long a, long b, long c, long d, long e, long f)
{
#if defined(__x86_64__)
    register long r10 __asm__("r10") = d;
    register long r8 __asm__("r8") = e;
    register long r9 __asm__("r9") = f;
    long answer;
    __asm__ volatile("syscall"
                     : "=a"(answer)
                     : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
                     : "rcx", "r11", "memory");
    return answer;
#elif defined(__aarch64__)
    register long x8 __asm__("x8") = number;
    register long x0 __asm__("x0") = a;
    register long x1 __asm__("x1") = b;
    register long x2 __asm__("x2") = c;
    register long x3 __asm__("x3") = d;
    register long x4 __asm__("x4") = e;
    register long x5 __asm__("x5") = f;
    __asm__ volatile("svc 0"
                     : "+r"(x0)
                     : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5)
                     : "memory", "cc");
    return x0;
#else
#error "the recorder knows x86-64 and aarch64"
#endif
}

#define AX_SYS0(n) ax_sys((n), 0, 0, 0, 0, 0, 0)
#define AX_SYS1(n, a) ax_sys((n), (long)(a), 0, 0, 0, 0, 0)
#define AX_SYS2(n, a, b) ax_sys((n), (long)(a), (long)(b), 0, 0, 0, 0)
#define AX_SYS3(n, a, b, c) ax_sys((n), (long)(a), (long)(b), (long)(c), 0, 0, 0)
#define AX_SYS4(n, a, b, c, d) ax_sys((n), (long)(a), (long)(b), (long)(c), (long)(d), 0, 0)
#define AX_SYS6(n, a, b, c, d, e, f) \
    ax_sys((n), (long)(a), (long)(b), (long)(c), (long)(d), (long)(e), (long)(f))

static inline int ax_sys_failed(long answer)
{
    return (unsigned long)answer > -4096UL;
}

/* Not through the C library: a program may have a library of its own that plays with the time. */
static inline uint64_t ax_clock_ns(clockid_t clock)
{
    struct timespec now = {0, 0};
    AX_SYS2(SYS_clock_gettime, clock, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* The processor's counter. It may be read before earlier instructions are done... */
static inline uint64_t ax_counter(void)
{
#if defined(__x86_64__)
    uint32_t low, high;
    __asm__ volatile("rdtsc" : "=a"(low), "=d"(high)::"memory");
    return (uint64_t)high << 32 | low;
#else
    uint64_t value;
    __asm__ volatile("isb\n\tmrs %0, cntvct_el0" : "=r"(value)::"memory");
    return value;
#endif
}

/* ...or not. */
static inline uint64_t ax_counter_fenced(void)
{
#if defined(__x86_64__)
    __asm__ volatile("lfence" ::: "memory");
#endif
    return ax_counter();
}

/* All signals, which a program may use for anything, stay outside of what changes shared state. */
static inline uint64_t ax_block_signals(void)
{
    uint64_t all = ~UINT64_C(0), before = 0;
    AX_SYS4(SYS_rt_sigprocmask, 2 /* SIG_SETMASK */, &all, &before, 8);
    return before;
}

static inline void ax_unblock_signals(uint64_t before)
{
    AX_SYS4(SYS_rt_sigprocmask, 2 /* SIG_SETMASK */, &before, 0, 8);
}

#endif
