# SPDX-License-Identifier: Apache-2.0
"""Generated programs that compute with numbers of every size, and with numbers of few bits.

The numbers pass through the matrix unit's array and the lanes of the activation unit.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

import numpy as np

from systola.arch.config import HOST_PAGE_BYTES, Config
from systola.arch.image import Image
from systola.arch.isa import (
    CURVE_TABLES,
    PARAMETER_PLANES,
    TABLE_BYTES,
    TANH_INTEGER_BITS,
    Function,
    Opcode,
    Operation,
    Reduction,
    encode,
)
from systola.verif.kit.copies import lines_out
from systola.verif.kit.images import (
    make_image,
    random_memory,
    random_tiles,
    varied_parameter_entry,
)

_ROWS = 16
_LINES = 4 * _ROWS
_ENTRIES = 8
_TILES = 8
_DATA, _PARAMETERS, _TABLE, _OUTPUT = range(2 * HOST_PAGE_BYTES, 10 * HOST_PAGE_BYTES, 0x2000)
_PAGES = 24
_RECTIFIERS = (Function.NONE, Function.RELU, Function.RELU6)


def arithmetic_program(config: Config, seed: str, *, steps: int = 20) -> Image:
    """Make a program of matrix products, then `steps` instructions of the activation unit.

    If the machine has int16 modes, the program has products of int16 numbers, too.
    """
    rng = random.Random(seed)
    data = np.random.default_rng(rng.getrandbits(64))
    host = random_memory(data, _PAGES)
    lines = host[_DATA:][: 2 * _LINES * config.input_pitch].reshape(2 * _LINES, -1)
    kind = data.integers(0, 4, (len(lines), 1))
    few = np.where(data.random(lines.shape) < 0.2, lines, 0)
    small = (lines % 9 - 4) & 0xFF
    lines[:] = np.where(kind == 0, few, np.where(kind == 1, small, lines))
    entries = [varied_parameter_entry(data, config) for _ in range(_ENTRIES)]
    flat = np.concatenate(entries)
    assert flat.size == _ENTRIES * PARAMETER_PLANES * config.output_pitch <= 0x2000
    host[_PARAMETERS : _PARAMETERS + flat.size] = flat

    def place(size: int, used: int) -> int:
        return rng.choice((0, size - used, rng.randint(0, size - used)))

    line = place(config.buffer_lines, 3 * _LINES)
    row = place(config.accumulator_rows, 2 * _ROWS)
    entry = place(config.parameter_entries, _ENTRIES)
    words = [
        encode(
            Opcode.READ_HOST_MEMORY,
            host=_DATA,
            buffer=line,
            rows=3 * _LINES,  # the last third of the lines is for the results
            stride=config.input_pitch,
            blocks=1,
            tail=config.rows,
        ),
        encode(Opcode.LOAD_PARAMETERS, host=_PARAMETERS, parameter=entry, count=_ENTRIES),
    ]
    words += [
        encode(Opcode.LOAD_TABLE, host=_TABLE + TABLE_BYTES * table, table=table)
        for table in range(config.tables)
    ]
    for accumulate, wide in ((0, int(config.wide)), (1, 0)):
        words += [
            encode(Opcode.READ_WEIGHTS, tile=0, count=2 << wide),
            encode(
                Opcode.MATRIX_MULTIPLY,
                buffer=line,
                accumulator=row,
                rows=_ROWS,
                k_tiles=1,
                n_tiles=2,
                accumulate=accumulate,
                wide_vectors=wide,
                wide_weights=wide,
            ),
        ]
    writer = _Steps(config, rng, line, row, entry)
    for step in range(steps):
        words += writer.step()
        words.append(
            encode(
                Opcode.WRITE_HOST_MEMORY,
                **lines_out(
                    config,
                    host=_OUTPUT + step * _LINES * config.output_pitch,
                    line=line + 2 * _LINES,
                    rows=_LINES,
                ),
            )
        )
    words.append(encode(Opcode.HALT))
    return make_image(words, host=host, weights=random_tiles(data, config, _TILES))


class _Steps:
    """A writer of random instructions of the activation unit on two blocks of operand lines.

    The results go to the lines after the operands.
    """

    def __init__(self, config: Config, rng: random.Random, line: int, row: int, entry: int):
        self._config, self._rng = config, rng
        self._line, self._row, self._entry = line, row, entry

    def step(self) -> list[bytes]:
        """Return a random instruction, after the setting instructions that it needs."""
        kinds = [self._activate, self._activate, self._vector, self._vector, self._pool]
        if self._config.depthwise:
            kinds.append(self._depthwise)
        return self._rng.choice(kinds)()

    def _some(self) -> dict[str, int]:
        """Return random values of the fields that all instructions of the activation unit have."""
        rng = self._rng
        return {
            "parameter": self._entry + rng.randrange(_ENTRIES - 4),
            "rounding": rng.randrange(2),
            "zero_point": rng.randint(-128, 127),
        }

    def _function(self) -> dict[str, int]:
        rng = self._rng
        if not self._config.wide or rng.random() < 0.5:
            tables = self._config.tables
            function = rng.choice((*_RECTIFIERS, *([Function.TABLE] if tables else [])))
            return {"function": function, "table": rng.randrange(max(1, tables))}
        functions = [Function.NONE, Function.NONE, Function.SIGMOID, Function.TANH]
        functions += [Function.TABLE] * self._config.attention
        function = rng.choice(functions)
        last = self._config.tables - CURVE_TABLES
        table = rng.randint(0, last if function == Function.TABLE else TANH_INTEGER_BITS)
        return {"function": function, "table": table, "wide": 1, "accumulate": rng.randrange(2)}

    def _activate(self) -> list[bytes]:
        how = self._function()
        gate = how["function"] in (Function.SIGMOID, Function.TANH)
        return [
            encode(
                Opcode.ACTIVATE,
                accumulator=self._row,
                buffer=self._line + 2 * _LINES,
                rows=2 if gate else _ROWS,
                n_tiles=2,
                ceiling=self._rng.randint(-128, 127),
                **self._some(),
                **how,
            )
        ]

    def _vector(self) -> list[bytes]:
        rng, how = self._rng, self._function()
        gate = how["function"] in (Function.SIGMOID, Function.TANH)
        wide = rng.randrange(2) if self._config.wide else 0
        scale = {
            **{name: value for operand in "ab" for name, value in self._scale(operand, wide)},
            **{f"zero_{operand}": rng.randint(-128, 127) for operand in "ab"},
        }
        limit = rng.choice((0, rng.getrandbits(15)))
        return [
            encode(Opcode.SET_CONFIG_SCALE, **scale, ceiling=rng.randint(-128, 127), limit=limit),
            encode(
                Opcode.VECTOR,
                operation=rng.choice(list(Operation)),
                buffer=self._line,
                operand=self._line + _LINES,
                destination=self._line + 2 * _LINES,
                rows=2 if gate else 2 * _ROWS,
                wide_operands=wide,
                **self._some(),
                **how,
            ),
        ]

    def _scale(self, operand: str, wide: int) -> Iterator[tuple[str, int]]:
        """Yield multiplier and shift for an operand of Vector.

        Often the scaled numbers then lie halfway between two integers.
        """
        rng = self._rng
        if rng.random() < 0.5:
            less = rng.randint(0, 12)
            # number of bits by which an operand is shifted left before it is scaled
            bits = (15 if wide else 20) - less
            yield f"multiplier_{operand}", 1 << (30 - less)
            yield f"shift_{operand}", min(31, bits + rng.randint(0, 8))
        else:
            yield f"multiplier_{operand}", rng.randint(1 << 28, (1 << 31) - 1)
            yield f"shift_{operand}", rng.choice((0, 1, 4, 9, rng.randrange(32)))

    def _window(self, kernel: int) -> bytes:
        start = self._rng.choice((-1, 0))
        return encode(
            Opcode.SET_CONFIG_WINDOW,
            **{"height": 6, "width": 6, "pitch": 6, "top": start, "left": start},
            **{"kernel_height": kernel, "kernel_width": kernel},
            **{"stride_y": 1, "stride_x": 1, "dilation_y": 1, "dilation_x": 1},
            **{"out_height": 4, "out_width": 4},
        )

    def _pool(self) -> list[bytes]:
        low, high = sorted(self._rng.randint(-128, 127) for _ in range(2))
        return [
            self._window(2),
            encode(
                Opcode.POOL,
                buffer=self._line,
                destination=self._line + 2 * _LINES,
                blocks=1,
                reduction=self._rng.choice(list(Reduction)),
                floor=self._rng.choice((-128, low)),
                ceiling=self._rng.choice((127, high)),
                **self._some(),
            ),
        ]

    def _depthwise(self) -> list[bytes]:
        return [
            self._window(3),
            encode(
                Opcode.DEPTHWISE,
                buffer=self._line,
                taps=self._line + _LINES,
                destination=self._line + 2 * _LINES,
                blocks=1,
                function=self._rng.choice(_RECTIFIERS),
                ceiling=self._rng.randint(-128, 127),
                fill=self._rng.randint(-128, 127),
                **self._some(),
            ),
        ]
