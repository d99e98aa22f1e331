// SPDX-License-Identifier: Apache-2.0
//
// The memories behind the AXI ports of a Verilated machine, and the rules of AXI that they check.
// They follow the rules of sim/memory.py to the cycle; that file explains them.

#pragma once

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "constants.h"  // made by constants.py

constexpr unsigned QUEUE = 64;          // bursts that a memory accepts before it stops being ready
constexpr unsigned MAX_BEATS = 256;     // AXI4 limit of one burst
constexpr uint8_t SLVERR = 2, DECERR = 3;
constexpr uint8_t INCR = 1;

constexpr unsigned log2_exact(unsigned value) { return value <= 1 ? 0 : 1 + log2_exact(value / 2); }

// One generator of stalls: a 64-bit xorshift compared with a threshold of 24 bits.
class Stall {
  public:
    void seed(uint64_t number, uint32_t threshold) {
        uint64_t z = number + 0x9E3779B97F4A7C15ULL;
        z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ULL;
        z = (z ^ (z >> 27)) * 0x94D049BB133111EBULL;
        z ^= z >> 31;
        state_ = z ? z : 1;
        threshold_ = threshold;
    }
    // To be called once in every cycle. Without stalls the state does not matter.
    bool draw() {
        if (threshold_ == 0) return false;
        state_ ^= state_ << 13;
        state_ ^= state_ >> 7;
        state_ ^= state_ << 17;
        return static_cast<uint32_t>(state_ >> 40) < threshold_;
    }

  private:
    uint64_t state_ = 1;
    uint32_t threshold_ = 0;
};

// First in, first out, of fixed size.
template <typename T, unsigned SIZE>
class Ring {
    static_assert((SIZE & (SIZE - 1)) == 0, "indices wrap by masking");

  public:
    bool empty() const { return head_ == tail_; }
    unsigned size() const { return tail_ - head_; }
    T& front() { return items_[head_ & (SIZE - 1)]; }
    T& at(unsigned index) { return items_[(head_ + index) & (SIZE - 1)]; }
    T& push() { return items_[tail_++ & (SIZE - 1)]; }
    void pop() {
        // Starting over when empty keeps a shallow queue in the cache.
        if (++head_ == tail_) head_ = tail_ = 0;
    }

  private:
    T items_[SIZE];
    unsigned head_ = 0, tail_ = 0;
};

// The first broken rule, as text for the user.
class Complaint {
  public:
    bool any() const { return !text_.empty(); }
    const char* text() const { return text_.c_str(); }
    void raise(uint64_t cycle, const char* port, const char* what) {
        if (any()) return;
        char line[256];
        std::snprintf(line, sizeof line, "cycle %llu, %s: %s",
                      static_cast<unsigned long long>(cycle), port, what);
        text_ = line;
    }

  private:
    std::string text_;
};

struct Parameters {
    uint8_t* data = nullptr;
    uint64_t bytes = 0;
    uint64_t base = 0;                       // bus address of data[0]
    uint64_t window_low = 0, window_high = 0;  // what the machine may touch: [low, high)
    uint32_t latency = 0;
    uint32_t threshold = 0;
    uint64_t seed = 0;
    uint64_t error_low = 0, error_high = 0;  // [low, high) answers SLVERR
    uint64_t silent_low = 0, silent_high = 0;  // a burst with a byte in [low, high) has no answer
};

// What the machine drives on AW or AR in one cycle.
struct Address {
    bool valid = false;
    uint64_t address = 0;
    uint8_t length = 0, size = 0, burst = 0, id = 0;
    bool operator==(const Address& other) const {
        return address == other.address && length == other.length && size == other.size &&
               burst == other.burst && id == other.id;
    }
    uint64_t end(unsigned bus) const { return address + (length + 1ULL) * bus; }
};

// State and rules that reading and writing share.
template <unsigned BUS>
class Side {
  protected:
    Side(const char* name, Complaint& complaint) : name_(name), complaint_(complaint) {}

    uint8_t response(uint64_t address) const {
        const uint64_t offset = address - with_.base;
        if (offset >= with_.bytes || with_.bytes - offset < BUS) return DECERR;
        return address >= with_.error_low && address < with_.error_high ? SLVERR : 0;
    }

    bool silent(const Address& at) const {
        return at.address < with_.silent_high && with_.silent_low < at.end(BUS);
    }

    // Checks an address channel: `now` against the cycle before, and the burst when taken.
    void check(uint64_t cycle, const char* channel, const Address& now, Address& held, bool taken) {
        const auto complain = [&](const char* what) {
            complaint_.raise(cycle, name_, (std::string(channel) + what).c_str());
        };
        if (held.valid && !now.valid) complain("VALID fell before READY");
        else if (held.valid && !(now == held)) complain(" changed before READY");
        held.valid = now.valid && !taken;
        if (held.valid) held = now;
        if (!taken) return;
        if (now.burst != INCR) complain("BURST is not INCR");
        if (now.size != log2_exact(BUS)) complain("SIZE is not the full bus width");
        if (now.address % BUS) complain("ADDR is not aligned to the bus");
        if (now.address % PAGE + (now.length + 1U) * BUS > PAGE) complain(" crosses 4 KiB");
        if (now.address < with_.window_low || now.end(BUS) > with_.window_high)
            complain(" leaves the window");
    }

    Parameters with_;
    const char* name_;
    Complaint& complaint_;
};

// Read half of a memory: AR in, R out.
template <unsigned BUS>
class Reads : public Side<BUS> {
  public:
    Address ar;  // from the machine
    bool r_ready = false;
    bool ar_ready = false;  // to the machine
    bool r_valid = false, r_last = false, r_new = false;
    uint8_t r_id = 0, r_response = 0;
    const uint8_t* r_data = nullptr;

    Reads(const char* name, unsigned port, Complaint& complaint)
        : Side<BUS>(name, complaint), port_(port) {}

    void configure(const Parameters& with) { this->with_ = with; }

    // Forgets what is under way.
    void forget() {
        queue_ = {};
        held_ = {};
        beat_ = 0;
        r_valid = false;
    }

    void restart() {
        ar_stall_.seed(this->with_.seed * 16 + port_ * 8 + 0, this->with_.threshold);
        r_stall_.seed(this->with_.seed * 16 + port_ * 8 + 1, this->with_.threshold);
    }

    void drive(uint64_t cycle) {
        ar_ready = !ar_stall_.draw() && queue_.size() < QUEUE;
        const bool stalled = r_stall_.draw();
        r_new = false;
        if (r_valid || queue_.empty() || stalled || cycle < queue_.front().due) return;
        const Burst& burst = queue_.front();
        if (this->silent(burst.at)) return;
        const uint64_t address = burst.at.address + uint64_t{beat_} * BUS;
        r_valid = r_new = true;
        r_last = beat_ == burst.at.length;
        r_id = burst.at.id;
        r_response = this->response(address);
        r_data = r_response == DECERR ? zeros_ : this->with_.data + (address - this->with_.base);
    }

    // Returns whether an address was taken in this cycle.
    bool sample(uint64_t cycle) {
        const bool taken = ar.valid && ar_ready;
        this->check(cycle, "AR", ar, held_, taken);
        if (r_valid && r_ready) {
            r_valid = false;
            if (++beat_ > queue_.front().at.length) {
                queue_.pop();
                beat_ = 0;
            }
        }
        if (taken) queue_.push() = {ar, cycle + 1 + this->with_.latency};
        return taken;
    }

    // Whether data reads (not fetches) of bytes in [low, high) are under way.
    bool touches(uint64_t low, uint64_t high) {
        for (unsigned i = 0; i < queue_.size(); ++i) {
            const Address& at = queue_.at(i).at;
            if (at.id != FETCH_ID && at.address < high && low < at.end(BUS)) return true;
        }
        return false;
    }

  private:
    struct Burst {
        Address at;
        uint64_t due;
    };
    static constexpr uint8_t zeros_[BUS] = {};
    const unsigned port_;
    Stall ar_stall_, r_stall_;
    Ring<Burst, QUEUE> queue_;
    Address held_;
    unsigned beat_ = 0;
};

// Write half of a memory: AW and W in, B out.
template <unsigned BUS>
class Writes : public Side<BUS> {
  public:
    Address aw;  // from the machine
    bool w_valid = false, w_last = false;
    const void *w_data = nullptr, *w_strobe = nullptr;
    bool b_ready = false;
    bool aw_ready = false, w_ready = false;  // to the machine
    bool b_valid = false;
    uint8_t b_id = 0, b_response = 0;

    Writes(const char* name, unsigned port, Complaint& complaint)
        : Side<BUS>(name, complaint), port_(port) {}

    void configure(const Parameters& with) { this->with_ = with; }

    // The cycle after START in which a byte of the memory was last written; -1 if it was not.
    int64_t written(uint64_t offset) const {
        return offset < written_.size() ? int64_t{written_[offset]} - 1 : -1;
    }

    // Forgets what is under way.
    void forget() {
        addresses_ = {};
        bursts_ = {};
        while (!beats_.empty()) beats_.pop();
        done_ = {};
        held_ = {};
        b_valid = w_held_ = false;
        burst_beats_ = 0;
    }

    void restart() {
        const uint64_t number = this->with_.seed * 16 + port_ * 8;
        aw_stall_.seed(number + 2, this->with_.threshold);
        w_stall_.seed(number + 3, this->with_.threshold);
        b_stall_.seed(number + 4, this->with_.threshold);
    }

    // A program starts in this cycle.
    void begin(uint64_t cycle) {
        started_ = cycle;
        written_.assign(this->with_.bytes, 0);
    }

    void drive(uint64_t cycle) {
        aw_ready = !aw_stall_.draw() && addresses_.size() + done_.size() < QUEUE;
        w_ready = !w_stall_.draw() && bursts_.size() + done_.size() < QUEUE;
        const bool stalled = b_stall_.draw();
        if (b_valid || done_.empty() || stalled || cycle < done_.front().due) return;
        if (done_.front().silent) return;
        b_valid = true;
        b_id = done_.front().id;
        b_response = done_.front().response;
    }

    bool sample(uint64_t cycle) {
        const bool taken = aw.valid && aw_ready;
        this->check(cycle, "AW", aw, held_, taken);
        if (b_valid && b_ready) {
            b_valid = false;
            done_.pop();
        }
        if (taken) addresses_.push() = aw;
        take_beat(cycle);
        while (!addresses_.empty() && !bursts_.empty()) apply(cycle);
        return taken;
    }

    bool idle() const {
        return addresses_.empty() && bursts_.empty() && done_.empty() && beats_.empty();
    }

    // Whether bytes in [low, high) have been sent for and not acknowledged.
    bool touches(uint64_t low, uint64_t high) {
        for (unsigned i = 0; i < addresses_.size(); ++i)
            if (addresses_.at(i).address < high && low < addresses_.at(i).end(BUS)) return true;
        for (unsigned i = 0; i < done_.size(); ++i)
            if (done_.at(i).low < high && low < done_.at(i).high) return true;
        return false;
    }

  private:
    struct Beat {
        uint8_t data[BUS];
        uint8_t strobe[(BUS + 7) / 8];
    };
    struct Done {
        uint64_t due, low, high;
        uint8_t id, response;
        bool silent;
    };

    void take_beat(uint64_t cycle) {
        if (w_held_ && !w_valid) this->complaint_.raise(cycle, this->name_, "WVALID fell before READY");
        if (w_valid) {
            Beat beat;
            std::memcpy(beat.data, w_data, BUS);
            std::memcpy(beat.strobe, w_strobe, sizeof beat.strobe);
            if (w_held_ && (std::memcmp(&beat, &w_beat_, sizeof beat) || w_last != w_was_last_))
                this->complaint_.raise(cycle, this->name_, "W changed before READY");
            w_beat_ = beat;
            w_was_last_ = w_last;
        }
        w_held_ = w_valid && !w_ready;
        if (!w_valid || !w_ready) return;
        if (burst_beats_ == MAX_BEATS) {
            this->complaint_.raise(cycle, this->name_, "no WLAST in 256 beats");
            return;
        }
        beats_.push() = w_beat_;
        ++burst_beats_;
        if (!w_last) return;
        bursts_.push() = burst_beats_;
        burst_beats_ = 0;
    }

    // Puts the oldest burst, complete with its address, into memory.
    void apply(uint64_t cycle) {
        const Address at = addresses_.front();
        const unsigned count = bursts_.front();
        if (count != at.length + 1U)
            this->complaint_.raise(cycle, this->name_, "WLAST is not where AWLEN puts it");
        uint8_t worst = 0;
        for (unsigned i = 0; i < count; ++i) {
            const uint64_t address = at.address + uint64_t{i} * BUS;
            const uint8_t response = this->response(address);
            if (response == 0) write(address, beats_.front(), cycle);
            worst = response > worst ? response : worst;
            beats_.pop();
        }
        addresses_.pop();
        bursts_.pop();
        done_.push() = {cycle + 1 + this->with_.latency, at.address, at.end(BUS), at.id, worst,
                        this->silent(at)};
    }

    void write(uint64_t address, const Beat& beat, uint64_t cycle) {
        const uint64_t offset = address - this->with_.base;
        uint8_t* to = this->with_.data + offset;
        for (unsigned i = 0; i < BUS; ++i)
            if (beat.strobe[i / 8] >> i % 8 & 1 && offset + i < written_.size())
                written_[offset + i] = cycle - started_ + 1;
        for (unsigned group = 0; group < sizeof beat.strobe; ++group) {
            const unsigned width = BUS < 8 ? BUS : 8;
            const unsigned all = (1U << width) - 1;
            const unsigned strobe = beat.strobe[group];
            if ((strobe & all) == all) {
                std::memcpy(to + 8 * group, beat.data + 8 * group, width);
            } else {
                for (unsigned i = 0; i < width; ++i)
                    if (strobe >> i & 1) to[8 * group + i] = beat.data[8 * group + i];
            }
        }
    }

    const unsigned port_;
    Stall aw_stall_, w_stall_, b_stall_;
    Ring<Address, QUEUE> addresses_;           // taken, their data not complete
    Ring<unsigned, QUEUE> bursts_;             // beats of complete bursts without address
    Ring<Beat, 2 * QUEUE * MAX_BEATS> beats_;  // of those bursts, and of the one under way
    Ring<Done, QUEUE> done_;                   // in memory, not acknowledged
    Address held_;
    Beat w_beat_{};
    bool w_held_ = false, w_was_last_ = false;
    unsigned burst_beats_ = 0;
    uint64_t started_ = 0;
    std::vector<uint32_t> written_;  // of each byte, cycles after the one before START; 0: never
};
