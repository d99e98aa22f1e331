# SPDX-License-Identifier: Apache-2.0
"""The command tpu bitstream: it makes the machine for an FPGA board."""

from __future__ import annotations

import argparse

from systola.arch.config import HOST_PAGE_BYTES, preset
from systola.boards.board_list import BOARDS, Board
from systola.cli.arguments import configuration, one_of, positive, whole_number
from systola.cli.board import add_baud
from systola.cli.errors import UserError
from systola.runtime.serial_port import DEFAULT_BAUD
from systola.synth.errors import SynthesisUsageError

HELP = "make the bitstream of a board: the machine, a memory and a serial bridge"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of this command."""
    parser.add_argument(
        "--board",
        type=one_of("board", BOARDS),
        required=True,
        metavar="B",
        help=", ".join(BOARDS),
    )
    parser.add_argument(
        "--preset",
        type=configuration,
        metavar="P",
        help="tiny, small, or ROWSxCOLS (default: the largest that fits the board)",
    )
    parser.add_argument(
        "--mhz", type=positive, metavar="F", help="clock of the machine (default: the board's)"
    )
    add_baud(parser)
    parser.add_argument(
        "--memory",
        type=whole_number(2 * HOST_PAGE_BYTES),
        metavar="BYTES",
        help="memory on the board, in multiples of 4096 (default: all that fits)",
    )
    parser.add_argument(
        "--seed",
        type=whole_number(0, 1 << 31),
        default=1,
        metavar="S",
        help="seed of the placement (default: 1)",
    )


def execute(arguments: argparse.Namespace) -> int:
    """Run the command."""
    # Imported here: Amaranth loads slowly, and other commands do not need it.
    from systola.boards.bitstream import build

    chosen: Board = arguments.board
    config = arguments.preset or preset(chosen.preset)
    try:
        made = build(
            chosen,
            config,
            mhz=arguments.mhz or chosen.mhz,
            baud=arguments.baud,
            memory_bytes=arguments.memory or chosen.memory_bytes,
            seed=arguments.seed,
        )
    except SynthesisUsageError as error:
        raise UserError(str(error)) from None
    print(f"{chosen.text}: {made.path}")
    print(f"load it: {chosen.load} {made.path}")
    print("try it:  tpu selftest --port DEVICE" + _selftest_options(config.name, arguments.baud))
    print(f"clock {made.clock_hz / 1e6:g} MHz, the routed design allows {made.fmax_mhz:g} MHz")
    for kind, (used, room) in made.used.items():
        print(f"  {kind:<16}{used:>9,} of {room:,}")
    return 0


def _selftest_options(name: str, baud: int) -> str:
    """Return the options that `tpu selftest` needs for a bitstream."""
    chosen = f" --preset {name}"
    return chosen if baud == DEFAULT_BAUD else f"{chosen} --baud {baud}"
