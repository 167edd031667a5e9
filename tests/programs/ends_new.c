/* Ways to end, and not to end. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static void last_words(void)
{
    free(malloc(4321));
}

int main(int argc, char **argv)
{
    free(malloc(1234));
    if (!strcmp(argv[1], "quick")) {
        at_quick_exit(last_words);
        quick_exit(5);
    }
    /* Children that share our memory end; we do not, until we are killed. */
    for (int k = 0; k < 3; k++) {
        const pid_t child = vfork();
        if (child == 0) {
            if (k == 0) {
                _exit(0);
            } else if (k == 1) {
                _Exit(0);
            }
            execl("/bin/true", "true", NULL);
            _exit(1);
        }
        waitpid(child, NULL, 0);
    }
    free(malloc(1235));
    raise(SIGKILL);
    return argc;
}
