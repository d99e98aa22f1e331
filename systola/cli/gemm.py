# SPDX-License-Identifier: Apache-2.0
"""The command tpu gemm: it runs a random matrix product, checks it and counts cycles."""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from contextlib import ExitStack

import numpy as np
from numpy.typing import NDArray

from systola.arch.config import Config
from systola.arch.image import Image
from systola.arch.isa import INSTRUCTION_BYTES, Rounding
from systola.cli.arguments import (
    add_json,
    add_memory,
    add_preset,
    memory_of,
    progress_bar,
    whole_number,
)
from systola.cli.board import add_backend
from systola.cli.output import STANDARD_OUTPUT, write_output
from systola.cli.pod import add_cores, check_cores, core_figures, core_table
from systola.cli.report import cycle_table, to_json
from systola.cli.views import add_timeline, recording_backend
from systola.compiler.layer import Layer
from systola.compiler.schedule import check_gemm
from systola.runtime.backend import Result, fault_text
from systola.runtime.iss import GoldenBackend
from systola.runtime.make_backend import make_backend
from systola.runtime.pod.gemm import run_shares, share_gemm
from systola.runtime.pod.result import core_runs
from systola.runtime.pod.work import Cores
from systola.runtime.reference import layer_reference
from systola.timing.memory_speed import MemorySpeed
from systola.views.trace_event import RecordedRun, trace, with_model

HELP = "multiply random matrices, check every byte, count cycles"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of this command."""
    for name, text in (("m", "rows of A"), ("k", "columns of A"), ("n", "columns of the result")):
        parser.add_argument(name, metavar=name.upper(), type=whole_number(1), help=text)
    add_preset(parser)
    add_backend(parser)
    add_memory(parser)
    add_timeline(parser)
    add_cores(parser, "divide the rows of A, or the columns of the result, between N cores")
    add_json(parser)


def execute(arguments: argparse.Namespace) -> int:
    """Run the command; return status 1 if a byte of the result is wrong."""
    config: Config = arguments.preset
    m, k, n = arguments.m, arguments.k, arguments.n
    check_gemm(config, m, k, n)
    check_cores(arguments)
    memory = MemorySpeed(arguments.latency, arguments.stall)
    how = memory_of(arguments)
    with ExitStack() as stack:
        a, layer = random_gemm(m, k, n, arguments.seed)
        shares = share_gemm(config, a, layer, arguments.cores or 1, memory)
        images = [share.image for share in shares]
        backend = recording_backend(arguments, config, stack, **how)
        if isinstance(backend, str) and arguments.cores:
            runs = run_shares(Cores(config, backend, **how), images)
        else:
            if isinstance(backend, str):
                backend = make_backend(backend, config, **how)
            with progress_bar(None, " cycles") as progress:
                runs = [backend.run(image, progress=progress) for image in images]
        if arguments.timeline:
            recorded = with_model(config, [RecordedRun(images[0], runs[0])], memory)
            write_output(arguments.timeline, trace(config, recorded, f"{m} x {k} x {n}"))
        result = np.zeros((m, n), np.int8)
        for share, run in zip(shares, runs, strict=True):
            result[share.rows, share.columns] = share.program.result(run.host)
        expected = layer_reference(a, layer)
        fault = next((run.fault for run in runs if run.fault), None)
        bit_exact = fault is None and bool(np.array_equal(result, expected))
        golden_equal = arguments.backend == "iss" or all(
            _is_golden(config, image, run) for image, run in zip(images, runs, strict=True)
        )
        ran = core_runs(runs, arguments.cores or 1)
        timed = [run.cycles for run in runs if run.cycles is not None]
        cycles = max(timed, default=None)
        macs = m * k * n
        utilization = macs / (config.peak_macs * len(ran) * cycles) if cycles else None
        speeds = [run.simulated_cycles_per_second for run in runs]
        speed = sum(each for each in speeds if each) / len(runs) or None
        counters: Counter[str] = Counter()
        for core in ran:
            counters.update(core.counters)
        figures: dict[str, object] = {
            "preset": config.name,
            "m": m,
            "k": k,
            "n": n,
            "backend": arguments.backend,
            **how,
            "instructions": sum(len(image.program) for image in images) // INSTRUCTION_BYTES,
            "cycles": cycles,
            "macs": macs,
            "utilization": utilization,
            "bit_exact": bit_exact,
            "counters": counters,
            "simulated_cycles_per_second": speed,
        }
        if arguments.cores:
            figures["cores"] = core_figures(ran)
        if arguments.json:
            write_output(arguments.json, to_json(figures))

    if STANDARD_OUTPUT not in (arguments.json, arguments.timeline):
        pod = f"{arguments.cores} cores of " if arguments.cores else ""
        print(f"{m} x {k} x {n} on {pod}'{config.name}', {arguments.backend}: ", end="")
        print("every byte equals numpy" if bit_exact else "WRONG RESULT")
        if cycles and utilization is not None:
            print(f"{cycles:,} cycles, utilisation {100 * utilization:.2f} %")
            if arguments.cores:
                sizes = [f"{_size(share.rows)} x {_size(share.columns)}" for share in shares]
                print(core_table(ran, "result", sizes))
            else:
                print(cycle_table(ran[0].counters))
        if speed:
            print(f"simulated {speed:,.0f} cycles a second")
    if fault:
        print(f"tpu: {fault_text(fault)}", file=sys.stderr)
    elif not bit_exact:
        wrong = int(np.count_nonzero(result != expected))
        print(f"tpu: {wrong} of {result.size} bytes differ from numpy", file=sys.stderr)
    if not golden_equal:
        print("tpu: host memory differs from the golden model's", file=sys.stderr)
    return 0 if bit_exact and golden_equal else 1


def _size(part: slice) -> int:
    return part.stop - part.start


def _is_golden(config: Config, image: Image, run: Result) -> bool:
    """Return whether the golden model leaves the same host memory and fault."""
    golden = GoldenBackend(config).run(image)
    return bool(np.array_equal(golden.host, run.host)) and golden.fault == run.fault


def random_gemm(m: int, k: int, n: int, seed: int) -> tuple[NDArray[np.int8], Layer]:
    """Return random operands, with results that spread over all of int8.

    The first is A, int8 [M, K]; the layer has the weights, K x N, and the parameters.
    """
    rng = np.random.default_rng(seed)
    a = rng.integers(-128, 128, (m, k), dtype=np.int8)
    weights = rng.integers(-128, 128, (k, n), dtype=np.int8)
    # An element is uniform with variance (256^2 - 1) / 12; a sum of K products is nearly normal.
    spread = float(np.sqrt(k)) * 65535 / 12
    bias = rng.normal(0, spread / 2, n).astype(np.int32)
    scale = 50 / spread * rng.uniform(0.5, 1.5, n)
    fraction, exponent = np.frexp(scale)
    layer = Layer(
        weights=weights,
        bias=bias,
        multiplier=(fraction * 2**31).astype(np.int32),
        shift=exponent.astype(np.int32),
        rounding=Rounding(int(rng.integers(2))),
        zero_point=int(rng.integers(-20, 21)),
    )
    return a, layer
