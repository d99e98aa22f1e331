# SPDX-License-Identifier: Apache-2.0
"""The way of tiles from the unified buffer into the weight FIFO."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import bits_for

from systola.arch.config import Config
from systola.hdl.commands import line_bits
from systola.hdl.parts.promise import promised
from systola.hdl.ports import BUFFER_LATENCY, BufferReadSignature


class TileReader(wiring.Component):
    """A unit that reads `tiles` tiles of R lines from `line` on.

    | port     | meaning |
    |---|---|
    | `start`  | takes `line`, `tiles` and `wide`; only while `idle` |
    | `line`   | the first line |
    | `tiles`  | the number of tiles |
    | `wide`   | a tile has every other line, and the next tile has the lines between |
    | `idle`   | all rows have come in earlier cycles; a register |
    | `room`   | there is room for another row |
    | `buffer` | reads of lines |
    | `asks`   | a line is read, so its row will come |
    | `pushes` | `buffer.data` has the row, BUFFER_LATENCY cycles after `asks` |

    Throughput: one row a cycle. The first line is requested in the cycle after `start`.
    """

    def __init__(self, *, config: Config):
        self._config = config
        super().__init__(
            {
                "start": In(1),
                "line": In(line_bits(config)),
                "tiles": In(bits_for(config.buffer_lines // config.rows)),
                "wide": In(1),
                "idle": Out(1, init=1),
                "room": In(1),
                "buffer": Out(BufferReadSignature(config=config)),
                "asks": Out(1),
                "pushes": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        rows = self._config.rows
        line = Signal.like(self.line, reset_less=True)
        left = Signal.like(self.tiles, reset_less=True)
        row = Signal(range(rows), reset_less=True)
        wide = Signal(reset_less=True)
        # the tile has the lines between the lines of the tile before
        between = Signal(reset_less=True)
        busy = Signal()
        coming = Signal(BUFFER_LATENCY)
        ends = Signal()  # the row is the last of its tile
        step = Signal.like(line)
        m.d.comb += [
            self.buffer.enable.eq(busy & self.room),
            self.buffer.address.eq(line),
            self.asks.eq(self.buffer.enable & self.buffer.ready),
            self.pushes.eq(coming[-1]),
            ends.eq(row == rows - 1),
            # Back to the line after the tile's first one, or on to the next line.
            step.eq(Mux(wide, Mux(ends, Mux(between, 1, 3 - 2 * rows), 2), 1)),
        ]
        m.d.sync += [
            coming.eq(Cat(self.asks, coming)),
            self.idle.eq(~(self.start | busy | self.asks | coming[:-1].any())),
        ]
        with m.If(self.start):
            m.d.sync += [
                busy.eq(1),
                line.eq(self.line),
                left.eq(self.tiles),
                wide.eq(self.wide),
                row.eq(0),
                between.eq(0),
            ]
        with m.Elif(self.asks):
            m.d.sync += [line.eq(line + step), row.eq(Mux(ends, 0, row + 1))]
            with m.If(ends):
                m.d.sync += [left.eq(left - 1), between.eq(~between), busy.eq(left != 1)]
        promised(
            m,
            platform,
            ~self.start | self.idle,
            "tiles are asked for before the last have come",
        )
        return m
