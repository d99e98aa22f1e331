# SPDX-License-Identifier: Apache-2.0
"""Operands of copies of whole lines that lie one behind the other in host memory."""

from __future__ import annotations

from systola.arch.config import Config


def lines_in(config: Config, *, host: int, line: int, rows: int) -> dict[str, int]:
    """Of Read_Host_Memory, or the alternate one: so many lines from byte `host` on."""
    place = {"host": host, "buffer": line, "rows": rows, "blocks": 1}
    return {**place, "stride": config.input_pitch, "tail": config.rows}


def lines_out(config: Config, *, host: int, line: int, rows: int) -> dict[str, int]:
    """Of Write_Host_Memory, or the alternate one: so many lines to byte `host` and behind it."""
    place = {"host": host, "buffer": line, "rows": rows, "blocks": 1}
    return {**place, "stride": config.output_pitch, "tail": config.cols}
