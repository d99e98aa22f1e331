# SPDX-License-Identifier: Apache-2.0
"""Moves weight tiles from the FIFO into the shadow weights of the array."""

from amaranth.hdl import Const, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from systola.arch.config import Config


class WeightLoader(wiring.Component):
    """Loads a tile row by row as its rows arrive, when the shadow weights are free; row 0 first.

    The wave of the swap takes a cycle from row to row as well, so a tile is `ready` to be swapped
    in from the cycle in which its row 0 is written, and the next one may follow `stages` cycles
    after the swap: with rows >= stages a tile every `rows` cycles. When a row has not arrived, and
    the wave may be about to need it, `hold` stops the array until it has.

    `swap` (only when `ready`) takes the tile: the array sees it one cycle later. `load` and
    `take`: this row of the array takes the oldest row of the FIFO (`arrived`: there is one).
    """

    def __init__(self, *, config: Config):
        self._config = config
        super().__init__(
            {
                "arrived": In(1),
                "swap": In(1),
                "ready": Out(1),
                "hold": Out(1),
                "load": Out(config.rows),
                "take": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        stages = self._config.stages
        following = Signal(self._config.rows, init=1)  # one-hot: the row to be loaded next
        loaded = Signal()  # a tile is in the shadow weights, or on its way there, and not swapped
        cooling = Signal(range(stages + 1))  # cycles until the last swap has left the last stage
        cool = Signal(init=1)  # none

        begin = Signal()
        inside = ~following[0]
        m.d.comb += [
            begin.eq(self.arrived & following[0] & ~loaded & cool),
            self.take.eq(begin | (self.arrived & inside)),
            self.load.eq(Mux(self.take, following, 0)),
            self.ready.eq(loaded | (self.arrived & following[0] & cool)),
            self.hold.eq(inside & ~loaded & ~self.arrived),
        ]
        with m.If(self.take):
            m.d.sync += following.eq(following.rotate_left(1))
        with m.If(begin):
            m.d.sync += loaded.eq(1)
        with m.If((cooling != 0) & ~self.hold):
            m.d.sync += [cooling.eq(cooling - 1), cool.eq(cooling == 1)]
        with m.If(self.swap):
            m.d.sync += [
                loaded.eq(0),
                cooling.eq(Const(stages - 1, len(cooling))),
                cool.eq(stages == 1),
            ]
        return m
