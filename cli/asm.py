# SPDX-License-Identifier: Apache-2.0
"""tpu asm: assembly text to a program."""

from __future__ import annotations

import argparse

from systola.arch.assembler import AssemblyError, assemble_program
from systola.cli.arguments import add_preset
from systola.cli.errors import UserError
from systola.cli.file_names import InputName, output_name
from systola.cli.output import read_file, write_output

HELP = "assemble a program"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of this command."""
    parser.add_argument("file", type=InputName, metavar="FILE", help="assembly text")
    parser.add_argument(
        "-o",
        "--output",
        type=output_name,
        required=True,
        metavar="OUT",
        help="the program, '-' for standard output",
    )
    add_preset(parser)


def execute(arguments: argparse.Namespace) -> int:
    """Runs the command."""
    try:
        program = assemble_program(read_file(arguments.file).decode(), arguments.preset)
    except UnicodeDecodeError:
        raise UserError(f"{arguments.file} is not a text file") from None
    except AssemblyError as error:
        raise UserError(f"{arguments.file}: {error}") from None
    write_output(arguments.output, program)
    return 0
