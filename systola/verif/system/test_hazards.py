# SPDX-License-Identifier: Apache-2.0
"""The test of hazards: each ordered pair of instructions that share a resource.

The unit of the older instruction is kept busy. The younger instruction could run at once, and would
spoil the result. Regions are long, so that a wait that ends too early is found. The region of the
younger instruction begins at the beginning or at the end of the older instruction's region. So an
instruction that follows too early in the same unit is found, too.
"""

import itertools

import numpy as np
import pytest

from systola.arch.config import preset
from systola.arch.features import unavailable
from systola.arch.isa import Function, Opcode, Operation, Reduction, decode, encode
from systola.golden.machine import Machine
from systola.sim.library import Simulator
from systola.verif.kit import scoreboard
from systola.verif.kit.images import make_image, random_memory, random_tiles, varied_parameter_entry
from systola.verif.kit.launch import preset_name
from systola.verif.kit.seeds import random_seed
from systola.verif.plan.selection import exhaustive

LATENCIES = (60, exhaustive(0))
"""Latencies of the memories in cycles. The quick test has the longer latency: with it, data for an
older instruction come late."""
SIDE = 8
ROWS = SIDE * SIDE
WIDE_ROWS = 2 * ROWS
SHARED, SOURCE, OLDER, YOUNGER, BUSY, IDLE, LINES = 0, 256, 448, 576, 704, 768, 832
"""First buffer lines of the regions; LINES is the end of the last region.

The order is: shared lines, other lines that are read, results of the older instruction, results of
the younger instruction. Then come lines for work that keeps units busy, and results of this work.
"""
ROW_SHARED, ROW_SOURCE, ROW_OLDER, ACCUMULATORS = 0, 128, 192, 256
ROW_YOUNGER = ROW_SHARED
"""First accumulator rows of the regions, which have the names of the regions of the buffer.

ROW_OLDER also takes the sums that keep the array busy. The younger instruction needs ROW_YOUNGER
only if the shared resource is not the rows, so it may equal ROW_SHARED.
"""
HOST_SHARED, HOST_OLDER, HOST_YOUNGER, ENTRIES, TABLES, OUTPUT = range(0x1000, 0xD000, 0x2000)
PAGES = 24
TILES, ENTRY, TABLE = 32, 2, 1
ENTRIES_FILLED = ENTRY + 3
"""Number of parameter entries that are loaded.

Averages of four taps need one entry more than other instructions.
"""


class Program:
    """A program under construction; the method named by a mnemonic adds an instruction."""

    def __init__(self, config):
        self.config = config
        self.words = []

    def __call__(self, opcode, **operands):
        self.words.append(encode(opcode, **operands))

    def copy(self, opcode, host, buffer, rows=ROWS):
        """Add a copy of `rows` lines: rows of one block or, in an alternate copy, of two blocks."""
        reads = opcode.name.startswith("READ")
        pitch = self.config.input_pitch if reads else self.config.output_pitch
        blocks = 2 if opcode.name.endswith("ALTERNATE") else 1
        where = {"host": host, "buffer": buffer, "rows": rows // blocks, "blocks": blocks}
        tail = self.config.rows if reads else self.config.cols
        self(opcode, **where, stride=blocks * pitch, tail=tail)

    def weights(self, count=1):
        self(Opcode.READ_WEIGHTS, tile=len(self.words) % (TILES - count), count=count)

    def multiply(self, buffer, accumulator, **how):
        where = {"buffer": buffer, "accumulator": accumulator, "rows": ROWS}
        self(Opcode.MATRIX_MULTIPLY, **where, k_tiles=1, n_tiles=1, **how)

    def window(self, kernel=1, pad=0, out=SIDE):
        self(
            Opcode.SET_CONFIG_WINDOW,
            **{"height": SIDE, "width": SIDE, "pitch": SIDE, "top": -pad, "left": -pad},
            **{"kernel_height": kernel, "kernel_width": kernel},
            **{"stride_y": 1, "stride_x": 1, "dilation_y": 1, "dilation_x": 1},
            **{"out_height": out, "out_width": out},
        )

    def scale(self, number):
        factors = {"multiplier_a": 3 << 28, "multiplier_b": 5 << 28, "shift_a": number}
        self(Opcode.SET_CONFIG_SCALE, **factors, shift_b=2, zero_a=number, ceiling=90)

    def activate(self, accumulator, buffer, **how):
        where = {"accumulator": accumulator, "buffer": buffer, "rows": ROWS, "n_tiles": 1}
        self(Opcode.ACTIVATE, **{**where, "parameter": 0, **how})

    def vector(self, a, b, result, **how):
        where = {"buffer": a, "operand": b, "destination": result, "rows": ROWS}
        self(Opcode.VECTOR, **{**where, "operation": Operation.ADD, "parameter": 1, **how})

    def pool(self, buffer, result, **how):
        where = {"buffer": buffer, "destination": result, "blocks": 1, "parameter": 2}
        self(Opcode.POOL, **{**where, "reduction": Reduction.SUM, **how})

    def depthwise(self, buffer, taps, result, **how):
        where = {"buffer": buffer, "taps": taps, "destination": result, "blocks": 1}
        self(Opcode.DEPTHWISE, **{**where, "parameter": 1, **how})

    def parameters(self, source, parameter=ENTRY, host=ENTRIES):
        size = 9 * self.config.output_pitch
        self(Opcode.LOAD_PARAMETERS, host=host + source * size, parameter=parameter, count=1)

    def table(self, source, table=TABLE, host=TABLES):
        self(Opcode.LOAD_TABLE, host=host + 256 * source, table=table)

    def synchronize(self):
        self(Opcode.SYNCHRONIZE)


class Access:
    """A use of a resource by an instruction: `use(program, shared, lines, rows, host)`.

    `shared` is the first address of the shared resource. `lines`, `rows` and `host` are the first
    addresses of other operands. `unit` is the instruction's unit, `tiles` the number of weight
    tiles that it takes, and `size` the number of shared lines or rows.
    """

    def __init__(self, unit, use, tiles=0, size=ROWS):
        self.unit, self.use, self.tiles, self.size = unit, use, tiles, size

    def prepare(self, p):
        """Add instructions that the use needs, and that can run long before it."""
        if self.tiles:
            p.weights(self.tiles)

    def delay(self, p):
        """Add instructions that keep the unit of this use busy for a while."""
        if self.unit == "matrix":
            # The use waits for another product, and the weights of the use are not yet requested.
            p.weights()
            p.multiply(BUSY, ROW_OLDER)
            p.weights(self.tiles)
        elif self.unit == "activation":
            p.window(kernel=SIDE, pad=1, out=3)
            p.pool(BUSY, IDLE)
        elif self.unit == "host reads":
            p.copy(Opcode.READ_HOST_MEMORY, HOST_OLDER, IDLE)
        else:
            p.copy(Opcode.WRITE_HOST_MEMORY, HOST_OLDER, BUSY)


def windowed(emit, **window):
    """Return the use `emit`, preceded by a Set_Config_Window with the given operands."""

    def use(p, shared, lines, rows, host):
        p.window(**window)
        emit(p, shared, lines, rows, host)

    return use


def copied(opcode):
    reads = opcode.name.startswith("READ")
    return Access(
        "host reads" if reads else "host writes",
        lambda p, shared, lines, rows, host: p.copy(opcode, host, shared),
    )


def sent(opcode):
    """Return an access that copies from or to host memory, which is the shared resource."""
    reads = opcode.name.startswith("READ")
    return Access(
        "host reads" if reads else "host writes",
        lambda p, shared, lines, rows, host: p.copy(opcode, shared, lines if reads else SOURCE),
    )


def convolve(p, buffer, accumulator, **how):
    where = {"buffer": buffer, "accumulator": accumulator, "plane": 0, "k_tiles": 1, "n_tiles": 1}
    p(Opcode.CONVOLVE, **where, **how)


WIDE = {"wide": 1}
WIDE_OPERANDS = {"wide_operands": 1}
ADDEND = {"wide": 1, "accumulate": 1}
LOOKUP = {"function": Function.TABLE, "table": TABLE}

LINE_WRITERS = {
    "read": copied(Opcode.READ_HOST_MEMORY),
    "read_alternate": copied(Opcode.READ_HOST_MEMORY_ALTERNATE),
    "activate": Access("activation", lambda p, x, *_: p.activate(ROW_SOURCE, x)),
    "activate_wide": Access(
        "activation", lambda p, x, *_: p.activate(ROW_SOURCE, x, **WIDE), size=WIDE_ROWS
    ),
    "depthwise": Access(
        "activation",
        windowed(lambda p, x, *_: p.depthwise(SOURCE, SOURCE, x), kernel=3, pad=1),
    ),
    "pool": Access("activation", windowed(lambda p, x, *_: p.pool(SOURCE, x), kernel=2)),
    "vector": Access("activation", lambda p, x, *_: p.vector(SOURCE, SOURCE + 9, x)),
    "vector_wide": Access(
        "activation", lambda p, x, *_: p.vector(SOURCE, SOURCE + 9, x, **WIDE), size=WIDE_ROWS
    ),
}
LINE_READERS = {
    "multiply": Access("matrix", lambda p, x, lines, rows, _: p.multiply(x, rows), 1),
    "multiply_wide": Access(
        "matrix", lambda p, x, lines, rows, _: p.multiply(x, rows, wide_vectors=1), 1, WIDE_ROWS
    ),
    "convolve": Access(
        "matrix",
        windowed(lambda p, x, lines, rows, _: convolve(p, x, rows), kernel=3, pad=1),
        9,
    ),
    "convolve_packed": Access(
        "matrix",
        windowed(lambda p, x, lines, rows, _: convolve(p, x, rows, channels=2), kernel=2),
        2,
    ),
    "activate_addend": Access(
        "activation", lambda p, x, *_: p.activate(ROW_SOURCE, x, **ADDEND), size=WIDE_ROWS
    ),
    "depthwise_map": Access(
        "activation",
        windowed(lambda p, x, lines, *_: p.depthwise(x, SOURCE, lines), kernel=3, pad=1),
    ),
    "depthwise_taps": Access(
        "activation",
        windowed(lambda p, x, lines, *_: p.depthwise(SOURCE, x, lines), kernel=SIDE, out=1),
    ),
    "pool": Access(
        "activation", windowed(lambda p, x, lines, *_: p.pool(x, lines), kernel=2, pad=1)
    ),
    "vector_a": Access("activation", lambda p, x, lines, *_: p.vector(x, SOURCE, lines)),
    "vector_b": Access("activation", lambda p, x, lines, *_: p.vector(SOURCE, x, lines)),
    "vector_b_wide": Access(
        "activation",
        lambda p, x, lines, *_: p.vector(SOURCE, x, lines, **WIDE_OPERANDS),
        size=WIDE_ROWS,
    ),
    "vector_addend": Access(
        "activation", lambda p, x, *_: p.vector(SOURCE, SOURCE, x, **ADDEND), size=WIDE_ROWS
    ),
    "write": copied(Opcode.WRITE_HOST_MEMORY),
    "write_alternate": copied(Opcode.WRITE_HOST_MEMORY_ALTERNATE),
}
ROW_WRITERS = {
    "multiply": Access("matrix", lambda p, x, *_: p.multiply(SOURCE, x), 1),
    "multiply_added": Access("matrix", lambda p, x, *_: p.multiply(SOURCE, x, accumulate=1), 1),
    "convolve": Access(
        "matrix", windowed(lambda p, x, *_: convolve(p, SOURCE, x), kernel=3, pad=1), 9
    ),
}
ROW_READERS = {
    "activate": Access("activation", lambda p, x, lines, *_: p.activate(x, lines)),
    "activate_wide": Access("activation", lambda p, x, lines, *_: p.activate(x, lines, **WIDE)),
}
PARAMETER_WRITERS = {"load": Access("host reads", lambda p, x, *_: p.parameters(3, x))}
PARAMETER_READERS = {
    "activate": Access(
        "activation", lambda p, x, lines, *_: p.activate(ROW_SOURCE, lines, parameter=x)
    ),
    "depthwise": Access(
        "activation",
        windowed(lambda p, x, lines, *_: p.depthwise(SOURCE, SOURCE, lines, parameter=x), kernel=2),
    ),
    "pool": Access(
        "activation",
        windowed(lambda p, x, lines, *_: p.pool(SOURCE, lines, parameter=x), kernel=2),
    ),
    "average": Access(
        "activation",
        windowed(
            lambda p, x, lines, *_: p.pool(
                SOURCE, lines, parameter=x - 1, reduction=Reduction.AVERAGE
            ),
            kernel=2,
        ),
    ),
    "vector": Access(
        "activation", lambda p, x, lines, *_: p.vector(SOURCE, SOURCE, lines, parameter=x)
    ),
}
TABLE_WRITERS = {"load": Access("host reads", lambda p, x, *_: p.table(2, x))}
TABLE_READERS = {
    "activate": Access(
        "activation", lambda p, x, lines, *_: p.activate(ROW_SOURCE, lines, **LOOKUP)
    ),
    "vector": Access(
        "activation", lambda p, x, lines, *_: p.vector(SOURCE, SOURCE, lines, **LOOKUP)
    ),
}
HOST_WRITERS = {
    "write": sent(Opcode.WRITE_HOST_MEMORY),
    "write_alternate": sent(Opcode.WRITE_HOST_MEMORY_ALTERNATE),
}
HOST_READERS = {
    "read": sent(Opcode.READ_HOST_MEMORY),
    "read_alternate": sent(Opcode.READ_HOST_MEMORY_ALTERNATE),
    "load_parameters": Access("host reads", lambda p, x, *_: p.parameters(0, 0, host=x)),
    "load_table": Access("host reads", lambda p, x, *_: p.table(0, 0, host=x)),
}
SCALE_WRITERS = {"set": Access("activation", lambda p, x, *_: p.scale(5))}
SCALE_READERS = {
    "vector": Access("activation", lambda p, x, lines, *_: p.vector(SOURCE, SOURCE + 9, lines))
}
RESOURCES = {
    "lines": (SHARED, LINE_WRITERS, LINE_READERS),
    "rows": (ROW_SHARED, ROW_WRITERS, ROW_READERS),
    "parameters": (ENTRY, PARAMETER_WRITERS, PARAMETER_READERS),
    "table": (TABLE, TABLE_WRITERS, TABLE_READERS),
    "host": (HOST_SHARED, HOST_WRITERS, HOST_READERS),
    "scale": (None, SCALE_WRITERS, SCALE_READERS),
}


def pairs():
    """Yield pairs of accesses: read after write, write after read, write after write."""
    for resource, (place, writers, readers) in RESOURCES.items():
        both = [(f"writes_{name}", access) for name, access in writers.items()]
        both += [(f"reads_{name}", access) for name, access in readers.items()]
        for (old, older), (new, younger) in itertools.product(both, both):
            if not (old.startswith("writes") or new.startswith("writes")):
                continue
            name = f"{resource}-{old}-{new}"
            # Only read after write runs in quick tests. The other orders are in random programs
            # and in test_scoreboard, which are quick.
            read_after_write = old.startswith("writes") and new.startswith("reads")
            marks = () if read_after_write else pytest.mark.thorough
            yield pytest.param(place, place, older, younger, id=name, marks=marks)
            if resource in ("lines", "rows"):
                end = place + older.size - 1
                at_the_end = (place, end, older, younger)
                yield pytest.param(*at_the_end, id=f"{name}-at_the_end", marks=pytest.mark.thorough)


def fill(p):
    """Add instructions that give all regions a value."""
    for buffer in range(0, LINES, ROWS):
        p.copy(Opcode.READ_HOST_MEMORY, HOST_SHARED + 8 * buffer, buffer)
    for entry in range(ENTRIES_FILLED):
        p.parameters(entry, entry)
    for table in range(p.config.tables):
        p.table(table, table)
    for accumulator in range(0, ACCUMULATORS, ROWS):
        p.weights()
        p.multiply(accumulator, accumulator)
    p.scale(1)
    p.synchronize()


def show(p):
    """Add instructions that write all regions to host memory, sums by way of the buffer."""
    p.synchronize()
    host = OUTPUT
    for buffer in (*range(SHARED, SOURCE, ROWS), *range(OLDER, BUSY, ROWS)):
        p.copy(Opcode.WRITE_HOST_MEMORY, host, buffer)
        host += ROWS * p.config.output_pitch
    for accumulator in range(0, ACCUMULATORS, ROWS):
        p.activate(accumulator, accumulator)
        p.copy(Opcode.WRITE_HOST_MEMORY, host, accumulator)
        host += ROWS * p.config.output_pitch
    p.activate(ROW_SOURCE, SHARED, parameter=ENTRY, **(LOOKUP if p.config.tables else {}))
    p.copy(Opcode.WRITE_HOST_MEMORY, host, SHARED)


@pytest.mark.parametrize("latency", LATENCIES)
@pytest.mark.parametrize(("place", "second", "older", "younger"), list(pairs()))
def test_pair(place, second, older, younger, latency):
    """Check that two accesses to a resource give the golden model's bytes, so are in order.

    The older access begins at the address `place`, and the younger access at `second`.
    """
    config = preset(preset_name("small-training"))  # other quick tests build this machine, too
    rng = np.random.default_rng(random_seed())
    host = random_memory(rng, PAGES)
    entries = np.concatenate([varied_parameter_entry(rng, config) for _ in range(ENTRIES_FILLED)])
    host[ENTRIES : ENTRIES + entries.size] = entries
    p = Program(config)
    fill(p)
    younger.prepare(p)
    p.synchronize()
    older.delay(p)
    older.use(p, place, OLDER, ROW_OLDER, HOST_OLDER)
    younger.use(p, second, YOUNGER, ROW_YOUNGER, HOST_YOUNGER)
    show(p)
    for word in p.words:
        entry, operands = decode(word)
        if why := unavailable(config, entry.opcode, operands):
            pytest.skip(why)
    image = make_image(
        [*p.words, encode(Opcode.HALT)], host=host, weights=random_tiles(rng, config, TILES)
    )
    expected = image.host.copy()
    outcome = Machine(config).run(expected, image.weights, image.program_offset)
    scoreboard.check_end(outcome.fault)
    with Simulator(config, latency=latency) as machine:
        result = scoreboard.halted(machine.run(image, limit=100_000))
    difference = scoreboard.difference(expected, result.host)
    assert difference is None, difference
