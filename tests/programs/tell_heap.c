/* tell_heap: preloaded behind the recorder, says at the program's end what the allocator itself
 * believes to be in use, and marks that moment in the recording by a request of a size that nobody
 * else makes.
 *
 *     TELL_HEAP=FILE: lines "uordblks hblkhd arenas", once per process image
 */
#include <fcntl.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define MARK_BYTES 77777

__attribute__((destructor)) static void tell(void)
{
    const char *path = getenv("TELL_HEAP");
    void *volatile mark;
    struct mallinfo2 info;
    char line[128];
    int fd, length;
    if (!path) {
        return;
    }
    info = mallinfo2();
    mark = malloc(MARK_BYTES);
    free(mark);
    length = snprintf(line, sizeof line, "%zu %zu %zu\n", info.uordblks, info.hblkhd, info.arena);
    fd = open(path, O_WRONLY | O_CREAT | O_APPEND, 0600);
    if (fd >= 0) {
        if (write(fd, line, (size_t)length) != length) {
            _exit(99);
        }
        close(fd);
    }
}
