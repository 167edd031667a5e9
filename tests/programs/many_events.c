/* Allocates and frees N objects in bursts, with pauses: `many_events N [kill | threads]`. */
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static long number;

static void *work(void *seed)
{
    void *kept[64] = {0};
    for (long k = 0; k < number; k++) {
        const long at = (k * 7 + (long)seed) % 64;
        free(kept[at]);
        kept[at] = malloc((size_t)(k % 300 + 1));
        if (k % 5000 == 0) {
            usleep(4000);
        }
    }
    return NULL;
}

int main(int argc, char **argv)
{
    number = atol(argv[1]);
    const char *how = argc > 2 ? argv[2] : "";
    if (strcmp(how, "threads") == 0) {
        pthread_t other;
        pthread_create(&other, NULL, work, (void *)1);
        work((void *)2);
        pthread_join(other, NULL);
    } else {
        work(NULL);
    }
    if (strcmp(how, "kill") == 0) {
        kill(getpid(), SIGKILL);
    }
    return 0;
}
