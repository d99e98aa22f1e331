# SPDX-License-Identifier: Apache-2.0
"""The command tpu image: it writes a network as memory contents and register values for a machine
in another design.
"""

from __future__ import annotations

import argparse

from systola.arch.config import DEFAULT_PRESET, Config, preset
from systola.cli.arguments import whole_number
from systola.cli.errors import UserError
from systola.cli.file_names import InputName
from systola.cli.model import add_compilation, check_options, in_file, print_notes
from systola.cli.output import read_file
from systola.cli.output_folder import OutputFolder
from systola.compiler.semantics import Semantics
from systola.runtime.compile_content import compile_content
from systola.runtime.compiled_model import read_compiled
from systola.runtime.image_folder import image_folder
from systola.runtime.program_file import is_program
from systola.synth.provenance import file_header

HELP = "write a network's host and weight memory as .hex and .bin, and a C header to run it"
_BATCH = 1


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of this command."""
    parser.add_argument(
        "model",
        type=InputName,
        metavar="MODEL",
        help=".tflite or .onnx model, one that was trained here, or compiled program",
    )
    parser.add_argument(
        "-o",
        "--output",
        required=True,
        metavar="FOLDER",
        help="folder to write: new, or of an earlier image",
    )
    add_compilation(parser, f"{_BATCH}")
    parser.add_argument(
        "--word",
        type=whole_number(1, 1024),
        metavar="BYTES",
        help="width of a word in the .hex files (default: the width of each memory's port)",
    )


def execute(arguments: argparse.Namespace) -> int:
    """Run the command."""
    path: str = arguments.model
    content = read_file(path)
    with in_file(path), OutputFolder(arguments.output, "tpu image") as folder:
        if is_program(content):
            model = read_compiled(content)
            check_options(arguments, model)
        else:
            semantics = arguments.semantics and Semantics(arguments.semantics)
            config: Config = arguments.preset or preset(DEFAULT_PRESET)
            model = compile_content(config, content, semantics, arguments.batch or _BATCH)
        header = file_header(model.config.name, "//")
        contents = image_folder(model, header, arguments.word)
        if not contents:
            raise UserError(f"{path}: the host does all of this network, the machine nothing")
        folder.write(contents, file_header(model.config.name, "#"))
    print_notes(model)
    return 0
