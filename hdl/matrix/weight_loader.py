# SPDX-License-Identifier: Apache-2.0
"""Moves weight tiles from the FIFO into the shadow weights of the array."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from systola.arch.config import Config
from systola.hdl.parts.promise import promised


class WeightLoader(wiring.Component):
    """Loads a tile row by row as its rows arrive, when the shadow weights are free; row 0 first.

    The wave of the swap takes a cycle from row to row as well, so a tile is `ready` to be swapped
    in from the cycle in which its row 0 is written, and the next one may follow `stages` + 1
    cycles after the swap: with rows > stages a tile every `rows` cycles. When a row has not
    arrived, and the wave may be about to need it, `hold` stops the array until it has.

    `swap` (only when `ready`) takes the tile: the array sees it two cycles later. `load` and
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
        # What a swap changes, it changes a cycle later: until then, `swapped` stands for it.
        swapped = Signal()
        loaded = Signal()
        cooling = Signal(range(stages + 1))  # cycles until the last swap has left the last stage
        cooled = Signal(init=1)  # none
        cool = Signal()
        waits = Signal()  # a tile, in the shadow weights or on its way there, to be swapped

        begin = Signal()
        inside = ~following[0]
        m.d.comb += [
            cool.eq(cooled & ~swapped),
            waits.eq(loaded & ~swapped),
            begin.eq(self.arrived & following[0] & ~waits & cool),
            self.take.eq(begin | (self.arrived & inside)),
            self.load.eq(Mux(self.take, following, 0)),
            self.ready.eq(waits | (self.arrived & following[0] & cool)),
            self.hold.eq(inside & ~waits & ~self.arrived),
        ]
        m.d.sync += [swapped.eq(self.swap), loaded.eq(begin | waits)]
        with m.If(self.take):
            m.d.sync += following.eq(following.rotate_left(1))
        left = Signal.like(cooling)
        m.d.comb += left.eq(Mux(swapped, stages, cooling))
        with m.If(self.hold | (left == 0)):
            m.d.sync += [cooling.eq(left), cooled.eq(left == 0)]
        with m.Else():
            m.d.sync += [cooling.eq(left - 1), cooled.eq(left == 1)]
        promised(m, platform, ~self.swap | self.ready, "a tile is swapped in before it is there")
        return m
