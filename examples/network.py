# SPDX-License-Identifier: Apache-2.0
"""A quantised network on 16 handwritten digits: compiled, stored, read again, run."""

import sys
from importlib.resources import files
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from systola.runtime import compile, load

models = files("systola.models")
with np.load(str(models / "digits_test.npz")) as digits:
    x, labels = digits["x"][:16], digits["y"][:16]

with TemporaryDirectory() as folder:
    path = Path(folder) / "digits.tpu"
    compile(str(models / "mlp_tutorial_pc_softmax.tflite"), preset="tiny", batch=16).save(path)
    model = load(path)
print(model)
run = model.run({model.inputs[0].name: x}, backend=sys.argv[1] if sys.argv[1:] else "rtl")
print(run)
for row in run.layers:
    print(row.operator, row.shape, row.estimated_cycles, row.measured_cycles, row.limit)
right = int((run.y.reshape(16, -1).argmax(axis=1) == labels).sum())
print(f"{right} of 16 digits are right")
