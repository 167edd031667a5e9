/* Locks all of its memory and allocates on. Prints what the calls answered, and whether far more
 * memory is locked than the program can have. */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static void churn(int rounds)
{
    for (int k = 0; k < rounds; k++) {
        free(malloc(20 + (size_t)k % 100));
    }
}

static long locked_kib(void)
{
    char line[200];
    long found = -1;
    FILE *file = fopen("/proc/self/status", "r");
    while (fgets(line, sizeof line, file)) {
        sscanf(line, "VmLck: %ld", &found);
    }
    fclose(file);
    return found;
}

static volatile int going = 1;

static void *works(void *unused)
{
    (void)unused;
    while (going) {
        churn(100);
        usleep(100);
    }
    return NULL;
}

int main(int argc, char **argv)
{
    const int flags = atoi(argv[1]);
    const long limit = atol(argv[2]);
    const int raw = argc > 3 && strchr(argv[3], 'r'), plain = argc > 3 && strchr(argv[3], 'u');
    pthread_t thread;
    const int threads = argc > 3 && strchr(argv[3], 't');
    if (limit) {
        const struct rlimit wanted = {(rlim_t)limit, (rlim_t)limit};
        setrlimit(RLIMIT_MEMLOCK, &wanted);
    }
    if (plain && setresuid(65534, 65534, 65534)) {
        return 1;
    }
    if (threads) {
        pthread_create(&thread, NULL, works, NULL);
    }
    churn(1000);
    for (int k = 0; k < 3; k++) {
        errno = 0;
        const long answer = raw ? syscall(SYS_mlockall, (long)flags) : mlockall(flags);
        printf("%ld %s\n", answer, strerror(errno));
        churn(1000);
    }
    churn(20000);
    const long locked = locked_kib();
    printf("%s\n", locked > 200000 ? "too much" : locked ? "locked" : "nothing locked");
    fflush(stdout);
    if (fork() == 0) {
        churn(2000);
        _exit(0);
    }
    wait(NULL);
    if (threads) {
        going = 0;
        pthread_join(thread, NULL);
    }
    munlockall();
    churn(20000);
    return 0;
}
