# SPDX-License-Identifier: Apache-2.0
"""The turns of columns that share a lane."""

from amaranth.hdl import Module, Mux, Signal, Value


class ColumnTurns:
    """A helper that finds the column that has its turn in a lane, at any stage of the lanes.

    `turn` is the number of the column that is read in this cycle, or None where each column has a
    lane of its own. A `stage` is a number of cycles, counted from the read.
    """

    def __init__(self, turn: Signal | None):
        self._turn = turn

    def at(self, stage: int) -> Value:
        """Return the number of the column that has its turn `stage` cycles after the read.

        The lanes wait READ_SLACK cycles for a read. This is a whole number of steps, so the wait
        does not change the turn.
        """
        assert self._turn is not None
        return (self._turn - stage)[0]

    def first(self, holds: Value, stage: int) -> Value:
        """Return the bit `holds` in the first turn of a stage, else 0.

        The caller keeps `holds` for all turns. The first turn is for actions on a
        whole line, which is complete by then.
        """
        return holds if self._turn is None else holds & ~self.at(stage)

    def last(self, holds: Value, stage: int) -> Value:
        """Return the bit `holds` in the last turn of a stage, else 0.

        The caller keeps `holds` for all turns.
        """
        return holds if self._turn is None else holds & self.at(stage)

    def now(self, m: Module, columns: Value, stage: int, *, once: bool = False) -> Value:
        """Return one word for each lane: the word of the column that has its turn in a stage.

        `columns` has a word for each column. The caller keeps `columns` for all turns or, with
        `once`, only for the first turn.
        """
        if self._turn is None:
            return columns
        first, later = columns[: len(columns) // 2], columns[len(columns) // 2 :]
        if once:
            kept_words = Signal(len(later), reset_less=True)
            m.d.sync += kept_words.eq(later)
            later = kept_words
        return Mux(self.at(stage), later, first)
