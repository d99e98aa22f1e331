# SPDX-License-Identifier: Apache-2.0
"""The measurement of training steps on the RTL against the golden model, for docs/training.md."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from systola.arch.config import preset
from systola.arch.pages import DOCS, filled, table
from systola.bench.moment import commit, today
from systola.training import SGD, Adam, Dense, Dropout, History, Sequential
from systola.training.optimizers import Optimizer

RESULTS = Path(__file__).with_name("training.json")
PAGE = DOCS / "training.md"
INPUTS, UNITS, CLASSES = 784, 512, 10
LATENCY = 30


OPTIMIZERS: dict[str, Optimizer] = {"SGD": SGD(0.1), "momentum": SGD(0.1, 0.9), "Adam": Adam()}


@dataclass(frozen=True)
class Step:
    """A training step with `batch` samples on the machine called `name`."""

    name: str
    batch: int
    optimizer: str = "SGD"
    """Name of the optimiser: a key of OPTIMIZERS."""
    bar: int | None = None
    """Largest number of cycles that the step may take."""


STEPS = (
    Step("base-training", 64, bar=300_000),
    Step("base-training", 64, "momentum"),
    Step("base-training", 64, "Adam"),
    Step("v1-training", 1024),
)


def trained(step: Step, backend: str) -> tuple[Sequential, History]:
    """Train for one step with made-up samples; return the model and its history."""
    rng = np.random.default_rng(0)
    x = rng.uniform(0, 1, (step.batch, INPUTS)).astype(np.float32)
    y = rng.integers(0, CLASSES, step.batch)
    model = Sequential((Dense(UNITS, "relu"), Dropout(0.2), Dense(CLASSES)))
    optimizer = OPTIMIZERS[step.optimizer]
    model.compile(optimizer, preset=step.name, backend=backend, latency=LATENCY, seed=1)
    return model, model.fit(x, y, batch_size=step.batch, verbose=0)


def measure(step: Step) -> dict[str, Any]:
    """Return the cycles of the step, the use of the array, and whether all bytes are right.

    Weights, velocities or moments, and loss must equal the golden model's.
    """
    (expected, one), (found, other) = trained(step, "iss"), trained(step, "rtl")
    loss, found_loss = (each.history["loss"][0] for each in (one, other))
    states = expected.state(), found.state()
    tensors = [[each for kind in (s.masters, *s.beside) for each in kind] for s in states]
    same = all(np.array_equal(one, other) for one, other in zip(*tensors, strict=True))
    config = preset(step.name)
    # Each layer has one product for its results and one for the gradient of its weights. The second
    # layer has one more for the gradient of the units. The samples need no gradient.
    macs = step.batch * (2 * INPUTS * UNITS + 3 * UNITS * CLASSES)
    cycles = found.cycles()
    assert cycles
    return {
        "name": step.name,
        "batch": step.batch,
        "optimizer": step.optimizer,
        "cycles": cycles,
        "utilization": round(macs / (cycles * config.rows * config.cols), 4),
        "bit_exact": same and loss == found_loss,
        "date": today(),
        "commit": commit(),
    }


def stored() -> list[dict[str, Any]]:
    """Return the results of the last `make bench-train`."""
    return json.loads(RESULTS.read_text(encoding="utf-8"))


def steps_table(results: list[dict[str, Any]]) -> str:
    """Write the results as Markdown."""
    rows = [
        (
            f"`{each['name']}`",
            f"{each['batch']:,}",
            each["optimizer"],
            f"{each['cycles']:,}",
            f"{each['utilization']:.1%}",
            f"{each['date']}, {each['commit']}",
        )
        for each in results
    ]
    return table(("machine", "batch", "optimiser", "cycles", "useful", "date, commit"), rows)


def main() -> int:
    """Measure all steps; return 1 if a byte is wrong or a step takes longer than its bar."""
    results = [measure(step) for step in tqdm(STEPS, desc="measuring", unit="step")]
    RESULTS.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    PAGE.write_text(filled(PAGE, steps=steps_table(results)), encoding="utf-8")
    print(steps_table(results))
    missed = 0
    for step, result in zip(STEPS, results, strict=True):
        if not result["bit_exact"] or (step.bar and result["cycles"] > step.bar):
            print(f"MISSED: {step}")
            missed = 1
    return missed


if __name__ == "__main__":
    sys.exit(main())
