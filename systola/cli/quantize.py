# SPDX-License-Identifier: Apache-2.0
"""The command tpu quantize: it turns a float network into an int8 network, calibrated on
samples.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from math import isfinite

from systola.arch.config import Config
from systola.cli.arguments import add_json, add_preset
from systola.cli.file_names import InputName, output_name
from systola.cli.inputs import add_key, load_samples, open_npz, read_array
from systola.cli.model import in_file, print_notes
from systola.cli.output import STANDARD_OUTPUT, read_file, write_output
from systola.cli.report import to_json
from systola.compiler.errors import CompileError, ModelError
from systola.compiler.printable import printable
from systola.runtime.compile_content import compile_content
from systola.runtime.compiled_model import CompiledModel
from systola.runtime.quantiser.quantize import FORMS, QuantizedModel, quantize_float, read_float
from systola.runtime.report import HOST, Report

HELP = "quantise a float network (.tflite, .onnx) on samples of a .npz file"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of this command."""
    parser.add_argument(
        "model", type=InputName, metavar="MODEL", help="float .tflite or .onnx model"
    )
    parser.add_argument(
        "--data",
        type=InputName,
        required=True,
        metavar="X.npz",
        help="file with the samples that calibrate it",
    )
    add_key(parser)
    parser.add_argument(
        "--labels", metavar="K", help="array of classes in that file: accuracies are printed"
    )
    parser.add_argument(
        "--shape",
        type=shape,
        action="append",
        metavar="N,...",
        help="sizes of an input that the model leaves open; once for each input",
    )
    parser.add_argument(
        "--to", choices=FORMS, default=FORMS[0], help=f"form of the result (default: {FORMS[0]})"
    )
    parser.add_argument(
        "-o",
        "--output",
        type=output_name,
        required=True,
        metavar="OUT",
        help="file to write, in the format of the model",
    )
    add_preset(parser)
    add_json(parser)


def shape(text: str) -> tuple[int, ...]:
    """Convert, for argparse, a shape such as 1,224,224,3."""
    sizes = text.split(",")
    if not all(size.isdecimal() and size.isascii() and int(size) for size in sizes):
        raise argparse.ArgumentTypeError(f"'{text}' is no shape such as 1,224,224,3")
    return tuple(map(int, sizes))


def execute(arguments: argparse.Namespace) -> int:
    """Run the command."""
    path: str = arguments.model
    content = read_file(path)
    with in_file(path):
        model = read_float(content, arguments.shape, arguments.to)
    x, _ = load_samples(arguments.data, arguments.key, model.inputs, None)
    labels = None
    if arguments.labels is not None:
        labels = read_array(arguments.data, open_npz(arguments.data), arguments.labels)
    with in_file(path):
        result = quantize_float(model, x, labels)
    compiled = _compiled(arguments.preset, result)
    write_output(arguments.output, result.content)
    if arguments.json:
        figures = {"model": printable(path), "to": arguments.to, **_figures(result)}
        figures |= {"preset": arguments.preset.name, **_placement(compiled)}
        write_output(arguments.json, to_json(figures))
    if STANDARD_OUTPUT not in (arguments.output, arguments.json):
        print(_summary(result, compiled, arguments.preset))
    if isinstance(compiled, CompiledModel):
        print_notes(compiled)
    return 0


def _compiled(config: Config, result: QuantizedModel) -> CompiledModel | str:
    """Return the quantised network, compiled for one sample, or the reason why the compiler refuses
    it.
    """
    try:
        return compile_content(config, result.content, None, 1)
    except (CompileError, ModelError) as error:
        return str(error)


def _figures(result: QuantizedModel) -> Mapping[str, object]:
    """Return the figures of a quantisation, for JSON, which has no infinity."""
    comparison = result.comparison
    return {
        "samples": result.samples,
        "float_accuracy": comparison.float_accuracy,
        "accuracy": comparison.accuracy,
        "agreement": comparison.agreement,
        "signal_to_noise": [
            ratio if isfinite(ratio) else None for ratio in comparison.signal_to_noise
        ],
        "worst_layers": {printable(name): ratio for name, ratio in result.worst_layers.items()},
    }


def _placement(compiled: CompiledModel | str) -> Mapping[str, object]:
    """Return the place of each layer and its estimated cycles, for JSON."""
    if isinstance(compiled, str):
        return {"refusal": compiled, "macs": None, "estimated_cycles": None, "host": None}
    report = compiled.estimate()
    return {
        "refusal": None,
        "macs": compiled.macs,
        "estimated_cycles": report.estimated_cycles,
        "host": _host(report),
    }


def _host(report: Report) -> list[str]:
    """Return the names of all operators that run on the host."""
    return list(dict.fromkeys(printable(row.operator) for row in report.rows if row.place == HOST))


def _summary(result: QuantizedModel, compiled: CompiledModel | str, config: Config) -> str:
    """Return the figures as text."""
    comparison = result.comparison
    plural = "" if result.samples == 1 else "s"
    lines = [f"calibrated on {result.samples} sample{plural}"]
    if comparison.accuracy is not None and comparison.float_accuracy is not None:
        lines.append(
            f"accuracy {_percent(comparison.accuracy)}, "
            f"of the float network {_percent(comparison.float_accuracy)}"
        )
    elif comparison.agreement is not None:
        lines.append(f"same class as the float network: {_percent(comparison.agreement)}")
    else:
        ratios = ", ".join(f"{ratio:.1f} dB" for ratio in comparison.signal_to_noise)
        lines.append(f"signal to noise of the results: {ratios}")
    if result.worst_layers:
        worst = ", ".join(
            f"{printable(name)} {ratio:.1f} dB" for name, ratio in result.worst_layers.items()
        )
        lines.append(f"layers with the most noise: {worst}")
    if isinstance(compiled, str):
        lines.append(f"does not compile for '{config.name}': {compiled}")
    else:
        report = compiled.estimate()
        host = _host(report)
        lines.append(
            f"compiles for '{config.name}': {compiled.macs:,} MACs, about "
            f"{report.estimated_cycles:,.0f} cycles for one sample"
        )
        lines.append(f"on the host: {', '.join(host) or 'nothing'}")
    lines.append(f"{len(result.content):,} bytes")
    return "\n".join(lines)


def _percent(share: float) -> str:
    return f"{100 * share:.2f} %"
