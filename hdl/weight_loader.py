# SPDX-License-Identifier: Apache-2.0
"""Moves weight tiles from the FIFO into the shadow weights of the array."""

from amaranth.hdl import Const, Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from systola.arch.config import Config


class WeightLoader(wiring.Component):
    """Loads a tile as soon as all its rows are in the FIFO and the shadow weights are free.

    One row a cycle, row 0 first. The wave of the swap takes a cycle from row to row as well, so a
    tile is `ready` to be swapped in from the cycle in which its row 0 is written, and the next one
    may follow `stages` cycles after the swap: with rows >= stages a tile every `rows` cycles.

    `swap` (only when `ready`) takes the tile: the array sees it one cycle later. `load` and
    `take`: this row of the array takes the oldest row of the FIFO. `arrived`: the tile is in the
    FIFO or further.
    """

    def __init__(self, *, config: Config):
        self._config = config
        super().__init__(
            {
                "level": In(range(config.weight_fifo_tiles * config.rows + 1)),
                "swap": In(1),
                "ready": Out(1),
                "arrived": Out(1),
                "load": Out(config.rows),
                "take": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        rows, stages = self._config.rows, self._config.stages
        loading = Signal(rows)  # one-hot: rows 1 and up of the tile being loaded
        loaded = Signal()  # a tile is in the shadow weights, or on its way there, and not swapped
        cooling = Signal(range(stages + 1))  # cycles until the last swap has left the last stage

        complete = Signal()
        begin = Signal()
        m.d.comb += [
            complete.eq(self.level >= rows),
            begin.eq(complete & ~loaded & ~loading.any() & (cooling == 0)),
            self.load.eq(loading | begin),
            self.take.eq(begin | loading.any()),
            self.ready.eq(loaded | begin),
            self.arrived.eq(self.ready | complete),
        ]
        m.d.sync += loading.eq(self.load << 1)
        with m.If(begin):
            m.d.sync += loaded.eq(1)
        with m.If(cooling != 0):
            m.d.sync += cooling.eq(cooling - 1)
        with m.If(self.swap):
            m.d.sync += [loaded.eq(0), cooling.eq(Const(stages - 1, len(cooling)))]
        return m
