# SPDX-License-Identifier: Apache-2.0
"""--timeline and --report: when each unit did what, as a trace and as a page to look at."""

from __future__ import annotations

import argparse
from contextlib import ExitStack

from systola.arch.config import Config
from systola.cli.arguments import html_file
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


def add_report(parser: argparse.ArgumentParser) -> None:
    """Adds --report FILE."""
    parser.add_argument(
        "--report",
        type=html_file,
        metavar="FILE.html",
        help="write a page to this file: layers, roofline, cycles, and on the simulated RTL what "
        "lay in the memories and a piece of the timeline",
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
    """As chosen_backend, or a machine that records where what the command line asks for needs it.

    `latency`, `stall` and `seed` are those of its memories.
    """
    backend = chosen_backend(arguments, config, stack)
    if arguments.timeline and backend != "rtl":
        raise UserError("--timeline goes with --backend rtl")
    if backend != "rtl" or not (arguments.timeline or getattr(arguments, "report", None)):
        return backend
    return stack.enter_context(
        RtlBackend(config, latency=latency, stall=stall, seed=seed, records=True)
    )
