# SPDX-License-Identifier: Apache-2.0
"""The steps of instructions for training, and of weights from the unified buffer."""

from __future__ import annotations

from systola.hdl.control.step_program import Program, constant
from systola.hdl.control.step_row import TWO_LINES, Base, Times, When


def count_tiles(p: Program) -> None:
    """Append rows that count the weight tiles of a MatrixMultiply; `k_tiles` is the kept factor.

    With weights from the buffer, no tiles come from the weight queue.
    """
    more = {
        "x": p.bits("n_tiles"),
        "times": Times.KEPT,
        "into": "all tiles",
        "word": "weight_beats",
    }
    p.emit(**more)
    p.emit(**more, base=Base.SUM, when=When.FLAG_B)
    p.emit(base=Base.SUM, word="tiles")
    p.emit(word="tiles", when=When.FROM_BUFFER)


def weights(p: Program) -> None:
    """Append rows for the buffer lines that hold the weights of a MatrixMultiply."""
    p.base("weights", into="source.base", word="weight_address")
    p.emit(base=Base.SUM, into="source.end")
    p.keep(constant(p.config.rows))
    fault, limit = p.limit_of(p.entry.reads[1].memory)
    p.emit(
        base=Base.SUM,
        x="all tiles",
        times=Times.KEPT,
        into="source.end",
        limit=limit,
        fault=fault,
        when=When.FROM_BUFFER,
    )


def measure(p: Program) -> None:
    """Append the ROM rows of a Measure, which counts as one vector if it has no source."""
    p.move("rows", word="vector_rows")
    p.flush(keep="rows")
    p.emit(x=constant(1), word="vector_rows", when=When.NO_SOURCE)
    p.emit(x=p.bits("exponent", "value"), word="measured")
    p.emit(x=constant(1), word=TWO_LINES, when=When.FROM_LINES)
    sums, lines = p.entry.reads
    p.region(sums, "sums", word="accumulator")
    p.region(lines, "source", word="start_line")


def transpose(p: Program) -> None:
    """Append the ROM rows of a Transpose.

    The word `tile_step` leaves out the C lines of a tile, as the walk through a tile covers them.
    """
    p.move("count", word="n_tiles")
    p.flush(keep="count")
    p.region(p.entry.reads[0], "source", word="operand")
    p.region(p.entry.writes[0], "result", word="destination")
    p.emit(base=constant(-p.config.cols), x=p.bits("step"), word="tile_step")
    p.overlap("source", When.OVERLAPS)


def random(p: Program) -> None:
    """Append the ROM rows of a Random."""
    p.move("rows", word="vector_rows")
    p.move("seed", word="seed")
    p.flush()
    p.region(p.entry.writes[0], "result", word="destination")
    p.base("counter", word="counter")
