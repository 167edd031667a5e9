/* Programs that are hard to record, by name: survive NAME [N]. Each ends with status 0, or as its
 * name says; nothing is printed but "ok". */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <malloc.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;
static int number;
static const char *self;

#define CHECK(x)                                                                                   \
    do {                                                                                           \
        if (!(x)) {                                                                                \
            static const char text[] = "failed: " #x "\n";                                         \
            (void)!write(2, text, sizeof text - 1);                                                \
            _exit(70);                                                                             \
        }                                                                                          \
    } while (0)

/* `pairs` of malloc and free, which leave nothing. */
static void churn(long pairs)
{
    void *volatile some[16] = {0};
    for (long k = 0; k < pairs; k++) {
        free(some[k % 16]);
        some[k % 16] = malloc((size_t)(1 + k * 37 % 500));
        CHECK(some[k % 16]);
        memset(some[k % 16], 1, (size_t)(1 + k * 37 % 500));
    }
    for (int k = 0; k < 16; k++) {
        free(some[k]);
    }
}

static void ok(void)
{
    CHECK(write(1, "ok\n", 3) == 3);
}

static int wait_for(pid_t child)
{
    int status = -1;
    while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
    return status;
}

/* --- threads ---------------------------------------------------------------------------------- */

static pthread_key_t key;
static pthread_barrier_t all_here;

static void late_free(void *value)
{
    /* Until the very last round, and then also once more. */
    static _Thread_local int round;
    free(value);
    if (++round < 4) {
        pthread_setspecific(key, malloc(100));
    } else {
        free(malloc(200));
    }
}

static void *small_thread(void *how)
{
    pthread_setspecific(key, malloc(50));
    churn(20);
    if (how) {
        pthread_barrier_wait(&all_here);
    }
    churn(5);
    return NULL;
}

static void threads_at_once(void)
{
    pthread_t *threads = malloc((size_t)number * sizeof *threads);
    pthread_attr_t attr;
    pthread_attr_init(&attr);
    pthread_attr_setstacksize(&attr, 65536);
    pthread_barrier_init(&all_here, NULL, (unsigned)number);
    for (int k = 0; k < number; k++) {
        CHECK(pthread_create(&threads[k], &attr, small_thread, &number) == 0);
    }
    for (int k = 0; k < number; k++) {
        pthread_join(threads[k], NULL);
    }
    free(threads);
    ok();
}

static void threads_in_turn(void)
{
    for (int k = 0; k < number; k++) {
        pthread_t thread;
        CHECK(pthread_create(&thread, NULL, small_thread, NULL) == 0);
        pthread_join(thread, NULL);
    }
    ok();
}

static void *dies(void *how)
{
    pthread_setspecific(key, malloc(50));
    churn(100);
    if (how) {
        pthread_exit(NULL);
    }
    for (;;) {
        free(malloc(10));
        usleep(100); /* where it is cancelled */
    }
}

static void threads_die(void)
{
    for (int k = 0; k < 20; k++) {
        pthread_t thread;
        CHECK(pthread_create(&thread, NULL, dies, k % 2 ? &number : NULL) == 0);
        usleep(1000);
        if (k % 2 == 0) {
            pthread_cancel(thread);
        }
        pthread_join(thread, NULL);
    }
    ok();
}

static _Atomic(void *) shared[1024];

static void *cross(void *arg)
{
    uint64_t x = (uintptr_t)arg * UINT64_C(0x9e3779b97f4a7c15) + 1;
    for (int k = 0; k < number; k++) {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        void *p = malloc(1 + (x >> 30) % 400);
        if (x % 5 == 0) {
            p = realloc(p, 1 + (x >> 40) % 900);
        }
        free(atomic_exchange(&shared[x % 1024], p));
    }
    return NULL;
}

static void cross_frees(void)
{
    enum { N = 32 };
    pthread_t threads[N];
    for (intptr_t k = 0; k < N; k++) {
        CHECK(pthread_create(&threads[k], NULL, cross, (void *)k) == 0);
    }
    for (int k = 0; k < N; k++) {
        pthread_join(threads[k], NULL);
    }
    for (int k = 0; k < 1024; k++) {
        free(shared[k]);
    }
    ok();
}

/* --- processes -------------------------------------------------------------------------------- */

static void close_all(void)
{
    churn(10);
    for (int fd = 3; fd < 1024; fd++) {
        close(fd);
    }
    syscall(SYS_close_range, 3u, ~0u, 0u);
    char name[] = "/tmp/survive-XXXXXX";
    const int fd = mkstemp(name);
    CHECK(fd >= 0 && unlink(name) == 0 && ftruncate(fd, 4096) == 0);
    for (int k = 0; k < 30; k++) {
        CHECK(dup(fd) >= 0); /* the numbers are used again */
    }
    churn(number);
    struct stat now;
    CHECK(fstat(fd, &now) == 0 && now.st_size == 4096 && now.st_blocks == 0);
    ok();
}

static void fork_storm(void)
{
    void *before = malloc(123);
    for (int k = 0; k < number; k++) {
        const pid_t child = k % 3 == 2 ? (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0) : fork();
        CHECK(child >= 0);
        if (child == 0) {
            free(before);
            churn(30);
            if (k % 5 == 0) {
                const pid_t grandchild = fork();
                if (grandchild == 0) {
                    churn(30);
                    _exit(0);
                }
                CHECK(wait_for(grandchild) == 0);
            }
            _exit(0);
        }
        churn(3);
        CHECK(wait_for(child) == 0);
    }
    free(before);
    ok();
}

static atomic_bool stop_now;

static void *busy(void *arg)
{
    (void)arg;
    while (!atomic_load(&stop_now)) {
        churn(100);
        usleep(500);
    }
    return NULL;
}

static void fork_in_threads(void)
{
    pthread_t threads[3];
    for (int k = 0; k < 3; k++) {
        CHECK(pthread_create(&threads[k], NULL, busy, NULL) == 0);
    }
    for (int k = 0; k < number; k++) {
        const pid_t child = fork();
        if (child == 0) {
            churn(50);
            _exit(0);
        }
        CHECK(wait_for(child) == 0);
    }
    atomic_store(&stop_now, true);
    for (int k = 0; k < 3; k++) {
        pthread_join(threads[k], NULL);
    }
    ok();
}

static void vfork_exec(void)
{
    for (int k = 0; k < number; k++) {
        churn(5);
        const pid_t child = vfork();
        if (child == 0) {
            execl("/bin/true", "true", (char *)NULL);
            _exit(1);
        }
        CHECK(wait_for(child) == 0);
        const pid_t failing = vfork();
        if (failing == 0) {
            execl("/nothing/there", "true", (char *)NULL);
            _exit(5);
        }
        const int status = wait_for(failing);
        CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 5);
    }
    ok();
}

static void exec_chain(void)
{
    churn(100);
    if (number == 0) {
        ok();
        return;
    }
    char rest[16];
    snprintf(rest, sizeof rest, "%d", number - 1);
    CHECK(execl("/nothing/there", "x", (char *)NULL) == -1 && errno == ENOENT);
    switch (number % 4) {
    case 0:
        execl(self, self, "exec-chain", rest, (char *)NULL);
        break;
    case 1:
        execlp(self, self, "exec-chain", rest, (char *)NULL);
        break;
    case 2:
        execle(self, self, "exec-chain", rest, (char *)NULL, environ);
        break;
    default: {
        char *argv[] = {(char *)(uintptr_t)self, "exec-chain", rest, NULL};
        execvpe(self, argv, environ);
    }
    }
    CHECK(0);
}

static void daemonise(void)
{
    int ends[2];
    CHECK(pipe(ends) == 0);
    churn(10);
    const pid_t child = fork();
    if (child == 0) {
        CHECK(setsid() > 0 && chdir("/") == 0);
        if (fork() != 0) {
            _exit(0);
        }
        churn(2000);
        CHECK(write(ends[1], "x", 1) == 1);
        exit(0);
    }
    CHECK(wait_for(child) == 0);
    char c;
    close(ends[1]);
    CHECK(read(ends[0], &c, 1) == 1);
    CHECK(read(ends[0], &c, 1) == 0); /* the daemon has gone */
    ok();
}

static void jail(void)
{
    churn(10);
    if (geteuid() == 0) {
        CHECK(chroot("/proc/self/fdinfo") == 0 && chdir("/") == 0);
        CHECK(setgid(65534) == 0 && setuid(65534) == 0);
    }
    churn(number);
    const pid_t child = fork();
    if (child == 0) {
        churn(10);
        _exit(0);
    }
    CHECK(wait_for(child) == 0);
    ok();
}

static void underscore_exit(void)
{
    churn(100);
    ok();
    _exit(0);
}

static void dies_by_abort(void)
{
    churn(number);
    abort();
}

static void dies_by_segv(void)
{
    churn(number);
    *(volatile int *)(uintptr_t)8 = 1;
}

static void dies_by_kill(void)
{
    churn(number);
    kill(getpid(), SIGKILL);
}

static void limits(void)
{
    churn(1000);
    const struct rlimit space = {UINT64_C(400) << 20, RLIM_INFINITY};
    CHECK(setrlimit(RLIMIT_AS, &space) == 0);
    void *most = malloc(300u << 20);
    CHECK(most);
    free(most);
    const struct rlimit file = {4096, RLIM_INFINITY};
    CHECK(setrlimit(RLIMIT_FSIZE, &file) == 0);
    const struct rlimit files = {3, 3};
    CHECK(setrlimit(RLIMIT_NOFILE, &files) == 0);
    churn(number);
    ok();
}

static void seccomp_strict(void)
{
    churn(10);
    void *p = malloc(100);
    CHECK(prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT) == 0);
    for (int k = 0; k < number; k++) {
        free(p);
        p = malloc((size_t)(50 + k % 50));
    }
    ok();
    syscall(SYS_exit, 0);
}

static void seccomp_filter(void)
{
    /* madvise and opening of files kill; the rest may. */
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_madvise, 2, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_openat, 1, 0),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
    };
    const struct sock_fprog program = {sizeof filter / sizeof *filter, filter};
    churn(10);
    CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
    CHECK(syscall(SYS_seccomp, SECCOMP_SET_MODE_STRICT, 77u, NULL) == -1); /* refused: goes on */
    churn(10);
    CHECK(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0u, &program) == 0);
    churn(number);
    ok();
}

/* --- signals ---------------------------------------------------------------------------------- */

/* A handler that interrupts malloc may not call it; what is tried here is the recorder, by the one
 * recorded call that a handler may make anywhere: malloc_usable_size. Prints how many were made. */
static atomic_int handled;
static atomic_long asked;
static void *object;
static sigjmp_buf back;

static void ask(int times)
{
    for (int k = 0; k < times; k++) {
        atomic_fetch_add(&asked, 1);
        CHECK(malloc_usable_size(object) >= 1000);
    }
}

static void asking_handler(int signal)
{
    (void)signal;
    ask(3);
    atomic_fetch_add(&handled, 1);
}

static void tell(void)
{
    char line[64];
    const int n = snprintf(line, sizeof line, "asked %ld\nok\n", atomic_load(&asked));
    CHECK(write(1, line, (size_t)n) == n);
}

static void ticks(void (*handler)(int), long us)
{
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART};
    CHECK(sigaction(SIGALRM, &action, NULL) == 0);
    const struct itimerval every = {{0, us}, {0, us}};
    CHECK(setitimer(ITIMER_REAL, &every, NULL) == 0);
}

static void no_ticks(void)
{
    const struct itimerval never = {{0, 0}, {0, 0}};
    CHECK(setitimer(ITIMER_REAL, &never, NULL) == 0);
}

static void signals(void)
{
    object = malloc(1000);
    ticks(asking_handler, 100);
    while (atomic_load(&handled) < number) {
        ask(100);
    }
    no_ticks();
    tell();
}

static void jumping_handler(int signal)
{
    asking_handler(signal);
    siglongjmp(back, 1);
}

static void jumps(void)
{
    object = malloc(1000);
    if (sigsetjmp(back, 1) == 0) {
        ticks(jumping_handler, 100);
    }
    while (atomic_load(&handled) < number) {
        ask(100);
    }
    no_ticks();
    tell();
}

/* A handler that forks in the middle of anything, without the C library's fork and its locks. */
static void forking_handler(int signal)
{
    asking_handler(signal);
    const pid_t child = (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
    CHECK(child >= 0);
    if (child == 0) {
        number = 0; /* goes on where the parent was interrupted, and ends soon */
        return;
    }
    CHECK(wait_for(child) == 0);
}

static void forks_in_handlers(void)
{
    object = malloc(1000);
    const pid_t parent = getpid();
    ticks(forking_handler, 5000);
    while (atomic_load(&handled) < number) {
        ask(100);
    }
    no_ticks();
    if (getpid() == parent) {
        tell();
    } else {
        _exit(0);
    }
}

/* --- what a program may forbid, and what others may take from it ---------------------------------
 */

/* The processor's counter ends the process from here on. (Also in what it executes, already while
 * that is linked, so nothing is.) */
static void no_counter(void)
{
    churn(100);
#ifdef PR_SET_TSC
    CHECK(prctl(PR_SET_TSC, PR_TSC_SIGSEGV) == 0);
#endif
    churn(100);
    for (int k = 0; k < 3; k++) {
        const pid_t child = fork();
        if (child == 0) {
            free(NULL);
            churn(100);
            k == 1 ? exit(0) : _exit(0);
        }
        CHECK(wait_for(child) == 0);
    }
    ok();
}

/* Prints how much is locked, in KiB. Without the population, which could be too much. */
static void locks_memory(void)
{
    churn(100);
    (void)mlockall(MCL_CURRENT | MCL_ONFAULT);
    long locked = 0;
    char line[200];
    FILE *file = fopen("/proc/self/status", "r");
    while (fgets(line, sizeof line, file)) {
        sscanf(line, "VmLck: %ld", &locked);
    }
    fclose(file);
    churn(number);
    munlockall();
    printf("%ld\n", locked);
    fflush(stdout);
    ok();
}

static bool log_is_mapped(void)
{
    char line[5000];
    bool found = false;
    FILE *file = fopen("/proc/self/maps", "r");
    CHECK(file);
    while (fgets(line, sizeof line, file)) {
        found |= strstr(line, ".axlog") != NULL;
    }
    fclose(file);
    return found;
}

/* Fills the disk that the log is on, and forks. */
static void forks_on_a_full_disk(void)
{
    static char zeroes[4096];
    char path[4200];
    churn(10);
    snprintf(path, sizeof path, "%s/fill", getenv("PYALLOCX_RECORD_DIR"));
    const int fd = open(path, O_WRONLY | O_CREAT | O_APPEND, 0600);
    CHECK(fd >= 0);
    while (write(fd, zeroes, sizeof zeroes) > 0) {
    }
    for (int k = 0; k < number; k++) {
        const pid_t child = fork();
        if (child == 0) {
            churn(1000);
            CHECK(!log_is_mapped());
            const pid_t other = fork();
            if (other == 0) {
                churn(1000);
                exit(0);
            }
            exit(wait_for(other) != 0);
        }
        CHECK(wait_for(child) == 0);
    }
    ok();
}

static atomic_bool go_on = true;

static void *churns(void *what)
{
    while (atomic_load(&go_on)) {
        churn(1000);
    }
    return what;
}

/* Works while somebody else decides about the log; what that is comes line by line from stdin. */
static void goes_on(void)
{
    pthread_t threads[2];
    char byte;
    churn(10);
    for (int k = 0; k < 2; k++) {
        CHECK(pthread_create(&threads[k], NULL, churns, NULL) == 0);
    }
    do {
        churn(number);
        ok();
        CHECK(read(0, &byte, 1) == 1);
    } while (byte == '\n');
    atomic_store(&go_on, false);
    for (int k = 0; k < 2; k++) {
        pthread_join(threads[k], NULL);
    }
    const pid_t child = fork();
    if (child == 0) {
        churn(1000);
        CHECK(!log_is_mapped()); /* it is not recorded, and does not keep the parent's file */
        exit(0);
    }
    CHECK(wait_for(child) == 0);
    struct rlimit limit = {(rlim_t)1 << 40, RLIM_INFINITY};
    CHECK(setrlimit(RLIMIT_AS, &limit) == 0);
    churn(1000);
    ok();
}

static const struct {
    const char *name;
    void (*run)(void);
    int number;
} programs[] = {
    {"threads-at-once", threads_at_once, 500}, {"threads-in-turn", threads_in_turn, 1000},
    {"threads-die", threads_die, 0},           {"cross-frees", cross_frees, 3000},
    {"close-all", close_all, 20000},           {"fork-storm", fork_storm, 30},
    {"fork-in-threads", fork_in_threads, 20},  {"vfork-exec", vfork_exec, 5},
    {"exec-chain", exec_chain, 5},             {"daemonise", daemonise, 0},
    {"jail", jail, 20000},                     {"underscore-exit", underscore_exit, 0},
    {"abort", dies_by_abort, 5000},            {"segv", dies_by_segv, 5000},
    {"kill", dies_by_kill, 5000},              {"limits", limits, 20000},
    {"seccomp-strict", seccomp_strict, 20000}, {"seccomp-filter", seccomp_filter, 20000},
    {"signals", signals, 50},                  {"jumps", jumps, 50},
    {"forks-in-handlers", forks_in_handlers, 20},
    {"no-counter", no_counter, 0},             {"locks-memory", locks_memory, 20000},
    {"forks-on-a-full-disk", forks_on_a_full_disk, 3},
    {"goes-on", goes_on, 200000},
};

int main(int argc, char **argv)
{
    self = "/proc/self/exe";
    CHECK(argc > 1 && pthread_key_create(&key, late_free) == 0);
    for (size_t k = 0; k < sizeof programs / sizeof *programs; k++) {
        if (strcmp(programs[k].name, argv[1]) == 0) {
            number = argc > 2 ? atoi(argv[2]) : programs[k].number;
            programs[k].run();
            return 0;
        }
    }
    return 64;
}
