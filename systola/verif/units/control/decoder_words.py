# SPDX-License-Identifier: Apache-2.0
"""Random instruction words to test the decoder with: legal, slightly wrong, or any bits."""

from __future__ import annotations

import random
from typing import Any

from systola.arch.isa import (
    BY_OPCODE,
    CURVE_TABLES,
    LINK_OPCODES,
    LONG_TABLES,
    PARAMETER_PLANES,
    TABLE_BYTES,
    Function,
    Opcode,
    Operation,
    Reduction,
    Source,
)
from systola.hdl.commands import PC_BITS
from systola.hdl.control.scalar_unit import LINKED_OPCODES, OPCODES
from systola.verif.units.control.instruction_reader import (
    COPIES,
    COPIES_OUT,
    TRAINING,
    WINDOWED,
    Fields,
    Reader,
    word,
)

LINKS = (Opcode.SEND, Opcode.RECEIVE, Opcode.REDUCE)


class Writer:
    """A writer of random words that break no rule, if the present window allows such words.

    Often the numbers are just at a limit.
    """

    def __init__(self, chance: random.Random, reader: Reader):
        self.random = chance
        self.reader = reader

    def legal(self, opcode: Opcode) -> Fields:
        """Return random legal operands of an instruction with this opcode."""
        random, reader, config = self.random, self.reader, self.reader.config
        bus = config.host_bus_bytes
        fit = self._fit
        found: Fields = {}
        if opcode in COPIES:
            pitch = reader.pitch(opcode)
            rows, blocks = random.choice((1, 2, 9)), random.choice((1, 1, 2, 7))
            stride = random.choice((0, pitch, blocks * pitch, random.randint(0, 90) * bus))
            size = (rows - 1) * stride + blocks * pitch
            found = {
                "host": fit(reader.limit // bus, size // bus) * bus,
                "buffer": fit(config.buffer_lines, rows * blocks),
                "rows": rows,
                "stride": stride,
                "blocks": blocks,
                "tail": random.randint(1, config.cols if opcode in COPIES_OUT else config.rows),
            }
        elif opcode == Opcode.LOAD_PARAMETERS:
            count = random.choice((1, 2, config.parameter_entries))
            size = count * PARAMETER_PLANES * config.output_pitch
            found = {
                "host": fit(reader.limit // bus, size // bus) * bus,
                "parameter": fit(config.parameter_entries, count),
                "count": count,
            }
        elif opcode == Opcode.LOAD_TABLE:
            host = fit(reader.limit // bus, TABLE_BYTES // bus) * bus
            found = {"host": host, "table": random.randrange(max(1, config.tables))}
        elif opcode == Opcode.READ_WEIGHTS:
            count = random.choice((1, 2, reader.tiles))
            found = {"tile": fit(reader.tiles, count), "count": count}
        elif opcode == Opcode.MATRIX_MULTIPLY:
            rows, n_tiles = random.choice((1, 2, 20)), random.choice((1, 1, 3, 15))
            k_tiles = random.choice((1, 2, 12))
            wide_vectors, wide_weights = self._flag(config.wide), self._flag(config.wide)
            found = {
                "buffer": fit(config.buffer_lines, rows * k_tiles * (1 + wide_vectors)),
                "accumulator": fit(config.accumulator_rows, rows * n_tiles),
                "rows": rows,
                "k_tiles": k_tiles,
                "n_tiles": n_tiles,
                "accumulate": self._flag(True),
                "wide_vectors": wide_vectors,
                "wide_weights": wide_weights,
            }
            lines = k_tiles * n_tiles * (1 + wide_weights) * config.rows
            if config.training and lines <= config.buffer_lines and random.random() < 0.5:
                found |= {"from_buffer": 1, "weights": fit(config.buffer_lines, lines)}
        elif opcode in TRAINING:
            found = self._training(opcode)
        elif opcode in LINKS:
            rows = random.choice((1, 2, 30))
            found = {"side": random.getrandbits(1), "sums": random.getrandbits(1), "rows": rows}
            found |= {"accumulate": random.getrandbits(1)}
            found |= {"buffer": fit(config.buffer_lines, rows)}
            found |= {"accumulator": fit(config.accumulator_rows, rows)}
        elif opcode == Opcode.ACTIVATE:
            rows, n_tiles = random.choice((1, 2, 20)), random.choice((1, 1, 3, 12))
            found = self._function() | self._result()
            found |= {
                "accumulator": fit(config.accumulator_rows, rows * n_tiles),
                "buffer": fit(config.buffer_lines, rows * n_tiles * (1 + found["wide"])),
                "rows": rows,
                "n_tiles": n_tiles,
                "parameter": fit(config.parameter_entries, n_tiles),
                "exponent": random.choice((0, random.randrange(8))) * config.training,
                "stochastic": random.randrange(2) * config.training,
            }
        elif opcode in WINDOWED:
            found = self._windowed(opcode)
        elif opcode == Opcode.VECTOR:
            found = self._vector()
        elif opcode == Opcode.SET_CONFIG_WINDOW:
            found = self.window()
        elif opcode == Opcode.REQUIRE_MACHINE:
            found = reader.machine()
        elif opcode == Opcode.SET_REGISTER:
            found = {"register": random.randint(1, 7), "value": random.getrandbits(32)}
        else:
            found = {f.name: random.getrandbits(f.width) for f in BY_OPCODE[opcode].fields}
        selectors = [f for f in BY_OPCODE[opcode].fields if f.indexes]
        return found | {f.name: random.getrandbits(f.width) for f in selectors}

    def window(self) -> Fields:
        """Return random settings of a small window; now and then one field has any size."""
        random = self.random
        width = random.randint(1, 9)
        found = {
            "height": random.randint(1, 9),
            "width": width,
            "pitch": width + random.choice((0, 0, 1, 3, -1 if width > 1 else 0)),
            "kernel_height": random.randint(1, 4),
            "kernel_width": random.randint(1, 3),
            "stride_y": random.randint(1, 3),
            "stride_x": random.randint(1, 3),
            "dilation_y": random.randint(1, 3),
            "dilation_x": random.choice((1, 1, 2)),
            "top": random.randint(-4, 4),
            "left": random.randint(-4, 3),
            "out_height": random.randint(1, 6),
            "out_width": random.randint(1, 6),
        }
        if random.random() < 0.3:
            field = random.choice(BY_OPCODE[Opcode.SET_CONFIG_WINDOW].fields)
            low, high = field.range
            found[field.name] = random.choice((high, low, random.randint(low, high)))
        return found

    def _fit(self, limit: int, size: int) -> int:
        last = max(0, limit - size)
        return self.random.choice((0, last, self.random.randint(0, last)))

    def _flag(self, allowed: bool) -> int:
        return self.random.getrandbits(1) if allowed else 0

    def _result(self) -> Fields:
        random = self.random
        return {
            "rounding": random.getrandbits(1),
            "zero_point": random.randint(-128, 127),
            "ceiling": random.randint(-128, 127),
        }

    def _function(self) -> Fields:
        """Return a legal combination of fields function, table, wide and accumulate."""
        random, config = self.random, self.reader.config
        wide = self._flag(config.wide)
        functions = [Function.NONE, Function.RELU, Function.RELU6]
        functions += [Function.TABLE] * bool(config.tables)
        if wide:
            functions = [Function.NONE, Function.SIGMOID, Function.TANH]
            functions += [Function.EXP] * config.training
            functions += [Function.TABLE] * config.attention
        function = random.choice(functions)
        if function == Function.TABLE:
            table = random.randrange(config.tables - (CURVE_TABLES - 1) * wide)
        else:
            most = {Function.TANH: 4, Function.EXP: 6}
            table = random.randint(0, most.get(function, 15))
        accumulate = self._flag(bool(wide))
        return {"wide": wide, "accumulate": accumulate, "function": function, "table": table}

    def _divided(self, found: Fields, operation: int, wide_operands: int) -> Fields:
        """Return the fields `found`, sometimes with function QUOTIENT if this is legal."""
        config = self.reader.config
        if config.training and operation == Operation.MULTIPLY and self._flag(True):
            return {**found, "function": Function.QUOTIENT}
        sums = operation == Operation.ADD and not wide_operands
        if config.attention and (operation == Operation.COPY or sums) and self._flag(True):
            table = self.random.randint(0, config.tables - LONG_TABLES)
            found = {**found, "function": Function.QUOTIENT, "table": table}
            partition = {"accumulate": 1, "wide": 0}
            return found | (partition if sums and self._flag(True) else {})
        return found

    def _place(self, *sizes: int) -> list[int]:
        """Return the first line of each of several regions, given their sizes.

        The regions may touch, but do not overlap. Regions that do not fit into the buffer together
        may lie outside of it.
        """
        random = self.random
        spare = max(0, self.reader.config.buffer_lines - sum(sizes))
        cuts = sorted(random.choice((0, spare, random.randint(0, spare))) for _ in sizes)
        order = list(range(len(sizes)))
        random.shuffle(order)
        places, used = [0] * len(sizes), 0
        for cut, index in zip(cuts, order, strict=True):
            places[index] = (cut + used) % (1 << 20)
            used += sizes[index]
        return places

    def _windowed(self, opcode: Opcode) -> Fields:
        random, reader, config = self.random, self.reader, self.reader.config
        map_lines, windows, taps = reader.sizes() if reader.window else (1, 1, 1)
        if opcode == Opcode.CONVOLVE:
            channels = random.choice((0, 0, 1, 2, 3, config.rows))
            k_tiles = 1 if channels else random.choice((1, 2, 3))
            n_tiles = random.choice((1, 1, 2, 5))
            plane = map_lines + random.choice((0, 0, 5, -map_lines))
            span = (k_tiles - 1) * plane + map_lines
            return {
                "buffer": self._fit(config.buffer_lines, span),
                "accumulator": self._fit(config.accumulator_rows, windows * n_tiles),
                "plane": plane % (1 << 20),
                "k_tiles": k_tiles,
                "n_tiles": n_tiles,
                "accumulate": self._flag(True),
                "channels": channels,
                "fill": random.randint(-128, 127),
            }
        blocks = random.choice((1, 1, 2, 3))
        found = self._result() | {"blocks": blocks}
        if opcode == Opcode.POOL:
            reduction = random.choice(list(Reduction))
            entries = taps if reduction == Reduction.AVERAGE else 1
            buffer, destination = self._place(blocks * map_lines, blocks * windows)
            found |= {"reduction": reduction, "floor": random.randint(-128, 127)}
        else:
            entries = blocks
            sizes = (blocks * map_lines, blocks * taps, blocks * windows)
            buffer, found["taps"], destination = self._place(*sizes)
            found |= {"function": random.randint(0, 2), "fill": random.randint(-128, 127)}
        parameter = self._fit(config.parameter_entries, entries)
        return found | {"buffer": buffer, "destination": destination, "parameter": parameter}

    def _training(self, opcode: Opcode) -> Fields:
        random, config = self.random, self.reader.config
        fit, size = self._fit, config.cols
        if opcode == Opcode.TRANSPOSE:
            count, step = random.choice((1, 2, 5)), random.choice((0, size, random.randint(0, 40)))
            places = self._place((count - 1) * step + size, count * size)
            names = ("buffer", "destination")
            return {**dict(zip(names, places, strict=True)), "count": count, "step": step}
        rows = random.choice((1, 2, 30))
        if opcode == Opcode.RANDOM:
            return {
                "destination": fit(config.buffer_lines, rows),
                "rows": rows,
                "seed": random.getrandbits(31),
                "counter": random.getrandbits(32),
            }
        source = random.choice(list(Source))
        return {
            "source": source,
            "exponent": random.randint(1, 7),
            "accumulator": fit(config.accumulator_rows, rows),
            "buffer": fit(config.buffer_lines, 2 * rows),
            "rows": random.getrandbits(16) | 1 if source == Source.NONE else rows,
            "bits": random.getrandbits(5),
            "value": random.randint(-128, 127),
            **{name: random.randrange(8) for name in ("first", "second", "third")},
        }

    def _vector(self) -> Fields:
        random, config = self.random, self.reader.config
        found = self._function() | self._result()
        rows, wide_operands = random.choice((1, 2, 30)), self._flag(config.wide)
        size = rows * (1 + wide_operands)
        buffer, operand, destination = self._place(size, size, rows * (1 + found["wide"]))
        operation = random.choice(list(Operation))
        if random.random() < 0.3:
            operand = buffer if operation != Operation.COPY else random.getrandbits(20)
        if random.random() < 0.3 and found["wide"] == wide_operands:
            destination = buffer
        divided = self._divided(found, operation, wide_operands)
        if divided["accumulate"] and not divided["wide"] and random.random() < 0.7:
            # Lines that results at line 0 would overlap: a partition has no results.
            rows, buffer = 30, random.randrange(30)
        return divided | {
            "operation": operation,
            "buffer": buffer,
            "operand": operand,
            "destination": destination,
            "rows": rows,
            "parameter": self._fit(config.parameter_entries, 1),
            "wide_operands": wide_operands,
            "exponent": random.choice((0, random.randrange(4))) * config.training,
        }


def changed(chance: random.Random, opcode: Opcode, operands: Fields, step: int) -> Fields:
    """Return the operands with one value at an end of its range, or a little off."""
    field = chance.choice(BY_OPCODE[opcode].fields)
    value = operands.get(field.name, 0)
    wrong = chance.choice((0, 1, 2**field.width - 1, value + 1, value - 1, value + step))
    return {**operands, field.name: wrong}


def some(chance: random.Random, writer: Writer) -> dict[str, Any]:
    """Return a random instruction as the decoder's input: legal, slightly wrong, or any bits."""
    known = LINKED_OPCODES if writer.reader.config.links else OPCODES
    opcode = chance.choice((*known, *WINDOWED, Opcode.VECTOR, Opcode.ACTIVATE))
    operands = writer.legal(opcode)
    bits = word(opcode, operands)
    kind = chance.random()
    if kind < 0.35 and BY_OPCODE[opcode].fields:
        step = writer.reader.config.host_bus_bytes
        bits = word(opcode, changed(chance, opcode, operands, step))
    elif kind < 0.4:
        bits |= 1 << chance.randint(8, 127)
    elif kind < 0.43:
        bits = bits & ~0xFF | chance.choice((chance.getrandbits(8), *LINK_OPCODES))
    elif kind < 0.46:
        bits = chance.getrandbits(120) << 8 | opcode
    return payload(chance, bits, error=int(chance.random() < 0.02))


def payload(chance: random.Random, bits: int, error: int = 0) -> dict[str, Any]:
    """Return the decoder's input for an instruction word; now and then check LOOP fails."""
    found = {"word": bits, "error": error, "pc": chance.getrandbits(PC_BITS)}
    if bits & 0xFF in (Opcode.LOOP, Opcode.END_LOOP) and not error:
        found |= {"loop_fault": chance.getrandbits(1), "loops": chance.randint(0, 4)}
    return found
