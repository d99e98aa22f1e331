# SPDX-License-Identifier: Apache-2.0
"""The command tpu verilog: it writes the machine as Verilog."""

from __future__ import annotations

import argparse

from systola.cli.arguments import add_fabric, add_preset
from systola.cli.file_names import output_name
from systola.cli.output import write_output
from systola.cli.pod import add_cores, add_shared_memory, shared_memory_of
from systola.hdl.parts.fabric import Fabric
from systola.synth.provenance import file_header

HELP = "write the machine as Verilog"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of this command."""
    add_preset(parser)
    add_fabric(parser)
    add_cores(parser, "a pod of N cores in a ring: module pod, with a tpu for each")
    add_shared_memory(parser)
    parser.add_argument(
        "-o",
        "--output",
        type=output_name,
        required=True,
        metavar="FILE",
        help="'-' for standard output",
    )


def execute(arguments: argparse.Namespace) -> int:
    """Run the command."""
    shared = shared_memory_of(arguments)
    # Amaranth takes a while to load, and other commands do not need it.
    from systola.hdl.verilog import generate, generate_pod

    config, fabric = arguments.preset, Fabric(arguments.fabric)
    if arguments.cores is None:
        text = generate(config, fabric)
    else:
        text = generate_pod(config, arguments.cores, fabric, shared)
    write_output(arguments.output, (file_header(config.name, "//") + text).encode())
    return 0
