// Every form of new that fails, in every way. Prints, for each case, how often the new_handler was
// called and what came of it: the same whether or not the program is recorded.
#include <csetjmp>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <new>
#include <pthread.h>

static const std::size_t huge = std::size_t(1) << 62;
static const std::align_val_t wide = std::align_val_t(128);

static int called;
static jmp_buf back;

// Keeps a compiler from leaving out what nobody looks at.
static void *volatile seen;

static void three_times()
{
    if (++called % 3 == 0) {
        std::set_new_handler(nullptr);
    }
}

static void throws_an_int()
{
    called++;
    throw 7;
}

static void jumps()
{
    called++;
    std::longjmp(back, 1);
}

// Asks for memory itself: once it gets it, once it does not and catches that, and then it passes
// the exception on.
static void allocates()
{
    called++;
    ::operator delete(::operator new(100));
    std::set_new_handler(nullptr);
    try {
        seen = ::operator new[](huge + 1);
    } catch (const std::bad_alloc &) {
        called += 10;
    }
    seen = ::operator new(huge + 2, wide);
}

static void throws_after_a_jump()
{
    called++;
    if (setjmp(back) == 0) {
        std::set_new_handler(jumps);
        seen = ::operator new(huge + 3);
    }
    throw 8;
}

static void waits_for_its_end()
{
    called++;
    for (;;) {
        pthread_testcancel();
    }
}

template <class F> static int fails(F form)
{
    try {
        seen = form();
    } catch (const std::bad_alloc &) {
        return 1;
    } catch (int number) {
        return number;
    }
    return seen ? -1 : 0;
}

static void *cancelled(void *)
{
    std::set_new_handler(waits_for_its_end);
    seen = ::operator new(huge);
    return nullptr;
}

int main(int argc, char **argv)
{
    const char *name = argc > 1 ? argv[1] : "forms";
    int sum = 0;
    if (!std::strcmp(name, "forms")) {
        for (int k = 0; k < 10; k++) {
            sum += fails([] { return ::operator new(huge); });
            sum += fails([] { return ::operator new[](huge); });
            sum += fails([] { return ::operator new(huge, wide); });
            sum += fails([] { return ::operator new[](huge, wide); });
            sum += fails([] { return ::operator new(huge, std::nothrow); });
            sum += fails([] { return ::operator new[](huge, std::nothrow); });
            sum += fails([] { return ::operator new(huge, wide, std::nothrow); });
            sum += fails([] { return ::operator new[](huge, wide, std::nothrow); });
            void *kept = ::operator new(40 + std::size_t(k), wide);
            seen = kept;
            ::operator delete(kept, wide);
        }
    } else if (!std::strcmp(name, "null")) {
        for (int k = 0; k < 7; k++) {
            void *volatile none = nullptr;
            ::operator delete(none);
            ::operator delete[](none);
        }
    } else if (!std::strcmp(name, "handler")) {
        for (int k = 0; k < 5; k++) {
            std::set_new_handler(three_times);
            sum += fails([] { return ::operator new(huge); });
        }
    } else if (!std::strcmp(name, "int")) {
        std::set_new_handler(throws_an_int);
        for (int k = 0; k < 5; k++) {
            sum += fails([] { return ::operator new(huge, wide); });
        }
    } else if (!std::strcmp(name, "allocates")) {
        for (int k = 0; k < 5; k++) {
            std::set_new_handler(allocates);
            sum += fails([] { return ::operator new(huge); });
        }
    } else if (!std::strcmp(name, "jumps")) {
        for (volatile int k = 0; k < 20; k = k + 1) {
            std::set_new_handler(jumps);
            if (setjmp(back) == 0) {
                seen = ::operator new(huge);
            }
        }
        std::set_new_handler(nullptr);
        sum += fails([] { return ::operator new(huge + 4); });
    } else if (!std::strcmp(name, "jumps-inside")) {
        for (int k = 0; k < 20; k++) {
            std::set_new_handler(throws_after_a_jump);
            sum += fails([] { return ::operator new(huge + 5); });
        }
    } else if (!std::strcmp(name, "cancelled")) {
        pthread_t thread;
        pthread_create(&thread, nullptr, cancelled, nullptr);
        while (!*const_cast<volatile int *>(&called)) {
        }
        pthread_cancel(thread);
        pthread_join(thread, nullptr);
        std::set_new_handler(nullptr);
        sum += fails([] { return ::operator new(huge + 6); });
    } else if (!std::strcmp(name, "uncaught")) {
        std::set_terminate([] { std::_Exit(3); });
        seen = ::operator new(huge);
    }
    std::printf("called %d\nsum %d\n", called, sum);
    return 0;
}
