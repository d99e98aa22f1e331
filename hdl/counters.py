# SPDX-License-Identifier: Apache-2.0
"""Where the cycles go: one counter for each cycle class."""

from amaranth.hdl import Module, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from systola.arch.registers import COUNTER_BITS, CycleClass

CONDITIONS = (
    "active",
    "awaiting_weights",
    "weights_moving",
    "matrix_waits",
    "input_blocked",
    "operand_blocked",
    "vector",
    "draining",
    "host_wait",
    "issue_waits",
)
"""What decides to which class a cycle belongs."""


class Counters(wiring.Component):
    """Counts each cycle of a program in exactly one class; the classes sum to its duration.

    `start` is up in the cycle in which the program is started, which counts as FETCH and clears the
    rest; `busy` from the next one to that before DONE shows. What is counted shows three
    cycles later: all that comes in goes through a register. The conditions are looked at in the
    order of `CycleClass` as far as they concern a waiting MatrixMultiply or Convolve; then come
    `vector`, `draining`, `host_wait` and `issue_waits`; what is left is FETCH.
    """

    start: In(1)
    busy: In(1)
    active: In(1)
    awaiting_weights: In(1)
    weights_moving: In(1)
    matrix_waits: In(1)
    input_blocked: In(1)
    operand_blocked: In(1)
    vector: In(1)
    draining: In(1)
    host_wait: In(1)
    issue_waits: In(1)
    values: Out(data.ArrayLayout(COUNTER_BITS, len(CycleClass)))

    def elaborate(self, platform: object) -> Module:
        m = Module()
        # The inputs, a cycle later.
        start = Signal()
        busy = Signal()
        seen = {name: Signal(name=f"seen_{name}") for name in CONDITIONS}
        m.d.sync += [start.eq(self.start), busy.eq(self.busy)]
        m.d.sync += [signal.eq(getattr(self, name)) for name, signal in seen.items()]

        now = Signal(range(len(CycleClass)))
        with m.If(seen["active"]):
            m.d.comb += now.eq(CycleClass.ARRAY_ACTIVE)
        with m.Elif(seen["awaiting_weights"]):
            m.d.comb += now.eq(CycleClass.WEIGHT_STALL)
        with m.Elif(seen["weights_moving"]):
            m.d.comb += now.eq(CycleClass.WEIGHT_SHIFT)
        with m.Elif(seen["matrix_waits"] & seen["input_blocked"]):
            m.d.comb += now.eq(CycleClass.INPUT_STALL)
        with m.Elif(seen["matrix_waits"] & seen["operand_blocked"]):
            m.d.comb += now.eq(CycleClass.OPERAND_STALL)
        with m.Elif(seen["matrix_waits"]):
            m.d.comb += now.eq(CycleClass.ACCUMULATOR_STALL)
        with m.Elif(seen["vector"]):
            m.d.comb += now.eq(CycleClass.VECTOR)
        with m.Elif(seen["draining"]):
            m.d.comb += now.eq(CycleClass.DRAIN)
        with m.Elif(seen["host_wait"]):
            m.d.comb += now.eq(CycleClass.HOST_WAIT)
        with m.Elif(seen["issue_waits"]):
            m.d.comb += now.eq(CycleClass.OUTPUT_STALL)
        with m.Else():
            m.d.comb += now.eq(CycleClass.FETCH)

        counted = Signal(len(CycleClass))  # one-hot
        for which in CycleClass:
            m.d.sync += counted[which].eq(busy & (now == which))
        with m.If(start):
            for which in CycleClass:
                m.d.sync += self.values[which].eq(int(which == CycleClass.FETCH))
        with m.Else():
            for which in CycleClass:
                with m.If(counted[which]):
                    m.d.sync += self.values[which].eq(self.values[which] + 1)
        return m
