// Threads that allocate, hand objects to each other, and let the receiver free them.
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>
#include <thread>
#include <vector>

static std::atomic<std::string *> boxes[256];

static void work(unsigned seed, int rounds)
{
    std::map<unsigned, std::vector<char>> mine;
    for (int i = 0; i < rounds; i++) {
        seed = seed * 1103515245u + 12345u;
        auto *made = new std::string(20 + seed / 65536 % 200, 'x');
        delete boxes[seed / 256 % 256].exchange(made);
        mine[seed % 500].resize(1 + seed / 1024 % 900);
    }
}

int main(int argc, char **argv)
{
    const int threads = std::atoi(argv[1]), rounds = std::atoi(argv[2]);
    std::vector<std::thread> all;
    for (int i = 0; i < threads; i++) {
        all.emplace_back(work, 77u + unsigned(i), rounds);
    }
    for (auto &one : all) {
        one.join();
    }
    std::printf("done %d\n", argc);
}
