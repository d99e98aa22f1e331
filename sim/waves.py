# SPDX-License-Identifier: Apache-2.0
"""Save files beside waveforms, for GTKWave and Surfer: signals by unit, values by name."""

from __future__ import annotations

from pathlib import Path

from systola.sim.gtkwave import write_gtkwave
from systola.sim.shown import groups
from systola.sim.surfer import write_surfer

MARKER = "SYSTOLA_MARKER"
"""In the environment of tests: a file for the time, in nanoseconds, at which to look first."""


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
    """Writes the save files of a waveform of module `top` and returns the path of GTKWave's.

    A clock cycle takes `cycle` units of the waveform's time, of which `marker` is one, too. `scope`
    is what the simulator puts before the name of the top module. What is shown, see
    systola.sim.shown.groups; the waveform is of Verilog with its fields named as there.
    """
    shown = list(groups(verilog, top, program))
    write_surfer(waveform, shown, scope, marker)
    return write_gtkwave(waveform, shown, scope, cycle, marker)


def how_to_look(save: Path) -> str:
    """The waveform of a save file for GTKWave, and what shows it."""
    waveform = Path(save.read_text().split('"', 2)[1])
    commands = waveform.with_suffix(".sucl").name
    return (
        f"waveform: {waveform}\nlook at it: gtkwave {waveform} {save}, "
        f"or in {waveform.parent}: surfer --command-file {commands} {waveform.name}"
    )
