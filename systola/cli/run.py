# SPDX-License-Identifier: Apache-2.0
"""The command tpu run: it runs a network on one's own data."""

from __future__ import annotations

import argparse
import sys
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import PurePath

from systola.arch.config import DEFAULT_PRESET, Config, preset
from systola.cli.arguments import (
    add_json,
    add_memory,
    memory_of,
    positive,
    progress_bar,
    svg_file,
    whole_number,
)
from systola.cli.board import add_backend
from systola.cli.calibrate import add_calibrate, read_network
from systola.cli.errors import UserError
from systola.cli.file_names import InputName, output_name
from systola.cli.inputs import add_key, load_samples
from systola.cli.labels import add_labels, found_accuracy, load_labels
from systola.cli.model import (
    add_compilation,
    check_options,
    in_file,
    is_partial,
    print_notes,
    sides,
    spilled_bytes,
    spilling,
    variables,
)
from systola.cli.output import STANDARD_OUTPUT, npz, write_output
from systola.cli.pod import add_cores, add_split, check_cores, run_on_pod
from systola.cli.report import cycle_table, energy_figures, to_json
from systola.cli.streams import printable
from systola.cli.views import (
    add_report,
    add_timeline,
    add_waves,
    recording_backend,
    waves_file,
)
from systola.compiler.cut.placement import macs_share
from systola.compiler.errors import ModelError
from systola.compiler.semantics import Semantics
from systola.runtime.compile_content import read_for
from systola.runtime.compiled_model import CompiledModel, even_batch, read_compiled
from systola.runtime.execute import HostError
from systola.runtime.program_file import is_program
from systola.runtime.report import Report
from systola.runtime.report_table import report_table
from systola.runtime.run_result import RunResult
from systola.sim.waves import how_to_look
from systola.views.plots import new_figure, roofline_figure, to_svg
from systola.views.report_page import report_page

HELP = "run a quantised or compiled network on samples of a .npz file"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of this command."""
    parser.add_argument(
        "model",
        type=InputName,
        metavar="MODEL",
        help=".tflite or .onnx model, one that was trained here, or compiled program",
    )
    parser.add_argument(
        "--input",
        type=InputName,
        required=True,
        metavar="X.npz",
        help="file with the samples",
    )
    add_key(parser)
    add_labels(parser)
    add_calibrate(parser)
    parser.add_argument(
        "--output",
        type=output_name,
        required=True,
        metavar="Y.npz",
        help="file to write, with an array y, or y0, y1, ... where there are several outputs",
    )
    parser.add_argument(
        "--limit", type=whole_number(1), metavar="N", help="stop after that many samples"
    )
    add_compilation(parser)
    add_backend(parser)
    add_memory(parser)
    parser.add_argument(
        "--mhz", type=positive, metavar="F", help="clock, for inferences in a second"
    )
    parser.add_argument(
        "--roofline",
        type=svg_file,
        metavar="FILE.svg",
        help="write a picture of the layers to this file",
    )
    add_timeline(parser)
    add_report(parser)
    add_waves(parser)
    add_cores(parser, "run on a pod of N cores, each with a share of the samples")
    add_split(parser)
    add_json(parser)


def execute(arguments: argparse.Namespace) -> int:
    """Run the command."""
    check_cores(arguments)
    if arguments.cores:
        return run_on_pod(arguments)
    path: str = arguments.model
    written = (
        *(arguments.output, arguments.json, arguments.roofline),
        *(arguments.timeline, arguments.report),
    )
    content = read_network(arguments)
    with in_file(path):
        if is_program(content):
            model = read_compiled(content)
            check_options(arguments, model)
            x, count = load_samples(arguments.input, arguments.key, model.inputs, arguments.limit)
        else:
            semantics = arguments.semantics and Semantics(arguments.semantics)
            config: Config = arguments.preset or preset(DEFAULT_PRESET)
            found = read_for(config, content, semantics)
            inputs = found.network.inputs
            x, count = load_samples(arguments.input, arguments.key, inputs, arguments.limit)
            model = found.compile(min(arguments.batch or even_batch(count), count))
    labels = load_labels(arguments, model.outputs, count)
    if arguments.roofline or arguments.report:
        new_figure(1, 1)  # a missing library is reported before the work begins
    with ExitStack() as stack:
        memory = memory_of(arguments)
        backend = recording_backend(arguments, model.config, stack, **memory)
        with progress_bar(count, "sample") as advance:
            try:
                run = model.run(*x, backend=backend, **memory, progress=advance)
            except (HostError, ModelError) as error:
                raise UserError(f"{path}: {error}") from None
        write_output(arguments.output, npz(run.outputs))
        report = run.report(arguments.mhz)
        accuracy, accuracy_lines = found_accuracy(labels, run.outputs)
        name = printable(PurePath(path).name)
        figures: dict[str, object] = {
            "model": printable(path),
            "backend": arguments.backend,
            **memory,
            **describe(model, run, report),
            **accuracy,
        }
        if arguments.json:
            write_output(arguments.json, to_json(figures))
        if arguments.timeline:
            write_output(arguments.timeline, run.timeline(name))
        title = f"{name} on '{model.config.name}'"
        if arguments.roofline:
            picture = to_svg(roofline_figure(model.config, report, title))
            write_output(arguments.roofline, picture)
        if arguments.report:
            page = report_page(run, report, title, figures, arguments.report_window)
            write_output(arguments.report, page)
    if STANDARD_OUTPUT not in written:
        print("\n".join([summary(model, run, report), *accuracy_lines]))
    if waves := waves_file(arguments):
        if run.cycles and run.cycles <= arguments.waves[0]:
            print(
                f"tpu: note: the run has {run.cycles:,} cycles: the waveform is empty",
                file=sys.stderr,
            )
        print(how_to_look(waves.with_suffix(".gtkw")), file=sys.stderr)
    print_notes(model)
    return 0


def describe(model: CompiledModel, run: RunResult, report: Report) -> dict[str, object]:
    """Return the figures of a run, for JSON."""
    return {
        "preset": model.config.name,
        "semantics": model.semantics.value,
        "batch": model.batch,
        "samples": run.samples,
        "instructions": run.instructions,
        "cycles": run.cycles,
        "cycles_per_sample": run.cycles / run.samples if run.cycles else None,
        "estimated_cycles_per_sample": report.estimated_cycles,
        "macs": model.macs * run.samples,
        "machine_share": macs_share(model.placement) if is_partial(model) else 1.0,
        "utilization": run.utilization,
        "mhz": report.mhz,
        "inferences_per_second": run.inferences_per_second(report.mhz) if report.mhz else None,
        "spilled_bytes": spilled_bytes(model),
        "counters": run.counters,
        **energy_figures(report),
        "layers": [asdict(row) for row in report.rows],
        "simulated_cycles_per_second": run.simulated_cycles_per_second,
    }


def summary(model: CompiledModel, run: RunResult, report: Report) -> str:
    """Write the figures of a run as text."""
    plural = "" if run.samples == 1 else "s"
    lines = [
        f"{run.samples} sample{plural} of {model.macs:,} MACs on '{model.config.name}', "
        f"results as of {model.semantics.value}",
        report_table(report),
        *sides(model),
        *spilling(model),
        *variables(model),
    ]
    if run.cycles and run.utilization is not None:
        lines.append(
            f"{run.cycles:,} cycles, {run.cycles / run.samples:,.1f} a sample, "
            f"utilisation {100 * run.utilization:.2f} %"
        )
        lines.append(cycle_table(run.counters))
    if run.moving_cycles:
        lines.append(f"{run.moving_cycles:,} more cycles to bring variables to the machine")
    if run.simulated_cycles_per_second:
        lines.append(f"simulated {run.simulated_cycles_per_second:,.0f} cycles a second")
    return "\n".join(lines)
