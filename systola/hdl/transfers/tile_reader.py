# SPDX-License-Identifier: Apache-2.0
"""The unit that reads tiles from the unified buffer for the weight FIFO."""

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
    | `wide`   | the weights are int16: a tile has every other line, and the next tile has the lines
                 between |
    | `idle`   | the unit has read all rows, and they came in earlier cycles; a register |
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
        tiles_remaining = Signal.like(self.tiles, reset_less=True)
        row_number = Signal(range(rows), reset_less=True)
        wide = Signal(reset_less=True)
        # high if this tile has the lines between the lines of the tile before
        is_between = Signal(reset_less=True)
        busy = Signal()
        rows_coming = Signal(BUFFER_LATENCY)
        is_last_row = Signal()  # the row is the last one of its tile
        step = Signal.like(line)
        m.d.comb += [
            self.buffer.enable.eq(busy & self.room),
            self.buffer.address.eq(line),
            self.asks.eq(self.buffer.enable & self.buffer.ready),
            self.pushes.eq(rows_coming[-1]),
            is_last_row.eq(row_number == rows - 1),
            # The step to the next line that is read. A wide tile has every other line. At the
            # end of the first of two wide tiles, the step goes back to the line after the tile's
            # first line.
            step.eq(Mux(wide, Mux(is_last_row, Mux(is_between, 1, 3 - 2 * rows), 2), 1)),
        ]
        m.d.sync += [
            rows_coming.eq(Cat(self.asks, rows_coming)),
            self.idle.eq(~(self.start | busy | self.asks | rows_coming[:-1].any())),
        ]
        with m.If(self.start):
            m.d.sync += [
                busy.eq(1),
                line.eq(self.line),
                tiles_remaining.eq(self.tiles),
                wide.eq(self.wide),
                row_number.eq(0),
                is_between.eq(0),
            ]
        with m.Elif(self.asks):
            m.d.sync += [line.eq(line + step), row_number.eq(Mux(is_last_row, 0, row_number + 1))]
            with m.If(is_last_row):
                m.d.sync += [
                    tiles_remaining.eq(tiles_remaining - 1),
                    is_between.eq(~is_between),
                    busy.eq(tiles_remaining != 1),
                ]
        promised(m, platform, ~busy | (tiles_remaining != 0), "a tile too many is read")
        promised(m, platform, ~self.asks | self.room, "a row is read that has no room")
        rests = ~(busy | rows_coming.any())
        promised(m, platform, ~self.idle | rests, "the reader is idle while rows come")
        promised(
            m,
            platform,
            ~self.start | self.idle,
            "tiles are asked for before the last have come",
        )
        return m
