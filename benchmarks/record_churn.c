/* Threads that allocate, write, read and free, a third of it what another thread allocated.
 * record_churn [THREADS [PAIRS [READS]]]: of each object 32 bytes are read READS times, so that
 * there is a program around the allocator. */
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { OWN = 1500, SHARED = 1024, LARGEST = 400 };
static _Atomic(void *) shared[SHARED];
static long pairs = 2000000, reads = 1;

static void *churn(void *seed)
{
    uint64_t x = (uintptr_t)seed * UINT64_C(0x9e3779b97f4a7c15);
    uint64_t sum = 0;
    void **own = calloc(OWN, sizeof *own);
    for (long k = 0; k < pairs; k++) {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        const size_t size = 32 + (x >> 33) % (LARGEST - 31);
        void *new = malloc(size), *old;
        memset(new, (int)size, size);
        if (x % 3 == 0) {
            old = __atomic_exchange_n((void **)&shared[(x >> 8) % SHARED], new, __ATOMIC_ACQ_REL);
        } else {
            const size_t at = (x >> 8) % OWN;
            old = own[at];
            own[at] = new;
        }
        if (old) {
            const unsigned char *bytes = old;
            for (long at = 0; at < 32 * reads; at++) {
                sum = sum * 31 + bytes[at % 32];
            }
        }
        free(old);
    }
    for (int k = 0; k < OWN; k++) {
        free(own[k]);
    }
    free(own);
    return (void *)(uintptr_t)sum;
}

int main(int argc, char **argv)
{
    const int threads = argc > 1 ? atoi(argv[1]) : 2;
    pthread_t thread[64];
    pairs = argc > 2 ? atol(argv[2]) : pairs;
    reads = argc > 3 ? atol(argv[3]) : reads;
    for (intptr_t k = 0; k < threads; k++) {
        pthread_create(&thread[k], NULL, churn, (void *)(k + 1));
    }
    for (int k = 0; k < threads; k++) {
        pthread_join(thread[k], NULL);
    }
    for (int k = 0; k < SHARED; k++) {
        free(shared[k]);
    }
    return 0;
}
