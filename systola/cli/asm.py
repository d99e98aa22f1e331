# SPDX-License-Identifier: Apache-2.0
"""The command tpu asm: it turns assembly text into a program."""

from __future__ import annotations

import argparse

from systola.arch.assembler import AssemblyError, assemble_program
from systola.cli.arguments import add_preset
from systola.cli.errors import UserError
from systola.cli.file_names import InputName, output_name
from systola.cli.output import read_file, write_output

HELP = "assemble a program"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of this command."""
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
    """Run the command."""
    try:
        program = assemble_program(read_file(arguments.file).decode(), arguments.preset)
    except UnicodeDecodeError:
        raise UserError(f"{arguments.file} is not a text file") from None
    except AssemblyError as error:
        raise UserError(f"{arguments.file}: {error}") from None
    write_output(arguments.output, program)
    return 0
