# SPDX-License-Identifier: Apache-2.0
"""Where the cycles go: one counter for each cycle class."""

from amaranth.hdl import Cat, Const, Module, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from systola.arch.registers import COUNTER_BITS, CycleClass
from systola.hdl.parts.replica import Replica

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
    rest, as a reset does with all of them; `busy` from the next one to that before DONE shows. What
    is counted shows three cycles later: all that comes in goes through a register. The conditions
    are looked at in the order of `CycleClass` as far as they concern a waiting MatrixMultiply or
    Convolve; then come `vector`, `draining`, `host_wait` and `issue_waits`; what is left is FETCH.
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
        clears = Signal(init=1)
        busy = Signal()
        seen = {name: Signal(name=f"seen_{name}") for name in CONDITIONS}
        m.d.sync += [start.eq(self.start), clears.eq(self.start), busy.eq(self.busy)]
        m.d.sync += [signal.eq(getattr(self, name)) for name, signal in seen.items()]

        # In the order in which they are looked at.
        waits = seen["matrix_waits"]
        classes = (
            (CycleClass.ARRAY_ACTIVE, seen["active"]),
            (CycleClass.WEIGHT_STALL, seen["awaiting_weights"]),
            (CycleClass.WEIGHT_SHIFT, seen["weights_moving"]),
            (CycleClass.INPUT_STALL, waits & seen["input_blocked"]),
            (CycleClass.OPERAND_STALL, waits & seen["operand_blocked"]),
            (CycleClass.ACCUMULATOR_STALL, waits),
            (CycleClass.VECTOR, seen["vector"]),
            (CycleClass.DRAIN, seen["draining"]),
            (CycleClass.HOST_WAIT, seen["host_wait"]),
            (CycleClass.OUTPUT_STALL, seen["issue_waits"]),
            (CycleClass.FETCH, Const(1)),
        )
        counted = Signal(len(CycleClass))  # one-hot
        before: list[Value] = []
        for which, condition in classes:
            counts = busy & condition & ~Cat(before).any()
            if which == CycleClass.FETCH:
                counts |= start
            m.d.sync += counted[which].eq(counts)
            before.append(condition)
        for which in CycleClass:
            # A register of its own clears each: one net would reach hundreds of bits.
            clear = m.submodules[f"clear_{which.name.lower()}"] = Replica()
            value = Signal(COUNTER_BITS, name=f"value_{which.name.lower()}", reset_less=True)
            m.d.comb += [clear.input.eq(clears), self.values[which].eq(value)]
            with m.If(clear.output):
                m.d.sync += value.eq(counted[which])
            with m.Elif(counted[which]):
                m.d.sync += value.eq(value + 1)
        return m
