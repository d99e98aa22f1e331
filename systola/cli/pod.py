# SPDX-License-Identifier: Apache-2.0
"""The options --cores and --split, and the report of a pod."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import asdict
from functools import partial

from systola.arch.config import DEFAULT_PRESET
from systola.arch.registers import CycleClass
from systola.arch.shared_memory import SharedMemory
from systola.cli.arguments import memory_of, progress_bar, whole_number
from systola.cli.calibrate import read_network
from systola.cli.errors import UserError
from systola.cli.inputs import load_samples
from systola.cli.labels import found_accuracy, load_labels
from systola.cli.model import check_options, in_file, print_notes
from systola.cli.output import STANDARD_OUTPUT, npz, write_output
from systola.cli.report import energy_figures, to_json
from systola.cli.streams import printable
from systola.compiler.read_model import read_model
from systola.compiler.semantics import Semantics
from systola.runtime.compiled_model import read_compiled
from systola.runtime.execute import HostError
from systola.runtime.pod.model import PodModel, compile_for_pod
from systola.runtime.pod.result import CoreRun, PodResult
from systola.runtime.pod.strategy import MAX_CORES, Strategy
from systola.runtime.program_file import is_program
from systola.runtime.report import Report
from systola.runtime.report_table import NOTHING, percent, report_table

IDLE = "idle"
_OF_ONE = ("timeline", "report", "report_window", "waves", "roofline")
"""Options that apply to a single core only."""


def add_cores(parser: argparse.ArgumentParser, what: str) -> None:
    """Add --cores N; the value is None if it is not given."""
    parser.add_argument("--cores", type=whole_number(1, MAX_CORES), metavar="N", help=what)


def add_shared_memory(parser: argparse.ArgumentParser) -> None:
    """Add --shared-memory BYTES; the value is None if it is not given."""
    parser.add_argument(
        "--shared-memory",
        type=whole_number(1),
        metavar="BYTES",
        help="with --cores: one AXI4 port of this width for the memories of all cores",
    )


def shared_memory_of(arguments: argparse.Namespace) -> SharedMemory | None:
    """Return the shared memory of a pod, or None if the user asks for none.

    Raises UserError without --cores, and ConfigError if the memory does not fit the cores.
    """
    if arguments.shared_memory is None:
        return None
    if arguments.cores is None:
        raise UserError("--shared-memory goes with --cores")
    shared = SharedMemory(arguments.shared_memory)
    shared.check(arguments.preset)
    return shared


def add_split(parser: argparse.ArgumentParser) -> None:
    """Add --split and --scheduler, for pods that run networks."""
    parser.add_argument(
        "--split", action="store_true", help="with --cores: a piece of the model on each core"
    )
    parser.add_argument(
        "--scheduler", metavar="ADDRESS", help="with --cores: simulate them on this Dask cluster"
    )


def check_cores(arguments: argparse.Namespace) -> None:
    """Raise UserError if another option does not go with --cores."""
    if arguments.cores is None:
        for option in ("split", "scheduler"):
            if getattr(arguments, option, None):
                raise UserError(f"--{option} goes with --cores")
        return
    for option in _OF_ONE:
        if getattr(arguments, option, None):
            raise UserError(
                f"--{option.replace('_', '-')} shows one core: it does not go with --cores"
            )
    if arguments.backend == "serial":
        raise UserError("--backend serial is one core: it does not go with --cores")


def run_on_pod(arguments: argparse.Namespace) -> int:
    """Run the command tpu run --cores."""
    path: str = arguments.model
    content = read_network(arguments)
    pod = partial(
        Strategy,
        arguments.cores,
        split=arguments.split,
        backend=arguments.backend,
        **memory_of(arguments),
        scheduler=arguments.scheduler,
    )
    with in_file(path):
        if is_program(content):
            whole = read_compiled(content)
            check_options(arguments, whole)
            model = PodModel(pod(whole.config), whole)
        else:
            semantics = arguments.semantics and Semantics(arguments.semantics)
            network, semantics = read_model(content, semantics)
            strategy = pod(arguments.preset or DEFAULT_PRESET)
            model = compile_for_pod(strategy, network, semantics, arguments.batch)
    x, count = load_samples(arguments.input, arguments.key, model.inputs, arguments.limit)
    labels = load_labels(arguments, model.outputs, count)
    try:
        with progress_bar(count, "sample") as advance, in_file(path):
            run = model.run(*x, progress=advance)
    except HostError as error:
        raise UserError(f"{path}: {error}") from None
    write_output(arguments.output, npz(run.outputs))
    reports = run.reports(arguments.mhz)
    accuracy, accuracy_lines = found_accuracy(labels, run.outputs)
    figures: dict[str, object] = {
        "model": printable(path),
        "backend": arguments.backend,
        **memory_of(arguments),
        **describe_pod(model, run, reports),
        **accuracy,
    }
    if arguments.json:
        write_output(arguments.json, to_json(figures))
    if STANDARD_OUTPUT not in (arguments.output, arguments.json):
        print("\n".join([pod_summary(model, run, reports), *accuracy_lines]))
    print_notes(model.model)
    return 0


def core_table(cores: Sequence[CoreRun], title: str, shares: Sequence[str]) -> str:
    """Return a table with a line for each core: its share, its cycles, and the causes of cycles in
    per cent.

    `shares` has the shares of the first cores; the other cores have none. Per cent are of the pod's
    cycles. `title` is the heading of the shares.
    """
    total = max(core.end for core in cores) or 1
    seen = [
        which for which in CycleClass if any(core.counters.get(_key(which), 0) for core in cores)
    ]
    titles = [which.name.lower().split("_") for which in seen]
    heads = [("", "core"), ("", title), ("", "cycles")]
    heads += [(title[0], title[1] if len(title) > 1 else "") for title in titles]
    heads.append((IDLE, ""))
    rows: list[list[str]] = []
    for number, core in enumerate(cores):
        share = shares[number] if number < len(shares) else NOTHING
        cells = [str(number), share, f"{core.cycles or 0:,}"]
        cells += [percent(core.counters.get(_key(which), 0) / total) for which in seen]
        rows.append([*cells, percent(1 - (core.cycles or 0) / total)])
    table = [[head[0] for head in heads], [head[1] for head in heads], *rows]
    widths = [max(len(line[column]) for line in table) for column in range(len(heads))]
    return "\n".join("  ".join(["", *map(str.rjust, line, widths)]).rstrip() for line in table)


def _key(which: CycleClass) -> str:
    return which.name.lower()


def core_figures(cores: Sequence[CoreRun]) -> list[dict[str, object]]:
    """Return the figures of the cores for JSON."""
    return [asdict(core) for core in cores]


def describe_pod(model: PodModel, run: PodResult, reports: Sequence[Report]) -> dict[str, object]:
    """Return the figures of a run on a pod, for JSON."""
    mhz = reports[0].mhz if reports else None
    return {
        "preset": run.config.name,
        "semantics": model.model.semantics.value,
        "split": model.strategy.split,
        "samples": run.samples,
        "batches": run.batches,
        "pieces": len(run.pieces),
        "instructions": run.instructions,
        "cycles": run.cycles,
        "cycles_per_sample": run.cycles / run.samples if run.cycles else None,
        "efficiency": run.efficiency,
        "macs": run.macs * run.samples,
        "utilization": run.utilization,
        "mhz": mhz,
        "inferences_per_second": run.inferences_per_second(mhz) if mhz else None,
        "cores": core_figures(run.cores),
        "energy": [energy_figures(report) for report in reports],
        "layers": [[asdict(row) for row in report.rows] for report in reports],
        "simulated_cycles_per_second": run.simulated_cycles_per_second,
    }


def pod_summary(model: PodModel, run: PodResult, reports: Sequence[Report]) -> str:
    """Write the figures of a run on a pod as text."""
    plural = "" if run.samples == 1 else "s"
    cores = "1 core" if len(run.cores) == 1 else f"{len(run.cores)} cores"
    lines = [
        f"{run.samples} sample{plural} of {run.macs:,} MACs on {cores} of '{run.config.name}', "
        f"results as of {model.model.semantics.value}"
    ]
    for number, report in enumerate(reports):
        if len(reports) > 1:
            lines.append(f"core {number}")
        lines.append(report_table(report))
    if run.cycles and run.efficiency is not None and run.utilization is not None:
        lines.append(
            f"{run.cycles:,} cycles of the pod, {run.cycles / run.samples:,.1f} a sample, "
            f"utilisation {100 * run.utilization:.2f} %, cores busy {100 * run.efficiency:.2f} %"
        )
        if model.strategy.split:
            lines.append(pipeline_bound(run.batches, len(run.pieces), len(run.cores)))
        lines.append(core_table(run.cores, "samples", [f"{core.samples:,}" for core in run.cores]))
    if (mhz := reports[0].mhz if reports else None) and run.cycles:
        lines.append(f"{run.inferences_per_second(mhz):,.1f} inferences a second at {mhz:g} MHz")
    if run.simulated_cycles_per_second:
        speed = run.simulated_cycles_per_second
        lines.append(f"simulated {speed:,.0f} cycles a second, all cores together")
    return "\n".join(lines)


def pipeline_bound(batches: int, pieces: int, cores: int) -> str:
    """Return a line with the largest share of time in which a pipeline of equal pieces can be
    busy.
    """
    bound = pieces / cores * batches / (batches + pieces - 1)
    text = f"{batches} batches through {pieces} pieces: at most {100 * bound:.2f} % busy"
    return text if pieces == cores else f"{text}, as there are no more pieces for {cores} cores"
