// SPDX-License-Identifier: Apache-2.0
//
// Everything around the Verilated machine that has to run every cycle: clock, reset, AXI4-Lite
// host, the two memories, AXI rule checks, cycle counting. Python (sim/library.py) calls the C
// functions at the end of this file through ctypes, a few times for each program.
//
// The memories follow the rules of sim/memory.py to the cycle; that file explains them.
//
// A cycle is two evaluations of the model: with the clock low after the inputs have changed, so
// that combinational outputs settle, and with the clock high, which takes the registers onwards.

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "Vtpu.h"
#include "constants.h"  // made by constants.py
#include "verilated.h"
#if VM_COVERAGE
#include "verilated_cov.h"
#endif
#if VM_TRACE_FST
#include "verilated_fst_c.h"
using Trace = VerilatedFstC;
#elif VM_TRACE
#include "verilated_vcd_c.h"
using Trace = VerilatedVcdC;
#endif

namespace {

constexpr unsigned QUEUE = 64;          // bursts that a memory accepts before it stops being ready
constexpr unsigned MAX_BEATS = 256;     // AXI4 limit of one burst
constexpr uint8_t SLVERR = 2, DECERR = 3;
constexpr uint8_t INCR = 1;
constexpr unsigned REGISTER_TIMEOUT = 10000;

constexpr int RESET_CYCLES = 4;

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

// Bytes of a port of the Verilated model: an integer or an array of 32-bit words, in any case
// little-endian and without holes on the machines that this runs on.
template <typename PORT>
void* bytes_of(PORT& port) {
    return &port;
}

// Chooses one of the faults that verif/mutation plants, 0 for none; other machines have no such port.
template <typename MODEL>
void plant(MODEL& model, uint32_t fault) {
    if constexpr (requires { model.planted_fault; }) model.planted_fault = fault;
    (void)fault;
}

// What the machine is doing, where its Verilog tells (sim/state.py): so many bytes, or none.
template <typename MODEL>
unsigned copy_state(MODEL& model, uint8_t* to) {
    unsigned size = 0;
    if constexpr (requires { model.machine_state; }) {
        size = sizeof model.machine_state;
        std::memcpy(to, bytes_of(model.machine_state), size);
    }
    (void)model, (void)to;
    return size;
}

// A pair of words in the trace.
struct Tag {
    uint32_t cycle, tag;
};

// What a machine that is built to record does in a program; sim/events.py says what it shows.
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

class Machine {
  public:
    Machine(const char* waves, uint64_t from, uint64_t to, uint32_t fault, int seed)
        : context_(new VerilatedContext), tpu_(new_model(context_.get(), waves, seed)),
          shown_from_(from), shown_to_(to) {
        plant(*tpu_, fault);
#if VM_TRACE
        if (waves && *waves) {
            trace_.reset(new Trace);
            tpu_->trace(trace_.get(), 99);
            trace_->open(waves);
        }
#endif
        reset();
    }

    ~Machine() {
        tpu_->final();
#if VM_TRACE
        if (trace_) trace_->close();
#endif
    }

    void write_coverage(const char* path) {
#if VM_COVERAGE
        context_->coveragep()->write(path);
#else
        (void)path;
#endif
    }

    // Some cycles of reset, for the memories, too.
    void reset() {
        reads_.forget();
        writes_.forget();
        weights_.forget();
        seen_ = {};
        running_ = gives_up_ = false;
        tpu_->s_axil_awvalid = tpu_->s_axil_wvalid = tpu_->s_axil_arvalid = 0;
        tpu_->rst = 1;
        for (int i = 0; i < RESET_CYCLES; ++i) {
            settle();
            advance();
        }
        tpu_->rst = 0;
    }

    void configure(bool host, const Parameters& with) {
        if (host) {
            reads_.configure(with);
            writes_.configure(with);
        } else {
            weights_.configure(with);
        }
        restart();
    }

    // Returns BRESP, or -1 when the machine does not answer.
    int write(uint32_t offset, uint32_t value) {
        tpu_->s_axil_awaddr = offset;
        tpu_->s_axil_wdata = value;
        tpu_->s_axil_wstrb = 0xF;
        tpu_->s_axil_awvalid = tpu_->s_axil_wvalid = tpu_->s_axil_bready = 1;
        starting_ = offset == CONTROL && (value & CONTROL_START);
        if (offset == CONTROL && (value & CONTROL_SOFT_RESET)) running_ = false;
        if (offset == BUS_TIMEOUT) gives_up_ = value != 0;
        int response = -1;
        for (unsigned wait = 0; response < 0 && wait < REGISTER_TIMEOUT; ++wait) {
            cycle();
            if (seen_.b) response = seen_.response;
        }
        tpu_->s_axil_awvalid = tpu_->s_axil_wvalid = tpu_->s_axil_bready = 0;
        starting_ = false;
        return response;
    }

    // Returns RRESP, or -1 when the machine does not answer.
    int read(uint32_t offset, uint32_t* value) {
        tpu_->s_axil_araddr = offset;
        tpu_->s_axil_arvalid = tpu_->s_axil_rready = 1;
        const uint64_t began = now_;
        int response = -1;
        for (unsigned wait = 0; response < 0 && wait < REGISTER_TIMEOUT; ++wait) {
            cycle();
            if (seen_.r) {
                response = seen_.response;
                *value = seen_.data;
            }
        }
        tpu_->s_axil_arvalid = tpu_->s_axil_rready = 0;
        read_cycles_ = now_ - began;
        return response;
    }

    // Looks at STATUS every `poll` cycles of the program, and at the trace between two looks.
    // Returns 1 when the interrupt has risen, 2 when the program waits for the host, -1 after a
    // broken rule, 0 at the limit.
    int run(uint64_t limit, uint64_t poll) {
        bool waiting = false;
        for (const uint64_t end = now_ + limit;
             running_ && !waiting && now_ < end && !complaint_.any();) {
            if ((now_ - started_) % poll != 0) {
                cycle();
                continue;
            }
            const uint64_t looked = now_;
            uint32_t status = 0;
            if (read(STATUS, &status) != 0)
                complaint_.raise(now_, "register port", "no OKAY for a read of STATUS");
            waiting = status & STATUS_WAITING;
            if (!waiting) follow_trace(looked + poll);
        }
        return complaint_.any() ? -1 : !running_ ? 1 : waiting ? 2 : 0;
    }

    // Reads what is new in the trace, in the cycles before `end`: the next look at STATUS must not
    // wait. A pair counts if no other has taken its place by the time it has been read.
    void follow_trace(uint64_t end) {
        while (now_ + 3 * read_cycles_ <= end) {
            if (traced_ == followed_) {
                traced_ = read_trace(TAGS);
                if (traced_ == followed_) return;
                continue;
            }
            if (traced_ - followed_ > TRACE_DEPTH) {
                missed_ += traced_ - followed_ - TRACE_DEPTH;
                followed_ = traced_ - TRACE_DEPTH;
            }
            const uint32_t offset = TRACE + 8 * (followed_ % TRACE_DEPTH);
            const uint32_t at = read_trace(offset), tag = read_trace(offset + 4);
            traced_ = read_trace(TAGS);
            if (traced_ - followed_ > TRACE_DEPTH) continue;
            tags_.push_back({at, tag});
            ++followed_;
        }
    }

    // Tags since the last START, as far as the trace has been followed, and how many were lost.
    const std::vector<Tag>& tags() const { return tags_; }
    uint64_t missed() const { return missed_; }

    const Recording& recording() const { return recording_; }

    unsigned state(uint8_t* to) { return copy_state(*tpu_, to); }

    void idle(uint64_t cycles) {
        while (cycles--) cycle();
    }

    uint64_t cycles() const { return finished_ - started_; }
    int64_t written(uint64_t offset) const { return writes_.written(offset); }
    // When a waveform shows that cycle after START.
    uint64_t time_of(uint64_t cycle) const { return 2 * (started_ + cycle); }
    uint64_t now() const { return now_; }
    const char* complaint() const { return complaint_.text(); }

  private:
    uint32_t read_trace(uint32_t offset) {
        uint32_t value = 0;
        if (read(offset, &value) != 0)
            complaint_.raise(now_, "register port", "no OKAY for a read of the trace");
        return value;
    }

    // Memories start with random contents: nothing may depend on them.
    static Vtpu* new_model(VerilatedContext* context, const char* waves, int seed) {
        Verilated::threadContextp(context);
        context->fatalOnError(false);
        context->randReset(2);
        context->randSeed(seed);
#if VM_TRACE
        context->traceEverOn(true);
#else
        (void)waves;
#endif
        return new Vtpu(context, "tpu");
    }

    // The stalls start afresh with each program, so that it takes the same time whatever the
    // host did before.
    void restart() {
        reads_.restart();
        writes_.restart();
        weights_.restart();
    }

    void dump() {
#if VM_TRACE
        if (trace_ && ran_ >= shown_from_ && ran_ < shown_to_) trace_->dump(context_->time());
#endif
        context_->timeInc(1);
    }

    void settle() {
        tpu_->clk = 0;
        tpu_->eval();
        dump();
    }

    void advance() {
        tpu_->clk = 1;
        tpu_->eval();
        if (context_->gotError()) {
            complaint_.raise(now_, "units", "one has broken its promise, see above");
            context_->gotError(false);
            context_->gotFinish(false);
        }
        dump();
        ++now_;
    }

    void cycle() {
        Verilated::threadContextp(context_.get());  // of who breaks a promise
        drive();
        settle();
        sample();
        advance();
        if (running_) ++ran_;
        if (seen_.aw) tpu_->s_axil_awvalid = 0;
        if (seen_.w) tpu_->s_axil_wvalid = 0;
        if (seen_.ar) tpu_->s_axil_arvalid = 0;
    }

    void drive() {
        reads_.drive(now_);
        writes_.drive(now_);
        weights_.drive(now_);
        tpu_->m_axi_host_arready = reads_.ar_ready;
        tpu_->m_axi_host_rvalid = reads_.r_valid;
        if (reads_.r_new) {
            std::memcpy(bytes_of(tpu_->m_axi_host_rdata), reads_.r_data, HOST_BUS);
            tpu_->m_axi_host_rid = reads_.r_id;
            tpu_->m_axi_host_rresp = reads_.r_response;
            tpu_->m_axi_host_rlast = reads_.r_last;
        }
        tpu_->m_axi_host_awready = writes_.aw_ready;
        tpu_->m_axi_host_wready = writes_.w_ready;
        tpu_->m_axi_host_bvalid = writes_.b_valid;
        tpu_->m_axi_host_bid = writes_.b_id;
        tpu_->m_axi_host_bresp = writes_.b_response;
        tpu_->m_axi_weight_arready = weights_.ar_ready;
        tpu_->m_axi_weight_rvalid = weights_.r_valid;
        if (weights_.r_new) {
            std::memcpy(bytes_of(tpu_->m_axi_weight_rdata), weights_.r_data, WEIGHT_BUS);
            tpu_->m_axi_weight_rid = weights_.r_id;
            tpu_->m_axi_weight_rresp = weights_.r_response;
            tpu_->m_axi_weight_rlast = weights_.r_last;
        }
    }

    void sample() {
        sample_registers();
        reads_.ar.valid = tpu_->m_axi_host_arvalid;
        if (reads_.ar.valid) {
            reads_.ar.address = tpu_->m_axi_host_araddr;
            reads_.ar.length = tpu_->m_axi_host_arlen;
            reads_.ar.size = tpu_->m_axi_host_arsize;
            reads_.ar.burst = tpu_->m_axi_host_arburst;
            reads_.ar.id = tpu_->m_axi_host_arid;
        }
        reads_.r_ready = tpu_->m_axi_host_rready;
        writes_.aw.valid = tpu_->m_axi_host_awvalid;
        if (writes_.aw.valid) {
            writes_.aw.address = tpu_->m_axi_host_awaddr;
            writes_.aw.length = tpu_->m_axi_host_awlen;
            writes_.aw.size = tpu_->m_axi_host_awsize;
            writes_.aw.burst = tpu_->m_axi_host_awburst;
            writes_.aw.id = tpu_->m_axi_host_awid;
        }
        writes_.w_valid = tpu_->m_axi_host_wvalid;
        writes_.w_last = tpu_->m_axi_host_wlast;
        writes_.w_data = bytes_of(tpu_->m_axi_host_wdata);
        writes_.w_strobe = bytes_of(tpu_->m_axi_host_wstrb);
        writes_.b_ready = tpu_->m_axi_host_bready;
        weights_.ar.valid = tpu_->m_axi_weight_arvalid;
        if (weights_.ar.valid) {
            weights_.ar.address = tpu_->m_axi_weight_araddr;
            weights_.ar.length = tpu_->m_axi_weight_arlen;
            weights_.ar.size = tpu_->m_axi_weight_arsize;
            weights_.ar.burst = tpu_->m_axi_weight_arburst;
            weights_.ar.id = tpu_->m_axi_weight_arid;
        }
        weights_.r_ready = tpu_->m_axi_weight_rready;
        const bool read = reads_.sample(now_);
        const bool written = writes_.sample(now_);
        weights_.sample(now_);
        // Only an acknowledged write is ordered before a read in AXI, and only a complete read
        // before a write.
        if ((read && reads_.ar.id != FETCH_ID &&
             writes_.touches(reads_.ar.address, reads_.ar.end(HOST_BUS))) ||
            (written && reads_.touches(writes_.aw.address, writes_.aw.end(HOST_BUS))))
            complaint_.raise(now_, "host port", "a read and a write of the same bytes at one time");
        if (seen_.start && !running_) {
            started_ = now_;
            running_ = true;
            tags_.clear();
            traced_ = followed_ = missed_ = 0;
            restart();
            writes_.begin(now_);
            recording_.begin();
        } else if (running_ && tpu_->irq) {
            finished_ = now_;
            running_ = false;
            if (!writes_.idle() && !gives_up_)
                complaint_.raise(now_, "host port", "interrupt before the last write is acknowledged");
        }
        if (running_) record(*tpu_, now_ - started_, recording_);
    }

    void sample_registers() {
        const bool had_aw = seen_.aw && !seen_.b;
        const bool had_w = seen_.w && !seen_.b;
        const bool aw = tpu_->s_axil_awvalid && tpu_->s_axil_awready;
        const bool w = tpu_->s_axil_wvalid && tpu_->s_axil_wready;
        const bool was_whole = had_aw && had_w;
        seen_.aw = had_aw || aw;
        seen_.w = had_w || w;
        seen_.start = starting_ && seen_.aw && seen_.w && !was_whole;
        seen_.b = tpu_->s_axil_bvalid && tpu_->s_axil_bready;
        seen_.ar = tpu_->s_axil_arvalid && tpu_->s_axil_arready;
        seen_.r = tpu_->s_axil_rvalid && tpu_->s_axil_rready;
        if (seen_.b) seen_.response = tpu_->s_axil_bresp;
        if (seen_.r) {
            seen_.response = tpu_->s_axil_rresp;
            seen_.data = tpu_->s_axil_rdata;
        }
    }

    static constexpr unsigned HOST_BUS = sizeof(Vtpu::m_axi_host_rdata);
    static constexpr unsigned WEIGHT_BUS = sizeof(Vtpu::m_axi_weight_rdata);

    std::unique_ptr<VerilatedContext> context_;
    std::unique_ptr<Vtpu> tpu_;
#if VM_TRACE
    std::unique_ptr<Trace> trace_;
#endif
    Complaint complaint_;
    Reads<HOST_BUS> reads_{"host port", 0, complaint_};
    Writes<HOST_BUS> writes_{"host port", 0, complaint_};
    Reads<WEIGHT_BUS> weights_{"weight port", 1, complaint_};

    // Handshakes on the register port: `aw` and `w` last until the answer to the write.
    struct {
        bool aw = false, w = false, b = false, ar = false, r = false, start = false;
        uint8_t response = 0;
        uint32_t data = 0;
    } seen_;
    bool starting_ = false;  // the write under way is the one that starts a program
    bool running_ = false;
    bool gives_up_ = false;  // the machine may stop waiting for its memories
    uint64_t now_ = 0, started_ = 0, finished_ = 0;
    uint64_t ran_ = 0;  // cycles of all programs
    const uint64_t shown_from_, shown_to_;  // of them, what the waveform has
    std::vector<Tag> tags_;
    uint64_t read_cycles_ = 0;  // that the last read of a register took
    uint32_t traced_ = 0;  // tags of this program when the trace was read last
    uint32_t followed_ = 0;  // tags of this program that have been read or lost, modulo 2^32
    uint64_t missed_ = 0;
    Recording recording_;
};

Machine* machine(void* handle) { return static_cast<Machine*>(handle); }

}  // namespace

extern "C" {

// The waveform has the cycles [from, to) of all programs, one after the other.
void* tpu_create(const char* waves, uint64_t from, uint64_t to, uint32_t fault, int seed) {
    return new Machine(waves, from, to, fault, seed);
}

void tpu_destroy(void* handle) { delete machine(handle); }

void tpu_coverage(void* handle, const char* path) { machine(handle)->write_coverage(path); }

void tpu_memory(void* handle, int host, uint8_t* data, uint64_t bytes, uint64_t base,
                uint64_t window_low, uint64_t window_high, uint32_t latency, uint32_t threshold,
                uint64_t seed, uint64_t error_low, uint64_t error_high, uint64_t silent_low,
                uint64_t silent_high) {
    Parameters with;
    with.data = data;
    with.bytes = bytes;
    with.base = base;
    with.window_low = window_low;
    with.window_high = window_high;
    with.latency = latency;
    with.threshold = threshold;
    with.seed = seed;
    with.error_low = error_low;
    with.error_high = error_high;
    with.silent_low = silent_low;
    with.silent_high = silent_high;
    machine(handle)->configure(host != 0, with);
}

void tpu_reset(void* handle) { machine(handle)->reset(); }

int tpu_write(void* handle, uint32_t offset, uint32_t value) {
    return machine(handle)->write(offset, value);
}

int tpu_read(void* handle, uint32_t offset, uint32_t* value) {
    return machine(handle)->read(offset, value);
}

int tpu_run(void* handle, uint64_t limit, uint64_t poll) {
    return machine(handle)->run(limit, poll);
}

void tpu_idle(void* handle, uint64_t cycles) { machine(handle)->idle(cycles); }

uint64_t tpu_cycles(void* handle) { return machine(handle)->cycles(); }

// The tags since START, complete once the program has ended; `missed` those that were lost.
uint64_t tpu_tags(void* handle, const uint32_t** pairs, uint64_t* missed) {
    Machine& all = *machine(handle);
    all.follow_trace(UINT64_MAX);
    *pairs = all.tags().empty() ? nullptr : &all.tags().front().cycle;
    *missed = all.missed();
    return all.tags().size();
}

int64_t tpu_written(void* handle, uint64_t offset) { return machine(handle)->written(offset); }

// What the last program did, where the machine is built to record: events and samples, which stay
// until the next one starts.
uint32_t tpu_recording(void* handle, const void** events, uint64_t* event_count,
                       const void** samples, uint64_t* sample_count) {
    const Recording& all = machine(handle)->recording();
    *events = all.events().data();
    *event_count = all.events().size();
    *samples = all.samples().data();
    *sample_count = all.samples().size();
    return all.interval();
}

// At most 64 bytes.
unsigned tpu_state(void* handle, uint8_t* to) { return machine(handle)->state(to); }

uint64_t tpu_time(void* handle, uint64_t cycle) { return machine(handle)->time_of(cycle); }

uint64_t tpu_now(void* handle) { return machine(handle)->now(); }

const char* tpu_complaint(void* handle) { return machine(handle)->complaint(); }
}
