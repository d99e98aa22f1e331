// SPDX-License-Identifier: Apache-2.0
//
// The Verilated requantiser against the formula of Activate, one random case a cycle.
// Usage: program SEED COUNT. Prints how many cases were equal, or the first that was not.
//
// BITS is the width of a result, LATENCY and the STAGEs are those of hdl/activation/requantiser.py.

#include <algorithm>
#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include "Vunit.h"
#include "verilated.h"

namespace {

constexpr int64_t LOWEST = INT32_MIN, HIGHEST = INT32_MAX;
constexpr int64_t CODE_LOWEST = -(int64_t{1} << (BITS - 1)), CODE_HIGHEST = -CODE_LOWEST - 1;
constexpr uint64_t REPORT_EVERY = 10'000'000;

struct Case {
    int64_t accumulator, bias, multiplier, offset, low, high;
    int left, right;
    bool single;
};

// splitmix64
class Random {
  public:
    explicit Random(uint64_t seed) : state_(seed) {}
    uint64_t bits(int count) {
        state_ += 0x9E3779B97F4A7C15ULL;
        uint64_t z = state_;
        z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ULL;
        z = (z ^ (z >> 27)) * 0x94D049BB133111EBULL;
        return (z ^ (z >> 31)) >> (64 - count);
    }
    int64_t between(int64_t low, int64_t high) {
        return low + static_cast<int64_t>(bits(63) % static_cast<uint64_t>(high - low + 1));
    }
    // A signed number of a random size; sometimes an end of the range of int32.
    int64_t number() {
        const uint64_t kind = bits(5);
        if (kind == 0) return LOWEST;
        if (kind == 1) return HIGHEST;
        const int size = static_cast<int>(between(1, 31));
        return between(-(int64_t{1} << size), (int64_t{1} << size) - 1);
    }
    Case next() {
        Case c;
        c.accumulator = number();
        c.bias = bits(1) ? number() : 0;
        c.multiplier = static_cast<int64_t>(bits(31));
        if (bits(1)) c.multiplier |= int64_t{1} << 30;
        c.left = bits(2) ? 0 : static_cast<int>(bits(3));
        c.right = static_cast<int>(bits(5));
        c.single = bits(1);
        c.offset = between(CODE_LOWEST, CODE_HIGHEST);
        c.low = CODE_LOWEST;
        c.high = CODE_HIGHEST;
        if (bits(1)) {
            c.low = between(CODE_LOWEST, CODE_HIGHEST);
            c.high = between(c.low, CODE_HIGHEST);
        }
        return c;
    }

  private:
    uint64_t state_;
};

// floor(value / 2^shift)
int64_t floored(__int128 value, int shift) { return static_cast<int64_t>(value >> shift); }

int64_t expected(const Case& c) {
    const auto sum = static_cast<int32_t>(static_cast<uint32_t>(c.accumulator + c.bias));
    const int64_t x = std::clamp(int64_t{sum} << c.left, LOWEST, HIGHEST);
    const __int128 product = static_cast<__int128>(x) * c.multiplier;
    const auto half = [](int shift) { return shift ? static_cast<__int128>(1) << (shift - 1) : 0; };
    int64_t y;
    if (c.single) {
        y = floored(product + half(31 + c.right), 31 + c.right);
    } else {
        // Halves upwards, then halves away from zero.
        const int64_t high = floored(product + half(31), 31);
        const int64_t magnitude = floored(std::abs(high) + half(c.right), c.right);
        y = high < 0 ? -magnitude : magnitude;
    }
    return std::clamp(y + c.offset, c.low, c.high);
}

int64_t result_of(const Vunit& unit) {
    const uint32_t code = unit.result;
    return static_cast<int64_t>(static_cast<uint64_t>(code) << (64 - BITS)) >> (64 - BITS);
}

}  // namespace

int main(int, char** arguments) {
    Random random(std::strtoull(arguments[1], nullptr, 10));
    const uint64_t count = std::strtoull(arguments[2], nullptr, 10);
    constexpr unsigned KEPT = LATENCY + 1;
    Case cases[KEPT];
    Vunit unit;
    unit.rst = 0;
    for (uint64_t cycle = 0; cycle < count + LATENCY; ++cycle) {
        const auto aged = [&](unsigned stage) -> const Case& {
            return cases[(cycle + KEPT - stage) % KEPT];
        };
        cases[cycle % KEPT] = random.next();
        unit.clk = 0;
        unit.accumulator = static_cast<uint32_t>(aged(0).accumulator);
        unit.bias = static_cast<uint32_t>(aged(0).bias);
        unit.shift_left = aged(0).left;
        unit.shift_right = aged(SHIFT_STAGE).right;
        unit.multiplier = static_cast<uint32_t>(aged(MULTIPLIER_STAGE).multiplier);
        unit.rounding = aged(ROUNDING_STAGE).single;
        unit.offset = aged(OFFSET_STAGE).offset & ((1U << BITS) - 1);
        unit.low = aged(CLAMP_STAGE).low & ((1U << BITS) - 1);
        unit.high = aged(CLAMP_STAGE).high & ((1U << BITS) - 1);
        unit.eval();
        if (cycle >= LATENCY) {
            const Case& c = aged(LATENCY);
            if (result_of(unit) != expected(c)) {
                std::printf(
                    "accumulator %" PRId64 ", bias %" PRId64 ", multiplier %" PRId64
                    ", left %d, right %d, %s, offset %" PRId64 ", bounds %" PRId64 " and %" PRId64
                    ": %" PRId64 " instead of %" PRId64 "\n",
                    c.accumulator, c.bias, c.multiplier, c.left, c.right,
                    c.single ? "single" : "double", c.offset, c.low, c.high, result_of(unit),
                    expected(c));
                return 1;
            }
            if ((cycle - LATENCY + 1) % REPORT_EVERY == 0) std::fprintf(stderr, ".");
        }
        unit.clk = 1;
        unit.eval();
    }
    std::printf("%" PRIu64 " cases are equal\n", count);
    return 0;
}
