# SPDX-License-Identifier: Apache-2.0
"""The test of partitions among loads, reads and users of their entries, with small sums.

Sums are small, so that each entry leaves its mark on results. Random programs rarely have such
sums.
"""

import random

import numpy as np
import pytest

from systola.arch.config import HOST_PAGE_BYTES, preset
from systola.arch.isa import (
    LONG_TABLES,
    PARAMETER_PLANES,
    TABLE_BYTES,
    Function,
    Opcode,
    Operation,
    Unit,
    encode,
)
from systola.golden.machine import Machine
from systola.sim.library import Simulator
from systola.verif.kit.compared_run import compared_run
from systola.verif.kit.images import make_image
from systola.verif.kit.seeds import random_seed

pytestmark = pytest.mark.thorough
CONFIG = preset("4x4-training-attention")
ENTRIES, LINES, PROGRAMS, LENGTH = 3, 48, 40, 60
RESULTS = 256
"""First line of the results of instructions that use entries."""
SMALL, LARGE = 0, LONG_TABLES
"""Tables of int32: small numbers for partitions, and large numbers that entries divide."""
_ENTRIES, _TABLES, _LINES, _OUTPUT = (page * HOST_PAGE_BYTES for page in (2, 3, 5, 6))
"""Offsets in host memory. There are two sets of numbers for each table of int32."""


def host_memory(rng):
    """Return random host memory, with two sets of small numbers and two of large numbers."""
    host = np.frombuffer(rng.randbytes(8 * HOST_PAGE_BYTES), np.uint8).copy()
    numbers = host[_TABLES : _TABLES + 4 * LONG_TABLES * TABLE_BYTES].view("<u4").reshape(4, -1)
    numbers[::2] >>= 22
    return host


class Writer:
    """A writer of random programs in which partitions conflict with older instructions."""

    def __init__(self, rng):
        self._rng = rng
        self.words = []
        self._result = RESULTS

    def _emit(self, opcode, **operands):
        self.words.append(encode(opcode, **operands))

    def load_entries(self, first, count):
        size = PARAMETER_PLANES * CONFIG.output_pitch
        place = {"host": _ENTRIES + size * self._rng.randrange(8), "count": count}
        self._emit(Opcode.LOAD_PARAMETERS, parameter=first, **place)

    def load_table(self, number):
        kind, part = divmod(number, LONG_TABLES)
        chosen = 2 * self._rng.randrange(2) + kind
        host = _TABLES + (LONG_TABLES * chosen + part) * TABLE_BYTES
        self._emit(Opcode.LOAD_TABLE, host=host, table=number)

    def read_lines(self, first, rows):
        self._emit(
            Opcode.READ_HOST_MEMORY,
            host=_LINES + CONFIG.input_pitch * self._rng.randrange(64),
            buffer=first,
            rows=rows,
            blocks=1,
            stride=CONFIG.input_pitch,
            tail=CONFIG.cols,
        )

    def some_load(self):
        kind = self._rng.randrange(3)
        if kind == 0:
            self.load_entries(self._rng.randrange(ENTRIES), self._rng.choice((1, 1, 2)))
        elif kind == 1:
            self.load_table(self._rng.randrange(2 * LONG_TABLES))
        else:
            rows = self._rng.choice((1, 4, 12))
            self.read_lines(self._rng.randrange(LINES - rows), rows)

    def partition(self):
        rows = self._rng.choice((1, 2, 9, 30))
        self._vector(
            Operation.ADD,
            operand=self._rng.randrange(LINES),
            destination=self._rng.getrandbits(20),
            rows=rows,
            table=SMALL,
            accumulate=1,
        )

    def use(self):
        rows = self._rng.choice((1, 2, 5))
        at = {"destination": self._result, "rows": rows, "table": LARGE, "wide": 1}
        self._vector(Operation.COPY, **at)
        self._result += 2 * rows

    def copy_lines(self):
        rows = self._rng.choice((1, 3))
        place = {"destination": self._rng.randrange(LINES - rows), "rows": rows, "table": LARGE}
        operand = self._rng.randrange(LINES)
        operation = self._rng.choice((Operation.COPY, Operation.ADD))
        self._vector(operation, operand=operand, buffer=LINES, **place)

    def _vector(self, operation, *, rows, **more):
        at = {"buffer": self._rng.randrange(LINES - rows), "parameter": self._entry(), **more}
        how = {"function": Function.QUOTIENT, "zero_point": self._rng.randrange(-9, 9)}
        self._emit(Opcode.VECTOR, operation=operation, rows=rows, **how, **at)

    def _entry(self):
        return self._rng.randrange(ENTRIES)

    def program(self):
        """Return the instructions of a program that writes all results to host memory."""
        self.load_entries(0, ENTRIES)
        for number in range(2 * LONG_TABLES):
            self.load_table(number)
        self.read_lines(0, LINES + 3)
        steps = [self.some_load, self.copy_lines, *[self.partition, self.use] * 2]
        for _ in range(LENGTH):
            self._rng.choice(steps)()
        self._emit(Opcode.DEBUG_TAG, tag=1, wait=Unit.ACTIVATION_UNIT)
        copy = {"rows": self._result - RESULTS, "blocks": 1, "tail": CONFIG.cols}
        pitch = CONFIG.output_pitch
        self._emit(Opcode.WRITE_HOST_MEMORY, host=_OUTPUT, buffer=RESULTS, stride=pitch, **copy)
        self._emit(Opcode.HALT)
        return self.words


@pytest.mark.parametrize(("latency", "stall"), [(0, 0.0), (40, 0.1)])
def test_partitions_among_loads_and_users(latency, stall):
    golden = Machine(CONFIG)
    with Simulator(CONFIG, latency=latency, stall=stall, seed=1) as machine:
        for index in range(PROGRAMS):
            rng = random.Random(f"{random_seed()} {index}")
            image = make_image(Writer(rng).program(), host=host_memory(rng))
            compared_run(machine, golden, image)
            results = golden.buffer[RESULTS:]
            assert len(np.unique(results)) > 50
