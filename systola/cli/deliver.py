# SPDX-License-Identifier: Apache-2.0
"""The command tpu deliver: it writes the machine as a folder for another design."""

from __future__ import annotations

import argparse

from systola.cli.arguments import add_fabric, add_preset, positive
from systola.cli.output_folder import OutputFolder
from systola.cli.pod import add_cores, add_shared_memory, shared_memory_of
from systola.hdl.parts.fabric import Fabric
from systola.synth.constraints import DEFAULT_MHZ
from systola.synth.provenance import file_header

HELP = "write a folder with the machine as Verilog, its registers, and a test bench that runs it"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of this command."""
    add_preset(parser)
    add_fabric(parser)
    add_cores(parser, "a pod of N cores in a ring: module pod, with a tpu for each")
    add_shared_memory(parser)
    parser.add_argument(
        "--mhz",
        type=positive,
        default=DEFAULT_MHZ,
        metavar="F",
        help=f"clock of the timing constraints (default: {DEFAULT_MHZ:g})",
    )
    parser.add_argument(
        "-o",
        "--output",
        required=True,
        metavar="FOLDER",
        help="folder to write: new, or of an earlier delivery",
    )


def execute(arguments: argparse.Namespace) -> int:
    """Run the command."""
    shared = shared_memory_of(arguments)
    config, fabric = arguments.preset, Fabric(arguments.fabric)
    with OutputFolder(arguments.output, "tpu deliver") as folder:
        # Amaranth takes a while to load. So the folder is checked first, and other commands do not
        # load Amaranth.
        from systola.synth.delivery import delivery

        contents = delivery(config, fabric, arguments.cores, shared, arguments.mhz)
        files = {name: text.encode() for name, text in contents.items()}
        folder.write(files, file_header(config.name, "#"))
    return 0
