# SPDX-License-Identifier: Apache-2.0
"""The loader of the array, which moves weight tiles from the FIFO into the shadow weights."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from systola.arch.config import Config
from systola.hdl.parts.promise import at_most_one, promised, promised_offer


class WeightLoader(wiring.Component):
    """A unit that loads weight tiles into the shadow weights of the array, row by row.

    | port      | meaning |
    |---|---|
    | `arrived` | the FIFO has a row |
    | `take`    | takes the oldest row of the FIFO; only with `arrived` |
    | `load`    | a bit for each row of the array: the taken row is written to its shadow weights |
    | `ready`   | a tile may be swapped in |
    | `swap`    | swaps the tile in; only while `ready`; the array sees it two cycles later |
    | `hold`    | stops the array: a row of the swapped tile is late, and may be needed next |

    Rows of a tile are taken as they arrive, row 0 first, as soon as the shadow weights are free. A
    swap moves through the array like a wave, one row a cycle, and so does the load. So a tile is
    `ready` from the cycle in which its row 0 is written.

    Latency: `ready` is high in the cycle in which the first row is taken. Throughput: one row a
    cycle. The next tile may follow `stages` + 1 cycles after the swap. With rows > stages this is a
    tile every `rows` cycles. Back-pressure: rows wait in the FIFO, and a late row stops the array
    by `hold`.
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
        next_row = Signal(self._config.rows, init=1)  # one-hot: the row that is loaded next
        # Registers change one cycle after a swap. Until then, `tile_swapped` stands for the change.
        tile_swapped = Signal()
        tile_loaded = Signal()
        # cycles remaining until the last swap has left the last stage of the array
        cooling_cycles = Signal(range(stages + 1))
        array_cooled = Signal(init=1)  # `cooling_cycles` is 0
        swap_allowed = Signal()
        # a tile that is loaded, completely or in part, waits for its swap
        tile_waits = Signal()

        tile_begins = Signal()
        inside = ~next_row[0]
        m.d.comb += [
            swap_allowed.eq(array_cooled & ~tile_swapped),
            tile_waits.eq(tile_loaded & ~tile_swapped),
            tile_begins.eq(self.arrived & next_row[0] & ~tile_waits & swap_allowed),
            self.take.eq(tile_begins | (self.arrived & inside)),
            self.load.eq(Mux(self.take, next_row, 0)),
            self.ready.eq(tile_waits | (self.arrived & next_row[0] & swap_allowed)),
            self.hold.eq(inside & ~tile_waits & ~self.arrived),
        ]
        m.d.sync += [tile_swapped.eq(self.swap), tile_loaded.eq(tile_begins | tile_waits)]
        with m.If(self.take):
            m.d.sync += next_row.eq(next_row.rotate_left(1))
        cooling_remaining = Signal.like(cooling_cycles)
        m.d.comb += cooling_remaining.eq(Mux(tile_swapped, stages, cooling_cycles))
        with m.If(self.hold | (cooling_remaining == 0)):
            m.d.sync += [
                cooling_cycles.eq(cooling_remaining),
                array_cooled.eq(cooling_remaining == 0),
            ]
        with m.Else():
            m.d.sync += [
                cooling_cycles.eq(cooling_remaining - 1),
                array_cooled.eq(cooling_remaining == 1),
            ]
        promised(m, platform, at_most_one(self.load), "two rows are loaded at once")
        arrived = ~self.take | self.arrived
        promised(m, platform, arrived, "a row is taken that has not arrived")
        message = "a tile that is ready is lost"
        promised_offer(m, platform, self.ready, self.swap, 0, message)
        left = array_cooled == (cooling_cycles == 0)
        promised(m, platform, left, "the last swap has left the array too soon")
        promised(m, platform, ~self.swap | self.ready, "a tile is swapped in before it is there")
        return m
