# SPDX-License-Identifier: Apache-2.0
"""The cost of a timeline: time of the simulation that records, and the size of its file.

Two machines run the same programs in turns, one of which records. Processor time is compared, so
that other work on the computer has little effect. The exit status is 1 if the ratio or the size of
the file is over the bar.
"""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import replace
from importlib.resources import files

import numpy as np
from tqdm import tqdm

from systola.runtime.api import compile
from systola.runtime.compiled_model import CompiledModel
from systola.runtime.rtl import RtlBackend
from systola.runtime.run_result import RunResult

MODEL = "cnn_residual_dw_pool.tflite"
"""A network with many short instructions of every unit: one in 90 cycles on the smallest array."""
BATCH = 64
CYCLES = 10_000_000
SLOWER = 1.3
"""Largest accepted ratio of the time with recording to the time without it."""
LARGEST = 50_000_000
"""Largest accepted size, in bytes, of the file of a recording with CYCLES cycles."""


def main() -> int:
    """Measure, print the results, and return the exit status."""
    parser = argparse.ArgumentParser(prog="make bench-timeline", description=__doc__)
    parser.add_argument("--preset", default="tiny")
    parser.add_argument("--cycles", type=int, default=CYCLES)
    options = parser.parse_args()
    content = (files("systola.models") / MODEL).read_bytes()
    model = compile(content, preset=options.preset, batch=BATCH)
    run, plain, recording = _measure(model, options.cycles)
    assert run.cycles
    started = time.process_time()
    size = len(run.timeline(MODEL))
    seconds = time.process_time() - started
    ratio = recording / plain
    print(f"{run.samples} samples through {MODEL} on '{options.preset}': {run.cycles:,} cycles")
    print(
        f"simulation  {run.cycles / plain:,.0f} cycles a second, "
        f"{run.cycles / recording:,.0f} while it records: {ratio:.2f} times as long (bar {SLOWER})"
    )
    print(f"timeline    {size:,} bytes (bar {LARGEST:,}), made in {seconds:.0f} s")
    return int(ratio > SLOWER or size > LARGEST)


def _measure(model: CompiledModel, cycles: int) -> tuple[RunResult, float, float]:
    """Return a recorded run of at least `cycles` cycles, and the seconds without and with
    recording.
    """
    rng = np.random.default_rng(0)
    (value,) = model.inputs
    seconds = {False: 0.0, True: 0.0}
    runs: list[RunResult] = []
    done = 0
    with (
        RtlBackend(model.config) as plain,
        RtlBackend(model.config, records=True) as recording,
        tqdm(total=cycles, unit=" cycles", unit_scale=True) as bar,
    ):
        while done < cycles:
            x = rng.integers(-128, 128, (BATCH, *value.shape), dtype=np.int8)
            for records, machine in ((False, plain), (True, recording)):
                started = time.process_time()
                run = model.run(x, backend=machine)
                seconds[records] += time.process_time() - started
            runs.append(run)
            assert run.cycles
            done += run.cycles
            bar.update(run.cycles)
    recorded = tuple(each for run in runs for each in run.recorded)
    totals = tuple(each for run in runs for each in run.totals)
    return replace(runs[0], totals=totals, recorded=recorded), seconds[False], seconds[True]


if __name__ == "__main__":
    sys.exit(main())
