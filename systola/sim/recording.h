// SPDX-License-Identifier: Apache-2.0
//
// What happens in a machine that is built to record, cycle by cycle; sim/events.py says what it shows.

#pragma once

#include <cstdint>
#include <cstring>
#include <vector>

#include "constants.h"  // made by constants.py
#include "harness.h"

// The course of a program.
class Recording {
  public:
    static constexpr unsigned MAX_SAMPLES = 1 << 14;  // then every other one is dropped

    // Something happened in a cycle; in how many cycles so far each level was up, this one included.
    struct Event {
        uint32_t cycle, events;
        uint32_t value[2];
        uint32_t totals[LEVELS];
    };
    // The same at the end of each interval of the same length.
    struct Sample {
        uint32_t totals[LEVELS];
    };

    void begin() {
        events_.clear();
        samples_.clear();
        interval_ = 1;
        std::memset(totals_, 0, sizeof totals_);
    }

    // `now` is the output: 32 bits of events, 64 of a value, 32 of levels.
    void take(uint64_t cycle, const uint32_t* now) {
        for (unsigned i = 0; i < LEVELS; ++i) totals_[i] += now[3] >> i & 1;
        if (now[0]) {
            Event event{static_cast<uint32_t>(cycle), now[0], {now[1], now[2]}, {}};
            std::memcpy(event.totals, totals_, sizeof totals_);
            events_.push_back(event);
        }
        if ((cycle + 1) % interval_) return;
        Sample sample;
        std::memcpy(sample.totals, totals_, sizeof totals_);
        samples_.push_back(sample);
        if (samples_.size() < MAX_SAMPLES) return;
        for (unsigned i = 0; i < MAX_SAMPLES / 2; ++i) samples_[i] = samples_[2 * i + 1];
        samples_.resize(MAX_SAMPLES / 2);
        interval_ *= 2;
    }

    const std::vector<Event>& events() const { return events_; }
    const std::vector<Sample>& samples() const { return samples_; }
    uint32_t interval() const { return interval_; }

  private:
    std::vector<Event> events_;
    std::vector<Sample> samples_;
    uint32_t interval_ = 1;
    uint32_t totals_[LEVELS] = {};
};

template <typename MODEL>
constexpr bool records = requires(MODEL& model) { model.machine_events; };

template <typename MODEL>
void record(MODEL& model, uint64_t cycle, Recording& recording) {
    if constexpr (records<MODEL>) {
        uint32_t now[4];
        std::memcpy(now, bytes_of(model.machine_events), sizeof now);
        recording.take(cycle, now);
    }
    (void)model, (void)cycle, (void)recording;
}
