# SPDX-License-Identifier: Apache-2.0
"""tpu verilog: the machine as Verilog."""

from __future__ import annotations

import argparse

from systola.cli.arguments import add_fabric, add_preset
from systola.cli.output import OutputFile
from systola.hdl.parts.fabric import Fabric

HELP = "write the machine as Verilog"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of this command."""
    add_preset(parser)
    add_fabric(parser)
    parser.add_argument(
        "-o", "--output", required=True, metavar="FILE", help="'-' for standard output"
    )


def execute(arguments: argparse.Namespace) -> int:
    """Runs the command."""
    with OutputFile(arguments.output) as output:
        # Amaranth takes a while to load: the output is checked first, other commands go without.
        from systola.hdl.verilog import generate

        output.write(generate(arguments.preset, Fabric(arguments.fabric)).encode())
    return 0
