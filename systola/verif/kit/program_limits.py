# SPDX-License-Identifier: Apache-2.0
"""A writer of instructions that exceed a memory by far, or by just one line, row, entry or beat."""

from __future__ import annotations

import math
import random
from collections.abc import Callable

import numpy as np

from systola.arch.config import HOST_PAGE_BYTES, Config
from systola.arch.image import Image
from systola.arch.isa import (
    DEPTHWISE_TAPS,
    PARAMETER_PLANES,
    REGISTERS,
    TABLE_BYTES,
    Fault,
    Opcode,
    Operation,
    Reduction,
)
from systola.verif.kit.images import make_image
from systola.verif.kit.program_state import TILES, ProgramState, Span, Spans
from systola.verif.kit.single_instructions import SingleInstructions

_COPIES = (
    *(Opcode.READ_HOST_MEMORY, Opcode.READ_HOST_MEMORY_ALTERNATE),
    *(Opcode.WRITE_HOST_MEMORY, Opcode.WRITE_HOST_MEMORY_ALTERNATE),
)


class LimitWriter(SingleInstructions):
    """A writer of instructions that exceed a memory, with sizes that are products of large numbers.

    The faults that the instructions cause are listed in FAULTS.
    """

    FAULTS = (
        *(Fault.BUFFER_RANGE, Fault.ACCUMULATOR_RANGE),
        *(Fault.PARAMETER_RANGE, Fault.HOST_WINDOW, Fault.WEIGHT_UNDERFLOW),
    )

    def write(self, fault: Fault) -> None:
        """Write an instruction that causes `fault`, one of FAULTS, before it has any effect."""
        getattr(self, f"_{fault.name.lower()}")()

    def _factors(self, most: int, *bits: int) -> list[int]:
        """Return random numbers from 1 on, with a product of at most `most`.

        `bits` has the largest width in bits of each number.
        """
        found: list[int] = []
        for width in bits:
            size = self._rng.randint(0, min(width, most.bit_length()))
            found.append(max(1, min(most, self._rng.getrandbits(size) if size else 1)))
            most //= found[-1]
        self._rng.shuffle(found)
        return [min(value, (1 << width) - 1) for value, width in zip(found, bits, strict=True)]

    def _beyond(self, limit: int, *bits: int, unit: int = 1) -> tuple[list[int], int]:
        """Return the length, as factors, and the first cell of a region that exceeds a memory.

        The memory has `limit` cells. `bits` has the largest width in bits of each factor. The
        region's length is the product of the factors times `unit`. Either the region ends one
        cell after the memory, or the product is a power of two. If the hardware lost the only bit
        of such a product, the region would seem empty.
        """
        if self._rng.random() < 0.5 and sum(bits) - len(bits) >= (limit // unit).bit_length():
            while True:
                factors = [1 << self._rng.randrange(width) for width in bits]
                if math.prod(factors) * unit > limit:
                    return factors, 0
        factors = self._factors(limit // unit, *bits)
        return factors, limit - math.prod(factors) * unit + 1

    def _buffer_range(self) -> None:
        rng, config = self._rng, self._config
        lines = config.buffer_lines
        opcodes = [*_COPIES, Opcode.MATRIX_MULTIPLY, Opcode.CONVOLVE, Opcode.ACTIVATE]
        opcodes += [Opcode.POOL, Opcode.POOL, Opcode.VECTOR]
        opcode = rng.choice([*opcodes, *([Opcode.DEPTHWISE] if config.depthwise else [])])
        wide = int(config.wide and rng.random() < 0.5)
        match opcode:
            case Opcode.MATRIX_MULTIPLY:
                (rows, k_tiles), start = self._beyond(lines, 16, 12, unit=1 + wide)
                at = self._value(opcode, "buffer", start)
                self._one(opcode, **at, rows=rows, k_tiles=k_tiles, wide_vectors=wide)
            case Opcode.CONVOLVE:
                height, pitch = self._factors(lines, 12, 12)
                (blocks, plane), start = self._beyond(lines - height * pitch, 11, 20)
                self._set_window(height=height, pitch=pitch, width=rng.randint(1, pitch))
                at = self._value(opcode, "buffer", start)
                self._one(opcode, **at, plane=plane, k_tiles=1 + blocks)
            case Opcode.ACTIVATE:
                # The sums must fit in the accumulators, which the machine checks first.
                rows, n_tiles = self._factors(config.accumulator_rows, 16, 12)
                vectors = rows * n_tiles << wide
                at = self._value(opcode, "buffer", max(0, lines - vectors + 1))
                self._one(opcode, **at, rows=rows, n_tiles=n_tiles, wide=wide)
            case Opcode.VECTOR:
                name = rng.choice(("buffer", "operand", "destination"))
                (rows,), start = self._beyond(lines, 16, unit=1 + wide)
                sizes = {"wide": wide} if name == "destination" else {"wide_operands": wide}
                others = dict.fromkeys(("buffer", "operand", "destination"), 0)
                operation = rng.choice([*Operation][1:])
                at = {**others, **self._value(opcode, name, start)}
                self._one(opcode, **at, **sizes, rows=rows, operation=operation)
            case Opcode.DEPTHWISE | Opcode.POOL:
                self._window_beyond(opcode)
            case _:
                (rows, blocks), start = self._beyond(lines, 16, 12)
                at = self._value(opcode, "buffer", start)
                self._one(opcode, **at, rows=rows, blocks=blocks)

    def _window_beyond(self, opcode: Opcode) -> None:
        """Write a Depthwise or Pool with a map, taps or results that do not fit in the buffer."""
        rng, lines = self._rng, self._config.buffer_lines
        kind = rng.choice(("map", "results", *(("taps",) if opcode == Opcode.DEPTHWISE else ())))
        if kind == "map":
            (blocks, height, pitch), start = self._beyond(lines, 12, 12, 12)
            self._set_window(height=height, pitch=pitch, width=rng.randint(1, pitch))
            at = self._value(opcode, "buffer", start)
        elif kind == "results":
            (blocks, height, width), start = self._beyond(lines, 12, 12, 12)
            self._set_window(out_height=height, out_width=width)
            at = self._value(opcode, "destination", start)
        else:
            taps = self._factors(DEPTHWISE_TAPS, 8, 8)
            (blocks,), start = self._beyond(lines, 12, unit=math.prod(taps))
            self._set_window(kernel_height=taps[0], kernel_width=taps[1])
            at = {"taps": start}
        self._one(opcode, **at, blocks=blocks)

    def _accumulator_range(self) -> None:
        rng, config = self._rng, self._config
        rows = config.accumulator_rows
        opcode = rng.choice((Opcode.MATRIX_MULTIPLY, Opcode.CONVOLVE, Opcode.ACTIVATE))
        if opcode == Opcode.CONVOLVE:
            (height, width, n_tiles), start = self._beyond(rows, 12, 12, 12)
            self._set_window(out_height=height, out_width=width)
            at = self._value(opcode, "accumulator", start)
            self._one(opcode, **at, n_tiles=n_tiles)
            return
        # The machine checks the lines of MatrixMultiply first, so the vectors must fit in the
        # buffer.
        bits = min(16, config.buffer_lines.bit_length() - 1)
        (vectors, n_tiles), start = self._beyond(rows, bits, 12)
        at = self._value(opcode, "accumulator", start)
        self._one(opcode, **at, rows=vectors, n_tiles=n_tiles)

    def _parameter_range(self) -> None:
        rng, config = self._rng, self._config
        entries = config.parameter_entries
        opcodes = [Opcode.LOAD_PARAMETERS, Opcode.ACTIVATE, Opcode.POOL]
        opcode = rng.choice([*opcodes, *([Opcode.DEPTHWISE] if config.depthwise else [])])
        if opcode == Opcode.POOL:
            taps, start = self._beyond(entries, 8, 8)
            self._set_window(kernel_height=taps[0], kernel_width=taps[1])
            at = {"parameter": start, "destination": 1, "reduction": Reduction.AVERAGE}
            self._one(opcode, **at)
            return
        # `count` tiles or blocks stay within the limits that the machine checks first.
        (count,) = self._factors(entries, 12)
        at = self._value(opcode, "parameter", entries - count + 1)
        match opcode:
            case Opcode.LOAD_PARAMETERS:
                self._one(opcode, **at, count=count)
            case Opcode.ACTIVATE:
                self._one(opcode, **at, n_tiles=count)
            case _:
                self._set_window()
                self._one(opcode, **at, blocks=count, destination=count)

    def _weight_underflow(self) -> None:
        """Write a product that uses more weight tiles than are queued; the number is a power of
        two.
        """
        rng, config = self._rng, self._config
        lines, rows = (
            min(12, size.bit_length()) for size in (config.buffer_lines, config.accumulator_rows)
        )
        tiles = 0
        while tiles <= sum(self._writer.queued):
            many = {"k_tiles": 1 << rng.randrange(lines), "n_tiles": 1 << rng.randrange(rows)}
            opcode = rng.choice((Opcode.MATRIX_MULTIPLY, Opcode.CONVOLVE))
            taps: dict[str, int] = {}
            if opcode == Opcode.CONVOLVE:
                taps = {f"kernel_{side}": 1 << rng.randrange(8) for side in ("height", "width")}
            tiles = math.prod((*many.values(), *taps.values()))
        if taps:
            self._set_window(**taps)
        self._one(opcode, **many)

    def _host_window(self) -> None:
        rng, config = self._rng, self._config
        bus, window = config.host_bus_bytes, self._writer.spans.window
        beats = window // bus
        tables = (Opcode.LOAD_TABLE,) if config.tables else ()
        opcode = rng.choice((*_COPIES, Opcode.LOAD_PARAMETERS, *tables))
        if opcode == Opcode.LOAD_TABLE:
            at = self._value(opcode, "host", window - min(window, TABLE_BYTES) + bus)
            self._one(opcode, **at, table=rng.randrange(config.tables))
            return
        if opcode == Opcode.LOAD_PARAMETERS:
            (count,) = self._factors(
                min(config.parameter_entries, window // (PARAMETER_PLANES * config.output_pitch)),
                12,
            )
            extent = count * PARAMETER_PLANES * config.output_pitch
            self._one(opcode, **self._value(opcode, "host", window - extent + bus), count=count)
            return
        reads = opcode in _COPIES[:2]
        pitch = config.input_pitch if reads else config.output_pitch
        # The machine checks the buffer lines first. Each row takes a line, so all rows must fit in
        # the buffer.
        bits = min(16, config.buffer_lines.bit_length() - 1)
        (apart, stride), start = self._beyond(beats - pitch // bus, bits, 25 - bus.bit_length())
        at = self._value(opcode, "host", start * bus)
        self._one(opcode, **at, rows=apart + 1, stride=stride * bus)


def limit_program(config: Config, seed: str, fault: Fault) -> Image:
    """Make a program of one instruction that exceeds a memory, after settings that it needs."""
    return program_alone(config, seed, lambda state: LimitWriter(state).write(fault))


def program_alone(config: Config, seed: str, write: Callable[[ProgramState], None]) -> Image:
    """Make a program of the instructions that `write` adds, after a Set_Register for each register.

    All data are zeros.
    """
    rng = random.Random(f"{config.name} {seed}")
    nothing = Span(0, 0)
    spans = Spans(
        lines=nothing,
        accumulators=nothing,
        entries=nothing,
        shared=nothing,
        parameters=nothing,
        tables=nothing,
        window=HOST_PAGE_BYTES * rng.randint(1, 16),
    )
    state = ProgramState(config, rng, spans)
    held = (0, *(rng.getrandbits(32) for _ in range(REGISTERS - 1)))
    for register, value in enumerate(held[1:], 1):
        signed = value - (value >> 31 << 32)
        state.emit(Opcode.SET_REGISTER, register=register, value=signed)
    state.registers = [held]
    write(state)
    state.emit(Opcode.HALT)
    weights = np.zeros(TILES * config.tile_bytes, np.uint8)
    return make_image(state.words, host=np.zeros(spans.window, np.uint8), weights=weights)
