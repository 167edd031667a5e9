// A table-driven size class map in C++17, from a description of scudo's: what a struct that
// pyallocx exports is compiled against in tests.
//
// Config has NumBits, MinSizeLog, MidSizeLog, MaxSizeLog, SizeDelta and Classes[], the sizes of classes
// 1, 2, ... Sizes up to 2^MidSizeLog behind the delta are counted in steps of 2^MinSizeLog; above,
// each doubling has 2^(NumBits - 1) cells, and a byte for each cell holds the class of its end.
#ifndef TABLE_SIZE_CLASS_MAP_H
#define TABLE_SIZE_CLASS_MAP_H

#include <cstdint>

using uptr = std::uintptr_t;
using u8 = std::uint8_t;
using u16 = std::uint16_t;
using u32 = std::uint32_t;
using u64 = std::uint64_t;

template <class Config> class TableMap {
  public:
    static constexpr uptr count = sizeof(Config::Classes) / sizeof(Config::Classes[0]);
    static constexpr uptr largest = Config::Classes[count - 1];
    static constexpr u8 none = 255;

    static constexpr uptr size_of(uptr id) { return Config::Classes[id - 1]; }

    static constexpr uptr class_of(uptr size) {
        if (size <= Config::Classes[0]) {
            return 1;
        }
        size -= Config::SizeDelta;
        if (size <= middle) {
            return ((size - 1) >> Config::MinSizeLog) + 1;
        }
        return table.id[cell_of(size - 1)];
    }

    // The first size that has not the smallest class that holds it; 0 where all have.
    static constexpr uptr first_wrong() {
        for (uptr id = 1; id <= count; id++) {
            if (class_of(size_of(id)) != id) {
                return size_of(id);
            }
        }
        for (uptr size = 1; size <= largest; size++) {
            const uptr id = class_of(size);
            if (id < 1 || id > count || size_of(id) < size || (id > 1 && size_of(id - 1) >= size)) {
                return size;
            }
        }
        return 0;
    }

    // Least set bits lie close enough for two bits a class.
    static constexpr bool packs() {
        uptr low = 64, high = 0;
        for (uptr id = 1; id <= count; id++) {
            uptr bit = 0;
            while (!(size_of(id) >> bit & 1)) {
                bit++;
            }
            low = bit < low ? bit : low;
            high = bit > high ? bit : high;
        }
        return count <= 32 && high - low <= 3;
    }

  private:
    static constexpr uptr steps = Config::NumBits - 1;
    static constexpr uptr middle = uptr{1} << Config::MidSizeLog;
    static constexpr uptr cells = (Config::MaxSizeLog - Config::MidSizeLog) << steps;

    static_assert(count < 255, "ids are bytes, 255 is none");
    static_assert(Config::MidSizeLog >= steps, "a step would be less than a byte");
    static_assert(largest <= (uptr{1} << Config::MaxSizeLog) + Config::SizeDelta, "too large");

    static constexpr uptr cell_of(uptr x) {
        uptr log = 0;
        while (x >> log > 1) {
            log++;
        }
        return ((log - Config::MidSizeLog) << steps) + (x >> (log - steps)) - (uptr{1} << steps);
    }

    struct Table {
        u8 id[cells];
    };

    static constexpr Table make() {
        Table made{};
        uptr end = middle, step = middle >> steps;
        for (uptr i = 0; i < cells; i++) {
            end += step;
            if ((end & (end - 1)) == 0) {
                step *= 2;
            }
            made.id[i] = none;
            for (uptr id = count; id >= 1; id--) {
                if (size_of(id) >= end + Config::SizeDelta) {
                    made.id[i] = static_cast<u8>(id);
                }
            }
        }
        return made;
    }

    static constexpr Table table = make();
};

#endif  // TABLE_SIZE_CLASS_MAP_H
