# SPDX-License-Identifier: Apache-2.0
"""The activation unit between accumulators, buffer and golden model."""

from __future__ import annotations

import itertools
import random
from collections import deque
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
from amaranth.hdl import Module
from amaranth.lib import wiring

from systola.arch.config import Config
from systola.arch.isa import (
    GATES,
    INVERSE_ROOT,
    PARAMETER_PLANES,
    TANH_INTEGER_BITS,
    Function,
    Opcode,
    Operation,
    Reduction,
)
from systola.golden.machine import Machine
from systola.hdl.activation.activation_unit import ActivationUnit
from systola.hdl.commands import Source, line_bits, parameter_space, table_space
from systola.hdl.memories.accumulators import READ_LATENCY as ROW_LATENCY
from systola.hdl.ports import BUFFER_LATENCY as LINE_LATENCY
from systola.verif.units.list_model import Entries, Entry
from systola.verif.units.unit import Bench
from systola.verif.units.walks import walk_of

Fields = dict[str, int]

LATENCY = 16
"""Cycles from the issue of an accumulator row to the write of its line."""
SUM_LATENCY = 4
"""Cycles that a vector of buffer lines takes longer."""
SCALED_LATENCY = 10
"""Cycles that a sum of scaled operands takes longer."""
FRONT_LATENCY = 5
"""Cycles from a command to its first read."""
ANNOUNCED = 2
"""Cycles from the announcement of a line to its write."""
OLDER = ("matrix_summing", "matrix_reading", "host_writing", "host_reading", "loading")
"""Lists of older instructions in other units."""
AFRESH = 7
"""Cycles from the last step of an instruction to the first one of the second behind it, if the one
between is short: its command must first make room."""
READERS = (Opcode.DEPTHWISE, Opcode.POOL, Opcode.VECTOR)


class Job(NamedTuple):
    """An instruction with the window and the scale that it finds."""

    opcode: Opcode
    fields: Fields
    window: Fields
    scale: Fields

    @property
    def wide(self) -> bool:
        return bool(self.fields.get("wide", 0))

    @property
    def accumulates(self) -> bool:
        return bool(self.fields.get("accumulate", 0))

    @property
    def is_gate(self) -> bool:
        return self.fields.get("function") in GATES

    @property
    def looks_up(self) -> bool:
        return self.fields.get("function") == Function.TABLE

    @property
    def is_scaled(self) -> bool:
        return self.fields.get("operation") in (Operation.ADD, Operation.SUBTRACT)

    def is_halved(self, operand: str) -> bool:
        """Whether an operand of int8 is scaled by one half."""
        scale = self.scale[f"multiplier_{operand}"], self.scale[f"shift_{operand}"]
        return scale == (1 << 30, 0) and not self.fields["wide_operands"]

    @property
    def taps(self) -> int:
        return self.window["kernel_height"] * self.window["kernel_width"]

    @property
    def blocks(self) -> int:
        return self.fields.get("blocks", self.fields.get("n_tiles", 1))

    @property
    def vectors(self) -> int:
        """Results of each block."""
        if "rows" in self.fields:
            return self.fields["rows"]
        return self.window["out_height"] * self.window["out_width"]

    @property
    def destination(self) -> int:
        return self.fields["buffer" if self.opcode == Opcode.ACTIVATE else "destination"]

    def reads(self) -> set[int]:
        """Buffer lines that the instruction reads, or might, but for `operands`."""
        f, found = self.fields, set[int]()
        if self.opcode in (Opcode.DEPTHWISE, Opcode.POOL):
            size = self.blocks * self.window["height"] * self.window["pitch"]
            found |= set(range(f["buffer"], f["buffer"] + size))
        if self.opcode == Opcode.VECTOR:
            size = f["rows"] * (1 + f["wide_operands"])
            found |= set(range(f["buffer"], f["buffer"] + size))
        if self.accumulates:
            found |= set(self.writes())
        return found

    def operands(self) -> set[int]:
        """Buffer lines of taps and of operand b."""
        f = self.fields
        if self.opcode == Opcode.DEPTHWISE:
            return set(range(f["taps"], f["taps"] + self.blocks * self.taps))
        if self.opcode == Opcode.VECTOR and f["operation"] != Operation.COPY:
            size = f["rows"] * (1 + f["wide_operands"])
            return set(range(f["operand"], f["operand"] + size))
        return set()

    def writes(self) -> list[int]:
        """Buffer lines in the order in which they are written."""
        count = self.blocks * self.vectors * (1 + self.wide)
        return list(range(self.destination, self.destination + count))

    def windows(self) -> list[tuple[int, int]]:
        """Of each vector its block, and how many taps of its window are inside the map."""
        w = self.window
        if self.opcode not in (Opcode.DEPTHWISE, Opcode.POOL):
            return [(b, 0) for b in range(self.blocks) for _ in range(self.vectors)]
        found = []
        for b, p, q in itertools.product(
            range(self.blocks), range(w["out_height"]), range(w["out_width"])
        ):
            inside = sum(
                0 <= w["top"] + p * w["stride_y"] + i * w["dilation_y"] < w["height"]
                and 0 <= w["left"] + q * w["stride_x"] + j * w["dilation_x"] < w["width"]
                for i in range(w["kernel_height"])
                for j in range(w["kernel_width"])
            )
            found.append((b, inside))
        return found

    def entries(self) -> list[int]:
        """The parameter entry of each vector."""
        first = self.fields["parameter"]
        if self.opcode in (Opcode.ACTIVATE, Opcode.DEPTHWISE):
            return [first + b for b, _ in self.windows()]
        if self.opcode == Opcode.POOL and self.fields["reduction"] == Reduction.AVERAGE:
            return [first + max(t, 1) - 1 for _, t in self.windows()]
        return [first] * (self.blocks * self.vectors)

    def steps(self) -> list[int]:
        """Cycles of each vector: lines read or accumulator rows issued, one tap or line a cycle."""
        halves = 1 + self.fields.get("wide_operands", 0)
        each = {
            Opcode.ACTIVATE: 1,
            Opcode.DEPTHWISE: self.taps,
            Opcode.POOL: self.taps,
            Opcode.VECTOR: halves
            * (1 if self.fields.get("operation") in (None, Operation.COPY) else 2),
        }[self.opcode]
        found = [each + 2 * self.accumulates] * (self.blocks * self.vectors)
        if self.opcode == Opcode.DEPTHWISE:
            for block in range(self.blocks):
                found[block * self.vectors] += self.taps
        return found

    def command(self, config: Config) -> dict[str, Any]:
        """The value of the port `command`."""
        f, w = self.fields, self.window
        function = Function(f.get("function", Function.NONE))
        found: dict[str, Any] = {
            "source": {
                Opcode.ACTIVATE: Source.ACCUMULATORS,
                Opcode.DEPTHWISE: Source.DEPTHWISE,
                Opcode.POOL: Source.POOL,
                Opcode.VECTOR: Source.VECTOR,
            }[self.opcode],
            "destination": self.destination,
            "parameter": f["parameter"],
            "rounding": f["rounding"],
            "zero_point": f["zero_point"],
            "wide": f.get("wide", 0),
            "accumulate": f.get("accumulate", 0),
            "low": -128,
            "high": 127,
            "table": f.get("table", 0),
        }
        if function in (Function.RELU, Function.RELU6):
            found["low"] = f["zero_point"]
        if self.opcode in (Opcode.ACTIVATE, Opcode.VECTOR):
            found["function"] = int(function)
        if function == Function.RELU6:
            found["high"] = (self.scale if self.opcode == Opcode.VECTOR else f)["ceiling"]
        if self.wide:
            found |= {"low": -(1 << 15), "high": (1 << 15) - 1}
            limit = self.scale["limit"]
            if self.opcode == Opcode.VECTOR and function == Function.NONE and limit:
                found |= {"low": -limit, "high": limit}
        if self.opcode == Opcode.ACTIVATE:
            count = {"kx": 1, "ky": 1, "ox": f["rows"], "oy": 1, "block": f["n_tiles"]}
            return found | {
                "walk": walk_of(count=count),
                "accumulator": f["accumulator"],
                "by_block": 1,
            }
        if self.opcode == Opcode.VECTOR:
            halves = 1 + f["wide_operands"]
            names = ("multiplier_a", "shift_a", "multiplier_b", "shift_b", "zero_a", "zero_b")
            return found | {
                "walk": walk_of(
                    start={"line": f["buffer"]},
                    count={"kx": halves, "ky": 1, "ox": f["rows"], "oy": 1, "block": 1},
                    step={"kx": {"line": 1}, "ox": {"line": halves}},
                ),
                "operand": f["operand"],
                "operation": Operation(f["operation"]),
                "wide_operands": f["wide_operands"],
                "scale": {name: self.scale[name] for name in names},
            }
        pitch = w["pitch"]
        found |= {
            "walk": walk_of(
                start={
                    "line": (f["buffer"] + w["top"] * pitch + w["left"]) % (1 << line_bits(config)),
                    "y": w["top"],
                    "x": w["left"],
                },
                count={
                    "kx": w["kernel_width"],
                    "ky": w["kernel_height"],
                    "ox": w["out_width"],
                    "oy": w["out_height"],
                    "block": f["blocks"],
                },
                step={
                    "kx": {"line": w["dilation_x"], "x": w["dilation_x"]},
                    "ky": {"line": w["dilation_y"] * pitch, "y": w["dilation_y"]},
                    "ox": {"line": w["stride_x"], "x": w["stride_x"]},
                    "oy": {"line": w["stride_y"] * pitch, "y": w["stride_y"]},
                    "block": {"line": w["height"] * pitch},
                },
            ),
            "height": w["height"],
            "width": w["width"],
        }
        if self.opcode == Opcode.DEPTHWISE:
            return found | {
                "operand": f["taps"],
                "taps": self.taps,
                "fill": f["fill"],
                "by_block": 1,
            }
        return found | {
            "maximum": int(f["reduction"] == Reduction.MAX),
            "by_taps": int(f["reduction"] == Reduction.AVERAGE),
            "low": f["floor"],
            "high": f["ceiling"],
        }


class Unit(wiring.Component):
    """The unit, with the end of its own instructions wired as in the core."""

    def __init__(self, *, config: Config):
        self._unit = ActivationUnit(config=config)
        super().__init__(self._unit.signature)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.unit = unit = self._unit
        inner, outer = (part.signature.flatten(part) for part in (unit, self))
        for (_, member, its), (_, _, mine) in zip(inner, outer, strict=True):
            m.d.comb += its.eq(mine) if member.flow is wiring.In else mine.eq(its)
        for mask in ("activate_writing", "operand_writing"):
            m.d.comb += unit.progress[mask].retires.eq(unit.write_done)
        return m


@dataclass
class Run:
    """How a job goes: the cycles of each vector's steps, which of the lines written is its first,
    and whether it has to wait for older ones."""

    job: Job
    first: int
    hindered: bool
    offered: int
    awaits: set[int]
    """Numbers of the entries that its masks name."""
    writers: list[set[int]]
    """Of those of the unit itself the ones that write its lines, and the ones of its operands."""
    steps: list[list[int]] = field(default_factory=lambda: [[]])
    entries: list[int] = field(default_factory=list[int])
    counts: list[int] = field(default_factory=list[int])

    @property
    def over(self) -> bool:
        """Whether all steps are taken."""
        return len(self.steps) > len(self.counts)


class _Before(NamedTuple):
    """The lists as they were in a cycle, and which row and line were read then."""

    lists: dict[str, list[Entry]]
    row: int | None
    line: int | None


class Jobs:
    """Random instructions that break no rule of a configuration."""

    def __init__(self, chance: random.Random, config: Config):
        self.random = chance
        self.config = config
        self.opcodes = [Opcode.ACTIVATE, Opcode.POOL, Opcode.VECTOR]
        self.opcodes += [Opcode.DEPTHWISE] * config.depthwise

    def some(self) -> Job:
        """Any instruction."""
        return self.of(self.random.choice(self.opcodes))

    def of(self, opcode: Opcode, **given: Any) -> Job:
        """An instruction with some operands, or `window` or `scale`, given."""
        random = self.random
        window = given.pop("window", None) or self.window(opcode)
        scale = given.pop("scale", None) or self.scale()
        fields: Fields = {
            "rounding": random.getrandbits(1),
            "zero_point": random.choice((-128, 127, random.randint(-20, 20))),
        }
        fields |= given
        if opcode in (Opcode.ACTIVATE, Opcode.VECTOR):
            self._function(fields)
        if opcode == Opcode.ACTIVATE:
            self._activate(fields)
        elif opcode == Opcode.VECTOR:
            self._vector(fields)
        else:
            self._windowed(opcode, fields, window)
        return Job(opcode, fields, window, scale)

    def window(self, opcode: Opcode) -> Fields:
        """A window over a small map, with padding on any side."""
        random = self.random
        width = random.randint(1, 5)
        kernel = random.choice([(1, 1), (2, 2), (3, 3), (1, 3), (3, 1)])
        if opcode == Opcode.DEPTHWISE and random.random() < 0.1:
            kernel = 8, 8
        return {
            "height": random.randint(1, 5),
            "width": width,
            "pitch": width + random.choice((0, 0, 2)),
            "kernel_height": kernel[0],
            "kernel_width": kernel[1],
            "stride_y": random.randint(1, 2),
            "stride_x": random.randint(1, 2),
            "dilation_y": random.randint(1, 2),
            "dilation_x": random.randint(1, 2),
            "top": random.randint(-3, 1),
            "left": random.randint(-3, 1),
            "out_height": random.randint(1, 3),
            "out_width": random.randint(1, 3),
        }

    def scale(self) -> Fields:
        """Any scale; shifts and multipliers mostly such that something is left of a sum."""
        random = self.random
        half = {}
        for operand in "ab":
            if random.random() < 0.3:
                half |= {f"multiplier_{operand}": 1 << 30, f"shift_{operand}": 0}
        return {
            "multiplier_a": random.choice((0, (1 << 31) - 1, random.getrandbits(31))),
            "shift_a": random.choice((0, 1, 31, random.randint(0, 12))),
            "multiplier_b": random.getrandbits(31),
            "shift_b": random.randint(0, 12),
            "zero_a": random.choice((-128, 127, random.randint(-128, 127))),
            "zero_b": random.randint(-128, 127),
            "ceiling": random.randint(-128, 127),
            "limit": random.choice((0, 0, 32767, random.randint(1, 9000))),
            **half,
        }

    def _function(self, f: Fields) -> None:
        random, config = self.random, self.config
        f.setdefault("wide", random.getrandbits(1) if config.wide else 0)
        f.setdefault("accumulate", random.getrandbits(1) if f["wide"] else 0)
        f.setdefault("exponent", 0)
        functions = [Function.NONE, *GATES] if f["wide"] else [Function(i) for i in range(3)]
        if not config.training:
            functions = [function for function in functions if function != Function.EXP]
        if config.tables and not f["wide"]:
            functions.append(Function.TABLE)
        f.setdefault("function", random.choice(functions))
        most = INVERSE_ROOT if f["function"] == Function.EXP else TANH_INTEGER_BITS
        if f["function"] == Function.TABLE:
            most = config.tables - 1
        f.setdefault("table", random.randint(0, most))
        few = (1, 2) if f["function"] in GATES else (1, 2, 7)
        f.setdefault("rows", random.choice(few))

    def _activate(self, f: Fields) -> None:
        random, config = self.random, self.config
        f.setdefault("n_tiles", random.choice((1, 1, 2, 3)))
        count = f["rows"] * f["n_tiles"]
        f.setdefault("accumulator", random.randint(0, config.accumulator_rows - count))
        (place,) = self._apart(count * (1 + f["wide"]))
        f.setdefault("buffer", place)
        f.setdefault("parameter", random.randint(0, config.parameter_entries - f["n_tiles"]))
        f.setdefault("ceiling", random.randint(-128, 127))
        f.setdefault("stochastic", 0)

    def _vector(self, f: Fields) -> None:
        random, config = self.random, self.config
        f.setdefault("operation", int(random.choice(list(Operation))))
        f.setdefault("wide_operands", random.getrandbits(1) if config.wide else 0)
        size = f["rows"] * (1 + f["wide_operands"])
        buffer, operand, destination = self._apart(size, size, f["rows"] * (1 + f["wide"]))
        if f["wide"] == f["wide_operands"] and random.random() < 0.3:
            destination = random.choice((buffer, operand))
        f.setdefault("buffer", buffer)
        f.setdefault("operand", buffer if random.random() < 0.1 else operand)
        f.setdefault("destination", destination)
        f.setdefault("parameter", random.randrange(config.parameter_entries))

    def _windowed(self, opcode: Opcode, f: Fields, window: Fields) -> None:
        random = self.random
        taps = window["kernel_height"] * window["kernel_width"]
        windows = window["out_height"] * window["out_width"]
        f.setdefault("blocks", random.choice((1, 1, 2)))
        sizes = (f["blocks"] * window["height"] * window["pitch"], f["blocks"] * windows)
        f.setdefault("ceiling", random.randint(-128, 127))
        if opcode == Opcode.POOL:
            f["buffer"], f["destination"] = self._apart(*sizes)
            f.setdefault("reduction", int(random.choice(list(Reduction))))
            f.setdefault("floor", random.choice((-128, random.randint(-128, 127))))
            entries = taps if f["reduction"] == Reduction.AVERAGE else 1
        else:
            f["buffer"], f["destination"], f["taps"] = self._apart(*sizes, f["blocks"] * taps)
            f.setdefault("function", random.randrange(3))
            f.setdefault("fill", random.randint(-128, 127))
            entries = f["blocks"]
        f.setdefault("parameter", random.randint(0, self.config.parameter_entries - entries))

    def _apart(self, *sizes: int) -> list[int]:
        """Places in the buffer for regions of these sizes that do not overlap."""
        spare = self.config.buffer_lines - sum(sizes)
        cuts = sorted(self.random.randint(0, spare) for _ in sizes)
        order = list(range(len(sizes)))
        self.random.shuffle(order)
        places, used = [0] * len(sizes), 0
        for cut, index in zip(cuts, order, strict=True):
            places[index] = cut + used
            used += sizes[index]
        return places


class Surroundings(Bench):
    """The unit, what lies around it, and the golden model ahead of it.

    `blocked` is the share of instructions that older ones are in the way of, for each list, `busy`
    that of cycles in which accumulators and buffer have no time.
    """

    def __init__(
        self,
        dut: Any,
        config: Config,
        chance: random.Random,
        *,
        blocked: float = 0.0,
        busy: float = 0.0,
    ):
        super().__init__(dut, ActivationUnit(config=config))
        self.config = config
        self.random = chance
        self.rates = blocked, busy
        self.golden = golden = Machine(config)
        data = np.random.default_rng(chance.getrandbits(32))
        golden.buffer[:] = data.integers(-128, 128, golden.buffer.shape)
        golden.buffer[data.random(golden.buffer.shape) < 0.05] = -128
        golden.accumulators[:] = data.integers(-(1 << 17), 1 << 17, golden.accumulators.shape)
        golden.accumulators[data.random(golden.accumulators.shape) < 0.05] = -(1 << 31)
        golden.parameters[:] = self._parameters(data)
        golden.tables[:] = data.integers(-128, 128, golden.tables.shape)
        self.memory = [_number(line) for line in golden.buffer]
        self.accumulators = [_number(row.astype("<i4")) for row in golden.accumulators]
        self.now = 0
        self.rows = deque([0] * ROW_LATENCY)
        self.lines = deque([0] * LINE_LATENCY)
        """What the accumulators and the buffer show in the next cycles."""
        self.lists = {name: Entries(config.queue_depth) for name in (*OLDER, "activate_writing")}
        self.numbers = itertools.count()
        self.runs: deque[Run] = deque()
        """Those whose steps are not all taken."""
        self.turns = config.columns_per_lane
        self.before = deque([_Before({}, None, None)] * self.turns)
        """The last cycles: a step takes one a turn, and is told of in the next one."""
        self.turn = -1
        """Of the cycle that was last."""
        self.pending: list[tuple[int, int]] = []
        """Lines of instructions so far that are not written yet, and what will be in them."""
        self.written: list[int] = []
        """Cycles in which a line was written."""
        self.announced: list[tuple[int, int, int]] = []
        """Cycle, line behind and `write_done` of each announcement."""

    def _parameters(self, data: np.random.Generator) -> Any:
        """Entries for sums of very different sizes; some are wholly at random."""
        entries, cols = self.config.parameter_entries, self.config.cols
        planes = data.integers(0, 256, (entries, PARAMETER_PLANES, cols), dtype=np.uint8)
        for entry in range(entries):
            if entry % 4 == 3:
                continue
            bias = data.integers(-(1 << 9), 1 << 9, cols)
            multiplier = data.integers(1 << 29, 1 << 32, cols)
            right = data.integers((0, 5, 12)[entry % 4], (3, 10, 20)[entry % 4], cols)
            for place in range(4):
                planes[entry, place] = bias >> 8 * place & 0xFF
                planes[entry, 4 + place] = multiplier >> 8 * place & 0xFF
            planes[entry, 8] = data.integers(0, 2, cols) << 5 | right
        return planes

    async def load(self) -> None:
        """Fills parameters and tables through their ports."""
        for entry, planes in enumerate(self.golden.parameters):
            for number, plane in enumerate(planes):
                await self.cycle(
                    parameters__planes=1 << number,
                    parameters__address=entry,
                    parameters__data=_number(plane),
                )
        self.set(parameters__planes=0)
        if self.config.tables:
            for address, value in enumerate(self.golden.tables.ravel()):
                await self.cycle(
                    tables__enable=1, tables__address=address, tables__data=int(value) & 0xFF
                )
            self.set(tables__enable=0)

    async def perform(self, jobs: list[Job], *, idle: tuple[int, ...] = (0,)) -> list[Run]:
        """Offers commands until the last vector is issued, `idle` cycles between them."""
        waiting, pause, free = deque(jobs), 0, self.now
        offered: Run | None = None
        runs: list[Run] = []
        for _ in range(20000 + 2000 * len(jobs)):
            room = len(self.lists["activate_writing"]) < self.config.queue_depth
            if offered is None and waiting and not pause and room:
                offered = self._offer(waiting.popleft())
                runs.append(offered)
                offered.hindered |= self.now > free
            await self.step(offered)
            if offered is not None and self.get("command_pop"):
                offered, pause, free = None, self.random.choice(idle), self.now
            pause = max(0, pause - 1)
            if not waiting and offered is None and not self.runs:
                return runs
        raise AssertionError(f"{self.runs[0].job} does not end")

    def _offer(self, job: Job) -> Run:
        """A job that comes into the queue: what it does, and what it waits for."""
        pending = {line for line, _ in self.pending}
        own = self.lists["activate_writing"]
        writers = [
            {e.number for e in own if not lines.isdisjoint(range(e.base, e.end))}
            for lines in (job.reads(), job.operands())
        ]
        reads = job.reads() | job.operands()
        awaits = writers[0] | writers[1]
        run = Run(
            job=job,
            first=len(self.written) + len(self.pending),
            # Of lines beyond those that are written it waits for the whole instruction.
            hindered=bool(awaits) or not reads.isdisjoint(pending),
            offered=self.now,
            awaits=awaits,
            writers=writers,
            entries=job.entries(),
            counts=job.steps(),
        )
        lines = job.writes()
        targets = {
            "matrix_summing": [],
            "matrix_reading": [lines],
            "host_writing": [lines],
            "host_reading": [lines, sorted(reads)],
            "loading": [
                [parameter_space(self.config) + entry for entry in sorted(set(run.entries))]
            ],
        }
        if job.opcode == Opcode.ACTIVATE:
            first = job.fields["accumulator"]
            targets["matrix_summing"].append(list(range(first, first + len(run.entries))))
        if job.looks_up:
            targets["loading"].append([table_space(self.config) + job.fields["table"]])
        for name, choices in targets.items():
            choices = [choice for choice in choices if choice]
            known = self.lists[name]
            if not choices or len(known) == self.config.queue_depth:
                continue
            if self.random.random() < self.rates[0]:
                base = self.random.choice(self.random.choice(choices))
                entry = Entry(next(self.numbers), base, base + self.random.randint(1, 4))
                known.take(entry)
                # Some are in nobody's way.
                if self.random.random() < 0.7:
                    awaits.add(entry.number)
                    run.hindered = True
        golden = self.golden
        golden.set_config_window(**job.window)
        golden.set_config_scale(**job.scale)
        getattr(golden, job.opcode.name.lower())(**job.fields)
        self.pending += [(line, _number(golden.buffer[line])) for line in lines]
        own.take(Entry(next(self.numbers), lines[0], lines[-1] + 1))
        self.runs.append(run)
        return run

    async def cycle(self, **inputs: Any) -> None:
        """See Bench; the turns go on."""
        await super().cycle(**inputs)
        self.turn = (self.turn + 1) % self.turns

    async def step(self, offered: Run | None = None) -> None:
        """One cycle, with a command or none."""
        random = self.random
        masks = {name: random.getrandbits(5) for name in (*self.lists, "operand_writing")}
        if offered is not None:
            self.set(command=offered.job.command(self.config))
            masks = {name: entries.mask(offered.awaits) for name, entries in self.lists.items()}
            own = self.lists["activate_writing"]
            masks["activate_writing"], masks["operand_writing"] = map(own.mask, offered.writers)
        ends = {name: bool(self.lists[name]) and random.random() < 0.05 for name in OLDER}
        progress = {
            name: entries.progress(retires=ends.get(name, False))
            for name, entries in self.lists.items()
        }
        ready, operands_ready = (random.random() >= self.rates[1] for _ in range(2))
        self.set(accumulators=self.rows.popleft(), operands__data=self.lines.popleft())
        await self.cycle(
            command_valid=offered is not None,
            masks=masks,
            progress=progress | {"operand_writing": progress["activate_writing"]},
            ready=ready,
            operands__ready=operands_ready,
            buffer__ready=1,
        )
        self._report()
        noise = random.getrandbits
        row = noise(32 * self.config.cols)
        line = noise(8 * self.config.line_bytes)
        row_taken = bool(self.get("enable") and ready)
        line_taken = bool(self.get("operands__enable") and operands_ready)
        if row_taken:
            row = self.accumulators[self.get("address")]
        if line_taken:
            line = self.memory[self.get("operands__address")]
        self.rows.append(row)
        self.lines.append(line)
        self.before.append(
            _Before(
                {name: [replace(entry) for entry in own] for name, own in self.lists.items()},
                self.get("address") if row_taken else None,
                self.get("operands__address") if line_taken else None,
            )
        )
        self._writes()
        self._advance(ends)
        self.now += 1

    def _report(self) -> None:
        """What the unit tells of the step that ended in the cycle before, and what it did then: it
        read in one of its cycles."""
        lists, row, line = self.before[0]
        told = self.gets("advance_read", "rows_done", "lines_done")
        if self.turn:
            self.before.popleft()
            assert not self.get("takes_line") and told == (0, 0, 0)
            return
        for other in list(self.before)[1:]:
            assert row is line is None or other.row is other.line is None
            row, line = (row, line) if row is not None or line is not None else other[1:]
        self.before.popleft()
        reads = row is not None or line is not None
        if not self.runs:
            assert not reads and not self.get("takes_line") and told == (0, 0, 0)
            return
        run = self.runs[0]
        job, vector = run.job, len(run.steps) - 1
        is_reader = job.opcode in READERS
        taken = bool(self.get("takes_line")) if is_reader else reads
        assert taken >= reads and (is_reader or not self.get("takes_line"))
        final = taken and len(run.steps[-1]) + 1 == run.counts[vector]
        last = final and vector + 1 == len(run.counts)
        assert told == (final and not is_reader, last and not is_reader, last and is_reader), job

        def held(name: str, address: int) -> bool:
            return any(entry.number in run.awaits and entry.needs(address) for entry in lists[name])

        if row is not None:
            assert not held("matrix_summing", row)
        if line is not None:
            assert not held("host_reading", line) and not held("activate_writing", line)
        if taken:
            run.steps[-1].append(self.now - self.turns)
        if final:
            run.steps.append([])
            if not is_reader:
                assert row == job.fields["accumulator"] + vector
                assert self.get("advance_read_to") == row + 1
            target = job.destination + vector * (1 + job.wide)
            for name in ("matrix_reading", "host_writing", "host_reading"):
                if job.wide:
                    assert not any(entry.number in run.awaits for entry in lists[name])
                else:
                    assert not held(name, target)
            assert not held("loading", parameter_space(self.config) + run.entries[vector])
            if job.looks_up:
                assert not held("loading", table_space(self.config) + job.fields["table"])
        if last:
            run.steps.pop()
            self.runs.popleft()

    def _advance(self, ends: dict[str, bool]) -> None:
        """What happens to the lists with the end of the cycle."""
        random = self.random
        for name, end in ends.items():
            entries = self.lists[name]
            if end:
                entries.retire()
            elif entries and random.random() < 0.3:
                oldest = entries[0]
                entries.advance(min(max(oldest.base, oldest.reached) + 1, oldest.end))
        own = self.lists["activate_writing"]
        if self.get("advance_write"):
            own.advance(self.get("advance_write_to"))
            self.announced.append((self.now, self.get("advance_write_to"), self.get("write_done")))
        else:
            assert not self.get("write_done")
        if self.get("write_done"):
            own.retire()

    def _writes(self) -> None:
        """What the unit writes in this cycle: the next of the pending lines."""
        if not self.get("buffer__enable"):
            return
        assert self.pending, f"line {self.get('buffer__address')} is written for nobody"
        place = self.get("buffer__address"), self.get("buffer__data")
        assert place == self.pending.pop(0)
        self.memory[place[0]] = place[1]
        self.written.append(self.now)

    async def finish(self, jobs: list[Job]) -> None:
        """Waits for the last line and checks all announcements."""
        for _ in range(200):
            if not self.pending:
                break
            await self.step()
        assert not self.pending, "lines that are never written"
        for _ in range(2 * LATENCY):
            await self.step()
        lines = [(job, line) for job in jobs for line in job.writes()]
        expected = [
            (time - ANNOUNCED, line + 1, line == job.writes()[-1])
            for time, (job, line) in zip(self.written, lines, strict=True)
            if not job.wide or (line - job.destination) % 2
        ]
        assert self.announced == expected


def _number(row: Any) -> int:
    """A numpy row as one number."""
    return int.from_bytes(np.ascontiguousarray(row).tobytes(), "little")
