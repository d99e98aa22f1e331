# SPDX-License-Identifier: Apache-2.0
"""Curves on the machine: all arguments of int16, against exact arithmetic, and the cycles."""

import numpy as np
import pytest

from systola.arch.config import preset
from systola.arch.isa import (
    CURVE_TABLES,
    PARAMETER_PLANES,
    TABLE_BYTES,
    Function,
    Opcode,
    Operation,
    encode,
)
from systola.sim.library import Simulator
from systola.timing.estimate import estimate
from systola.verif.kit.curves import CURVES, curve_bytes, curve_entries
from systola.verif.kit.images import make_image
from systola.verif.kit.seeds import random_seed

pytestmark = pytest.mark.thorough
PRESET = "4x4-training-attention"
CODES = np.arange(-(1 << 15), 1 << 15)
ROWS = 2048
"""Vectors of an instruction: both of their lines fill half of the buffer."""
_PARAMETERS, _TABLES, _INPUT = 1024, 2048, 4096
"""Places after the program in host memory."""
VECTOR_CYCLES = 2
"""Cycles from one vector of int16 to the next."""


def codes_as_lines(codes, cols):
    """Return int16 codes as pairs of lines: low bytes, high bytes."""
    pairs = codes.astype("<i2").reshape(-1, cols).view(np.uint8).reshape(-1, cols, 2)
    return pairs.swapaxes(1, 2).reshape(-1, cols)


def program(config, entries, table):
    """Return an image that takes all codes through a curve, and the place of the results."""
    size = 2 * len(CODES)
    host = np.zeros(_INPUT + 2 * size, np.uint8)
    planes = host[_PARAMETERS:][: PARAMETER_PLANES * config.output_pitch]
    planes = planes.reshape(PARAMETER_PLANES, -1)
    planes[7], planes[8] = 0x40, 1 << 5  # 2 x 2^30 / 2^31
    host[_TABLES : _TABLES + CURVE_TABLES * TABLE_BYTES] = curve_bytes(entries)
    lines = codes_as_lines(CODES, config.cols)
    host[_INPUT : _INPUT + size] = lines.ravel()
    words = [encode(Opcode.LOAD_PARAMETERS, host=_PARAMETERS, parameter=0, count=1)]
    words += [
        encode(Opcode.LOAD_TABLE, host=_TABLES + TABLE_BYTES * n, table=table + n)
        for n in range(CURVE_TABLES)
    ]
    pitch = config.input_pitch
    copy = {"stride": pitch, "blocks": 1, "tail": config.cols, "rows": 2 * ROWS}
    for first in range(0, len(lines), 2 * ROWS):
        place = first % (4 * ROWS)
        words += [
            encode(Opcode.READ_HOST_MEMORY, host=_INPUT + first * pitch, buffer=place, **copy),
            encode(
                Opcode.VECTOR,
                operation=Operation.COPY,
                buffer=place,
                destination=place,
                rows=ROWS,
                parameter=0,
                function=Function.TABLE,
                table=table,
                wide=1,
                wide_operands=1,
            ),
            encode(
                Opcode.WRITE_HOST_MEMORY,
                host=_INPUT + size + first * pitch,
                buffer=place,
                **copy,
            ),
        ]
    return make_image([*words, encode(Opcode.HALT)], host=host), _INPUT + size


def test_all_arguments():
    config = preset(PRESET)
    with Simulator(config, seed=random_seed()) as machine:
        for number, (name, (_, *scales)) in enumerate(CURVES.items()):
            curve = curve_entries(name, *scales)
            image, place = program(config, curve, number)
            result = machine.run(image)
            i, f = 256 + (CODES >> 7), CODES & 127
            wide = curve.astype(np.int64)
            expected = wide[i] + (((wide[i + 1] - wide[i]) * f + 64) >> 7)
            found = result.host[place : place + 2 * len(CODES)]
            assert np.array_equal(found, codes_as_lines(expected, config.cols).ravel()), name
            assert result.cycles == pytest.approx(estimate(config, image).cycles, rel=0.01), name


def test_two_cycles_a_vector():
    """A Vector takes two cycles for each of its vectors, one for each line that it writes."""
    config = preset(PRESET)
    cycles = []
    with Simulator(config, seed=random_seed()) as machine:
        for rows in (100, 1100):
            copy = {"operation": Operation.COPY, "buffer": 0, "destination": 0, "parameter": 0}
            curve = {"function": Function.TABLE, "wide": 1, "wide_operands": 1}
            words = [encode(Opcode.VECTOR, **copy, **curve, rows=rows), encode(Opcode.HALT)]
            cycles.append(machine.run(make_image(words, host=np.zeros(4096, np.uint8))).cycles)
    assert cycles[1] - cycles[0] == 1000 * VECTOR_CYCLES
