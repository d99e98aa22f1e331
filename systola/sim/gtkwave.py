# SPDX-License-Identifier: Apache-2.0
"""The save file for GTKWave beside a waveform."""

from __future__ import annotations

import math
from collections.abc import Iterable
from pathlib import Path

from systola.sim.shown import Group, Names

_MARKERS = 26
"""Number of named markers after the first marker of a save file; all of them are unused."""
_BINARY, _HEX, _NAMED = "@28", "@22", "@2022"
"""Format codes of GTKWave for binary, hexadecimal and named values; names come from a file."""
_OPEN, _END = ("@800200", "@c00200"), ("@1000200", "@1401200")
"""Format codes of GTKWave for begin and end of a group, first of an open and then of a closed
group.
"""
_PIXELS = 16
"""Width of a cycle, in pixels."""
_FRAME = 200
"""GTKWave's scale: at zoom z this number of pixels shows 2^-z units of the waveform's time."""


def write_gtkwave(
    waveform: Path, groups: Iterable[Group], scope: str, cycle: int, marker: int | None
) -> Path:
    """Write the save file, and a file of names for each enumeration of states; see save_files.

    Returns the path of the save file.
    """
    at = -1 if marker is None else marker
    lines = [
        f'[dumpfile] "{waveform}"',
        f"[timestart] {max(0, at - 20 * cycle)}",
        " ".join([f"*{-math.log2(_FRAME / _PIXELS * cycle):f}", str(at), *["-1"] * _MARKERS]),
    ]
    for number, group in enumerate(groups):
        closed = int(number > 0)
        lines += [_OPEN[closed], f"-{group.name}"]
        for signal in group.signals:
            bits = f"[{signal.width - 1}:0]" if signal.width > 1 else ""
            if signal.names:
                lines += [_NAMED, f"^1 {_names_file(waveform, signal.names)}"]
            else:
                lines.append(_HEX if bits else _BINARY)
            lines.append(f"{scope}{signal.path}{bits}")
        lines += [_END[closed], f"-{group.name}"]
    path = waveform.with_suffix(".gtkw")
    path.write_text("\n".join(lines) + "\n")
    return path


def _names_file(waveform: Path, names: Names) -> Path:
    path = waveform.with_suffix(f".{names.name}.txt")
    digits = -(-names.width // 4)
    path.write_text("".join(f"{value:0{digits}x} {text}\n" for value, text in names.texts.items()))
    return path
