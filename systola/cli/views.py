# SPDX-License-Identifier: Apache-2.0
"""The options --timeline, --report and --waves: a trace, a page and a waveform of a run."""

from __future__ import annotations

import argparse
from contextlib import ExitStack
from pathlib import Path, PurePath

from systola.arch.config import Config
from systola.cli.arguments import cycle_window, html_file
from systola.cli.board import chosen_backend
from systola.cli.errors import UserError
from systola.cli.file_names import output_name
from systola.compiler.printable import printable
from systola.runtime.backend import Backend
from systola.runtime.rtl import RtlBackend
from systola.views.report_page import TIMELINE_CYCLES


def add_timeline(parser: argparse.ArgumentParser) -> None:
    """Add --timeline FILE."""
    parser.add_argument(
        "--timeline",
        type=output_name,
        metavar="FILE.json",
        help="write the work of each unit, cycle by cycle, to this file, for ui.perfetto.dev or "
        "chrome://tracing (simulated RTL only)",
    )


def add_report(parser: argparse.ArgumentParser) -> None:
    """Add --report FILE and --report-window FROM:TO, a pair of cycles."""
    parser.add_argument(
        "--report",
        type=html_file,
        metavar="FILE.html",
        help="write a page to this file: layers, roofline, cycles, and on the simulated RTL the "
        "content of the memories and a piece of the timeline",
    )
    parser.add_argument(
        "--report-window",
        type=_report_window,
        metavar="FROM:TO",
        help="cycles of the timeline in the page, from the START of its program; at most "
        f"{TIMELINE_CYCLES} (default: 0:{TIMELINE_CYCLES}; simulated RTL only)",
    )


def _report_window(text: str) -> tuple[int, int]:
    """Convert, for argparse, FROM:TO, at most as many cycles as a page shows."""
    begin, end = cycle_window(text)
    if end - begin > TIMELINE_CYCLES:
        raise argparse.ArgumentTypeError(
            f"a page shows {TIMELINE_CYCLES:,} cycles at most, not {end - begin:,}: "
            "--timeline has them all"
        )
    return begin, end


def add_waves(parser: argparse.ArgumentParser) -> None:
    """Add --waves FROM:TO; the value is a pair of cycles."""
    parser.add_argument(
        "--waves",
        type=cycle_window,
        metavar="FROM:TO",
        help="write a waveform of these cycles, all programs of the run counted one after the "
        "other (simulated RTL only)",
    )


def waves_file(arguments: argparse.Namespace) -> Path | None:
    """Return the path of the waveform of --waves; None without the option."""
    if not getattr(arguments, "waves", None):
        return None
    # Imported here: a run without a waveform needs none of the tools of this import.
    from systola.sim.build import build_folder
    from systola.sim.verilator import waveform_suffix

    name = PurePath(arguments.model).with_suffix(waveform_suffix()).name
    return build_folder("waves") / printable(name)


def recording_backend(
    arguments: argparse.Namespace,
    config: Config,
    stack: ExitStack,
    *,
    latency: int = 0,
    stall: float = 0.0,
    seed: int = 0,
) -> Backend | str:
    """Return a machine that records its events and writes a waveform, as the command line asks for.

    Without these options, return the result of chosen_backend. `latency`, `stall` and `seed`
    describe the memories of the machine.
    """
    backend = chosen_backend(arguments, config, stack)
    for option in ("timeline", "waves", "report_window"):
        if getattr(arguments, option, None) and backend != "rtl":
            raise UserError(f"--{option.replace('_', '-')} goes with --backend rtl")
    if getattr(arguments, "report_window", None) and not arguments.report:
        raise UserError("--report-window goes with --report")
    records = bool(arguments.timeline or getattr(arguments, "report", None))
    waves = waves_file(arguments)
    if backend != "rtl" or not (records or waves):
        return backend
    window = arguments.waves if waves else None
    return stack.enter_context(
        RtlBackend(
            config,
            latency=latency,
            stall=stall,
            seed=seed,
            waves=waves,
            window=window,
            records=records,
        )
    )
