# SPDX-License-Identifier: Apache-2.0
"""The command tpu cache: it lists or removes simulators and Verilog in the build folder."""

from __future__ import annotations

import argparse

from systola.sim.build import build_root
from systola.sim.cache import clear_cache, list_cache

HELP = "list or clear the built simulators and Verilog that are kept for the next time"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of this command."""
    parser.add_argument("action", nargs="?", choices=("list", "clear"), default="list")


def execute(arguments: argparse.Namespace) -> int:
    """Run the command."""
    if arguments.action == "clear":
        freed, busy = clear_cache()
        print(f"{_mebibytes(freed)} freed in {build_root()}")
        if busy:
            print(f"{busy} left, as they are being built")
        return 0
    kinds = list_cache()
    for kind in kinds:
        print(f"{kind.name:<12}{kind.entries:>6} entries {_mebibytes(kind.size):>12}")
    total = sum(kind.size for kind in kinds)
    print(f"{_mebibytes(total)} in {build_root()}; 'tpu cache clear' removes them")
    return 0


def _mebibytes(size: int) -> str:
    return f"{size / (1 << 20):,.1f} MiB"
