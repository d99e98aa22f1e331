# SPDX-License-Identifier: Apache-2.0
"""tpu gemm: a random matrix product, checked and measured."""

from __future__ import annotations

import argparse
import sys
from contextlib import ExitStack

import numpy as np
from numpy.typing import NDArray

from systola.arch.config import Config
from systola.arch.isa import Rounding
from systola.cli.arguments import (
    add_json,
    add_memory,
    add_preset,
    progress_bar,
    whole_number,
)
from systola.cli.board import add_backend
from systola.cli.output import OutputFile
from systola.cli.report import cycle_table, to_json
from systola.cli.views import add_timeline, recording_backend
from systola.compiler.layer import Layer
from systola.compiler.schedule import check_gemm, compile_chain
from systola.runtime.backend import fault_text
from systola.runtime.iss import GoldenBackend
from systola.runtime.make_backend import make_backend
from systola.runtime.reference import layer_reference
from systola.timing.memory_speed import MemorySpeed
from systola.views.trace_event import RecordedRun, trace, with_model

HELP = "multiply random matrices, check every byte, count cycles"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of this command."""
    for name, text in (("m", "rows of A"), ("k", "columns of A"), ("n", "columns of the result")):
        parser.add_argument(name, metavar=name.upper(), type=whole_number(1), help=text)
    add_preset(parser)
    add_backend(parser)
    add_memory(parser)
    add_timeline(parser)
    add_json(parser)


def execute(arguments: argparse.Namespace) -> int:
    """Runs the command; status 1 when a byte of the result is wrong."""
    config: Config = arguments.preset
    m, k, n = arguments.m, arguments.k, arguments.n
    check_gemm(config, m, k, n)
    with ExitStack() as stack:
        output = stack.enter_context(OutputFile(arguments.json)) if arguments.json else None
        a, layer = random_gemm(m, k, n, arguments.seed)
        compiled = compile_chain(config, [layer], m)
        image = compiled.bind(a)
        timeline = (
            stack.enter_context(OutputFile(arguments.timeline)) if arguments.timeline else None
        )
        backend = recording_backend(
            arguments,
            config,
            stack,
            latency=arguments.latency,
            stall=arguments.stall,
            seed=arguments.seed,
        )
        if isinstance(backend, str):
            backend = make_backend(
                backend,
                config,
                latency=arguments.latency,
                stall=arguments.stall,
                seed=arguments.seed,
            )
        with progress_bar(None, " cycles") as progress:
            run = backend.run(image, progress=progress)
        if timeline:
            memory = MemorySpeed(arguments.latency, arguments.stall)
            recorded = with_model(config, [RecordedRun(image, run)], memory)
            timeline.write(trace(config, recorded, f"{m} x {k} x {n}"))
        result = compiled.result(run.host)
        expected = layer_reference(a, layer)
        bit_exact = run.fault is None and bool(np.array_equal(result, expected))
        golden = run if arguments.backend == "iss" else GoldenBackend(config).run(image)
        golden_equal = np.array_equal(golden.host, run.host) and golden.fault == run.fault

        macs = m * k * n
        utilization = macs / (config.peak_macs * run.cycles) if run.cycles else None
        figures: dict[str, object] = {
            "preset": config.name,
            "m": m,
            "k": k,
            "n": n,
            "backend": arguments.backend,
            "latency": arguments.latency,
            "stall": arguments.stall,
            "seed": arguments.seed,
            "instructions": len(image.program) // 16,
            "cycles": run.cycles,
            "macs": macs,
            "utilization": utilization,
            "bit_exact": bit_exact,
            "counters": run.counters,
            "simulated_cycles_per_second": run.simulated_cycles_per_second,
        }
        if output:
            output.write(to_json(figures))

    if "-" not in (arguments.json, arguments.timeline):
        print(f"{m} x {k} x {n} on '{config.name}', {arguments.backend}: ", end="")
        print("every byte equals numpy" if bit_exact else "WRONG RESULT")
        if run.cycles and utilization is not None:
            print(f"{run.cycles:,} cycles, utilisation {100 * utilization:.2f} %")
            print(cycle_table(run.counters))
        if run.simulated_cycles_per_second:
            print(f"simulated {run.simulated_cycles_per_second:,.0f} cycles a second")
    if run.fault:
        print(f"tpu: {fault_text(run.fault)}", file=sys.stderr)
    elif not bit_exact:
        wrong = int(np.count_nonzero(result != expected))
        print(f"tpu: {wrong} of {result.size} bytes differ from numpy", file=sys.stderr)
    if not golden_equal:
        print("tpu: host memory differs from the golden model's", file=sys.stderr)
    return 0 if bit_exact and golden_equal else 1


def random_gemm(m: int, k: int, n: int, seed: int) -> tuple[NDArray[np.int8], Layer]:
    """Random operands whose results spread over all of int8: A, M x K, and the rest."""
    rng = np.random.default_rng(seed)
    a = rng.integers(-128, 128, (m, k), dtype=np.int8)
    weights = rng.integers(-128, 128, (k, n), dtype=np.int8)
    # An element is uniform with variance (256^2 - 1) / 12, a sum of K products is near normal.
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
