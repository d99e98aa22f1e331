# SPDX-License-Identifier: Apache-2.0
"""The exponent registers: Measure sets them, and shifts follow from them."""

from amaranth.hdl import Cat, Module, Mux, Signal, signed
from amaranth.lib import data, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from systola.arch.isa import EXPONENT_REGISTERS
from systola.hdl.commands import MeasureLayout

MAGNITUDE_BITS = 31
MEASURED = 4
"""Cycles from the end of a Measure (`last`) to the first `select` that reads the new value."""


class ShiftLayout(data.StructLayout):
    """A pair of shifts that an exponent register stands for.

    | field      | meaning |
    |---|---|
    | `replaces` | the shifts replace the shifts of the parameter entry; set for every register
                   but 0 |
    | `right`    | value of the register, clamped to 0 to 31 |
    | `left`     | negated value of the register, clamped to 0 to 7 |
    """

    def __init__(self) -> None:
        super().__init__({"replaces": 1, "right": 5, "left": 3})


class ExponentRegisters(wiring.Component):
    """A memory of the exponent registers, which measures magnitudes and gives shifts.

    | port         | meaning |
    |---|---|
    | `select`     | number of the register that is read |
    | `shifts`     | shifts of this register, combinational |
    | `take`       | a Measure comes |
    | `about`      | with `take`: the fields of the Measure |
    | `counts`     | a vector of the Measure comes, one cycle after `take` or later |
    | `magnitude`  | with `counts`: the magnitude of the vector |
    | `last`       | the Measure is complete, with or without a vector in this cycle |
    | `magnitudes` | with `last`: the magnitudes count; else the result comes from registers alone |

    Let E[n] be register n, 0 if it has not been set. Then

        e = value + E[first] + E[second] - E[third]

    from the fields of `about`. Register `exponent` becomes e, or with `magnitudes` the larger of e
    and (bits of the largest magnitude) - `bits`.

    Latency: MEASURED cycles from `last` to a `select` that sees the new value. From `last` until
    then `select` must not be used: the memory reads other registers. Throughput: one vector a
    cycle.
    """

    def __init__(self) -> None:
        super().__init__(
            {
                "select": In(range(EXPONENT_REGISTERS)),
                "shifts": Out(ShiftLayout()),
                "take": In(1),
                "about": In(MeasureLayout()),
                "counts": In(1),
                "magnitude": In(MAGNITUDE_BITS),
                "last": In(1),
                "magnitudes": In(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        measure_fields = Signal(MeasureLayout(), reset_less=True)
        with m.If(self.take):
            m.d.sync += measure_fields.eq(self.about)

        # All magnitudes are ORed together: the result has as many bits as the largest of them. The
        # values of the registers are added up at the same time, one register in each `sum_stage`.
        row_magnitude = Signal(MAGNITUDE_BITS)
        held_magnitude = Signal(MAGNITUDE_BITS)
        sum_stage = Signal(MEASURED - 1)
        first, second, third = Cat(self.last, sum_stage[:2])
        writes = sum_stage[-1]
        magnitude_bits = Signal(range(MAGNITUDE_BITS + 1))
        for bit in range(MAGNITUDE_BITS):
            with m.If(held_magnitude[bit]):
                m.d.comb += magnitude_bits.eq(bit + 1)
        bits_excess = Signal(signed(len(magnitude_bits) + 1), reset_less=True)
        m.d.sync += [
            row_magnitude.eq(Mux(self.counts, self.magnitude, 0)),
            held_magnitude.eq(Mux(writes, 0, held_magnitude | row_magnitude)),
            sum_stage.eq(Cat(self.last, sum_stage)),
            bits_excess.eq(magnitude_bits - measure_fields.bits),
        ]

        memory = m.submodules.memory = Memory(shape=8, depth=EXPONENT_REGISTERS, init=[])
        read = memory.read_port(domain="comb")
        write = memory.write_port()
        registers_set = Signal(EXPONENT_REGISTERS)  # bit n: register n has been set
        register_value = Signal(signed(8))
        m.d.comb += [
            read.addr.eq(self.select),
            register_value.eq(Mux(registers_set.bit_select(read.addr, 1), read.data, 0)),
        ]
        exponent_total = Signal(signed(8), reset_less=True)
        sum_base = Signal(8)
        sum_term = Signal(8)
        m.d.comb += [sum_base.eq(exponent_total), sum_term.eq(register_value)]
        with m.If(first):
            m.d.comb += [sum_base.eq(measure_fields.value), read.addr.eq(measure_fields.first)]
        with m.If(second):
            m.d.comb += read.addr.eq(measure_fields.second)
        with m.If(third):
            m.d.comb += [read.addr.eq(measure_fields.third), sum_term.eq(~register_value)]
        with m.If(first | second | third):
            m.d.sync += exponent_total.eq(sum_base + sum_term + third)
        by_magnitude = Signal()
        with m.If(first):
            m.d.sync += by_magnitude.eq(self.magnitudes)
        m.d.comb += [
            write.en.eq(writes),
            write.addr.eq(measure_fields.exponent),
            write.data.eq(
                Mux(by_magnitude & (bits_excess > exponent_total), bits_excess, exponent_total)
            ),
        ]
        with m.If(writes):
            m.d.sync += registers_set.bit_select(measure_fields.exponent, 1).eq(1)

        negative_value = Signal(8)
        m.d.comb += [
            negative_value.eq(-register_value),
            self.shifts.replaces.eq(self.select != 0),
            self.shifts.right.eq(
                Mux(
                    register_value[7],
                    0,
                    register_value[:5] | register_value[5:7].any().replicate(5),
                )
            ),
            self.shifts.left.eq(
                Mux(
                    register_value[7],
                    negative_value[:3] | negative_value[3:8].any().replicate(3),
                    0,
                )
            ),
        ]
        return m
