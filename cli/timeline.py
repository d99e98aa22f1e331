# SPDX-License-Identifier: Apache-2.0
"""--timeline: when each unit did what, as a trace to look at."""

from __future__ import annotations

import argparse
from contextlib import ExitStack

from systola.arch.config import Config
from systola.cli.board import chosen_backend
from systola.cli.errors import UserError
from systola.runtime.backend import Backend
from systola.runtime.rtl import RtlBackend


def add_timeline(parser: argparse.ArgumentParser) -> None:
    """Adds --timeline FILE."""
    parser.add_argument(
        "--timeline",
        metavar="FILE.json",
        help="write what each unit did in which cycle to this file, for ui.perfetto.dev or "
        "chrome://tracing (simulated RTL only)",
    )


def recording_backend(
    arguments: argparse.Namespace,
    config: Config,
    stack: ExitStack,
    *,
    latency: int = 0,
    stall: float = 0.0,
    seed: int = 0,
) -> Backend | str:
    """As chosen_backend, or a machine that records where the command line asks for a timeline.

    `latency`, `stall` and `seed` are those of its memories.
    """
    backend = chosen_backend(arguments, config, stack)
    if not arguments.timeline:
        return backend
    if backend != "rtl":
        raise UserError("--timeline goes with --backend rtl")
    return stack.enter_context(
        RtlBackend(config, latency=latency, stall=stall, seed=seed, records=True)
    )
