// A plugin in C++ of a program in C: its C++ library is not where LD_PRELOAD's next functions are.
#include <new>
#include <stdexcept>
#include <string>

static void *volatile seen;

extern "C" int plugin_run()
{
    int caught = 0;
    for (int k = 0; k < 50; k++) {
        std::string *text = new std::string(200, 'p');
        try {
            if (k % 2) {
                throw std::runtime_error(*text);
            }
        } catch (const std::exception &) {
            caught++;
        }
        delete text;
        try {
            volatile size_t huge = SIZE_MAX / 4;
            seen = new char[huge];
        } catch (const std::bad_alloc &) {
            caught++;
        }
    }
    return caught;
}
