# SPDX-License-Identifier: Apache-2.0
"""tpu run: a network on one's own data."""

from __future__ import annotations

import argparse
import io
import sys
import zipfile
import zlib
from contextlib import ExitStack
from typing import Any

import numpy as np
from numpy.typing import NDArray

from systola.arch.config import Config
from systola.cli.arguments import add_json, add_machine, make_backend, progress_bar, whole_number
from systola.cli.errors import UserError
from systola.cli.output import OutputFile, read_file
from systola.cli.report import cycle_table, to_json
from systola.compiler.errors import CompileError, ModelError
from systola.compiler.network import Network, build_network, compile_network, sample_count
from systola.compiler.tflite import read_tflite
from systola.runtime.run import DEFAULT_BATCH, NetworkRun, run_network

HELP = "run a quantised network (.tflite) on samples from a .npz file"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of this command."""
    parser.add_argument("model", metavar="MODEL", help="TensorFlow Lite model")
    parser.add_argument("--input", required=True, metavar="X.npz", help="file with the samples")
    parser.add_argument("--key", default="x", help="array in that file (default: x)")
    parser.add_argument(
        "--output", required=True, metavar="Y.npz", help="file to write, with an array y"
    )
    parser.add_argument(
        "--limit", type=whole_number(1), metavar="N", help="stop after that many samples"
    )
    parser.add_argument(
        "--batch",
        type=whole_number(1),
        default=DEFAULT_BATCH,
        metavar="B",
        help=f"samples in one program (default: {DEFAULT_BATCH})",
    )
    add_machine(parser)
    add_json(parser)


def execute(arguments: argparse.Namespace) -> int:
    """Runs the command."""
    config: Config = arguments.preset
    network = load_network(arguments.model)
    x = _samples(arguments, network)
    try:
        compile_network(config, network, 1)
    except CompileError as error:
        raise UserError(f"{arguments.model}: {error}") from None
    with ExitStack() as stack:
        output = stack.enter_context(OutputFile(arguments.output))
        json = stack.enter_context(OutputFile(arguments.json)) if arguments.json else None
        backend = make_backend(arguments.backend, config)
        total = sample_count(network, [x.shape]) or 1
        with progress_bar(total, "sample") as advance:
            run = run_network(backend, network, x, batch=arguments.batch, progress=advance)
        content = io.BytesIO()
        np.savez(content, y=run.y)
        output.write(content.getvalue())
        if json:
            figures = {"model": arguments.model, "preset": config.name}
            json.write(
                to_json({**figures, "backend": arguments.backend, **describe(network, run, config)})
            )
    if "-" not in (arguments.json, arguments.output):
        print(summary(network, run, config))
    if inexact := network.translation.inexact_channels:
        print(
            f"tpu: note: {inexact} channels have scales too small for a "
            "multiplier that gives LiteRT's rounding for every sum",
            file=sys.stderr,
        )
    return 0


def load_network(path: str) -> Network:
    """The network in a file; raises UserError where it cannot be read or is not supported."""
    content = read_file(path)
    try:
        return build_network(read_tflite(content))
    except ModelError as error:
        raise UserError(f"{path}: {error}") from None


def describe(network: Network, run: NetworkRun, config: Config) -> dict[str, object]:
    """Figures of a run, for JSON."""
    macs = network.macs * run.samples
    return {
        "samples": run.samples,
        "instructions": run.instructions,
        "cycles": run.cycles,
        "cycles_per_sample": run.cycles / run.samples if run.cycles else None,
        "macs": macs,
        "utilization": macs / (config.peak_macs * run.cycles) if run.cycles else None,
        "counters": run.counters,
        "simulated_cycles_per_second": run.simulated_cycles_per_second,
    }


def summary(network: Network, run: NetworkRun, config: Config) -> str:
    """Figures of a run as text."""
    plural = "" if run.samples == 1 else "s"
    lines = [f"{run.samples} sample{plural} of {network.macs:,} MACs on '{config.name}'"]
    if run.cycles:
        use = network.macs * run.samples / (config.peak_macs * run.cycles)
        lines.append(
            f"{run.cycles:,} cycles, {run.cycles / run.samples:,.1f} a sample, "
            f"utilisation {100 * use:.2f} %"
        )
        lines.append(cycle_table(run.counters))
    if run.simulated_cycles_per_second:
        lines.append(f"simulated {run.simulated_cycles_per_second:,.0f} cycles a second")
    return "\n".join(lines)


def _samples(arguments: argparse.Namespace, network: Network) -> NDArray[Any]:
    """The samples to run, of the model's data type, at most as many as asked for."""
    x = _array(arguments.input, arguments.key)
    where = f"{arguments.input}: array '{arguments.key}'"
    if network.inputs[0].dtype == "float32":
        if not np.issubdtype(x.dtype, np.floating):
            raise UserError(f"{where} is {x.dtype}, the model takes float32")
        with np.errstate(over="ignore"):
            x = x.astype(np.float32)
        if not bool(np.isfinite(x).all()):
            raise UserError(f"{where} has values that are not finite in float32")
    elif str(x.dtype) != network.inputs[0].dtype:
        raise UserError(f"{where} is {x.dtype}, the model takes {network.inputs[0].dtype}")
    try:
        count = sample_count(network, [x.shape])
    except ModelError as error:
        raise UserError(f"{where}: {error}") from None
    if count == 0:
        raise UserError(f"{where} has no samples")
    if count is not None and arguments.limit:
        x = x[: arguments.limit]
    return x


def _array(path: str, key: str) -> NDArray[Any]:
    content = read_file(path)
    if not zipfile.is_zipfile(io.BytesIO(content)):
        raise UserError(f"{path} is not a .npz file")
    try:
        with np.load(io.BytesIO(content), allow_pickle=False) as archive:
            if key not in archive.files:
                known = ", ".join(archive.files) or "none"
                raise UserError(f"{path} has no array '{key}' (it has: {known})")
            return np.asarray(archive[key])
    except (ValueError, OSError, EOFError, KeyError, zlib.error, zipfile.BadZipFile) as error:
        raise UserError(f"{path}: cannot read array '{key}': {error}") from None
