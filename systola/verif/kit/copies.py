# SPDX-License-Identifier: Apache-2.0
"""The operands of copy instructions for lines that lie one after the other in host memory."""

from __future__ import annotations

from systola.arch.config import Config


def lines_in(config: Config, *, host: int, line: int, rows: int) -> dict[str, int]:
    """Return operands that copy `rows` whole lines from host memory, from byte `host` on.

    The operands suit Read_Host_Memory and Read_Host_Memory_Alternate.
    """
    place = {"host": host, "buffer": line, "rows": rows, "blocks": 1}
    return {**place, "stride": config.input_pitch, "tail": config.rows}


def lines_out(config: Config, *, host: int, line: int, rows: int) -> dict[str, int]:
    """Return operands that copy `rows` whole lines to host memory, from byte `host` on.

    The operands suit Write_Host_Memory and Write_Host_Memory_Alternate.
    """
    place = {"host": host, "buffer": line, "rows": rows, "blocks": 1}
    return {**place, "stride": config.output_pitch, "tail": config.cols}
