# SPDX-License-Identifier: Apache-2.0
"""The work for vectors with function OTHER: transposed lines, random bytes, measured magnitudes."""

from amaranth.hdl import Module, Mux, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from systola.arch.config import Config
from systola.arch.isa import DITHER_BITS
from systola.hdl.activation.exponent_registers import (
    MAGNITUDE_BITS,
    ExponentRegisters,
    ShiftLayout,
)
from systola.hdl.activation.random_bytes import SEED_BITS, RandomBytes
from systola.hdl.activation.transposer import Transposer
from systola.hdl.commands import OTHER, MeasureLayout, Other, measures


def is_other(port: data.View) -> Value:
    """Return whether a vector with function OTHER is present: its results are not requantised."""
    return port.valid & (port.function == OTHER)


class OtherResults(wiring.Component):
    """A unit that replaces the bytes of the lanes by transposed lines or random bytes, and
    measures.

    A vector comes to `issued`, `coming`, `valued` and `ending` in this order. The unit acts only on
    vectors with function OTHER.

    | port        | meaning |
    |---|---|
    | `issued`    | a vector in the cycle of its issue |
    | `about`     | with `issued`: the fields of a Measure |
    | `coming`    | a vector in the cycle before its value; only `exponent` is used |
    | `shifts`    | with `coming`: the shifts of its exponent register, combinational |
    | `valued`    | a vector in the cycle of its value |
    | `magnitude` | with `valued`: the magnitudes of all lanes, ORed |
    | `ending`    | a vector in the cycle before its line |
    | `load_tile` | `bytes` are a line of a tile, see Transposer |
    | `bytes`     | a buffer line |
    | `load_seed` | the generators begin with `seed`, see RandomBytes |
    | `seed`      | see RandomBytes |
    | `draw`      | see RandomBytes |
    | `dither`    | random bits for each column, see RandomBytes |
    | `plain`     | the bytes of the lanes |
    | `line`      | the line that is written: `plain`, or the line of a vector with function OTHER |

    Latency: `line` is combinational from `plain`. A transposed line or random bytes come in the
    cycle after `ending`. Throughput: one vector a cycle. No back-pressure.
    """

    def __init__(self, *, config: Config):
        self._cols = config.cols
        line = 8 * config.cols
        vector = data.StructLayout(
            {"valid": 1, "last": 1, "function": 3, "table": 4, "exponent": 3}
        )
        super().__init__(
            {
                **{name: In(vector) for name in ("issued", "coming", "valued", "ending")},
                "about": In(MeasureLayout()),
                "magnitude": In(MAGNITUDE_BITS),
                "shifts": Out(ShiftLayout()),
                "load_tile": In(1),
                "bytes": In(line),
                "load_seed": In(1),
                "seed": In(SEED_BITS),
                "draw": In(1),
                "dither": Out(DITHER_BITS * self._cols),
                "plain": In(line),
                "line": Out(line),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        registers = m.submodules.exponents = ExponentRegisters()
        magnitude_counts = Signal()
        m.d.comb += [
            registers.select.eq(self.coming.exponent),
            self.shifts.eq(registers.shifts),
            registers.take.eq(is_other(self.issued) & self.issued.last),
            registers.about.eq(self.about),
            magnitude_counts.eq(is_other(self.valued) & measures(self.valued.table)),
            registers.counts.eq(magnitude_counts),
            registers.magnitude.eq(self.magnitude),
            registers.last.eq(magnitude_counts & self.valued.last),
            registers.magnitudes.eq(self.valued.table == Other.MEASURE),
        ]
        tiles = m.submodules.transposer = Transposer(cols=self._cols)
        random = m.submodules.random_bytes = RandomBytes(cols=self._cols)
        line_ends = Signal()
        line_ended = Signal()
        m.d.comb += [
            line_ends.eq(is_other(self.ending)),
            tiles.load.eq(self.load_tile),
            tiles.line.eq(self.bytes),
            tiles.take.eq(line_ends & (self.ending.table == Other.TRANSPOSE)),
            random.load.eq(self.load_seed),
            random.seed.eq(self.seed),
            random.draw.eq(self.draw),
            self.dither.eq(random.dither),
            random.take.eq(line_ends & (self.ending.table == Other.RANDOM)),
            self.line.eq(Mux(line_ended, 0, self.plain) | tiles.result | random.result),
        ]
        m.d.sync += line_ended.eq(line_ends)
        return m
