# SPDX-License-Identifier: Apache-2.0
"""Counters for the cycles of a program: one counter for each class of cycles."""

from amaranth.hdl import Const, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from systola.arch.registers import COUNTER_BITS, CycleClass
from systola.hdl.parts.promise import promised
from systola.hdl.parts.selecting_adder import SelectingAdder
from systola.hdl.ports import Activity


class Counters(wiring.Component):
    """A bank of counters that counts each cycle of a program in exactly one class.

    The counts of all classes sum to the duration of the program.

    | port       | meaning |
    |---|---|
    | `start`    | the program is started; the cycle counts as FETCH, and the counters are
                   cleared |
    | `busy`     | the program runs: from the cycle after `start` to the cycle before DONE
                   shows |
    | `activity` | conditions that determine the class of the cycle, see Activity |
    | `draining` | the program has ended, and its instructions complete |
    | `word`     | number of the word to read: the low word of counter n is 2 n, the high word
                   2 n + 1 |
    | `value`    | this word as it was in the cycle before, if `word` stays; 0 for a word
                   that does not exist |

    The conditions of a MatrixMultiply or Convolve are tested first, in the order of `CycleClass`.
    Then come `vector`, `draining`, `host_wait` and `issue_waits`. All other cycles are FETCH. All
    inputs go through a register, so a cycle can be seen in its counter three cycles later. A reset
    clears all counters.
    """

    def __init__(self) -> None:
        super().__init__(
            {
                "start": In(1),
                "busy": In(1),
                "activity": In(Activity()),
                "draining": In(1),
                "word": In(range(2 * len(CycleClass))),
                "value": Out(32),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        # registers with the inputs of the cycle before
        start_seen = Signal()
        busy_seen = Signal()
        draining_seen = Signal()
        activity_seen = Signal(Activity())
        m.d.sync += [
            start_seen.eq(self.start),
            busy_seen.eq(self.busy),
            draining_seen.eq(self.draining),
            activity_seen.eq(self.activity),
        ]

        # The conditions of the classes, in the order in which they are tested.
        waits = activity_seen.matrix_waits
        classes = (
            (CycleClass.FETCH, start_seen),
            (CycleClass.ARRAY_ACTIVE, activity_seen.active),
            (CycleClass.WEIGHT_STALL, activity_seen.awaiting_weights),
            (CycleClass.WEIGHT_SHIFT, activity_seen.weights_moving),
            (CycleClass.INPUT_STALL, waits & activity_seen.input_blocked),
            (CycleClass.OPERAND_STALL, waits & activity_seen.operand_blocked),
            (CycleClass.ACCUMULATOR_STALL, waits),
            (CycleClass.VECTOR, activity_seen.vector),
            (CycleClass.DRAIN, draining_seen),
            (CycleClass.HOST_WAIT, activity_seen.host_wait),
            (CycleClass.OUTPUT_STALL, activity_seen.issue_waits),
        )
        cycle_counts = Signal()
        program_begins = Signal()
        class_counted = Signal(range(len(CycleClass)))
        found = Const(CycleClass.FETCH, len(class_counted))
        for which, condition in reversed(classes):
            found = Mux(condition, which, found)
        m.d.sync += [
            cycle_counts.eq(busy_seen | start_seen),
            program_begins.eq(start_seen),
            class_counted.eq(found),
        ]

        # The counters lie in a memory. Each counter has a flag: it was written since the start of
        # the program. A counter without the flag counts as 0. A register takes the flag one cycle
        # before the counter is read, for an increase or for the host.
        memory = m.submodules.memory = Memory(shape=COUNTER_BITS, depth=len(CycleClass), init=[])
        write = memory.write_port()
        here = memory.read_port(domain="comb")
        shown = memory.read_port(domain="comb")
        written_counters = Signal(1 << len(class_counted))
        counter_written = Signal()
        goes_on = Signal()
        is_there = Signal()
        counter_number = Signal.like(class_counted)
        m.d.sync += [
            counter_written.eq(cycle_counts),
            counter_number.eq(class_counted),
            goes_on.eq(written_counters.bit_select(class_counted, 1) & ~program_begins),
            is_there.eq(written_counters.bit_select(self.word[1:], 1)),
        ]
        adder = m.submodules.adder = SelectingAdder(width=COUNTER_BITS)
        m.d.comb += [
            here.addr.eq(counter_number),
            adder.b.eq(here.data),
            adder.choose_b.eq(goes_on.replicate(COUNTER_BITS)),
            adder.carry.eq(1),
            write.addr.eq(counter_number),
            write.en.eq(counter_written),
            write.data.eq(adder.total),
            shown.addr.eq(self.word[1:]),
            self.value.eq(
                Mux(is_there, Mux(self.word[0], shown.data[32:], shown.data[:32]), 0),
            ),
        ]
        with m.If(program_begins):
            m.d.sync += written_counters.eq(1 << class_counted)
        with m.Elif(cycle_counts):
            m.d.sync += written_counters.eq(written_counters | (1 << class_counted))
        known = written_counters.bit_select(counter_number, 1)
        promised(m, platform, ~counter_written | known, "a counter is written that seems to be 0")
        return m
