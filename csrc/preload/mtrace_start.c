/* mtrace_start: starts glibc's mtrace in a program that does not call it, as early as a preloaded
 * library can.
 *
 *     LD_PRELOAD="libc_malloc_debug.so.0 mtrace_start.so" MALLOC_TRACE=file program
 *
 * Since glibc 2.34 the mtrace of libc.so is an empty stub, and the working one is in
 * libc_malloc_debug.so.0, whose malloc must come before libc's too. The call below is bound by name
 * and version to the first library in the search order that has it, which is libc_malloc_debug when
 * that is named first. (dlsym(RTLD_DEFAULT, "mtrace") would find the stub: the working function is
 * not its library's default version, and dlsym without a version looks at no others.)
 *
 * Allocations by libraries that are initialised before this one are not in the trace; their frees
 * would be.
 */
#include <mcheck.h>
#include <stdlib.h>

__attribute__((constructor)) static void start(void)
{
    mtrace();
    /* A program that this one executes would overwrite the file. */
    unsetenv("MALLOC_TRACE");
    unsetenv("LD_PRELOAD");
}
