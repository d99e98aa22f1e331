# SPDX-License-Identifier: Apache-2.0
"""The delay from the issue of a vector to the cycle in which its value can be read."""

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from systola.arch.config import Config
from systola.hdl.activation.controls import VectorControl
from systola.hdl.activation.spacings import READ_SLACK, SCALED_LATENCY, SUM_LATENCY
from systola.hdl.parts.promise import at_most_one, promised


class IssuedVectors(wiring.Component):
    """A delay by which vectors of accumulators and of lines come a fixed time before their values.

    | port         | meaning |
    |---|---|
    | `issue`      | a vector is issued |
    | `vector`     | control of this vector |
    | `first_turn` | this is the first turn of a step, where columns take turns |
    | `made`       | the step of an `issue` READ_SLACK cycles ago was made, where columns take turns
                     |
    | `control`    | control of the vector that comes out |
    | `valid`      | a vector comes out, but no sum of a partition |
    | `partition`  | the sum of a partition comes out, with attention |

    A vector of accumulators comes out in the cycle of its `issue`. A vector of lines (`use_sum`)
    comes SUM_LATENCY cycles later, or SCALED_LATENCY cycles if its elements are scaled. The caller
    keeps the two kinds apart: no two vectors may come out in the same cycle. No back-pressure.

    Where columns take turns, an `issue` stays for all turns. The vector counts if `made` is high in
    the cycles after these turns. So all outputs come READ_SLACK cycles later.
    """

    def __init__(self, *, config: Config):
        self._shared = config.columns_per_lane > 1
        self._attention = config.attention
        layout = VectorControl(config=config)
        turns = {"first_turn": In(1), "made": In(1)} if self._shared else {}
        super().__init__(
            {
                **turns,
                "issue": In(1),
                "vector": In(layout),
                "control": Out(layout),
                "valid": Out(1),
                **({"partition": Out(1)} if config.attention else {}),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        depth = 1 << SCALED_LATENCY.bit_length()
        kept = m.submodules.kept = Memory(shape=self.vector.shape(), depth=depth, init=[])
        write = kept.write_port()
        read = kept.read_port(domain="comb")
        write_place = Signal(range(depth))
        sums_waiting = Signal(SUM_LATENCY)
        scaled_waiting = Signal(SCALED_LATENCY)
        sum_complete = Signal()
        issue, use_sum, is_scaled = self.issue, self.vector.use_sum, self.vector.scaled
        late: Value = Mux(scaled_waiting[-1], SCALED_LATENCY, SUM_LATENCY)
        unsummed: Value = self.vector
        if self._shared:
            stages: list[Value] = [Cat(issue, use_sum, is_scaled)]
            for cycle in range(READ_SLACK):
                stages.append(Signal(len(stages[0]), name=f"issue_{cycle}"))
                m.d.sync += stages[-1].eq(stages[-2])
            stays = self.first_turn | (stages[1][0] == issue)
            promised(m, platform, stays, "an issue is for the columns of all turns")
            issue, use_sum, is_scaled = stages[-1]
            issue &= self.made
            late = READ_SLACK + Mux(sum_complete, late, 0)
            unsummed = read.data
        row_comes, sum_comes = issue & ~use_sum, issue & use_sum & ~is_scaled
        completes = Cat(row_comes, sums_waiting[-1], scaled_waiting[-1])
        promised(m, platform, at_most_one(completes), "vectors get their values one by one")
        overtakes = (row_comes & (sums_waiting | scaled_waiting).any()) | (
            sum_comes & scaled_waiting[: SCALED_LATENCY - SUM_LATENCY].any()
        )
        promised(m, platform, ~overtakes, "vectors get their values in the order of their issue")
        m.d.sync += [
            write_place.eq(write_place + 1),
            sums_waiting.eq(Cat(issue & use_sum & ~is_scaled, sums_waiting)),
            scaled_waiting.eq(Cat(issue & use_sum & is_scaled, scaled_waiting)),
        ]
        comes = sum_complete | (issue & ~use_sum)
        if self._attention:
            m.d.comb += self.partition.eq(comes & self.control.partition)
            comes &= ~self.control.partition
        m.d.comb += [
            write.en.eq(1),
            write.addr.eq(write_place),
            write.data.eq(self.vector),
            read.addr.eq(write_place - late),
            sum_complete.eq(sums_waiting[-1] | scaled_waiting[-1]),
            self.control.eq(Mux(sum_complete, read.data, unsummed)),
            self.valid.eq(comes),
        ]
        return m
