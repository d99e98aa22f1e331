// SPDX-License-Identifier: Apache-2.0
//
// Everything around the Verilated machine that has to run every cycle: clock, reset, AXI4-Lite
// host, the two memories, AXI rule checks, cycle counting. Python (sim/library.py) calls the C
// functions at the end of this file through ctypes, a few times for each program.
//
// A cycle is two evaluations of the model: with the clock low after the inputs have changed, so
// that combinational outputs settle, and with the clock high, which takes the registers onwards.

#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

#include "Vtpu.h"
#include "harness.h"
#include "memories.h"
#include "recording.h"
#if VM_TRACE_FST
#include "verilated_fst_c.h"
using Trace = VerilatedFstC;
#elif VM_TRACE
#include "verilated_vcd_c.h"
using Trace = VerilatedVcdC;
#endif

namespace {

constexpr unsigned REGISTER_TIMEOUT = 10000;

constexpr int RESET_CYCLES = 4;

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

    void write_coverage(const char* path) { ::write_coverage(*context_, path); }

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
