# SPDX-License-Identifier: Apache-2.0
"""The command tpu disasm: it turns a program into assembly text."""

from __future__ import annotations

import argparse
import sys

from systola.arch.assembler import disassemble
from systola.cli.errors import UserError
from systola.cli.file_names import InputName
from systola.cli.output import read_file

HELP = "show a program as assembly text"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of this command."""
    parser.add_argument("file", type=InputName, metavar="FILE", help="the program")


def execute(arguments: argparse.Namespace) -> int:
    """Run the command."""
    program = read_file(arguments.file)
    try:
        text = disassemble(program)
    except ValueError as error:
        raise UserError(f"{arguments.file}: {error}") from None
    sys.stdout.write(text)
    sys.stdout.flush()
    return 0
