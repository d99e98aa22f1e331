# SPDX-License-Identifier: Apache-2.0
"""A model of activation-unit instructions: the lines they read and write, and random ones."""

from __future__ import annotations

import itertools
import random
from typing import Any, NamedTuple

from systola.arch.config import Config
from systola.arch.isa import (
    CURVE_TABLES,
    GATES,
    INVERSE_ROOT,
    LONG_TABLES,
    TANH_INTEGER_BITS,
    Function,
    Opcode,
    Operation,
    Reduction,
)
from systola.hdl.commands import Source, line_bits
from systola.verif.units.parts.walks import walk_of

Fields = dict[str, int]

READERS = (Opcode.DEPTHWISE, Opcode.POOL, Opcode.VECTOR)


class Job(NamedTuple):
    """An activation-unit instruction, with the window and the scale that were set before it."""

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
    def tables(self) -> list[int]:
        """The numbers of the tables that the instruction reads."""
        table, number = self.fields.get("table", 0), 0
        if self.fields.get("function") == Function.TABLE:
            number = CURVE_TABLES if self.wide else 1
        if self.gathers:
            number = LONG_TABLES
        return list(range(table, table + number))

    @property
    def looks_up(self) -> bool:
        return self.fields.get("function") == Function.TABLE

    @property
    def is_curve(self) -> bool:
        return self.wide and self.looks_up

    @property
    def gathers(self) -> bool:
        """Whether the instruction takes its sums from a table of int32."""
        f = self.fields
        copies = f.get("operation") == Operation.COPY or self.is_relative
        return f.get("function") == Function.QUOTIENT and copies

    @property
    def is_relative(self) -> bool:
        """Whether the instruction subtracts one line from all vectors before it looks them up."""
        f = self.fields
        return f.get("function") == Function.QUOTIENT and f.get("operation") == Operation.ADD

    @property
    def is_partition(self) -> bool:
        """Whether the instruction adds all vectors up, and makes a parameter entry of the sum."""
        return self.accumulates and not self.wide

    @property
    def is_scaled(self) -> bool:
        sums = Operation.ADD, Operation.SUBTRACT
        return self.fields.get("operation") in sums and not self.is_relative

    def is_halved(self, operand: str) -> bool:
        """Return whether operand "a" or "b" of int8 is scaled by one half."""
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
        """The number of result vectors of each block."""
        if "rows" in self.fields:
            return 1 if self.is_partition else self.fields["rows"]
        return self.window["out_height"] * self.window["out_width"]

    @property
    def destination(self) -> int:
        return self.fields["buffer" if self.opcode == Opcode.ACTIVATE else "destination"]

    def reads(self) -> set[int]:
        """Return the buffer lines that the instruction may read, except for its `operands`."""
        f, found = self.fields, set[int]()
        if self.opcode in (Opcode.DEPTHWISE, Opcode.POOL):
            size = self.blocks * self.window["height"] * self.window["pitch"]
            found |= set(range(f["buffer"], f["buffer"] + size))
        if self.opcode == Opcode.VECTOR:
            size = f["rows"] * (1 + f["wide_operands"])
            found |= set(range(f["buffer"], f["buffer"] + size))
        if self.accumulates and not self.is_partition:
            found |= set(self.writes())
        return found

    def operands(self) -> set[int]:
        """Return the buffer lines of Depthwise's taps or of Vector's operand b."""
        f = self.fields
        if self.opcode == Opcode.DEPTHWISE:
            return set(range(f["taps"], f["taps"] + self.blocks * self.taps))
        if self.opcode == Opcode.VECTOR and f["operation"] != Operation.COPY:
            size = 1 if self.is_relative else f["rows"] * (1 + f["wide_operands"])
            return set(range(f["operand"], f["operand"] + size))
        return set()

    def writes(self) -> list[int]:
        """Return the buffer lines that the instruction writes, in this order."""
        if self.is_partition:
            return []
        count = self.blocks * self.vectors * (1 + self.wide)
        return list(range(self.destination, self.destination + count))

    def windows(self) -> list[tuple[int, int]]:
        """Return the block of each result vector, and how many taps of its window are inside the
        map.
        """
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
        """Return the number of the parameter entry that each result vector uses."""
        first = self.fields["parameter"]
        if self.opcode in (Opcode.ACTIVATE, Opcode.DEPTHWISE):
            return [first + b for b, _ in self.windows()]
        if self.opcode == Opcode.POOL and self.fields["reduction"] == Reduction.AVERAGE:
            return [first + max(t, 1) - 1 for _, t in self.windows()]
        return [first] * len(self.windows())

    def paired(self, config: Config) -> bool:
        """Return whether both lines of an int16 operand or addend are read in one cycle."""
        f = self.fields
        if not config.reads_pairs or self.opcode not in (Opcode.ACTIVATE, Opcode.VECTOR):
            return False
        firsts = [self.destination] * (self.accumulates and not self.is_partition)
        if f.get("wide_operands", 0):
            copies = f["operation"] == Operation.COPY
            firsts += [f["buffer"], *([] if copies else [f["operand"]])]
        return not any(line % 2 for line in firsts)

    def steps(self, config: Config) -> list[int]:
        """Return the number of steps that each result vector takes.

        In a step a line or a pair of lines is read, or an accumulator row is issued.
        """
        if self.is_partition:
            return [1 + self.fields["rows"]]
        paired = self.paired(config)
        halves = 1 + (self.fields.get("wide_operands", 0) and not paired)
        each = {
            Opcode.ACTIVATE: 1,
            Opcode.DEPTHWISE: self.taps,
            Opcode.POOL: self.taps,
            Opcode.VECTOR: halves
            * (
                1
                if self.fields.get("operation") in (None, Operation.COPY) or self.is_relative
                else 2
            ),
        }[self.opcode]
        addend = (2 - paired) * self.accumulates
        found = [each + addend] * (self.blocks * self.vectors)
        found[0] += self.is_relative
        if self.opcode == Opcode.DEPTHWISE:
            for block in range(self.blocks):
                found[block * self.vectors] += self.taps
        return found

    def command(self, config: Config) -> dict[str, Any]:
        """Return the instruction as the value of the unit's port `command`."""
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
            "accumulate": int(self.accumulates and not self.is_partition),
            "low": -128,
            "high": 127,
            "table": f.get("table", 0),
        }
        if function in (Function.RELU, Function.RELU6):
            found["low"] = f["zero_point"]
        if self.opcode in (Opcode.ACTIVATE, Opcode.VECTOR):
            divides = function == Function.QUOTIENT
            found["function"] = int(Function.NONE if divides else function)
            if config.training:
                found |= {"quotient": int(divides), "paired": int(self.paired(config))}
            if config.attention:
                found |= {
                    "gathers": int(self.gathers),
                    "relative": int(self.is_relative),
                    "partition": int(self.is_partition),
                }
        if function == Function.RELU6:
            found["high"] = (self.scale if self.opcode == Opcode.VECTOR else f)["ceiling"]
        if self.wide:
            found |= {"low": -(1 << 15), "high": (1 << 15) - 1}
            limit = self.scale["limit"]
            limited = function in (Function.NONE, Function.QUOTIENT)
            if self.opcode == Opcode.VECTOR and limited and limit:
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
            second = int(self.paired(config) and halves > 1)
            names = ("multiplier_a", "shift_a", "multiplier_b", "shift_b", "zero_a", "zero_b")
            count = {"kx": halves - second, "ky": 1, "ox": f["rows"], "oy": 1, "block": 1}
            if self.is_partition:
                count |= {"kx": f["rows"], "ox": 1}
            return found | {
                "walk": walk_of(
                    start={"line": f["buffer"] + second},
                    count=count,
                    step={"kx": {"line": 1}, "ox": {"line": halves}},
                ),
                "operand": f["operand"] | second,
                "operation": Operation.COPY if self.is_relative else Operation(f["operation"]),
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


class Jobs:
    """A source of random activation-unit instructions that break no rule of a configuration."""

    def __init__(self, chance: random.Random, config: Config):
        self.random = chance
        self.config = config
        self.opcodes = [Opcode.ACTIVATE, Opcode.POOL, Opcode.VECTOR]
        self.opcodes += [Opcode.DEPTHWISE] * config.depthwise

    def some(self) -> Job:
        """Return a random instruction with any opcode of the unit."""
        return self.of(self.random.choice(self.opcodes))

    def of(self, opcode: Opcode, **given: Any) -> Job:
        """Return a random instruction with given values of some operands, `window` or `scale`."""
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
            if "function" not in given:
                self._gather(fields)
        else:
            self._windowed(opcode, fields, window)
        return Job(opcode, fields, window, scale)

    def window(self, opcode: Opcode) -> Fields:
        """Return random window settings over a small map, with padding on any side."""
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
        """Return random scale settings; most of them shift a sum so little that bits are left."""
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
        if config.attention and f["wide"]:
            functions += [Function.TABLE] * len(functions)
        f.setdefault("function", random.choice(functions))
        most = INVERSE_ROOT if f["function"] == Function.EXP else TANH_INTEGER_BITS
        if f["function"] == Function.TABLE:
            most = config.tables - (CURVE_TABLES if f["wide"] else 1)
        f.setdefault("table", random.randint(0, most))
        few = (1, 2, 5) if f["function"] in GATES else (1, 2, 7)
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
        if config.training and f["operation"] == Operation.MULTIPLY and random.random() < 0.4:
            f["function"] = Function.QUOTIENT
        f.setdefault("wide_operands", random.getrandbits(1) if config.wide else 0)
        size = f["rows"] * (1 + f["wide_operands"])
        buffer, operand, destination = self._apart(size, size, f["rows"] * (1 + f["wide"]))
        if f["wide"] == f["wide_operands"] and random.random() < 0.3:
            destination = random.choice((buffer, operand))
        f.setdefault("buffer", buffer)
        f.setdefault("operand", buffer if random.random() < 0.1 else operand)
        f.setdefault("destination", destination)
        f.setdefault("parameter", random.randrange(config.parameter_entries))

    def _gather(self, f: Fields) -> None:
        """Change some instructions with COPY, or ADD of int8, so that they look up int32 in a
        table.
        """
        random, config = self.random, self.config
        sums = f["operation"] == Operation.ADD and not f["wide_operands"]
        looks_up = f["operation"] == Operation.COPY or sums
        if config.attention and looks_up and random.random() < 0.4:
            f["function"] = Function.QUOTIENT
            f["table"] = random.randint(0, config.tables - LONG_TABLES)
            if sums and random.random() < 0.5:
                f |= {"accumulate": 1, "wide": 0}

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
        """Return the first lines of regions of the given sizes, which do not overlap."""
        spare = self.config.buffer_lines - sum(sizes)
        cuts = sorted(self.random.randint(0, spare) for _ in sizes)
        order = list(range(len(sizes)))
        self.random.shuffle(order)
        places, used = [0] * len(sizes), 0
        for cut, index in zip(cuts, order, strict=True):
            places[index] = cut + used
            used += sizes[index]
        return places
