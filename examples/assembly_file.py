# SPDX-License-Identifier: Apache-2.0
"""Run product.s, a program with fixed addresses; arrays lie in memory in the order of calls."""

import sys
from pathlib import Path

import numpy as np

from systola.runtime import ImageBuilder, machine

rng = np.random.default_rng(2)
a = rng.integers(-128, 128, (6, 4), dtype=np.int8)
w = rng.integers(-128, 128, (4, 4), dtype=np.int8)

builder = ImageBuilder("tiny")
places = [builder.matrix(a).offset, builder.parameters(scale=2**-8, bias=[0] * 4).offset]
result = builder.room(6, 4)
builder.weights(w)
assert [*places, result.offset] == [0, 128, 256], "not where product.s expects them"
image = builder.build((Path(__file__).parent / "product.s").read_text())
run = machine("tiny", backend=sys.argv[1] if sys.argv[1:] else "rtl").run(image)

expected = np.clip(np.floor(a.astype(int) @ w / 256 + 0.5), 0, 127)
assert np.array_equal(result.load(run.host), expected), "not what numpy says"
print(f"every byte equals numpy; cycles: {run.cycles}")
