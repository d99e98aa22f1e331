# SPDX-License-Identifier: Apache-2.0
"""The operands of copies of whole lines that lie one after the other in host memory."""

from __future__ import annotations

from systola.arch.config import Config


def lines_in(config: Config, *, host: int, line: int, rows: int) -> dict[str, int]:
    """Return operands of Read_Host_Memory, or its alternate: `rows` lines from byte `host` on."""
    place = {"host": host, "buffer": line, "rows": rows, "blocks": 1}
    return {**place, "stride": config.input_pitch, "tail": config.rows}


def lines_out(config: Config, *, host: int, line: int, rows: int) -> dict[str, int]:
    """Return operands of Write_Host_Memory, or its alternate: `rows` lines, to byte `host` on."""
    place = {"host": host, "buffer": line, "rows": rows, "blocks": 1}
    return {**place, "stride": config.output_pitch, "tail": config.cols}
