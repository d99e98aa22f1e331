# SPDX-License-Identifier: Apache-2.0
"""The test of the vector planner and the vector feeder: lines that are read, and vectors.

The planner makes a plan to read a buffer line for a position in a feature map. The feeder makes the
vectors for the array from these lines. The tests cover packed channels, fill, and hold.
"""

from collections import deque

import cocotb
import pytest
from amaranth.hdl import Cat, Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from systola.hdl.commands import MatrixCommand, line_bits, matrix_walk
from systola.hdl.matrix.vector_feeder import FEED_LATENCY, VectorFeeder
from systola.hdl.matrix.vector_planner import VectorPlanner
from systola.hdl.ports import BUFFER_LATENCY
from systola.verif.units.matrix.feature_map import Vector, some_convolution
from systola.verif.units.unit import Bench, chosen_variant, rng, run_unit, small_config, variants

CONFIGS = {
    "4x6": small_config(cols=6, columns_per_stage=2),
    "5x3": small_config(rows=5, cols=3, columns_per_stage=3),
    "9x9": small_config(rows=9, cols=9, columns_per_stage=3, host_bus_bytes=16),
}
LINES = 64
COMMANDS = 60


class Feed(wiring.Component):
    """A unit for tests that has the planner and the feeder; a plan is issued a cycle after `go`.

    `issued`: a plan is issued. `reads`: the plan reads buffer line `line`. `makes`: the plan is the
    last for its vector.
    """

    def __init__(self, config):
        self._config = config
        super().__init__(
            {
                "command": In(MatrixCommand(config=config)),
                "position": In(matrix_walk(config).position),
                "row_starts": In(1),
                "row_ends": In(1),
                "place_valid": In(1),
                "place_ready": Out(1),
                "go": In(1),
                "issued": Out(1),
                "reads": Out(1),
                "line": Out(line_bits(config)),
                "makes": Out(1),
                "hold": In(1),
                "buffer_data": In(8 * config.line_bytes),
                "vector": Out(8 * config.rows),
            }
        )

    def elaborate(self, platform):
        m = Module()
        planner = m.submodules.planner = VectorPlanner(config=self._config)
        feeder = m.submodules.feeder = VectorFeeder(config=self._config)
        plan = planner.plan.payload
        m.d.sync += planner.plan.ready.eq(self.go)
        m.d.comb += [
            planner.command.eq(self.command),
            planner.places.payload.eq(Cat(self.position, self.row_starts, self.row_ends)),
            planner.places.valid.eq(self.place_valid),
            self.place_ready.eq(planner.places.ready),
            planner.frees.eq(self.go),
            self.issued.eq(planner.plan.valid & planner.plan.ready),
            self.reads.eq(plan.reads),
            self.line.eq(plan.line),
            self.makes.eq(plan.vector),
            feeder.issue.eq(self.issued),
            feeder.event.eq(plan.feed),
            feeder.hold.eq(self.hold),
            feeder.buffer_data.eq(self.buffer_data),
            self.vector.eq(feeder.vector),
        ]
        return m


def unit(variant=None):
    return Feed(CONFIGS[variant or chosen_variant()])


class Feeder(Bench):
    """A bench of planner and feeder with a buffer.

    Lines are valid for one cycle, BUFFER_LATENCY cycles after they were requested.
    """

    def __init__(self, dut, name):
        super().__init__(dut, unit())
        self.config = CONFIGS[chosen_variant()]
        self.random = rng("vector_feeder", name, chosen_variant())
        self.lines = [
            [self.random.randint(-128, 127) for _ in range(self.config.line_bytes)]
            for _ in range(LINES)
        ]
        self.planned = deque()
        self.primed = False
        self.in_buffer = deque([None] * BUFFER_LATENCY)
        self.on_the_way = deque([None] * (FEED_LATENCY - BUFFER_LATENCY))
        # A hold stops `go` at once. The feeder has its input `hold` later, when the line would come
        # that was held up.
        self.holds = deque([False] * (1 + BUFFER_LATENCY))
        self.arriving = deque([0] * BUFFER_LATENCY)
        self.made = 0

    def noise(self, bits):
        return self.random.getrandbits(bits)

    async def step(self, vector=None, *, go=True, hold=False):
        """Run one cycle that offers the position of `vector`, or no position.

        Returns whether the planner has taken the position.
        """
        if vector is None:
            self.set(
                position=self.noise(matrix_walk(self.config).position.size),
                row_starts=self.noise(1),
                row_ends=self.noise(1),
            )
        else:
            self.set(
                position={"line": vector.base, "y": vector.y, "x": vector.x},
                row_starts=vector.starts,
                row_ends=vector.ends,
            )
        self.holds.append(hold)
        held = self.holds.popleft()
        await self.cycle(
            place_valid=vector is not None,
            go=go and not hold,
            buffer_data=self.arriving.popleft(),
            hold=held,
        )
        expected = self.on_the_way[0]
        if expected is not None:
            raw = self.get("vector").to_bytes(self.config.rows, "little")
            assert raw == bytes(value % 256 for value in expected.values), expected
        issued = self.check_plan() if self.get("issued") else None
        arriving = self.noise(8 * self.config.line_bytes)
        if self.get("issued") and self.get("reads") and self.get("line") < LINES:
            data = bytes(value % 256 for value in self.lines[self.get("line")])
            arriving = int.from_bytes(data, "little")
        self.arriving.append(arriving)
        self.in_buffer.append(issued)
        arrived = self.in_buffer.popleft()
        assert not (held and arrived)
        if not held:
            self.made += self.on_the_way.popleft() is not None
            self.on_the_way.append(arrived)
        taken = vector is not None and self.get("place_ready")
        if taken:
            self.planned.append(vector)
        return taken

    def check_plan(self):
        """Check that the issued plan reads the right line for the oldest planned vector.

        Returns this vector, or None if the vector needs another plan.
        """
        vector = self.planned[0]
        primes = vector.missing is not None and not self.primed
        self.expect("makes", not primes, vector)
        line = vector.missing if primes else vector.line
        if primes or not vector.optional:
            self.expect("reads", line is not None, vector)
        if line is not None and self.get("reads"):
            self.expect("line", line, vector)
        self.primed = primes
        return None if primes else self.planned.popleft()

    async def feed(self, command, vectors, *, go=1.0, hold=0.0):
        """Feed the vectors of one command in order.

        `go` is the chance that a plan may be issued in a cycle, `hold` the chance of a hold.
        """
        self.set(command=command)
        for vector in vectors:
            taken = False
            while not taken:
                held = self.random.random() < hold
                taken = await self.step(vector, go=self.random.random() < go, hold=held)
        self.set(command=self.noise(MatrixCommand(config=self.config).size))

    async def drain(self):
        for _ in range(FEED_LATENCY + 3):
            await self.step()
        assert not self.planned and not any(self.in_buffer) and not any(self.on_the_way)


@cocotb.test
@cocotb.parametrize(
    (("packed", "go", "hold"), [(p, *r) for p in (0, 1) for r in ((1.0, 0), (0.6, 0), (0.7, 0.4))])
)
async def windows(dut, packed, go, hold):
    """Check vectors of random windows; commands follow one another at once or some cycles later."""
    bench = Feeder(dut, f"windows {packed} {go} {hold}")
    await bench.start()
    expected = 0
    for _ in range(COMMANDS):
        convolution = some_convolution(
            bench.random, rows=bench.config.rows, lines=LINES, packed=packed, vectors=16
        )
        vectors = [
            vector
            for step in list(convolution.steps())[:4]
            for vector in convolution.vectors(bench.lines, *step)
        ]
        await bench.feed(convolution.command(), vectors, go=go, hold=hold)
        expected += len(vectors)
        if bench.random.random() < 0.3:
            await bench.step(hold=bench.random.random() < hold)
    await bench.drain()
    assert bench.made == expected


@cocotb.test
async def lines_of_a_matrix(dut):
    """Check that a MatrixMultiply, a command without bounds, makes each vector of the given line.

    The row and the column of a position do not matter.
    """
    bench = Feeder(dut, "matrix")
    await bench.start()
    vectors = []
    for _ in range(300):
        line = bench.random.randrange(LINES)
        y, x = (bench.random.randint(-256, 255) for _ in range(2))
        values = tuple(bench.lines[line][: bench.config.rows])
        starts, ends = (bool(bench.random.getrandbits(1)) for _ in range(2))
        vectors.append(
            Vector(
                values=values,
                line=line,
                missing=None,
                y=y,
                x=x,
                base=line,
                starts=starts,
                ends=ends,
            )
        )
    sizes = {"height": 3, "width": 2, "fill": -77, "byte": 2, "byte_step": 3}
    await bench.feed(sizes, vectors, go=0.8, hold=0.3)
    await bench.drain()
    assert bench.made == len(vectors)


@cocotb.test
async def long_rows(dut):
    """Check packed rows that are many lines long, with vectors beyond the last byte of a row."""
    bench = Feeder(dut, "long")
    await bench.start()
    rows = bench.config.rows
    for step in (rows, rows - 1, 1):
        for _ in range(2):
            length = bench.random.randint((LINES - 2) * rows, (LINES - 1) * rows)
            count = length // step + 2
            first = bench.random.randint(-rows, rows - 1)
            vectors = []
            for q in range(count):
                x = first + q * step
                row = [value for line in bench.lines for value in line[:rows]]
                values = tuple(row[t] if 0 <= t < length else 99 for t in range(x, x + rows))
                vectors.append(
                    Vector(
                        values=values,
                        line=x // rows + 1 if q == 0 or x % rows < step else None,
                        missing=0 if q == 0 and x >= 0 else None,
                        y=0,
                        x=x,
                        base=first // rows + 1,
                        starts=q == 0,
                        ends=q == count - 1,
                        optional=(x // rows + 1) * rows >= length,
                    )
                )
            command = {"bounded": 1, "packed": 1, "height": 1, "width": length, "fill": 99}
            command |= {"byte": first % rows, "byte_step": step}
            await bench.feed(command, vectors)
    await bench.drain()


@pytest.mark.parametrize(("simulator", "variant"), variants(*CONFIGS))
def test_vector_feeder(simulator, variant):
    assert FEED_LATENCY == 4
    run_unit("test_vector_feeder", simulator, unit(variant), variant=variant)
