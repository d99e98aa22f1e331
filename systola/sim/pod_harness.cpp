// SPDX-License-Identifier: Apache-2.0
//
// Everything around a Verilated pod that has to run every cycle: clock, reset, AXI4-Lite host, the
// memories of each core, or the one that all share, AXI rule checks. Python (sim/pod_library.py)
// says which ports there are, and calls the C functions at the end of this file through ctypes. A
// cycle is as in harness.cpp.

#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "Vpod.h"
#include "harness.h"
#include "memories.h"

namespace {

constexpr unsigned REGISTER_TIMEOUT = 10000;
constexpr int RESET_CYCLES = 4;

// The memories of one core; a shared one has a host port only, for all that cores want.
class Memories {
  public:
    Memories(unsigned number, Complaint& complaint)
        : host_name_("host port " + std::to_string(number)),
          weight_name_("weight port " + std::to_string(number)), complaint_(complaint) {}

    void configure(bool host, const Parameters& with) {
        if (host) {
            reads.configure(with);
            writes.configure(with);
        } else {
            weights.configure(with);
        }
    }

    void forget() {
        reads.forget();
        writes.forget();
        weights.forget();
    }

    // A program starts in this cycle.
    void begin(uint64_t cycle) {
        reads.restart();
        writes.restart();
        weights.restart();
        writes.begin(cycle);
    }

    void drive(uint64_t cycle) {
        reads.drive(cycle);
        writes.drive(cycle);
        weights.drive(cycle);
    }

    void sample(uint64_t cycle) {
        const bool read = reads.sample(cycle);
        const bool written = writes.sample(cycle);
        weights.sample(cycle);
        if (SHARED) return;  // whole words are read, and what fetches is not told by its ID
        if ((read && reads.ar.id != FETCH_ID &&
             writes.touches(reads.ar.address, reads.ar.end(HOST_BUS))) ||
            (written && reads.touches(writes.aw.address, writes.aw.end(HOST_BUS))))
            complaint_.raise(cycle, host_name_.c_str(),
                             "a read and a write of the same bytes at one time");
    }

  private:
    const std::string host_name_, weight_name_;
    Complaint& complaint_;

  public:
    Reads<HOST_BUS> reads{host_name_.c_str(), 0, complaint_};
    Writes<HOST_BUS> writes{host_name_.c_str(), 0, complaint_};
    Reads<WEIGHT_BUS> weights{weight_name_.c_str(), 1, complaint_};
};

class Pod {
  public:
    Pod(uint32_t fault, int seed) : context_(new VerilatedContext) {
        Verilated::threadContextp(context_.get());
        context_->fatalOnError(false);
        context_->randReset(2);
        context_->randSeed(seed);
        pod_.reset(new Vpod(context_.get(), "pod"));
        plant(*pod_, fault);
        for (unsigned i = 0; i < MEMORIES; ++i)
            memories_.emplace_back(new Memories(i, complaint_));
        reset();
    }

    ~Pod() { pod_->final(); }

    void reset() {
        for (auto& memories : memories_) memories->forget();
        pod_->s_axil_awvalid = pod_->s_axil_wvalid = pod_->s_axil_arvalid = 0;
        pod_->rst = 1;
        for (int i = 0; i < RESET_CYCLES; ++i) {
            settle();
            advance();
        }
        pod_->rst = 0;
    }

    void write_coverage(const char* path) { ::write_coverage(*context_, path); }

    void configure(unsigned number, bool host, const Parameters& with) {
        memories_[number]->configure(host, with);
    }

    // The stalls start afresh.
    void begin() {
        for (auto& memories : memories_) memories->begin(now_);
    }

    // Returns BRESP, or -1 when the pod does not answer.
    int write(uint32_t offset, uint32_t value) {
        pod_->s_axil_awaddr = offset;
        pod_->s_axil_wdata = value;
        pod_->s_axil_wstrb = 0xF;
        pod_->s_axil_awvalid = pod_->s_axil_wvalid = pod_->s_axil_bready = 1;
        int response = -1;
        for (unsigned wait = 0; response < 0 && wait < REGISTER_TIMEOUT; ++wait) {
            cycle();
            if (answered_) response = response_;
        }
        pod_->s_axil_awvalid = pod_->s_axil_wvalid = pod_->s_axil_bready = 0;
        return response;
    }

    // Returns RRESP, or -1 when the pod does not answer.
    int read(uint32_t offset, uint32_t* value) {
        pod_->s_axil_araddr = offset;
        pod_->s_axil_arvalid = pod_->s_axil_rready = 1;
        int response = -1;
        for (unsigned wait = 0; response < 0 && wait < REGISTER_TIMEOUT; ++wait) {
            cycle();
            if (got_) {
                response = response_;
                *value = data_;
            }
        }
        pod_->s_axil_arvalid = pod_->s_axil_rready = 0;
        return response;
    }

    // Returns 1 when the interrupt is up, -1 after a broken rule, 0 at the limit.
    int run(uint64_t limit) {
        for (const uint64_t end = now_ + limit; now_ < end && !complaint_.any() && !irq_;) cycle();
        return complaint_.any() ? -1 : irq_ ? 1 : 0;
    }

    const char* complaint() const { return complaint_.text(); }

  private:
    void settle() {
        pod_->clk = 0;
        pod_->eval();
        context_->timeInc(1);
    }

    void advance() {
        pod_->clk = 1;
        pod_->eval();
        if (context_->gotError()) {
            complaint_.raise(now_, "units", "one has broken its promise, see above");
            context_->gotError(false);
            context_->gotFinish(false);
        }
        context_->timeInc(1);
        ++now_;
    }

    void cycle() {
        Verilated::threadContextp(context_.get());
        drive();
        settle();
        sample();
        advance();
        if (aw_) pod_->s_axil_awvalid = 0;
        if (w_) pod_->s_axil_wvalid = 0;
        if (ar_) pod_->s_axil_arvalid = 0;
    }

    void drive() {
#define DRIVE_READ(port, memory, bus)                                        \
    pod_->port##_arready = memory.ar_ready;                                  \
    pod_->port##_rvalid = memory.r_valid;                                    \
    if (memory.r_new) {                                                      \
        std::memcpy(bytes_of(pod_->port##_rdata), memory.r_data, bus);       \
        pod_->port##_rid = memory.r_id;                                      \
        pod_->port##_rresp = memory.r_response;                              \
        pod_->port##_rlast = memory.r_last;                                  \
    }
#define DRIVE_HOST(i, port)                                                  \
    {                                                                        \
        Memories& of = *memories_[i];                                        \
        DRIVE_READ(port, of.reads, HOST_BUS)                                 \
        pod_->port##_awready = of.writes.aw_ready;                           \
        pod_->port##_wready = of.writes.w_ready;                             \
        pod_->port##_bvalid = of.writes.b_valid;                             \
        pod_->port##_bid = of.writes.b_id;                                   \
        pod_->port##_bresp = of.writes.b_response;                           \
    }
#define DRIVE_WEIGHT(i, port) DRIVE_READ(port, memories_[i]->weights, WEIGHT_BUS)
        for (auto& memories : memories_) memories->drive(now_);
        FOR_HOSTS(DRIVE_HOST)
        FOR_WEIGHTS(DRIVE_WEIGHT)
    }

    void sample() {
#define SAMPLE_ADDRESS(port, way, to)                                        \
    to.valid = pod_->port##_##way##valid;                                    \
    if (to.valid) {                                                          \
        to.address = pod_->port##_##way##addr;                               \
        to.length = pod_->port##_##way##len;                                 \
        to.size = pod_->port##_##way##size;                                  \
        to.burst = pod_->port##_##way##burst;                                \
        to.id = pod_->port##_##way##id;                                      \
    }
#define SAMPLE_HOST(i, port)                                                 \
    {                                                                        \
        Memories& of = *memories_[i];                                        \
        SAMPLE_ADDRESS(port, ar, of.reads.ar)                                \
        SAMPLE_ADDRESS(port, aw, of.writes.aw)                               \
        of.reads.r_ready = pod_->port##_rready;                              \
        of.writes.w_valid = pod_->port##_wvalid;                             \
        of.writes.w_last = pod_->port##_wlast;                               \
        of.writes.w_data = bytes_of(pod_->port##_wdata);                     \
        of.writes.w_strobe = bytes_of(pod_->port##_wstrb);                   \
        of.writes.b_ready = pod_->port##_bready;                             \
    }
#define SAMPLE_WEIGHT(i, port)                                               \
    SAMPLE_ADDRESS(port, ar, memories_[i]->weights.ar)                       \
    memories_[i]->weights.r_ready = pod_->port##_rready;
        FOR_HOSTS(SAMPLE_HOST)
        FOR_WEIGHTS(SAMPLE_WEIGHT)
        for (auto& memories : memories_) memories->sample(now_);
        aw_ = pod_->s_axil_awvalid && pod_->s_axil_awready;
        w_ = pod_->s_axil_wvalid && pod_->s_axil_wready;
        ar_ = pod_->s_axil_arvalid && pod_->s_axil_arready;
        answered_ = pod_->s_axil_bvalid && pod_->s_axil_bready;
        got_ = pod_->s_axil_rvalid && pod_->s_axil_rready;
        if (answered_) response_ = pod_->s_axil_bresp;
        if (got_) {
            response_ = pod_->s_axil_rresp;
            data_ = pod_->s_axil_rdata;
        }
        irq_ = pod_->irq;
    }

    std::unique_ptr<VerilatedContext> context_;
    std::unique_ptr<Vpod> pod_;
    Complaint complaint_;
    std::vector<std::unique_ptr<Memories>> memories_;
    bool aw_ = false, w_ = false, ar_ = false, answered_ = false, got_ = false, irq_ = false;
    int response_ = 0;
    uint32_t data_ = 0;
    uint64_t now_ = 0;
};

Pod* pod(void* handle) { return static_cast<Pod*>(handle); }

}  // namespace

extern "C" {

void* pod_create(uint32_t fault, int seed) { return new Pod(fault, seed); }

void pod_destroy(void* handle) { delete pod(handle); }

void pod_coverage(void* handle, const char* path) { pod(handle)->write_coverage(path); }

void pod_memory(void* handle, unsigned number, int host, uint8_t* data, uint64_t bytes, uint64_t base,
                uint32_t latency, uint32_t threshold, uint64_t seed, uint64_t error_low,
                uint64_t error_high) {
    Parameters with;
    with.data = data;
    with.bytes = bytes;
    with.base = base;
    with.window_low = base;
    with.window_high = base + bytes;
    with.latency = latency;
    with.threshold = threshold;
    with.seed = seed;
    with.error_low = error_low;
    with.error_high = error_high;
    pod(handle)->configure(number, host != 0, with);
}

void pod_begin(void* handle) { pod(handle)->begin(); }

void pod_reset(void* handle) { pod(handle)->reset(); }

int pod_write(void* handle, uint32_t offset, uint32_t value) {
    return pod(handle)->write(offset, value);
}

int pod_read(void* handle, uint32_t offset, uint32_t* value) {
    return pod(handle)->read(offset, value);
}

int pod_run(void* handle, uint64_t limit) { return pod(handle)->run(limit); }

const char* pod_complaint(void* handle) { return pod(handle)->complaint(); }
}
