# SPDX-License-Identifier: Apache-2.0
"""The writes of result lines, where a result may have two lines or come from the gates."""

from typing import Any

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from systola.arch.config import Config
from systola.hdl.activation.activation_lane import Pick
from systola.hdl.activation.controls import EndControl
from systola.hdl.commands import OTHER, address_bits, is_gate, measures
from systola.hdl.control.signatures import list_signature
from systola.hdl.parts.promise import at_most_one, promised

GATES = 4
"""Number of places where line numbers wait for the results of the gates.

The gates hold at most GATES - 1 vectors.
"""


class EndingVector(data.StructLayout):
    """A vector that has reached one of the last stages of the lanes: `control` if it is `valid`."""

    def __init__(self, *, config: Config):
        super().__init__({"valid": 1, "control": EndControl(config=config)})


class LineWriter(wiring.Component):
    """A unit that writes one line for each vector, or two, low bytes first, and announces them.

    | port               | meaning |
    |---|---|
    | `starts`           | the gates start, in the cycle before the vector is `at_gate` |
    | `finishes`         | in the next cycle the gates have the result of the oldest vector |
    | `at_gate`          | the vector that enters the gates: its result is their argument |
    | `announced`        | the vector at the stage where a result of one line is announced |
    | `announced_wide`   | the vector at the stage where a result of two lines is announced |
    | `end`              | the vector with the bytes that the lanes give in this cycle |
    | `next_looks_up`    | the vector of the next cycle takes its bytes from a table |
    | `written`          | the first line after the lines of the vector that is `announced` |
    | `pick`             | choice of the bytes that the lanes give in the next cycle |
    | `enable`           | a line is written, in the cycle after its bytes |
    | `address`          | the line |
    | `activate_writing` | reports lines ANNOUNCED cycles before their write, and retires with the
                           last line of an instruction |
    | `turn`             | the turn of `end`, where columns take turns |
    | `entry_done`       | a partition has written its entry, and with it its instruction ends; only
                           with attention, and in a cycle in which no line is announced |

    Throughput: one line a cycle. No back-pressure. The results of the gates come in the order of
    their arguments. At most GATES vectors are in the gates, and the caller leaves them the time
    that they take. Both lines of a vector are announced together. A Measure writes no line.

    Where columns take turns, all ports stay for all turns. Lines are written and announced with the
    last turn.
    """

    def __init__(self, *, config: Config):
        self._config = config
        vector = EndingVector(config=config)
        shared = {"turn": In(1)} if config.columns_per_lane > 1 else {}
        partitions = {"entry_done": In(1)} if config.attention else {}
        super().__init__(
            {
                **shared,
                **partitions,
                "starts": In(1),
                "finishes": In(1),
                "at_gate": In(vector),
                "announced": In(vector),
                "announced_wide": In(vector),
                "end": In(vector),
                "next_looks_up": In(1),
                "written": In(address_bits(config)),
                "pick": Out(Pick),
                "enable": Out(1),
                "address": Out(address_bits(config)),
                "activate_writing": In(list_signature("activate_writing", config)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        turns = self._config.columns_per_lane
        gate, end = self._gate(m), self.end
        silent: Any = 0
        if self._config.training:
            silent = (end.control.function == OTHER) & measures(end.control.table)
        plain = end.valid & ~is_gate(end.control.function) & ~silent
        vector_done = Signal()  # the lanes give the low, or only, bytes of a vector
        vector_control = Signal.like(end.control)
        m.d.comb += [
            vector_done.eq(plain | gate.valid),
            vector_control.eq(Mux(gate.valid, gate.control, end.control)),
        ]
        # The lanes give the high bytes of a result after the last turn of its low bytes.
        wide: list[Value] = [vector_done & vector_control.wide]
        for turn in range(turns):
            wide.append(Signal(name=f"wide_{turn}"))
            m.d.sync += wide[-1].eq(wide[-2])
        high = wide[-1]
        lines_end = Cat(plain, gate.valid, high)
        promised(m, platform, at_most_one(lines_end), "the lanes give one line at a time")
        with m.If(wide[-2]):
            m.d.comb += self.pick.eq(Pick.HIGH)
        with m.Elif(self.finishes):
            m.d.comb += self.pick.eq(Pick.GATE)
        with m.Elif(self.next_looks_up):
            m.d.comb += self.pick.eq(Pick.TABLE)
        writes = vector_done | high
        if turns > 1:
            writes &= self.turn
        m.d.sync += self.enable.eq(writes)
        with m.If(writes):
            m.d.sync += self.address.eq(Mux(high, self.address + 1, vector_control.line))
        self._announce(m, platform, gate)
        return m

    def _gate(self, m: Module) -> data.View:
        """Return the vector with a result of the gates that the lanes give in this cycle."""
        turns = self._config.columns_per_lane
        gate_vector = Signal(EndingVector(config=self._config))
        gate_starts = Signal()
        gate_ends = Signal()
        m.d.sync += [gate_starts.eq(self.starts), gate_ends.eq(self.finishes)]

        # While vectors are in the gates, their line numbers wait in a ring.
        memory = m.submodules.gates = Memory(
            shape=EndControl(config=self._config), depth=GATES, init=[]
        )
        write = memory.write_port()
        read = memory.read_port(domain="comb")
        newest_place = Signal(range(GATES))
        oldest_place = Signal(range(GATES))
        last_turn = self.turn if turns > 1 else 1
        m.d.sync += [
            newest_place.eq(newest_place + (gate_starts & last_turn)),
            oldest_place.eq(oldest_place + (gate_ends & last_turn)),
        ]
        m.d.comb += [
            write.en.eq(gate_starts),
            write.addr.eq(newest_place),
            write.data.eq(self.at_gate.control),
            read.addr.eq(oldest_place),
            gate_vector.valid.eq(gate_ends),
            gate_vector.control.eq(read.data),
        ]
        return gate_vector

    def _announce(self, m: Module, platform: object, gate: data.View) -> None:
        """Announce the lines of results.

        A result of two lines is announced once, when its second line is due.
        """
        one, two, shared = self.announced, self.announced_wide, self._config.columns_per_lane > 1
        lines: list[Value] = [self.written]
        for cycle in range(self._config.columns_per_lane):
            lines.append(Signal.like(self.written, name=f"written_{cycle}", reset_less=True))
            m.d.sync += lines[-1].eq(lines[-2])
        by_one = Signal()
        by_two = Signal()
        by_gate = Signal()
        line_announced = Signal()
        instruction_ends = Signal()
        line_of_gate = Signal.like(self.written, reset_less=True)
        m.d.sync += line_of_gate.eq(gate.control.line + 1 + gate.control.wide)
        m.d.comb += [
            by_one.eq(one.valid & ~one.control.wide),
            by_two.eq(two.valid & two.control.wide & ~is_gate(two.control.function)),
            by_gate.eq(gate.valid if shared else self.finishes),
            line_announced.eq((by_one | by_two | by_gate) & (self.turn if shared else 1)),
            instruction_ends.eq(
                Mux(by_gate, gate.control.last, Mux(by_two, two.control.last, one.control.last))
            ),
        ]
        m.d.sync += [
            self.activate_writing.advance.eq(line_announced),
            self.activate_writing.advance_to.eq(
                Mux(by_gate, line_of_gate, Mux(by_two, lines[-1], self.written))
            ),
            self.activate_writing.retire.eq(line_announced & instruction_ends),
        ]
        if self._config.attention:
            message = "a partition ends while a line is announced"
            promised(m, platform, ~(self.entry_done & line_announced), message)
            with m.If(self.entry_done):
                m.d.sync += self.activate_writing.retire.eq(1)
