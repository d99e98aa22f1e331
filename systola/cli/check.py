# SPDX-License-Identifier: Apache-2.0
"""The command tpu check: it shows where each operator of a network runs, and why."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from systola.arch.config import Config
from systola.cli.arguments import add_json, add_preset
from systola.cli.errors import UserError
from systola.cli.file_names import InputName
from systola.cli.model import in_file
from systola.cli.output import STANDARD_OUTPUT, read_file, write_output
from systola.cli.report import to_json
from systola.compiler.cut.partial import place_refused
from systola.compiler.cut.placement import Place, Placement, macs_share
from systola.compiler.errors import CompileError, ModelError
from systola.compiler.printable import printable
from systola.compiler.read_model import read_source
from systola.runtime.compile_content import compile_content
from systola.runtime.report_table import NOTHING, compact, percent, shape_text

HELP = "show where each operator of a network runs, and why it runs on the host"
_HEADINGS = ("number", "operator", "result", "MACs", "place", "reason")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of this command."""
    parser.add_argument("model", type=InputName, metavar="MODEL", help=".tflite or .onnx model")
    add_preset(parser)
    add_json(parser)


def execute(arguments: argparse.Namespace) -> int:
    """Run the command; raise UserError after the table where the network does not run."""
    path: str = arguments.model
    content = read_file(path)
    config: Config = arguments.preset
    with in_file(path):
        source = read_source(content)
        if source is None:
            raise ModelError("neither a TensorFlow Lite nor an ONNX model")
    refusal = ""
    try:
        placement = compile_content(config, content, None, 1).placement
    except (CompileError, ModelError) as error:
        refusal = f"{path}: {error}"
        placement = place_refused(source)
    if arguments.json:
        figures: dict[str, object] = {
            "model": printable(path),
            "preset": config.name,
            "runs": not refusal,
            "machine_share": macs_share(placement),
            "operators": [_figures(each) for each in placement],
        }
        write_output(arguments.json, to_json(figures))
    if arguments.json != STANDARD_OUTPUT:
        print(placement_table(placement))
    if refusal:
        raise UserError(refusal)
    return 0


def _figures(placement: Placement) -> dict[str, object]:
    """Return the placement of an operator as a row for JSON."""
    return {
        "number": placement.number,
        "operator": placement.kind,
        "shape": placement.shape,
        "macs": placement.macs,
        "place": placement.place.value,
        "reason": placement.reason,
        "remedy": placement.remedy,
    }


def placement_table(placement: Sequence[Placement]) -> str:
    """Return a table with a line for each operator, and a line with the shares of machine and
    host.
    """
    rows = [
        (
            str(each.number),
            each.kind,
            NOTHING if each.shape is None else shape_text(each.shape),
            compact(each.macs) if each.macs else NOTHING,
            each.place.value,
            f"{each.reason} ({each.remedy})" if each.remedy else each.reason,
        )
        for each in placement
    ]
    table = [_HEADINGS, *rows]
    widths = [max(len(row[column]) for row in table) for column in range(len(_HEADINGS) - 1)]
    lines = ["  ".join([*map(str.ljust, row[:-1], widths), row[-1]]).rstrip() for row in table]
    return "\n".join([*lines, shares(placement)])


def shares(placement: Sequence[Placement]) -> str:
    """Return one line with the number of operators and multiply-accumulates in each place."""
    total = sum(each.macs for each in placement)
    parts: list[str] = []
    for place in Place:
        here = [each for each in placement if each.place is place]
        if here:
            macs = sum(each.macs for each in here)
            share = f", {percent(macs / total)} of {compact(total)} MACs" if total else ""
            parts.append(f"{place.value}: {len(here)} of {len(placement)} operators{share}")
    return "; ".join(parts)
