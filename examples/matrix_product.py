# SPDX-License-Identifier: Apache-2.0
"""A matrix product on the machine: y = round((a w + bias) / 500), in int8."""

import sys

import numpy as np

from systola.runtime import ImageBuilder, machine

rng = np.random.default_rng(1)
a = rng.integers(-128, 128, (6, 10), dtype=np.int8)
w = rng.integers(-128, 128, (10, 7), dtype=np.int8)
bias = rng.integers(-5000, 5000, 7)

builder = ImageBuilder("tiny")
operand, weights = builder.matrix(a), builder.weights(w)
entries = builder.parameters(scale=1 / 500, bias=bias)
result = builder.room(6, 7)
image = builder.build(f"""
    read_host_memory {operand.operands}, buffer=0
    read_weights {weights.operands}
    load_parameters {entries.operands}, parameter=0
    matrix_multiply buffer=0, accumulator=0, rows=6, {weights.sizes}
    activate accumulator=0, buffer=100, rows=6, n_tiles=2, parameter=0, rounding=single
    write_host_memory {result.operands}, buffer=100
    halt
""")
run = machine("tiny", backend=sys.argv[1] if sys.argv[1:] else "rtl").run(image)

assert run.fault is None, run.fault
y = result.load(run.host)
sums = a.astype(int) @ w + bias
assert np.array_equal(y, np.clip(np.floor(sums / 500 + 0.5), -128, 127)), "not what numpy says"
print(y)
print(f"every byte equals numpy; cycles: {run.cycles}, {run.counters}")
