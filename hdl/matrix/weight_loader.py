# SPDX-License-Identifier: Apache-2.0
"""The way of weight tiles from the FIFO into the shadow weights of the array."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from systola.arch.config import Config
from systola.hdl.parts.promise import promised


class WeightLoader(wiring.Component):
    """A unit that loads a tile row by row, as its rows arrive, when the shadow weights are free.

    | port      | meaning |
    |---|---|
    | `arrived` | the FIFO has a row |
    | `take`    | takes the oldest row of the FIFO |
    | `load`    | a bit for each row of the array: writes it; row 0 of a tile comes first |
    | `ready`   | a tile may be swapped in |
    | `swap`    | takes the tile; only when `ready`; the array sees it two cycles later |
    | `hold`    | stops the array, as a row has not arrived and the wave may be about to need it |

    The wave of a swap takes a cycle from row to row, as does the load. So a tile is `ready` from
    the cycle in which its row 0 is written. The next tile may follow `stages` + 1 cycles after the
    swap. With rows > stages this is a tile every `rows` cycles.
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
        following = Signal(self._config.rows, init=1)  # one-hot: the row that is loaded next
        # Registers change a cycle after a swap. Until then, `swapped` stands for the change.
        swapped = Signal()
        loaded = Signal()
        cooling = Signal(range(stages + 1))  # cycles until the last swap has left the last stage
        cooled = Signal(init=1)  # `cooling` is 0
        cool = Signal()
        waits = Signal()  # a tile, in the shadow weights or on its way there, waits for its swap

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
