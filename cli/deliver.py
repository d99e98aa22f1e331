# SPDX-License-Identifier: Apache-2.0
"""tpu deliver: the machine as a folder for somebody else's design."""

from __future__ import annotations

import argparse
from pathlib import Path

from systola.cli.arguments import add_fabric, add_preset
from systola.cli.errors import UserError
from systola.cli.pod import add_cores, add_shared_memory, shared_memory_of
from systola.hdl.parts.fabric import Fabric

HELP = "write a folder with the machine as Verilog, an AXI wrapper, ports, registers, checksums"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of this command."""
    add_preset(parser)
    add_fabric(parser)
    add_cores(parser, "a pod of N cores in a ring: module pod, with a tpu for each")
    add_shared_memory(parser)
    parser.add_argument(
        "-o", "--output", required=True, metavar="FOLDER", help="new, or of an earlier delivery"
    )


def execute(arguments: argparse.Namespace) -> int:
    """Runs the command."""
    shared = shared_memory_of(arguments)
    folder = Path(arguments.output)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(
            f"cannot write {folder}: {(error.strerror or str(error)).lower()}"
        ) from None
    # Amaranth takes a while to load: the folder is checked first, other commands go without.
    from systola.synth.delivery import delivery

    contents = delivery(arguments.preset, Fabric(arguments.fabric), arguments.cores, shared)
    try:
        for name, text in contents.items():
            (folder / name).write_text(text)
    except OSError as error:
        raise UserError(
            f"cannot write {folder}: {(error.strerror or str(error)).lower()}"
        ) from None
    return 0
