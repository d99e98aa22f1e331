# SPDX-License-Identifier: Apache-2.0
"""The command tpu compile: it turns a network into a file for 'tpu run'."""

from __future__ import annotations

import argparse

from systola.arch.config import DEFAULT_PRESET, Config, preset
from systola.arch.isa import INSTRUCTION_BYTES
from systola.cli.errors import UserError
from systola.cli.file_names import InputName, output_name
from systola.cli.model import add_compilation, in_file, sides, spilling, variables
from systola.cli.output import STANDARD_OUTPUT, read_file, write_output
from systola.compiler.host_stage import HostStage
from systola.compiler.interpreted import InterpretedStage
from systola.compiler.printable import printable
from systola.compiler.semantics import Semantics
from systola.runtime.compile_content import compile_content
from systola.runtime.compiled_model import DEFAULT_BATCH, CompiledModel
from systola.runtime.program_file import is_program
from systola.runtime.report_table import report_table

HELP = "compile a quantised network (.tflite, .onnx, or trained here) for a machine"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of this command."""
    parser.add_argument(
        "model",
        type=InputName,
        metavar="MODEL",
        help=".tflite or .onnx model, or one that was trained here",
    )
    parser.add_argument(
        "-o",
        "--output",
        type=output_name,
        required=True,
        metavar="PROGRAM",
        help="file to write, for 'tpu run'",
    )
    add_compilation(parser)


def execute(arguments: argparse.Namespace) -> int:
    """Run the command."""
    path: str = arguments.model
    content = read_file(path)
    if is_program(content):
        raise UserError(f"{path} is compiled already")
    with in_file(path):
        semantics = arguments.semantics and Semantics(arguments.semantics)
        config: Config = arguments.preset or preset(DEFAULT_PRESET)
        model = compile_content(config, content, semantics, arguments.batch or DEFAULT_BATCH)
    program = model.to_bytes()
    write_output(arguments.output, program)
    if arguments.output != STANDARD_OUTPUT:
        print(overview(model, len(program)))
    return 0


def overview(model: CompiledModel, file_size: int) -> str:
    """Describe a compiled model as text."""
    config = model.config
    lines = [
        f"{model.macs:,} MACs a sample, for '{config.name}', results as of "
        f"{model.semantics.value}, up to {model.batch} samples at a time",
    ]
    for what, values in (("input", model.inputs), ("output", model.outputs)):
        lines += (f"{what} {printable(each.name)}: {each.dtype} {each.shape}" for each in values)
    for number, stage in enumerate(model.compiled.stages):
        if isinstance(stage, HostStage):
            lines.append(f"stage {number}, on the host: {printable(stage.operator)}")
            continue
        if isinstance(stage, InterpretedStage):
            operators = ", ".join(map(printable, stage.operators))
            lines.append(f"stage {number}, on the host, by {stage.interpreter.value}: {operators}")
            continue
        program, image = stage.program, stage.program.image
        lines.append(
            f"stage {number}, on the machine: {len(image.program) // INSTRUCTION_BYTES:,} "
            f"instructions, {image.weights.size:,} bytes of weights, {image.host.size:,} bytes of "
            f"host memory, {program.buffer_lines:,} of {config.buffer_lines:,} lines of the buffer"
        )
    lines += [*sides(model), *spilling(model), *variables(model)]
    lines.append(report_table(model.estimate()))
    lines.append(f"{file_size:,} bytes")
    return "\n".join(lines)
