# SPDX-License-Identifier: Apache-2.0
"""Every ordered pair of instructions that share a resource, the older one slow.

The older instruction waits for something with the full latency of a memory, the younger one could
go at once and would spoil the result. Long regions, so that a wait that ends too early shows.
"""

import numpy as np
import pytest

from systola.arch.config import preset
from systola.arch.isa import Function, Opcode, encode
from systola.golden.machine import Machine
from systola.sim.library import Simulator
from systola.verif.kit import scoreboard
from systola.verif.kit.images import make_image, random_memory, random_parameter_entry, random_tiles
from systola.verif.kit.launch import preset_name
from systola.verif.kit.seeds import random_seed

ROWS = 100
A, B, C, D = 0, ROWS, 2 * ROWS, 3 * ROWS
"""Regions of the buffer; A and B of the accumulators, too."""
INPUT, ENTRIES, TABLES, OUTPUT, SCRATCH, PAGES = 0x1000, 0x4000, 0x6000, 0x8000, 0xC000, 16


class Program:
    """Instructions on the regions above, in the words of the instruction set."""

    def __init__(self, config):
        self.config = config
        self.words = []

    def read(self, buffer, host=INPUT):
        self._copy(Opcode.READ_HOST_MEMORY, buffer, host, self.config.input_pitch, self.config.rows)

    def write(self, buffer, host=SCRATCH):
        pitch, columns = self.config.output_pitch, self.config.cols
        self._copy(Opcode.WRITE_HOST_MEMORY, buffer, host, pitch, columns)

    def _copy(self, opcode, buffer, host, stride, tail):
        where = {"host": host, "buffer": buffer, "rows": ROWS, "blocks": 1}
        self.words.append(encode(opcode, **where, stride=stride, tail=tail))

    def weights(self):
        self.words.append(encode(Opcode.READ_WEIGHTS, tile=len(self.words) % 4, count=1))

    def multiply(self, buffer, accumulator):
        where = {"buffer": buffer, "accumulator": accumulator, "rows": ROWS}
        self.words.append(encode(Opcode.MATRIX_MULTIPLY, **where, k_tiles=1, n_tiles=1))

    def activate(self, accumulator, buffer, parameter=0, table=0):
        where = {"accumulator": accumulator, "buffer": buffer, "rows": ROWS, "n_tiles": 1}
        how = {"parameter": parameter, "function": Function.TABLE, "table": table}
        self.words.append(encode(Opcode.ACTIVATE, **where, **how))

    def parameters(self, source=0, parameter=0, host=ENTRIES):
        entry = 9 * self.config.output_pitch
        where = {"host": host + source * entry, "parameter": parameter, "count": 1}
        self.words.append(encode(Opcode.LOAD_PARAMETERS, **where))

    def table(self, source=0, table=0, host=TABLES):
        self.words.append(encode(Opcode.LOAD_TABLE, host=host + 256 * source, table=table))

    def synchronize(self):
        self.words.append(encode(Opcode.SYNCHRONIZE))

    def slow_multiply(self, buffer, accumulator):
        """Its weights have not even been asked for, and it stands behind another one."""
        for source in (D, buffer):
            self.weights()
            self.multiply(source, accumulator)


def fill(p):
    """Gives all regions a value."""
    for buffer in (A, B, C, D):
        p.read(buffer, INPUT + 16 * buffer)
    p.parameters(0, 0)
    p.parameters(1, 1)
    p.table(0, 0)
    p.table(1, 1)
    for region in (A, B):
        p.slow_multiply(region, region)
    p.synchronize()


def show(p):
    """Brings all regions into host memory; sums by way of the buffer."""
    p.synchronize()
    for index, buffer in enumerate((A, B, C, D)):
        p.write(buffer, OUTPUT + index * 0x800)
    p.activate(A, A)
    p.activate(B, B)
    p.activate(A, C, parameter=1, table=1)
    for index, buffer in enumerate((A, B, C)):
        p.write(buffer, OUTPUT + (4 + index) * 0x800)


def multiply_reads_read_fills(p):
    p.slow_multiply(A, B)
    p.read(A, INPUT + 64)


def multiply_reads_activate_writes(p):
    p.slow_multiply(A, B)
    p.activate(A, A)


def multiply_sums_activate_reads(p):
    p.slow_multiply(A, B)
    p.activate(B, C)


def read_fills_multiply_reads(p):
    p.weights()
    p.synchronize()
    p.read(A, INPUT + 64)
    p.multiply(A, B)


def read_fills_activate_writes(p):
    p.read(C, INPUT + 64)
    p.activate(A, C)


def read_fills_write_reads(p):
    p.read(C, INPUT + 64)
    p.write(C)


def activate_reads_multiply_sums(p):
    p.weights()
    p.parameters(1, 0)
    p.activate(A, C)
    p.multiply(B, A)


def activate_writes_multiply_reads(p):
    p.weights()
    p.parameters(1, 0)
    p.activate(A, C)
    p.multiply(C, B)


def activate_writes_read_fills(p):
    p.slow_multiply(A, B)
    p.activate(B, C)
    p.read(C, INPUT + 64)


def activate_writes_write_reads(p):
    p.slow_multiply(A, B)
    p.activate(B, C)
    p.write(C)


def write_reads_read_fills(p):
    p.write(D)
    p.write(C, SCRATCH + 0x800)
    p.read(C, INPUT + 64)


def write_reads_activate_writes(p):
    p.write(D)
    p.write(C, SCRATCH + 0x800)
    p.activate(A, C)


def load_parameters_activate_reads(p):
    p.parameters(2, 0)
    p.activate(A, C)


def activate_reads_load_parameters(p):
    p.slow_multiply(A, B)
    p.activate(B, C)
    p.parameters(2, 0)


def load_table_activate_reads(p):
    p.table(2, 0)
    p.activate(A, C)


def activate_reads_load_table(p):
    p.slow_multiply(A, B)
    p.activate(B, C)
    p.table(2, 0)


def activate_reads_load_other_table(p):
    p.slow_multiply(A, B)
    p.activate(B, C, table=1)
    p.table(2, 1)


def write_sends_read_takes(p):
    p.slow_multiply(A, B)
    p.activate(B, C)
    p.write(C, INPUT)
    p.read(D, INPUT)


def read_takes_write_sends(p):
    p.read(D, INPUT)
    p.write(C, INPUT)


def write_sends_load_parameters_takes(p):
    p.write(C, ENTRIES)
    p.parameters(0, 0)


def write_sends_load_table_takes(p):
    p.write(C, TABLES)
    p.table(0, 0)


def load_parameters_takes_write_sends(p):
    p.parameters(2, 0)
    p.write(C, ENTRIES)


def load_table_takes_write_sends(p):
    p.table(2, 0)
    p.write(C, TABLES)


PAIRS = (
    multiply_reads_read_fills,
    multiply_reads_activate_writes,
    multiply_sums_activate_reads,
    read_fills_multiply_reads,
    read_fills_activate_writes,
    read_fills_write_reads,
    activate_reads_multiply_sums,
    activate_writes_multiply_reads,
    activate_writes_read_fills,
    activate_writes_write_reads,
    write_reads_read_fills,
    write_reads_activate_writes,
    load_parameters_activate_reads,
    activate_reads_load_parameters,
    load_table_activate_reads,
    activate_reads_load_table,
    activate_reads_load_other_table,
    write_sends_read_takes,
    read_takes_write_sends,
    write_sends_load_parameters_takes,
    write_sends_load_table_takes,
    load_parameters_takes_write_sends,
    load_table_takes_write_sends,
)


@pytest.mark.parametrize("latency", [0, 5, 60])
@pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: pair.__name__)
def test_pair(pair, latency):
    config = preset(preset_name("tiny"))
    rng = np.random.default_rng(random_seed())
    host = random_memory(rng, PAGES)
    entries = np.concatenate([random_parameter_entry(rng, config) for _ in range(4)])
    host[ENTRIES : ENTRIES + entries.size] = entries
    p = Program(config)
    fill(p)
    pair(p)
    show(p)
    image = make_image(
        [*p.words, encode(Opcode.HALT)], host=host, weights=random_tiles(rng, config, 4)
    )
    expected = image.host.copy()
    outcome = Machine(config).run(expected, image.weights, image.program_offset)
    assert outcome.fault is None
    with Simulator(config, latency=latency) as machine:
        result = machine.run(image, limit=100_000)
    scoreboard.check(expected, result.host)
