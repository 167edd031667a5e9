/* Loads a library (its path is the argument) for itself only, runs it, gives it back, three times. */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

int main(int argc, char **argv)
{
    for (int k = 0; k < 3; k++) {
        void *library = dlopen(argc > 1 ? argv[1] : "", RTLD_NOW | RTLD_LOCAL);
        if (!library) {
            fprintf(stderr, "%s\n", dlerror());
            return 2;
        }
        int (*run)(void);
        void *found = dlsym(library, "plugin_run");
        memcpy(&run, &found, sizeof run);
        if (run() != 75) {
            return 3;
        }
        dlclose(library);
    }
    puts("ok");
    return 0;
}
