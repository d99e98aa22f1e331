# SPDX-License-Identifier: Apache-2.0
"""The command file for Surfer beside a waveform: `surfer --command-file w.sucl w.fst`.

Commands and their effects are those in version 0.7, `libsurfer/src/command_parser.rs`. Files of
mappings give names to the values of signals. Surfer looks for these files in `.surfer/mappings` of
the folder in which it is started.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from systola.sim.shown import Group, Names

MAPPINGS = ".surfer/mappings"
MARK = "look_here"
"""Name of the marker at the time to look at."""
_DIGITS = "abcdefghijklmnop"
"""Digits 0 to 15 with which a user of Surfer names the rows on the screen."""


def write_surfer(waveform: Path, groups: Iterable[Group], scope: str, marker: int | None) -> Path:
    """Write the command file, and a file of names for each enumeration of states; see save_files.

    Returns the path of the command file.
    """
    lines: list[str] = []
    row = 0
    for group in groups:
        # A new row is put after the row in focus, in the same group, and then has the focus. A new
        # group takes in the row in focus. The name of a group is one word.
        for number, signal in enumerate(group.signals):
            lines.append(f"variable_add {scope}{signal.path}")
            if number == 0:
                name = re.sub(r"\W", "_", group.name)
                lines += [_focus(row), f"group_marked {name}", _focus(row + 1)]
                row += 1
            if signal.names:
                lines.append(f"item_set_format {_mapping(waveform, signal.names)}")
            row += 1
        lines.append("item_unfocus")
    # Close all groups of signals except the first one.
    lines += ["group_fold_all", _focus(0), "group_unfold_recursive", "item_unfocus"]
    if marker is not None:
        lines += [f"marker_set {MARK} {marker}", f"cursor_set {marker}"]
    path = waveform.with_suffix(".sucl")
    path.write_text("\n".join(lines) + "\n")
    return path


def _focus(row: int) -> str:
    """Return the command of Surfer that puts the focus on a row, given by its number.

    The text after the number is a name, which Surfer does not read.
    """
    return f"item_focus {''.join(_DIGITS[int(digit, 16)] for digit in f'{row:x}')}_"


def _mapping(waveform: Path, names: Names) -> str:
    """Write the file of a mapping, and return its name in Surfer."""
    name = re.sub(r"\W", "_", f"{waveform.stem}_{names.name}")
    folder = waveform.parent / MAPPINGS
    folder.mkdir(parents=True, exist_ok=True)
    lines = [f"Name = {name}", f"Bits = {names.width}"]
    lines += [f"0x{value:x} {text}" for value, text in names.texts.items()]
    (folder / f"{name}.txt").write_text("\n".join(lines) + "\n")
    return name
