# SPDX-License-Identifier: Apache-2.0
"""A fixed delay in a shift register."""

from amaranth.hdl import Cat, Module, Signal, ValueLike
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from systola.hdl.parts.promise import promised_offer


class DelayLine(wiring.Component):
    """A delay of `cycles` cycles that `hold` can stop.

    | port                     | meaning |
    |---|---|
    | `input`, `input_valid`   | a payload, and whether there is one |
    | `hold`                   | stops the delay for this cycle, which then does not count |
    | `output`, `output_valid` | the input `cycles` cycles later; `output_valid` is 0 after a
                                 reset |
    """

    def __init__(self, *, layout: data.StructLayout, cycles: int):
        self._width = layout.size
        self._cycles = cycles
        super().__init__(
            {
                "input": In(layout),
                "input_valid": In(1),
                "hold": In(1),
                "output": Out(layout),
                "output_valid": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        # All stages are one signal, as simulators shift it as a few machine words.
        payload = Signal(self._width * self._cycles, reset_less=True)
        valid = Signal(self._cycles)
        with m.If(~self.hold):
            m.d.sync += [
                payload.eq(Cat(self.input, payload)),
                valid.eq(Cat(self.input_valid, valid)),
            ]
        m.d.comb += [
            self.output.eq(payload[-self._width :]),
            self.output_valid.eq(valid[-1]),
        ]
        message = "a delay moves while it is held"
        promised_offer(m, platform, self.output_valid, ~self.hold, self.output.as_value(), message)
        return m


def delayed(m: Module, name: str, value: data.View, valid: ValueLike, cycles: int) -> DelayLine:
    """Place a DelayLine called `name` with this input, and return it."""
    line = DelayLine(layout=value.shape(), cycles=cycles)
    m.submodules[name] = line
    m.d.comb += [line.input.eq(value), line.input_valid.eq(valid)]
    return line
