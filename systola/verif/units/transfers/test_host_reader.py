# SPDX-License-Identifier: Apache-2.0
"""The test of the host reader: reads from host memory into buffer, parameters and tables.

An instruction has two commands: a transfer for the reads, and an entry for the writes. The region
of an instruction is the range of addresses that it fills.
"""

import itertools

import cocotb
import pytest

from systola.hdl.commands import Kind, parameter_space, table_space
from systola.hdl.transfers.host_reader import HostReader
from systola.verif.units.unit import Bench, chosen_variant, rng, run_unit, small_config, variants

CONFIGS = {
    "6 on 4": small_config(rows=6, cols=4, max_burst_beats=4),
    "5 on 8": small_config(rows=5, cols=20, host_bus_bytes=8, max_burst_beats=16),
    "4 on 16": small_config(host_bus_bytes=16, max_burst_beats=1),
}
PAGE = 4096
PLANES = 9


def unit(variant=None):
    return HostReader(config=CONFIGS[variant or chosen_variant()])


def up(value, multiple):
    return -(-value // multiple) * multiple


class Reader(Bench):
    """A bench of the host reader with a memory that answers in order, and a record of all its
    writes.
    """

    def __init__(self, dut, name, *, ask=1.0, answer=1.0, write=1.0):
        super().__init__(dut, unit())
        self.config = config = CONFIGS[chosen_variant()]
        self.bus = config.host_bus_bytes
        self.input_pitch = up(config.rows, self.bus)
        self.output_pitch = up(config.cols, self.bus)
        self.random = rng("host_reader", name, chosen_variant())
        self.rates = ask, answer, write
        self.memory = self.random.randbytes(8 * PAGE)
        self.transfers = []
        self.begun = False
        self.entries = []
        self.under_way = 0
        self.beats = []
        self.offered = None
        self.last_taken = None
        self.writes = []
        self.written = []
        self.advances = []
        self.errors = []
        self.wanted = 0
        self.done = []
        self.taken = []
        self.bad = set()
        self.now = 0

    def copy(self, *, host, buffer, rows, blocks, stride, tail, alternate=False):
        """Make a Read_Host_Memory, which stores block by block, or row by row with `alternate`.

        Returns transfer, entry, region, and the expected writes.
        """
        pitch, longest = self.input_pitch, max(self.config.rows, self.config.cols)
        lines = {}
        for block, row in itertools.product(range(blocks), range(rows)):
            start = host + row * stride + block * pitch
            size = tail if block == blocks - 1 else self.config.rows
            line = self.memory[start : start + size].ljust(longest, b"\0")
            lines[buffer + (row * blocks + block if alternate else block * rows + row)] = line
        end = buffer + rows * blocks
        # Rows that are contiguous in memory are one run.
        run = rows * blocks
        if rows > 1 and not (stride == blocks * pitch and (alternate or blocks == 1)):
            run = blocks if alternate else 1
        transfer = {
            "address": host,
            "beats": run * pitch // self.bus,
            "rows": 1 if run == rows * blocks else rows,
            "stride": stride,
            "blocks": 1 if run >= blocks else blocks,
        }
        # If the field `every` of a tail is set, the field `line` has no meaning.
        place = self.random.randint(buffer, end) if alternate else end - rows
        spacing = blocks if alternate else 0
        entry = {
            "kind": Kind.BUFFER,
            "tail": {"line": place, "every": spacing, "bytes": tail},
        }
        return transfer, entry, (buffer, end), [("buffer", n, lines[n]) for n in sorted(lines)]

    def parameters(self, *, host, parameter, count):
        """Make a Load_Parameters: transfer, entry, region, and the expected writes."""
        writes = []
        for number in range(count * PLANES):
            start = host + number * self.output_pitch
            plane = self.memory[start : start + self.config.cols]
            writes.append((f"plane {number % PLANES}", parameter + number // PLANES, plane))
        beats = count * PLANES * self.output_pitch // self.bus
        first = parameter_space(self.config) + parameter
        transfer = {"address": host, "beats": beats, "rows": 1, "stride": 0, "blocks": 1}
        return transfer, {"kind": Kind.PARAMETERS}, (first, first + count), writes

    def table(self, *, host, table):
        """Make a Load_Table: transfer, entry, region, and the expected writes."""
        data = self.memory[host : host + 256]
        writes = [("table", table * 256 + i, bytes([value])) for i, value in enumerate(data)]
        beats = 256 // self.bus
        transfer = {"address": host, "beats": beats, "rows": 1, "stride": 0, "blocks": 1}
        first = table_space(self.config) + table
        return transfer, {"kind": Kind.TABLE}, (first, first + 1), writes

    def some(self):
        """Make a random copy or load: transfer, entry, region, and the expected writes."""
        random = self.random
        kind = random.choice(("copy", "copy", "copy", "parameters", "table"))
        host = random.randrange(PAGE // self.bus) * self.bus
        if kind == "table":
            return self.table(host=host, table=random.randrange(self.config.tables))
        if kind == "parameters":
            count = random.randint(1, 3)
            place = random.randint(0, self.config.parameter_entries - count)
            return self.parameters(host=host, parameter=place, count=count)
        rows, blocks = random.choice((1, 2, 5)), random.choice((1, 2, 3))
        return self.copy(
            host=host,
            buffer=random.randint(0, self.config.buffer_lines - rows * blocks),
            rows=rows,
            blocks=blocks,
            stride=random.choice(
                (self.input_pitch, blocks * self.input_pitch, random.randrange(20) * self.bus)
            ),
            tail=random.randint(1, self.config.rows),
            alternate=random.random() < 0.5,
        )

    def issue(self, instruction):
        """Put an instruction into both queues of the host reader, as the scoreboard does."""
        transfer, entry, (base, end), _ = instruction
        self.transfers.append(transfer)
        noise = {"line": 0, "every": self.random.getrandbits(2), "bytes": 1}
        filled = {"destination": base, "last": end - 1}
        self.entries.append({"tail": noise, **entry, **filled})
        self.under_way += 1

    async def step(self, blocked=False):
        """Run one cycle of the unit's neighbours, and record the unit's outputs.

        `blocked` holds up the oldest transfer, unless this transfer was free in an earlier cycle.
        """
        ask, answer, write = (self.random.random() < rate for rate in self.rates)
        if self.transfers and not self.begun and not blocked:
            head = self.transfers[0]
            self.begun = True
            self.wanted += head["beats"] * head["rows"] * head["blocks"]
        if self.offered is None and self.beats and answer:
            self.offered = self.beats.pop(0)
        inputs = {"transfers__unblocked": self.begun}
        if self.transfers:
            inputs["transfers__command"] = self.transfers[0]
        if self.entries:
            inputs["entries__command"] = self.entries[0]
        inputs |= {"request__ready": ask, "buffer__ready": write}
        inputs["beat__valid"] = self.offered is not None
        if self.offered is not None:
            start = self.offered
            data = int.from_bytes(self.memory[start : start + self.bus], "little")
            inputs["beat__payload"] = {"data": data, "error": start in self.bad}
        await self.cycle(**inputs)

        if self.get("request__valid"):
            request = self.get("request__payload")
            start, beats = request.offset, request.length + 1
            assert beats <= self.wanted, "asks for a blocked transfer"
            if ask:
                self.wanted -= beats
                assert beats <= self.config.max_burst_beats
                assert start // PAGE == (start + beats * self.bus - 1) // PAGE
                self.beats += range(start, start + beats * self.bus, self.bus)
        if self.get("transfers__pop"):
            self.transfers.pop(0)
            self.begun = False
        taken = self.offered is not None and self.get("beat__ready")
        if taken:
            self.taken.append(self.now)
        if self.get("error"):
            assert self.last_taken is not None
            self.errors.append(self.last_taken)
        self.last_taken = self.offered if taken else None
        if taken:
            self.offered = None
        self._observe_writes(write)
        if self.get("host_reading__advance"):
            self.advances.append(self.get("host_reading__advance_to"))
        if self.get("entries__pop"):
            self.entries.pop(0)
        if self.get("host_reading__retire"):
            self.done.append(self.now)
            self.under_way -= 1
        self.now += 1

    def _observe_writes(self, ready):
        if self.get("buffer__enable") and ready:
            size = self.config.line_bytes
            data = self.get("buffer__data").to_bytes(size, "little")
            self.writes.append(("buffer", self.get("buffer__address"), data))
        planes = self.get("parameters__planes")
        if planes:
            data = self.get("parameters__data").to_bytes(self.config.cols, "little")
            assert planes & (planes - 1) == 0
            name = f"plane {planes.bit_length() - 1}"
            self.writes.append((name, self.get("parameters__address"), data))
        if self.get("tables__enable"):
            data = bytes([self.get("tables__data")])
            self.writes.append(("table", self.get("tables__address"), data))
        self.written += [(self.now, write[0]) for write in self.writes[len(self.written) :]]

    async def finish(self, instructions, limit=20000):
        """Run until all issued instructions are done, and check all records."""
        for _ in range(limit):
            if not self.under_way:
                break
            await self.step(self.random.random() > self.rates[0])
        assert not self.entries and not self.beats and not self.transfers and not self.wanted
        # Writes to tables do not wait for the buffer, so they may come before earlier writes.
        expected = [write for i in instructions for write in i[3]]
        for tables in (False, True):
            seen, wanted = (
                [write for write in writes if (write[0] == "table") == tables]
                for writes in (self.writes, expected)
            )
            assert seen == wanted
        advances = []
        for _, entry, (base, end), _ in instructions:
            if entry["kind"] != Kind.TABLE:
                advances += range(base + 1, end + 1)
        assert self.advances == advances
        assert len(self.done) == len(instructions)


@cocotb.test
@cocotb.parametrize(
    (
        ("ask", "answer", "write"),
        [(1, 1, 1), (0.5, 0.5, 0.5), (1, 1, 0.3), (1, 0.3, 1), (0.2, 1, 1)],
    )
)
async def random_reads(dut, ask, answer, write):
    bench = Reader(dut, f"{ask} {answer} {write}", ask=ask, answer=answer, write=write)
    await bench.start()
    instructions = [bench.some() for _ in range(30)]
    for instruction in instructions:
        bench.issue(instruction)
    await bench.finish(instructions)


@cocotb.test
async def full_rate(dut):
    """Check that the unit takes a beat in every cycle, and loses one cycle between instructions."""
    bench = Reader(dut, "rate")
    await bench.start()
    pitch = bench.input_pitch
    lines = [
        bench.copy(host=0, buffer=b, rows=9, blocks=1, stride=pitch, tail=bench.config.rows)
        for b in (0, 20, 11)
    ]
    for instruction in lines:
        bench.issue(instruction)
    await bench.finish(lines)
    beats = 9 * pitch // bench.bus
    starts = [bench.taken[0] + i * (beats + 1) for i in range(3)]
    assert bench.taken == [start + i for start in starts for i in range(beats)]


@cocotb.test
async def parameters_and_tables_at_full_rate(dut):
    """Check the rates of loads: a beat a cycle into parameters, and a byte a cycle into tables."""
    bench = Reader(dut, "parameters")
    await bench.start()
    bench.issue(entries := bench.parameters(host=0, parameter=2, count=3))
    bench.issue(table := bench.table(host=64, table=1))
    await bench.finish([entries, table])
    beats = 3 * PLANES * bench.output_pitch // bench.bus
    first = bench.taken[0]
    assert bench.taken[:beats] == list(range(first, first + beats))
    assert bench.done[0] == first + beats + 3
    byte = bench.bus
    first = bench.taken[beats]
    assert bench.taken[beats:] == list(range(first, first + 256, byte))
    assert bench.done[1] == first + 256 + 3
    assert [cycle for cycle, kind in bench.written if kind == "table"] == list(
        range(first + 2, first + 258)
    )


@cocotb.test
async def tails_of_rows(dut):
    """Check that copies that store row by row (alternate) shorten the last line of each row.

    Such copies come first, after other copies, and after a load of parameters.
    """
    bench = Reader(dut, "tails")
    await bench.start()
    shape = {"host": 0, "stride": 40 * bench.bus, "tail": 1}
    instructions = [
        bench.copy(**shape, buffer=3, rows=4, blocks=3, alternate=True),
        bench.copy(**shape, buffer=9, rows=5, blocks=1),
        bench.copy(**shape, buffer=0, rows=2, blocks=2, alternate=True),
        bench.parameters(host=0, parameter=1, count=1),
        bench.copy(**shape, buffer=7, rows=3, blocks=1, alternate=True),
        bench.copy(**shape, buffer=5, rows=1, blocks=4, alternate=True),
    ]
    for instruction in instructions:
        bench.issue(instruction)
    await bench.finish(instructions)


@cocotb.test
async def errors(dut):
    """Check that an error is reported a cycle after its beat is taken, and the copy goes on."""
    bench = Reader(dut, "errors", answer=0.7, write=0.6)
    await bench.start()
    instruction = bench.copy(host=0, buffer=0, rows=6, blocks=2, stride=2 * PAGE // 4, tail=1)
    bench.bad = {2 * PAGE // 4, bench.input_pitch}
    bench.issue(instruction)
    await bench.finish([instruction])
    assert set(bench.errors) == bench.bad and len(bench.errors) == 2


@pytest.mark.parametrize(("simulator", "variant"), variants(*CONFIGS))
def test_host_reader(simulator, variant):
    run_unit("test_host_reader", simulator, unit(variant), variant=variant)
