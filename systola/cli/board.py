# SPDX-License-Identifier: Apache-2.0
"""The options for running on a board."""

from __future__ import annotations

import argparse
from contextlib import ExitStack

from systola.arch.config import Config
from systola.cli.arguments import positive, progress_bar, whole_number
from systola.cli.errors import UserError
from systola.cli.file_names import InputName
from systola.runtime.backend import Backend
from systola.runtime.make_backend import BACKENDS
from systola.runtime.serial_backend import PROGRAM_SECONDS, SerialBackend
from systola.runtime.serial_port import DEFAULT_BAUD, SerialPort

BOARD_OPTIONS = ("port", "baud", "program_seconds")
"""Options for --backend serial alone, by their names in the parsed command line."""


def add_backend(parser: argparse.ArgumentParser) -> None:
    """Add --backend, and --port, --baud and --program-seconds of a board."""
    parser.add_argument(
        "--backend",
        choices=(*BACKENDS, "serial"),
        default="rtl",
        help="simulated RTL, the golden model, which has no clock, or a board (default: rtl)",
    )
    parser.add_argument("--port", type=InputName, metavar="DEVICE", help="serial port of the board")
    add_baud(parser, None)
    parser.add_argument(
        "--program-seconds",
        type=positive,
        metavar="S",
        help=f"time that a program may take on the board (default: {PROGRAM_SECONDS:g})",
    )


def add_baud(parser: argparse.ArgumentParser, default: int | None = DEFAULT_BAUD) -> None:
    """Add --baud; `default` is its value where it is not given."""
    parser.add_argument(
        "--baud",
        type=whole_number(1),
        default=default,
        metavar="B",
        help=f"baud rate of the board's bitstream (default: {DEFAULT_BAUD})",
    )


def chosen_backend(
    arguments: argparse.Namespace, config: Config, stack: ExitStack
) -> Backend | str:
    """Return the board that the command line names, or else the name of the back end.

    Transfers to and from a board are shown until `stack` ends. Raises UserError if the options do
    not fit each other. Raises BackendError if the board does not answer, or is another board.
    """
    if arguments.backend == "serial":
        if not arguments.port:
            raise UserError("--backend serial needs --port, such as --port /dev/ttyUSB0")
        line = SerialPort(arguments.port, arguments.baud or DEFAULT_BAUD)
        return SerialBackend(
            config,
            line,
            moved=stack.enter_context(progress_bar(None, "B")),
            program_seconds=arguments.program_seconds or PROGRAM_SECONDS,
        )
    for option in BOARD_OPTIONS:
        if getattr(arguments, option):
            raise UserError(f"--{option.replace('_', '-')} goes with --backend serial")
    return arguments.backend
