# SPDX-License-Identifier: Apache-2.0
"""The options and files of the commands that take a model."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Generator
from contextlib import contextmanager

from systola.arch.config import DEFAULT_PRESET
from systola.cli.arguments import configuration, whole_number
from systola.cli.errors import UserError
from systola.compiler.cut.placement import Place, macs_share
from systola.compiler.errors import CompileError, ModelError
from systola.compiler.interpreted import InterpretedStage
from systola.compiler.network import DeviceStage
from systola.compiler.printable import printable
from systola.compiler.semantics import Semantics
from systola.runtime.compiled_model import DEFAULT_BATCH, CompiledModel
from systola.runtime.processor import lacks_vnni
from systola.runtime.program_file import ProgramFileError
from systola.runtime.report_table import percent

_MOST_NAMED = 4
"""Largest number of operators that a line names for one reason; a count follows for the others."""


def add_compilation(
    parser: argparse.ArgumentParser, batch: str = f"{DEFAULT_BATCH}, or a few less"
) -> None:
    """Add the options for compiling a model; each is None if it is not given.

    `batch` describes the default batch in the help.
    """
    parser.add_argument(
        "--preset",
        type=configuration,
        metavar="P",
        help=f"tiny, small, base, v1 or ROWSxCOLS (default: {DEFAULT_PRESET})",
    )
    parser.add_argument(
        "--batch",
        type=whole_number(1),
        metavar="B",
        help=f"samples in one program (default: {batch})",
    )
    parser.add_argument(
        "--semantics",
        choices=tuple(each.value for each in Semantics),
        help="interpreter that the results equal (default: the one of the model's format)",
    )


@contextmanager
def in_file(path: str) -> Generator[None]:
    """Turn an error in a model or program into a UserError that names its file."""
    try:
        yield
    except (CompileError, ModelError, ProgramFileError) as error:
        raise UserError(f"{path}: {error}") from None


def check_options(arguments: argparse.Namespace, model: CompiledModel) -> None:
    """Raise UserError if an option of add_compilation contradicts a compiled model."""
    for option, asked, found in (
        ("preset", arguments.preset and arguments.preset.name, model.config.name),
        ("batch", arguments.batch, model.batch),
        ("semantics", arguments.semantics, model.semantics.value),
    ):
        if asked not in (None, found):
            raise UserError(
                f"{arguments.model} is compiled with --{option} {found}, "
                f"it cannot run with --{option} {asked}"
            )


def print_notes(model: CompiledModel) -> None:
    """Print a note on stderr if results may differ from the interpreter's."""
    if model.inexact_channels:
        print(
            f"tpu: note: {model.inexact_channels} channels have scales that no multiplier of the "
            f"machine equals for every sum: single results may be off by one from "
            f"{model.semantics.value}",
            file=sys.stderr,
        )
    if model.semantics == Semantics.ONNX and lacks_vnni():
        print(
            "tpu: note: this processor has no VNNI: sums of ONNX Runtime itself may saturate here, "
            "and its results then differ",
            file=sys.stderr,
        )


def spilled_bytes(model: CompiledModel) -> dict[str, int]:
    """Return the bytes of each value that is spilled to host memory.

    A value is spilled if the unified buffer has no room for it.
    """
    return {
        name: size
        for stage in model.compiled.stages
        if isinstance(stage, DeviceStage)
        for name, size in stage.program.spilled.items()
    }


def is_partial(model: CompiledModel) -> bool:
    """Return whether an interpreter runs a part of the model on the host."""
    return any(isinstance(stage, InterpretedStage) for stage in model.compiled.stages)


def sides(model: CompiledModel) -> list[str]:
    """Return lines with the machine's share of the work and the interpreter's operators, if there
    are any.
    """
    interpreted = [each for each in model.compiled.stages if isinstance(each, InterpretedStage)]
    if not interpreted:
        return []
    reasons: dict[str, list[str]] = {}
    names = {name for stage in interpreted for name in stage.operators}
    for each in model.placement:
        if each.place is Place.HOST and any(f" {each.number} (" in name for name in names):
            reasons.setdefault(each.reason, []).append(f"{each.number} {each.kind}")
    parts = "; ".join(f"{_named(those)}: {reason}" for reason, those in reasons.items())
    share, macs = macs_share(model.placement), sum(each.macs for each in model.placement)
    return [
        f"{percent(share)} of {macs:,} MACs a sample on the machine; on the host, by "
        f"{interpreted[0].interpreter.value}: {parts}"
    ]


def _named(operators: list[str]) -> str:
    named, others = ", ".join(operators[:_MOST_NAMED]), len(operators) - _MOST_NAMED
    return f"{named} and {others} more" if others > 0 else named


def spilling(model: CompiledModel) -> list[str]:
    """Return a line that names the spilled values, if there are any."""
    spilled = spilled_bytes(model)
    if not spilled:
        return []
    parts = ", ".join(f"{printable(name)} ({size:,} bytes)" for name, size in spilled.items())
    return [f"spilled to host memory, as the unified buffer has no room: {parts}"]


def variables(model: CompiledModel) -> list[str]:
    """Return a line with the places of the model's variables, if there are any."""
    all_of = model.compiled.variables
    if not all_of:
        return []
    away = [all_of[number] for number in model.compiled.on_host]
    inside = [each for each in all_of if each not in away]
    parts: list[str] = []
    if inside:
        size = sum(each.first.nbytes for each in inside)
        parts.append(f"{len(inside)} in the unified buffer ({size:,} bytes)")
    if away:
        names = ", ".join(
            f"{printable(each.before.name)} ({each.first.nbytes:,} bytes)" for each in away
        )
        parts.append(f"through host memory in each sample: {names}")
    return [f"variables: {'; '.join(parts)}"]
