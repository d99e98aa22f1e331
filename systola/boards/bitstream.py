# SPDX-License-Identifier: Apache-2.0
"""Makes a bitstream for a board and a configuration, with amaranth-boards and open tools."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from systola.arch.config import Config
from systola.boards.board_design import BoardDesign, uart_divisor
from systola.boards.board_list import Board
from systola.boards.board_top import check_board
from systola.boards.clock import pll_settings
from systola.sim.build import build_folder
from systola.synth.errors import SynthesisError, SynthesisUsageError
from systola.synth.tools import find_tool

_LOOK_SECONDS = 1
"""Seconds between two looks at the log of a build."""


@dataclass(frozen=True)
class Bitstream:
    """A bitstream, with its clock and its use of the FPGA."""

    path: Path
    clock_hz: int
    fmax_mhz: float
    """Highest clock of the machine after routing, in MHz."""
    used: dict[str, tuple[int, int]]
    """For each kind of cell, the number used and the number in the FPGA."""


def build(
    board: Board, config: Config, *, mhz: float, baud: int, memory_bytes: int, seed: int
) -> Bitstream:
    """Synthesise, place, route and pack a bitstream; this takes minutes for a machine of any size.

    All files are in `boards/NAME` of the build folder. Raises SynthesisUsageError if a tool is
    missing, and ConfigError for a machine that cannot be on the board. Raises SynthesisError if the
    machine does not fit the FPGA or misses the clock.
    """
    check_board(config, memory_bytes)
    platform = platform_of(board)
    clock = pll_settings(platform, mhz * 1e6)
    divisor = uart_divisor(clock, baud)
    folder = build_folder("boards", board.name)
    design = BoardDesign(config=config, memory_bytes=memory_bytes, divisor=divisor, clock=clock)
    environment = {variable: _tool(name) for variable, name in board.tools.items()}
    os.environ.setdefault("AMARANTH_USE_YOSYS", "builtin")
    name = f"{board.name}_{config.name}"
    options = f"--seed {seed} --freq {clock.hz / 1e6:g}"
    plan = platform.prepare(design, name, verbose=True, nextpnr_opts=options)
    shutil.rmtree(folder)
    plan.extract(folder)
    log = folder / f"{name}.log"
    print(f"bitstream of '{config.name}' for {board.name}: minutes, see {log} ...", file=sys.stderr)
    status = run_build(["sh", f"{plan.script}.sh"], folder, environment, log)
    text = log.read_text(errors="replace")
    used = used_cells(text)
    if status:
        raise SynthesisError(reason_of_failure(text, used) + f" (log: {log})")
    return Bitstream(
        path=folder / f"{name}.{board.product}",
        clock_hz=round(clock.hz),
        fmax_mhz=_fmax(text),
        used=used,
    )


def run_build(command: list[str], folder: Path, environment: dict[str, str], log: Path) -> int:
    """Run a build script with a log, and return its status.

    Stop it when nextpnr reports more cells than the FPGA has: its placer may go on for hours.
    """
    with (
        log.open("w") as output,
        subprocess.Popen(
            command,
            cwd=folder,
            env={**os.environ, **environment},
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        ) as process,
    ):
        try:
            while process.poll() is None and not _excess(
                used_cells(log.read_text(errors="replace"))
            ):
                time.sleep(_LOOK_SECONDS)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGTERM)
    return process.returncode


def _excess(used: dict[str, tuple[int, int]]) -> list[str]:
    """Return each kind of cell that exceeds the FPGA, with both numbers."""
    return [f"{have:,} {kind} of {room:,}" for kind, (have, room) in used.items() if have > room]


def reason_of_failure(log: str, used: dict[str, tuple[int, int]]) -> str:
    """Return the reason for a failure: the kinds of cells that exceed the FPGA, or else the tool's
    message.
    """
    if excess := _excess(used):
        return f"the machine does not fit: it needs {', '.join(excess)}"
    if "Unable to find legal placement" in log:
        return "the machine does not fit: nextpnr finds no place for the last of its cells"
    errors = [line for line in log.splitlines() if line.startswith("ERROR")]
    return errors[0] if errors else "a tool stopped"


def platform_of(board: Board) -> Any:
    """Return the Amaranth platform of a board.

    Raises SynthesisUsageError if amaranth-boards is not installed.
    """
    try:
        module = import_module(board.module)
    except ImportError:
        raise SynthesisUsageError(
            "boards need the Python package amaranth-boards (pip install 'systola[synth]')"
        ) from None
    return getattr(module, board.platform)()


def _tool(name: str) -> str:
    """Return the path of a tool; tools that pack bits come with the nextpnr of their family."""
    if name.startswith(("yosys", "nextpnr")):
        return find_tool(name).path
    places = (
        shutil.which(name),
        *(Path(sys.executable).with_name(each) for each in (name, f"yowasp-{name}")),
        shutil.which(f"yowasp-{name}"),
    )
    found = next((str(place) for place in places if place and Path(place).exists()), None)
    if not found:
        raise SynthesisUsageError(f"{name} is missing: it comes with nextpnr for the board's FPGA")
    return found


def used_cells(log: str) -> dict[str, tuple[int, int]]:
    """Read the device utilisation in the log of nextpnr; kinds of cells that are not used are left
    out.
    """
    lines = re.findall(r"^Info:\s+(\w+):\s+(\d+)/\s*(\d+)\s+\d+%", log, re.MULTILINE)
    return {kind: (int(have), int(room)) for kind, have, room in lines if int(have)}


def _fmax(log: str) -> float:
    """Return the slowest clock after routing, in MHz."""
    found = re.findall(r"Max frequency for clock\s+'[^']+': ([\d.]+) MHz", log)
    clocks = len(set(re.findall(r"Max frequency for clock\s+'([^']+)'", log)))
    return min(map(float, found[-clocks:]))
