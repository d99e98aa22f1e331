# SPDX-License-Identifier: Apache-2.0
"""The command tpu selftest: it checks a board, from its serial line to a network."""

from __future__ import annotations

import argparse

from systola.cli.arguments import configuration
from systola.cli.board import add_baud
from systola.cli.file_names import InputName
from systola.runtime.serial_port import SerialPort

HELP = "check a board: serial line, registers, memory, products, a network"

_DEFAULT_PRESET = "tiny"
"""The preset that `tpu bitstream` takes for every board."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of this command."""
    parser.add_argument(
        "--port",
        type=InputName,
        required=True,
        metavar="DEVICE",
        help="serial port of the board, such as /dev/ttyUSB0",
    )
    parser.add_argument(
        "--preset",
        type=configuration,
        default=_DEFAULT_PRESET,
        metavar="P",
        help=f"the machine of the bitstream (default: {_DEFAULT_PRESET})",
    )
    add_baud(parser)


def execute(arguments: argparse.Namespace) -> int:
    """Run the command; return status 1 if a check fails."""
    # Imported here: other commands do not need it.
    from systola.runtime.self_test import self_test

    port = SerialPort(arguments.port, arguments.baud)
    for check in self_test(arguments.preset, port):
        if check.problem:
            print(f"{check.name:<10} FAILED   {check.problem}")
            print(f"{'':<10} check    {check.advice}")
            return 1
        outcome = "no room" if check.skipped else "ok"
        print(f"{check.name:<10} {outcome:<8} {check.detail}", flush=True)
    return 0
