// SPDX-License-Identifier: Apache-2.0
//
// What the harnesses share around a Verilated model, whatever its ports.

#pragma once

#include <cstdint>

#include "verilated.h"
#if VM_COVERAGE
#include "verilated_cov.h"
#endif

// Bytes of a port of the Verilated model: an integer or an array of 32-bit words, in any case
// little-endian and without holes on the machines that this runs on.
template <typename PORT>
void* bytes_of(PORT& port) {
    return &port;
}

// What was covered so far, where the model counts it.
inline void write_coverage(VerilatedContext& context, const char* path) {
#if VM_COVERAGE
    context.coveragep()->write(path);
#endif
    (void)context, (void)path;
}

// Chooses one of the faults that verif/mutation plants, 0 for none; others have no such port.
template <typename MODEL>
void plant(MODEL& model, uint32_t fault) {
    if constexpr (requires { model.planted_fault; }) model.planted_fault = fault;
    (void)fault;
}
