// C++: static constructors and destructors, thread-local ones, every form of new and delete, and an
// exception from new. Prints how often new and delete were called for real objects, from main's
// begin to main's end.
#include <cstdio>
#include <cstdlib>
#include <new>
#include <string>
#include <thread>
#include <vector>

struct early {
    std::string text = std::string(100, 'x');
    std::vector<int> *numbers = new std::vector<int>(1000);
    ~early()
    {
        delete numbers;
        delete[] new char[77];
    }
};
static early before_main;

struct per_thread {
    char *text = new char[500];
    ~per_thread() { delete[] text; }
};
static thread_local per_thread mine;

struct alignas(128) wide {
    char bytes[300];
};

struct polymorphic {
    virtual ~polymorphic() {}
    long fill[5];
};

// A compiler may leave out a new whose result nobody sees.
static void *volatile seen;

int main(int argc, char **)
{
    int made = 0;
    for (int k = 0; k < 100; k++) {
        int *one = new int(k);
        polymorphic *two = new polymorphic;
        char *three = new (std::nothrow) char[size_t(k + 1)];
        wide *four = new wide;
        wide *five = new (std::nothrow) wide[3];
        void *six = ::operator new(size_t(k));
        void *seven = ::operator new(64, std::align_val_t(64), std::nothrow);
        for (void *p : {(void *)one, (void *)two, (void *)three, (void *)four, (void *)five, six, seven}) {
            seen = p;
        }
        made += 7;
        delete one;
        delete two;
        ::operator delete[](three, std::nothrow);
        delete four;
        delete[] five;
        ::operator delete(six, size_t(k));
        ::operator delete(seven, std::align_val_t(64), std::nothrow);
    }
    int thrown = 0;
    for (int k = 0; k < 10 && argc == 1; k++) { // mimalloc's would abort
        try {
            volatile size_t huge = SIZE_MAX / 4;
            seen = new char[huge];
        } catch (const std::bad_alloc &) {
            thrown++;
        }
    }
    std::vector<std::thread> threads;
    for (int k = 0; k < 4; k++) {
        threads.emplace_back([] { mine.text[0] = 'x'; });
    }
    for (auto &thread : threads) {
        thread.join();
    }
    std::printf("made %d\nthrown %d\n", made, thrown);
    return 0;
}
