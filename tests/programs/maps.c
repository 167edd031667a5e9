/* Maps memory as a JIT does; prints the addresses. */
#define _GNU_SOURCE
#include <stdio.h>
#include <sys/mman.h>

int main(void)
{
    char *code = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    mprotect(code, 1 << 20, PROT_READ | PROT_EXEC);
    char *moved = mremap(code, 1 << 20, 4 << 20, MREMAP_MAYMOVE);
    void *refused = mmap(NULL, 0, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    munmap(moved, 4 << 20);
    printf("%lu %lu %d\n", (unsigned long)code, (unsigned long)moved, refused == MAP_FAILED);
    return 0;
}
