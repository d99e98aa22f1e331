# SPDX-License-Identifier: Apache-2.0
"""The measurement of one application on the RTL; every byte is compared with the golden model."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from systola.arch.config import preset
from systola.bench.moment import commit, today
from systola.bench.original.compiled import Work, compiled
from systola.bench.original.result import PRESET, Result
from systola.bench.original.shapes import applications
from systola.runtime.backend import BackendError, fault_text
from systola.runtime.iss import GoldenBackend
from systola.runtime.rtl import RtlBackend
from systola.sim.build import content_key
from systola.sim.design import verilog_of
from systola.timing.estimate import estimate


def key_of(work: Work) -> str:
    """Return the key of a result, which changes with the machine's Verilog, the program or its
    data.
    """
    image = work.image
    return content_key(
        verilog_of(preset(PRESET)),
        image.host.tobytes(),
        image.weights.tobytes(),
        str(image.program_offset),
    )


def work_of(name: str) -> Work:
    """Return the application called `name`, compiled for the machine."""
    return compiled(preset(PRESET), applications()[name])


def measure(work: Work, progress: Callable[[int], None]) -> Result:
    """Run an application; `progress` is called with the cycles so far.

    Raises BackendError if the machine stops, or leaves a byte that differs from the golden model's.
    """
    config, image = preset(PRESET), work.image
    started = time.perf_counter()
    golden = GoldenBackend(config).run(image)
    golden_seconds = time.perf_counter() - started
    started = time.perf_counter()
    run = RtlBackend(config).run(image, progress=progress)
    seconds = time.perf_counter() - started
    for result in (golden, run):
        if result.fault:
            raise BackendError(fault_text(result.fault))
    wrong = np.flatnonzero(run.host != golden.host)
    if len(wrong):
        raise BackendError(
            f"{len(wrong)} of {len(run.host)} bytes differ, first at 0x{int(wrong[0]):x}"
        )
    assert run.cycles is not None
    config = preset(PRESET)
    return Result(
        key=key_of(work),
        macs=work.macs,
        weight_bytes=round(estimate(config, image).traffic.weights),
        cycles=run.cycles,
        counters=run.counters,
        estimate=estimate(config, image).cycles,
        outputs=sum(output.size for output in work.program.results(run.host)),
        golden_seconds=round(golden_seconds, 1),
        seconds=round(seconds),
        date=today(),
        commit=commit(),
    )
