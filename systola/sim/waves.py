# SPDX-License-Identifier: Apache-2.0
"""The save files beside waveforms, for GTKWave and Surfer: signals by unit, values by name."""

from __future__ import annotations

from pathlib import Path

from systola.sim.gtkwave import write_gtkwave
from systola.sim.shown import groups
from systola.sim.surfer import write_surfer

MARKER = "SYSTOLA_MARKER"
"""Environment variable of tests: path of a file for the time to look at first, in nanoseconds."""


def save_files(
    waveform: Path,
    verilog: str,
    top: str,
    *,
    cycle: int,
    scope: str = "",
    marker: int | None = None,
    program: bytes = b"",
) -> Path:
    """Write the save files of a waveform of module `top`, and return the path of GTKWave's.

    A clock cycle takes `cycle` units of the waveform's time, and `marker` is a time in the same
    units. `scope` is the text that the simulator puts before the name of the top module. For the
    signals shown see systola.sim.shown.groups. The waveform is of Verilog with fields named as in
    fields_named.
    """
    shown = list(groups(verilog, top, program))
    write_surfer(waveform, shown, scope, marker)
    return write_gtkwave(waveform, shown, scope, cycle, marker)


def how_to_look(save: Path) -> str:
    """Return the path of the waveform of a save file for GTKWave, and commands that show it."""
    waveform = Path(save.read_text().split('"', 2)[1])
    commands = waveform.with_suffix(".sucl").name
    return (
        f"waveform: {waveform}\nlook at it: gtkwave {waveform} {save}, "
        f"or in {waveform.parent}: surfer --command-file {commands} {waveform.name}"
    )
