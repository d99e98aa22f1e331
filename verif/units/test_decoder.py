# SPDX-License-Identifier: Apache-2.0
"""The decoder against the instruction set: each instruction, each fault, in plain Python."""

import cocotb
import pytest

from systola.arch.isa import (
    BY_OPCODE,
    INSTRUCTIONS,
    PARAMETER_PLANES,
    TABLE_BYTES,
    Fault,
    Function,
    Opcode,
)
from systola.hdl.commands import PARAMETER_SPACE, TABLE_SPACE
from systola.hdl.decoder import Decoded, Decoder
from systola.hdl.fetch import FetchedInstruction
from systola.verif.kit.checker import StreamChecker
from systola.verif.kit.launch import simulators
from systola.verif.kit.stream import StreamMonitor, StreamSink, StreamSource, never, randomly
from systola.verif.units.unit import Bench, rng, run_unit, small_config, to_bits

CONFIG = small_config(
    rows=5,
    cols=6,
    columns_per_stage=2,
    host_bus_bytes=8,
    weight_bus_bytes=4,
    buffer_lines=500,
    accumulator_rows=300,
    parameter_entries=40,
    tables=3,
)
LIMIT = 3 * 4096
TILES = 70
INPUT_PITCH, OUTPUT_PITCH, TILE_BYTES = 8, 8, 5 * 8
COUNT = 1500
LATENCY = 2


def unit():
    return Decoder(config=CONFIG)


def word(opcode, operands):
    """The instruction word, fields of any value."""
    value = int(opcode)
    entry = BY_OPCODE[opcode]
    for field in entry.fields:
        bits = operands[field.name] & ((1 << field.width) - 1)
        value |= bits << entry.offset(field.name)
    return value


def ends(opcode, f):
    """End of each region that the instruction uses, as the instruction set says."""
    found = {}
    if opcode in (Opcode.READ_HOST_MEMORY, Opcode.WRITE_HOST_MEMORY):
        pitch = INPUT_PITCH if opcode == Opcode.READ_HOST_MEMORY else OUTPUT_PITCH
        found["buffer"] = f["buffer"] + f["rows"] * f["blocks"]
        found["host"] = f["host"] + (f["rows"] - 1) * f["stride"] + f["blocks"] * pitch
    elif opcode == Opcode.LOAD_PARAMETERS:
        found["parameter"] = f["parameter"] + f["count"]
        found["host"] = f["host"] + f["count"] * PARAMETER_PLANES * OUTPUT_PITCH
    elif opcode == Opcode.LOAD_TABLE:
        found["table"] = f["table"] + 1
        found["host"] = f["host"] + TABLE_BYTES
    elif opcode == Opcode.READ_WEIGHTS:
        found["tile"] = f["tile"] + f["count"]
    elif opcode == Opcode.MATRIX_MULTIPLY:
        found["buffer"] = f["buffer"] + f["rows"] * f["k_tiles"]
        found["accumulator"] = f["accumulator"] + f["rows"] * f["n_tiles"]
    elif opcode == Opcode.ACTIVATE:
        found["buffer"] = f["buffer"] + f["rows"] * f["n_tiles"]
        found["accumulator"] = f["accumulator"] + f["rows"] * f["n_tiles"]
        found["parameter"] = f["parameter"] + f["n_tiles"]
        if f["function"] == Function.TABLE:
            found["table"] = f["table"] + 1
    return found


LIMITS = {
    Fault.BUFFER_RANGE: ("buffer", CONFIG.buffer_lines),
    Fault.ACCUMULATOR_RANGE: ("accumulator", CONFIG.accumulator_rows),
    Fault.PARAMETER_RANGE: ("parameter", CONFIG.parameter_entries),
    Fault.TABLE_RANGE: ("table", CONFIG.tables),
    Fault.HOST_WINDOW: ("host", LIMIT),
    Fault.WEIGHT_WINDOW: ("tile", TILES),
}
ORDER = {
    Opcode.READ_HOST_MEMORY: (Fault.BUFFER_RANGE, Fault.HOST_WINDOW),
    Opcode.WRITE_HOST_MEMORY: (Fault.BUFFER_RANGE, Fault.HOST_WINDOW),
    Opcode.LOAD_PARAMETERS: (Fault.PARAMETER_RANGE, Fault.HOST_WINDOW),
    Opcode.LOAD_TABLE: (Fault.TABLE_RANGE, Fault.HOST_WINDOW),
    Opcode.READ_WEIGHTS: (Fault.WEIGHT_WINDOW,),
    Opcode.MATRIX_MULTIPLY: (Fault.BUFFER_RANGE, Fault.ACCUMULATOR_RANGE),
    Opcode.ACTIVATE: (
        Fault.ACCUMULATOR_RANGE,
        Fault.BUFFER_RANGE,
        Fault.PARAMETER_RANGE,
        Fault.TABLE_RANGE,
    ),
}


def fault(bits, error):
    """Cause and address of an instruction word, NONE and 0 where it is right."""
    if error:
        return Fault.FETCH_ERROR, 0
    number = bits & 0xFF
    if number not in set(Opcode):
        return Fault.ILLEGAL_OPCODE, number
    opcode = Opcode(number)
    f = operands_of(opcode, bits)
    if bits >> BY_OPCODE[opcode].width:
        return Fault.ILLEGAL_FIELD, 0
    for name in ("rows", "blocks", "tail", "count", "k_tiles", "n_tiles"):
        if f.get(name) == 0:
            return Fault.ILLEGAL_FIELD, 0
    if f.get("host", 0) % CONFIG.host_bus_bytes or f.get("stride", 0) % CONFIG.host_bus_bytes:
        return Fault.ILLEGAL_FIELD, 0
    longest = CONFIG.rows if opcode == Opcode.READ_HOST_MEMORY else CONFIG.cols
    if f.get("tail", 1) > longest:
        return Fault.ILLEGAL_FIELD, 0
    region_ends = ends(opcode, f)
    for cause in ORDER.get(opcode, ()):
        name, limit = LIMITS[cause]
        if region_ends.get(name, 0) > limit:
            return cause, f[name]
    return Fault.NONE, 0


def operands_of(opcode, bits):
    """The fields of a word, by name."""
    found = {}
    for field in BY_OPCODE[opcode].fields:
        value = bits >> BY_OPCODE[opcode].offset(field.name) & ((1 << field.width) - 1)
        if field.signed and value >> (field.width - 1):
            value -= 1 << field.width
        found[field.name] = value
    return found


def runs(transfer, pitch):
    """Start and bytes of each run of a transfer, joined where they touch."""
    starts = [
        transfer.address + row * transfer.stride + block * pitch
        for block in range(transfer.blocks)
        for row in range(transfer.rows)
    ]
    return joined(starts, transfer.beats * CONFIG.host_bus_bytes)


def joined(starts, size):
    """Runs of `size` bytes at `starts`, joined where they touch."""
    found = []
    for start in starts:
        if found and sum(found[-1]) == start:
            found[-1] = found[-1][0], found[-1][1] + size
        else:
            found.append((start, size))
    return found


def check_operands(d, opcode, f):
    """The decoded instruction `d` says what its fields `f` mean."""
    end = ends(opcode, f)

    def region(view):
        return view.base, view.end

    if opcode in (Opcode.READ_HOST_MEMORY, Opcode.WRITE_HOST_MEMORY):
        pitch = INPUT_PITCH if opcode == Opcode.READ_HOST_MEMORY else OUTPUT_PITCH
        lines = f["buffer"], end["buffer"]
        assert region(d.buffer) == lines
        if opcode == Opcode.READ_HOST_MEMORY:
            assert region(d.destination) == lines
        assert (d.tail_line, d.tail) == (end["buffer"] - f["rows"], f["tail"])
        starts = [
            f["host"] + row * f["stride"] + block * pitch
            for block in range(f["blocks"])
            for row in range(f["rows"])
        ]
        assert runs(d.transfer, pitch) == joined(starts, pitch)
        if f["rows"] == 1 or (f["blocks"] == 1 and f["stride"] == pitch):
            assert d.transfer.rows == d.transfer.blocks == 1, "contiguous, but not one run"
    if opcode == Opcode.LOAD_PARAMETERS:
        space = PARAMETER_SPACE + f["parameter"], PARAMETER_SPACE + end["parameter"]
        assert region(d.destination) == space
    if opcode == Opcode.LOAD_TABLE:
        assert region(d.destination) == (TABLE_SPACE + f["table"], TABLE_SPACE + end["table"])
    if opcode in (Opcode.LOAD_PARAMETERS, Opcode.LOAD_TABLE):
        whole = [(f["host"], end["host"] - f["host"])]
        assert runs(d.transfer, 0) == whole
    if "host" in f:
        assert region(d.host) == (f["host"], end["host"])
    if opcode == Opcode.READ_WEIGHTS:
        transfer = d.weight_transfer
        assert (transfer.address, transfer.rows, transfer.blocks) == (f["tile"] * TILE_BYTES, 1, 1)
        assert transfer.beats * CONFIG.weight_bus_bytes == f["count"] * TILE_BYTES
        assert (d.tiles, d.address) == (f["count"], f["tile"])
    if opcode == Opcode.MATRIX_MULTIPLY:
        assert d.tiles == f["k_tiles"] * f["n_tiles"]
        names = ("rows", "k_tiles", "n_tiles", "accumulate")
        assert all(d[name] == f[name] for name in names)
    if opcode == Opcode.ACTIVATE:
        names = ("rows", "n_tiles", "function", "rounding", "zero_point", "ceiling")
        assert all(d[name] == f[name] for name in names)
        space = PARAMETER_SPACE + f["parameter"], PARAMETER_SPACE + end["parameter"]
        assert region(d.parameters) == space
        used = f["function"] == Function.TABLE
        assert region(d.table) == (TABLE_SPACE + f["table"], TABLE_SPACE + f["table"] + used)
    if opcode in (Opcode.MATRIX_MULTIPLY, Opcode.ACTIVATE):
        assert region(d.buffer) == (f["buffer"], end["buffer"])
        assert region(d.accumulator) == (f["accumulator"], end["accumulator"])
    if opcode == Opcode.INTERRUPT_HOST:
        assert d.code == f["code"]


def legal(random, opcode):
    """Operands that break no rule, often just so."""
    bus = CONFIG.host_bus_bytes

    def fit(limit, size):
        return random.choice((0, limit - size, random.randint(0, limit - size)))

    if opcode in (Opcode.READ_HOST_MEMORY, Opcode.WRITE_HOST_MEMORY):
        is_read = opcode == Opcode.READ_HOST_MEMORY
        pitch = INPUT_PITCH if is_read else OUTPUT_PITCH
        rows, blocks = random.choice((1, 2, 9)), random.choice((1, 1, 2, 7))
        stride = random.choice((0, pitch, blocks * pitch, random.randint(0, 90) * bus))
        return {
            "host": fit(LIMIT // bus, ((rows - 1) * stride + blocks * pitch) // bus) * bus,
            "buffer": fit(CONFIG.buffer_lines, rows * blocks),
            "rows": rows,
            "stride": stride,
            "blocks": blocks,
            "tail": random.randint(1, CONFIG.rows if is_read else CONFIG.cols),
        }
    if opcode == Opcode.LOAD_PARAMETERS:
        count = random.choice((1, 2, CONFIG.parameter_entries))
        host = fit(LIMIT // bus, count * PARAMETER_PLANES * OUTPUT_PITCH // bus) * bus
        return {"host": host, "parameter": fit(CONFIG.parameter_entries, count), "count": count}
    if opcode == Opcode.LOAD_TABLE:
        host = fit(LIMIT // bus, TABLE_BYTES // bus) * bus
        return {"host": host, "table": random.randrange(CONFIG.tables)}
    if opcode == Opcode.READ_WEIGHTS:
        count = random.choice((1, 2, TILES))
        return {"tile": fit(TILES, count), "count": count}
    rows, n_tiles = random.choice((1, 2, 20)), random.choice((1, 1, 3, 15))
    shared = {
        "accumulator": fit(CONFIG.accumulator_rows, rows * n_tiles),
        "rows": rows,
        "n_tiles": n_tiles,
    }
    if opcode == Opcode.MATRIX_MULTIPLY:
        k_tiles = random.choice((1, 2, 25))
        lines = fit(CONFIG.buffer_lines, rows * k_tiles)
        return shared | {"buffer": lines, "k_tiles": k_tiles, "accumulate": random.getrandbits(1)}
    if opcode == Opcode.ACTIVATE:
        return shared | {
            "buffer": fit(CONFIG.buffer_lines, rows * n_tiles),
            "parameter": fit(CONFIG.parameter_entries, n_tiles),
            "function": random.choice(list(Function)),
            "rounding": random.getrandbits(1),
            "zero_point": random.randint(-128, 127),
            "ceiling": random.randint(-128, 127),
            "table": random.randrange(CONFIG.tables),
        }
    return {"code": random.getrandbits(16)} if opcode == Opcode.INTERRUPT_HOST else {}


def some(random):
    """An instruction word and whether its fetch failed: legal, slightly wrong, or anything."""
    opcode = random.choice(list(Opcode))
    operands = legal(random, opcode)
    bits = word(opcode, operands)
    kind = random.random()
    if kind < 0.4 and operands:
        entry = BY_OPCODE[opcode]
        field = random.choice(entry.fields)
        # The reserved fields of a table are legal where no table is used.
        value = random.choice((0, 1, 2**field.width - 1, operands[field.name] + 1))
        value = random.choice((value, operands[field.name] + CONFIG.host_bus_bytes))
        bits = word(opcode, {**operands, field.name: value})
    elif kind < 0.45:
        bits |= 1 << random.randint(8, 127)
    elif kind < 0.5:
        bits = bits & ~0xFF | random.getrandbits(8)
    elif kind < 0.53:
        bits = random.getrandbits(120) << 8 | opcode
    return bits, random.random() < 0.02


def check(bits, error, pc, raw):
    """`raw` is what the decoder should say about an instruction."""
    d = Decoded(config=CONFIG).from_bits(raw)
    cause, address = fault(bits, error)
    assert (d.pc, Fault(d.cause)) == (pc, cause), f"instruction 0x{bits:032x}"
    if cause != Fault.NONE:
        assert d.address == address, f"instruction 0x{bits:032x}"
    else:
        opcode = Opcode(bits & 0xFF)
        assert d.opcode == opcode
        check_operands(d, opcode, operands_of(opcode, bits))


async def decode(dut, words, source_pauses, sink_pauses):
    bench = Bench(dut, unit())
    await bench.start()
    bench.set(host_limit=LIMIT, weight_tiles=TILES)
    cocotb.start_soon(StreamChecker(dut, "decoded").run(dut.clk))
    entering = StreamMonitor(dut, "instruction", dut.clk)
    leaving = StreamMonitor(dut, "decoded", dut.clk)
    source = StreamSource(dut, "instruction", dut.clk, source_pauses)
    sink = StreamSink(dut, "decoded", dut.clk, sink_pauses)
    layout = FetchedInstruction()
    source.put(to_bits(layout, {"word": bits, "error": error}) for bits, error in words)
    for pc, ((bits, error), raw) in enumerate(
        zip(words, await sink.receive_all(len(words)), strict=True)
    ):
        check(bits, error, pc, raw)
    await bench.cycle()
    assert bench.get("idle") and bench.get("pc") == len(words)
    return entering.cycles, leaving.cycles


@cocotb.test
async def full_rate(dut):
    """One instruction a cycle, each two cycles after it was taken."""
    random = rng("decoder")
    words = [some(random) for _ in range(COUNT)]
    entering, leaving = await decode(dut, words, never(), never())
    assert entering == list(range(entering[0], entering[0] + COUNT))
    assert leaving == [cycle + LATENCY for cycle in entering]


@cocotb.test
async def random_waits(dut):
    random = rng("decoder waits")
    words = [some(random) for _ in range(COUNT)]
    await decode(dut, words, randomly(random, 0.4), randomly(random, 0.4))


@cocotb.test
async def every_fault(dut):
    """Each check of each instruction, at its limit and one beyond it."""
    random = rng("decoder faults")
    words, causes = [], set()
    for entry in INSTRUCTIONS:
        for field in entry.fields:
            for _ in range(12):
                operands = legal(random, entry.opcode)
                step = CONFIG.host_bus_bytes if field.name in ("host", "stride") else 1
                for value in (operands[field.name] + step, 0, 2**field.width - step):
                    words.append((word(entry.opcode, {**operands, field.name: value}), False))
        words.append((int(entry.opcode) | 1 << entry.width, False))
    words += [(number, False) for number in range(256)]
    words += [(int(Opcode.HALT), True), (0, True)]
    for bits, error in words:
        causes.add((bits & 0xFF, fault(bits, error)[0]))
    expected = {(opcode, cause) for opcode, checks in ORDER.items() for cause in checks}
    assert expected <= causes, "the test misses a fault"
    await decode(dut, words, never(), never())


@pytest.mark.parametrize("simulator", simulators())
def test_decoder(simulator):
    run_unit("test_decoder", simulator, unit())
