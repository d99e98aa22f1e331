# SPDX-License-Identifier: Apache-2.0
"""The decoder against the instruction set: each instruction, each fault, in plain Python."""

import itertools

import cocotb
import pytest
from amaranth.hdl import Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from systola.arch.isa import (
    BY_OPCODE,
    INSTRUCTIONS,
    LINK_OPCODES,
    LOOP_DEPTH,
    Fault,
    Function,
    Opcode,
    Operation,
    Reduction,
)
from systola.arch.isa import Source as Measured
from systola.hdl.commands import (
    OTHER,
    PC_BITS,
    MeasureLayout,
    Other,
    Source,
    matrix_walk,
    parameter_space,
    table_space,
    vector_walk,
)
from systola.hdl.control.decoder import Decoded, Decoder
from systola.hdl.control.indexed_operands import ADDERS, indexed
from systola.hdl.control.scalar_unit import OPCODES, EffectiveInstruction
from systola.verif.kit.stream import StreamSource, never, randomly
from systola.verif.units.decoder_model import (
    ALTERNATE,
    COPIES,
    SETTINGS,
    TRAINING,
    WEIGHT_QUEUE,
    WINDOWED,
    Reader,
    Writer,
    operands_of,
    word,
)
from systola.verif.units.packing import from_bits, to_bits
from systola.verif.units.scalar_model import KNOWN, kind
from systola.verif.units.unit import (
    Bench,
    chosen_variant,
    long_variants,
    rng,
    run_unit,
    small_config,
)

SIZES = {"rows": 5, "cols": 6, "columns_per_stage": 2, "host_bus_bytes": 8, "weight_bus_bytes": 4}
CONFIGS = {
    "complete": small_config(
        **SIZES, buffer_lines=500, accumulator_rows=300, parameter_entries=40, tables=3
    ),
    "bare": small_config(
        **SIZES, buffer_lines=500, accumulator_rows=300, depthwise=False, wide=False, tables=0
    ),
    "training": small_config(
        rows=4,
        cols=4,
        buffer_lines=500,
        accumulator_rows=300,
        parameter_entries=40,
        tables=3,
        training=True,
    ),
    "largest": small_config(
        rows=256,
        cols=256,
        buffer_lines=1 << 19,
        accumulator_rows=1 << 15,
        parameter_entries=2048,
        tables=8,
    ),
}
DECODED = {name: Decoded(config=config) for name, config in CONFIGS.items()}
INSTRUCTION = EffectiveInstruction()
LIMITS = {
    "complete": (3 * 4096, 70),
    "bare": (3 * 4096, 70),
    "training": (3 * 4096, 70),
    "largest": (1 << 32, (1 << 24) - 1),
}
"""Bytes of the host window and tiles of the weight window."""
COUNT = 1000
STEPS = {
    **dict.fromkeys(Opcode, 3),
    Opcode.SET_CONFIG_WINDOW: 8,
    Opcode.CONVOLVE: 12,
    Opcode.ACTIVATE: 4,
    Opcode.DEPTHWISE: 13,
    Opcode.POOL: 9,
    Opcode.VECTOR: 9,
    Opcode.TRANSPOSE: 5,
}
MOVED = 3
"""Cycles from where an instruction is taken to where the decoder moves it."""
CHECKED = 2
"""Cycles after which an instruction that is there has been checked."""
SAMPLE = 300
"""Lines of a copy that are looked at one by one, at either end."""


class Staged(wiring.Component):
    """The decoder beside stages that it moves, as those of the scalar unit; `entered`: an
    instruction is taken."""

    def __init__(self, *, config):
        self._decoder = Decoder(config=config)
        members = dict(self._decoder.signature.members)
        for name in ("takes", "opcode", "coming", "moves", "instruction"):
            del members[name]
        instruction = In(stream.Signature(EffectiveInstruction()))
        super().__init__({**members, "instruction": instruction, "entered": Out(1)})

    def elaborate(self, platform):
        m = Module()
        decoder = m.submodules.decoder = self._decoder
        connect(m, decoder.decoded, flipped(self.decoded))
        given = self.instruction.payload
        first, last, full = Signal.like(given), Signal.like(given), Signal()
        m.d.comb += [
            decoder.host_limit.eq(self.host_limit),
            decoder.weight_tiles.eq(self.weight_tiles),
            self.idle.eq(decoder.idle),
            self.instruction.ready.eq(~full | decoder.coming.ready),
            self.entered.eq(self.instruction.valid & self.instruction.ready),
            decoder.takes.eq(self.entered),
            decoder.opcode.eq(given.word[:8]),
            decoder.coming.valid.eq(full),
            decoder.coming.payload.word.eq(first.word),
            decoder.coming.payload.kind.eq(first.kind),
            decoder.instruction.eq(last),
        ]
        with m.If(self.instruction.ready):
            m.d.sync += full.eq(self.instruction.valid)
        with m.If(self.entered):
            m.d.sync += first.eq(given)
        with m.If(decoder.moves):
            m.d.sync += last.eq(first)
        return m


def unit(variant=None):
    return Staged(config=CONFIGS[variant or chosen_variant()])


def reader():
    """The instruction set at the start of a program."""
    limit, tiles = LIMITS[chosen_variant()]
    return Reader(CONFIGS[chosen_variant()], limit=limit, tiles=tiles)


def region(view):
    return view.base, view.end


def runs(transfer, pitch, bus):
    """Start and bytes of each run of a transfer, joined where they touch."""
    starts = [
        transfer.address + row * transfer.stride + block * pitch
        for block in range(transfer.blocks)
        for row in range(transfer.rows)
    ]
    return joined(starts, transfer.beats * bus)


def joined(starts, size):
    """Runs of `size` bytes at `starts`, joined where they touch."""
    found = []
    for start in starts:
        if found and sum(found[-1]) == start:
            found[-1] = found[-1][0], found[-1][1] + size
        else:
            found.append((start, size))
    return found


class Walked:
    """A walk, read as the contract of the Walker has it."""

    def __init__(self, walk, layout):
        levels = layout.levels
        self.lines = 1 << layout.position["line"].width
        self.start = {name: walk.start[name] for name in ("line", "y", "x")}
        self.counts = {level.name: walk.count[level.name] for level in levels}
        for name, count in self.counts.items():
            assert (walk.single[name], walk.double[name]) == (count == 1, count == 2), name
        self.steps = {
            level.name: {name: walk.step[level.name][name] for name in level.moves}
            for level in levels
        }

    def place(self, **iterations):
        """Line, y and x in these iterations of the levels."""
        found = dict(self.start)
        for level, index in iterations.items():
            for name, step in self.steps[level].items():
                found[name] += index * step
        return found["line"] % self.lines, found["y"], found["x"]

    def corners(self):
        """The first and the last iteration of each level in any combination."""
        names = list(self.counts)
        ends = ({0, self.counts[name] - 1} for name in names)
        for indices in itertools.product(*ends):
            yield dict(zip(names, indices, strict=True))


def check_map_walk(walk, window, buffer, plane, index):
    """One place of a walk over a feature map: block, tap (i, j) and window (p, q) of `index`."""
    y = window["top"] + index["oy"] * window["stride_y"] + index["ky"] * window["dilation_y"]
    x = window["left"] + index["ox"] * window["stride_x"] + index["kx"] * window["dilation_x"]
    line, at_y, at_x = walk.place(**index)
    assert (at_y, at_x) == (y, x), index
    if 0 <= y < window["height"] and 0 <= x < window["width"]:
        assert line == buffer + index["block"] * plane + y * window["pitch"] + x, index


def check_transfer(d, opcode, f, text):
    """The parts of a copy: its runs in host memory, its lines, and which of them are short."""
    bus, pitch = text.config.host_bus_bytes, text.pitch(opcode)
    base, end = text.regions(opcode, f)["buffer"]
    alternate = opcode in ALTERNATE
    tail = d.tail
    blocks = f["blocks"]
    some_lines = {*range(base, min(base + SAMPLE, end)), *range(max(base, end - SAMPLE), end)}
    for line in some_lines:
        shown = (line - base + 1) % tail.every == 0 if tail.every else line >= tail.line
        block = (line - base) % blocks if alternate else (line - base) // f["rows"]
        assert shown == (block == blocks - 1), f"line {line}"
    assert tail.bytes == f["tail"]
    if end - base > SAMPLE:
        return
    order = itertools.product(range(f["rows"]), range(blocks))
    if not alternate:
        order = ((m, b) for b in range(blocks) for m in range(f["rows"]))
    starts = [f["host"] + m * f["stride"] + b * pitch for m, b in order]
    assert runs(d.transfer, pitch, bus) == joined(starts, pitch)
    if len(joined(starts, pitch)) == 1:
        assert d.transfer.rows == d.transfer.blocks == 1, "contiguous, but not one run"


def check_multiply(d, f, config):
    """The command of a MatrixMultiply."""
    c = d.matrix
    wide_vectors, wide_weights = f["wide_vectors"], f["wide_weights"]
    assert (c.wide_vectors, c.wide_weights) == (wide_vectors, wide_weights)
    assert (c.bounded, c.packed, c.sequential) == (0, 0, 1)
    walk = Walked(c.walk, matrix_walk(config))
    assert walk.counts == {
        "ox": 1 + wide_vectors,
        "oy": f["rows"],
        "block": 1 + wide_weights,
        "kx": f["k_tiles"],
        "ky": 1,
        "n": f["n_tiles"],
    }
    for index in walk.corners():
        vector = index["kx"] * f["rows"] + index["oy"]
        line = f["buffer"] + vector * (1 + wide_vectors) + index["ox"]
        assert walk.place(**index)[0] == line, index


def check_convolve(d, f, window, config):
    """The command of a Convolve."""
    c = d.matrix
    channels, rows = f["channels"], config.rows
    assert (c.wide_vectors, c.wide_weights) == (0, 0)
    assert (c.bounded, c.packed, c.fill) == (1, channels > 0, f["fill"])
    assert c.height == window["height"]
    walk = Walked(c.walk, matrix_walk(config))
    assert walk.counts == {
        "ox": window["out_width"],
        "oy": window["out_height"],
        "block": f["k_tiles"],
        "kx": 1 if channels else window["kernel_width"],
        "ky": window["kernel_height"],
        "n": f["n_tiles"],
    }
    if not channels:
        assert c.width == window["width"]
        for index in walk.corners():
            check_map_walk(walk, window, f["buffer"], f["plane"], index)
        return
    assert c.width == window["width"] * channels
    assert c.byte_step == window["stride_x"] * channels
    first = window["left"] * channels
    assert c.byte == first % rows
    for index in walk.corners():
        y = window["top"] + index["oy"] * window["stride_y"] + index["ky"] * window["dilation_y"]
        line, at_y, at_x = walk.place(**index)
        assert at_y == y
        assert at_x == first + index["ox"] * window["stride_x"] * channels
        if index["ox"] == 0 and 0 <= y < window["height"]:
            before = f["buffer"] + y * window["pitch"] + first // rows
            assert line == (before + 1) % walk.lines, index


def check_tiles(d, f, regions):
    """Where the weights of a MatrixMultiply are."""
    assert d.from_buffer == f["from_buffer"]
    if f["from_buffer"]:
        tiles = f["k_tiles"] * f["n_tiles"] << f["wide_weights"]
        lines = 1 << (len(bin(regions["source"][1])) - 2)
        assert d.weight_transfer.address % lines == f["weights"]
        assert (d.weight_transfer.beats, d.address) == (tiles, f["weights"])
    else:
        assert d.source.base == d.source.end


def check_activation_command(d, opcode, f, text):
    """The command of an instruction of the activation unit."""
    c = d.activate
    walk = Walked(c.walk, vector_walk(text.config))
    wide = f.get("wide", 0)
    function = f.get("function", Function.NONE)
    if opcode == Opcode.POOL:
        low, high = f["floor"], f["ceiling"]
    elif wide:
        limit = text.scale["limit"] if opcode == Opcode.VECTOR else 0
        low, high = -(1 << 15), (1 << 15) - 1
        if limit and function == Function.NONE:
            low, high = -limit, limit
    else:
        ceiling = text.scale["ceiling"] if opcode == Opcode.VECTOR else f["ceiling"]
        low = f["zero_point"] if function in (Function.RELU, Function.RELU6) else -128
        high = ceiling if function == Function.RELU6 else 127
    assert (c.low, c.high) == (low, high)
    assert (c.wide, c.accumulate) == (wide, f.get("accumulate", 0))
    stochastic = f.get("stochastic", 0)
    assert (c.rounding, c.zero_point) == (f["rounding"] | stochastic, f["zero_point"])
    if text.config.training:
        assert (c.exponent, c.stochastic) == (f.get("exponent", 0), stochastic)
    for late in (Function.TABLE, Function.SIGMOID, Function.TANH, Function.EXP):
        assert (c.function == late) == (function == late)
        if function == late:
            assert c.table == f["table"] or late == Function.SIGMOID
    assert c.parameter == f["parameter"]
    assert c.destination == f["buffer" if opcode == Opcode.ACTIVATE else "destination"]
    average = opcode == Opcode.POOL and f["reduction"] == Reduction.AVERAGE
    assert c.by_taps == average
    if walk.counts["block"] > 1:
        assert c.by_block == (opcode in (Opcode.ACTIVATE, Opcode.DEPTHWISE))

    if opcode in (Opcode.DEPTHWISE, Opcode.POOL):
        window = text.window
        map_lines, _, taps = text.sizes()
        assert (c.height, c.width) == (window["height"], window["width"])
        assert c.wide_operands == 0
        assert walk.counts == {
            "kx": window["kernel_width"],
            "ky": window["kernel_height"],
            "ox": window["out_width"],
            "oy": window["out_height"],
            "block": f["blocks"],
        }
        for index in walk.corners():
            check_map_walk(walk, window, f["buffer"], map_lines, index)
        if opcode == Opcode.DEPTHWISE:
            assert c.source == Source.DEPTHWISE
            assert (c.operand, c.taps, c.fill) == (f["taps"], taps, f["fill"])
        else:
            assert c.source == Source.POOL
            assert c.maximum == (f["reduction"] == Reduction.MAX)
        return
    counts = walk.counts
    if opcode == Opcode.ACTIVATE:
        assert (c.source, c.accumulator) == (Source.ACCUMULATORS, f["accumulator"])
        assert counts["kx"] == counts["ky"] == 1
        assert (counts["ox"] * counts["oy"], counts["block"]) == (f["rows"], f["n_tiles"])
        return
    halves = 1 + f["wide_operands"]
    assert (c.source, c.operation) == (Source.VECTOR, f["operation"])
    assert c.wide_operands == f["wide_operands"]
    assert counts == {"kx": halves, "ky": 1, "ox": f["rows"], "oy": 1, "block": 1}
    for index in walk.corners():
        line = f["buffer"] + index["ox"] * halves + index["kx"]
        assert walk.place(**index)[0] == line
    if f["operation"] != Operation.COPY:
        assert c.operand == f["operand"]
    names = ("multiplier_a", "shift_a", "multiplier_b", "shift_b", "zero_a", "zero_b")
    assert {name: c.scale[name] for name in names} == {name: text.scale[name] for name in names}


def check_training_command(d, opcode, f, text):
    """The command of an instruction that there is for training alone."""
    c, size = d.activate, text.config.cols
    walk = Walked(c.walk, vector_walk(text.config))
    assert (c.function, c.wide, c.accumulate, c.exponent) == (OTHER, 0, 0, 0)
    counts = {"kx": 1, "ky": 1, "ox": 1, "oy": 1, "block": 1}
    if opcode == Opcode.MEASURE:
        kind = Measured(f["source"])
        assert c.table == (Other.SUM if kind == Measured.NONE else Other.MEASURE)
        about = MeasureLayout().from_bits(c.scale.multiplier_b & ((1 << MeasureLayout().size) - 1))
        for name in MeasureLayout().members:
            assert about[name] == f[name] & ((1 << MeasureLayout()[name].width) - 1), name
        assert (c.scale.zero_a, c.scale.shift_a) == (0, 0)
        if kind == Measured.NONE:
            assert (c.source, c.taps) == (Source.DEPTHWISE, 1)
        elif kind == Measured.ACCUMULATORS:
            assert (c.source, c.accumulator) == (Source.ACCUMULATORS, f["accumulator"])
            counts["ox"] = f["rows"]
        else:
            assert (c.source, c.operation) == (Source.VECTOR, Operation.COPY)
            assert c.wide_operands == 1
            counts |= {"kx": 2, "ox": f["rows"]}
            for index in walk.corners():
                assert walk.place(**index)[0] == f["buffer"] + 2 * index["ox"] + index["kx"]
    elif opcode == Opcode.TRANSPOSE:
        assert (c.source, c.table) == (Source.DEPTHWISE, Other.TRANSPOSE)
        assert (c.operand, c.taps, c.destination) == (f["buffer"], size, f["destination"])
        counts |= {"ox": size, "block": f["count"]}
        if f["count"] > 1:
            assert (c.walk.step.block.line + size - f["step"]) % walk.lines == 0
    else:
        assert (c.source, c.table, c.taps) == (Source.DEPTHWISE, Other.RANDOM, 1)
        assert c.scale.multiplier_a == f["seed"]
        assert c.scale.multiplier_b | (c.scale.shift_b & 1) << 31 == f["counter"]
        assert c.destination == f["destination"]
        counts["ox"] = f["rows"]
    assert walk.counts == counts


def check_operands(d, opcode, f, text):
    """The decoded instruction `d` says what its fields `f` mean."""
    config = text.config
    regions = text.regions(opcode, f)
    for name in ("buffer", "source", "operand", "accumulator", "host"):
        if name in regions:
            assert region(d[name]) == regions[name], name
    if "host" in regions:
        # The window may end at 2^32, where an address in it does not.
        assert d.transfer.address == f["host"]
    if opcode in COPIES:
        check_transfer(d, opcode, f, text)
    entries = tuple(parameter_space(config) + entry for entry in regions.get("parameter", ()))
    tables = tuple(table_space(config) + table for table in regions.get("table", ()))
    if opcode in (Opcode.LOAD_PARAMETERS, Opcode.LOAD_TABLE):
        assert region(d.buffer) == (entries or tables)
        base, end = regions["host"]
        assert runs(d.transfer, 0, config.host_bus_bytes) == [(base, end - base)]
    if opcode == Opcode.READ_WEIGHTS:
        transfer = d.weight_transfer
        size = config.tile_bytes
        assert transfer.address == f["tile"] * size
        assert transfer.beats * config.weight_bus_bytes == f["count"] * size
        assert (d.tiles, d.address) == (f["count"], f["tile"])
    if opcode in (Opcode.MATRIX_MULTIPLY, Opcode.CONVOLVE):
        assert d.tiles == text.consumed(opcode, f)
        if config.training and opcode == Opcode.MATRIX_MULTIPLY:
            check_tiles(d, f, regions)
        c = d.matrix
        assert (c.accumulator, c.accumulate) == (f["accumulator"], f["accumulate"])
        if opcode == Opcode.CONVOLVE:
            check_convolve(d, f, text.window, config)
        else:
            check_multiply(d, f, config)
    if opcode in (Opcode.ACTIVATE, Opcode.DEPTHWISE, Opcode.POOL, Opcode.VECTOR):
        assert region(d.parameters) == entries
        for name in ("source", "operand"):
            assert name in regions or d[name].base == d[name].end, f"{name} is not empty"
        if tables:
            assert region(d.table) == tables
        else:
            assert d.table.base == d.table.end, "a table that is not used"
        check_activation_command(d, opcode, f, text)
    if opcode in TRAINING:
        for name in ("buffer", "source", "operand", "accumulator", "parameters", "table"):
            assert name in regions or d[name].base == d[name].end, f"{name} is not empty"
        check_training_command(d, opcode, f, text)
    if opcode == Opcode.INTERRUPT_HOST:
        assert d.code == f["code"]
    if opcode == Opcode.DEBUG_TAG:
        assert (d.code, d.units) == (f["tag"], f["wait"])


def changed(random, opcode, operands, step):
    """An operand with a value at an end of its range, or a little off."""
    field = random.choice(BY_OPCODE[opcode].fields)
    value = operands.get(field.name, 0)
    wrong = random.choice((0, 1, 2**field.width - 1, value + 1, value - 1, value + step))
    return {**operands, field.name: wrong}


def some(random, writer):
    """An instruction, legal, slightly wrong, or anything, as the payload of the decoder."""
    opcode = random.choice((*OPCODES, *WINDOWED, Opcode.VECTOR, Opcode.ACTIVATE))
    operands = writer.legal(opcode)
    bits = word(opcode, operands)
    kind = random.random()
    if kind < 0.35 and BY_OPCODE[opcode].fields:
        step = writer.reader.config.host_bus_bytes
        bits = word(opcode, changed(random, opcode, operands, step))
    elif kind < 0.4:
        bits |= 1 << random.randint(8, 127)
    elif kind < 0.43:
        bits = bits & ~0xFF | random.choice((random.getrandbits(8), *LINK_OPCODES))
    elif kind < 0.46:
        bits = random.getrandbits(120) << 8 | opcode
    return payload(random, bits, error=int(random.random() < 0.02))


def payload(random, bits, error=0):
    """What the scalar unit hands on; check LOOP fails now and then."""
    found = {"word": bits, "error": error, "pc": random.getrandbits(PC_BITS)}
    if bits & 0xFF in (Opcode.LOOP, Opcode.END_LOOP) and not error:
        found |= {"loop_fault": random.getrandbits(1), "loops": random.randint(0, 4)}
    return found


def program(name, count):
    """Random instructions.

    A fault ends a program: what a wrong setting leaves behind is undefined, so a right one follows.
    """
    random = rng("decoder", name, chosen_variant())
    text = reader()
    writer = Writer(random, text)
    found = []
    while len(found) < count:
        found.append(some(random, writer))
        while found[-1]["word"] & 0xFF in SETTINGS and verdict(text, found[-1])[0] != Fault.NONE:
            setting = Opcode(found[-1]["word"] & 0xFF)
            found.append(payload(random, word(setting, writer.legal(setting))))
        text.execute(found[-1]["word"])
    return found


def verdict(text, instruction):
    """Cause and address for an instruction."""
    loops = instruction.get("loops") if instruction.get("loop_fault") else None
    return text.fault(instruction["word"], error=instruction["error"], loops=loops)


def check(text, instruction, raw):
    """`raw` is what the decoder should say about an instruction; returns the cause."""
    d = from_bits(DECODED[chosen_variant()], raw)
    bits = instruction["word"]
    what = f"instruction 0x{bits:032x}, window {text.window}"
    cause, address = verdict(text, instruction)
    assert (d.pc, Fault(d.cause)) == (instruction["pc"], cause), what
    if cause != Fault.NONE:
        assert d.address == address, what
    else:
        opcode = Opcode(bits & 0xFF)
        assert d.kind == kind(opcode)
        check_operands(d, opcode, operands_of(opcode, bits), text)
    text.execute(bits)
    return cause


def offered(instruction):
    """Bits of the decoder's input: the operands that have an index register are not in the word,
    and a sum has more bits than its operand."""
    bits = instruction["word"]
    sums = []
    entry = KNOWN.get(bits & 0xFF)
    for name, _ in indexed(entry) if entry else ():
        mask = (1 << entry.field(name).width) - 1
        sums.append(~mask % (1 << 32) | bits >> entry.offset(name) & mask)
        bits ^= mask << entry.offset(name)
    sums += [0] * (ADDERS - len(sums))
    return to_bits(INSTRUCTION, {**instruction, "word": bits, "sums": sums, "kind": kind(bits)})


async def decode(dut, instructions, source_pauses, sink_pauses):
    """Runs instructions through the decoder, and takes each when its checks are through; returns
    the causes."""
    bench = Bench(dut, unit())
    await bench.start()
    text = reader()
    bench.set(host_limit=text.limit, weight_tiles=text.tiles)
    source = StreamSource(dut, "instruction", dut.clk, source_pauses)
    source.put(offered(instruction) for instruction in instructions)
    shown, seen = [], 0
    while len(shown) < len(instructions):
        takes = seen >= CHECKED and not next(sink_pauses)
        await bench.cycle(decoded__ready=takes)
        if bench.get("decoded__valid"):
            seen += 1
            failed = bench.get("decoded__payload").failed
            if takes:
                shown.append((int(dut.decoded__payload.value), failed))
                seen = 0
    causes = []
    for given, (raw, failed) in zip(instructions, shown, strict=True):
        causes.append(check(text, given, raw))
        assert failed == (causes[-1] != Fault.NONE)
    await bench.cycle(decoded__ready=0)
    await bench.cycle()
    assert bench.get("idle")
    return causes


def cycles_of(instructions):
    """Cycles in which instructions enter and leave, nobody waiting, by the rules of the walk."""
    entering, leaving, free, copied = [], [], 0, 0
    for given in instructions:
        opcode = given["word"] & 0xFF
        steps = STEPS.get(opcode, 3)
        if CONFIGS[chosen_variant()].training:
            steps += opcode == Opcode.MATRIX_MULTIPLY
        elif opcode in TRAINING:
            steps = 3
        entering.append(free)
        moved = free + MOVED
        if opcode == Opcode.SET_CONFIG_WINDOW:
            moved = max(moved, copied + 1)
        free = moved + steps - MOVED
        copied = moved + steps
        leaving.append(copied + 1)
    return entering, leaving


@cocotb.test
async def full_rate(dut):
    """A step a cycle, without a gap between instructions."""
    instructions = program("rate", COUNT)
    bench = Bench(dut, unit())
    await bench.start()
    bench.set(host_limit=reader().limit, weight_tiles=reader().tiles)
    source = StreamSource(dut, "instruction", dut.clk, never())
    source.put(offered(given) for given in instructions)
    entering, leaving, now = [], [], 0
    while len(leaving) < len(instructions):
        await bench.cycle(decoded__ready=1)
        entering += [now] * bench.get("entered")
        leaving += [now] * bench.get("decoded__valid")
        now += 1
    expected = cycles_of(instructions)
    begin = entering[0] - expected[0][0]
    assert entering == [begin + cycle for cycle in expected[0]]
    assert leaving == [begin + cycle for cycle in expected[1]]


@cocotb.test
async def random_waits(dut):
    random = rng("decoder waits")
    await decode(dut, program("waits", COUNT), randomly(random, 0.4), randomly(random, 0.4))


@cocotb.test
async def no_window(dut):
    """Nothing can use a window before there is one, whatever else is wrong but its fields."""
    random = rng("decoder no window")
    writer = Writer(random, reader())
    instructions = [
        payload(random, word(opcode, {**writer.legal(opcode), **wrong}))
        for opcode in WINDOWED
        for wrong in ({}, {"buffer": (1 << 20) - 1}, {"parameter": 4095}, {"rounding": 1})
        if set(wrong) <= {field.name for field in BY_OPCODE[opcode].fields}
    ]
    random.shuffle(instructions)
    causes = await decode(dut, instructions, never(), never())
    assert set(causes) <= {Fault.WINDOW, Fault.UNAVAILABLE} and Fault.WINDOW in causes


@cocotb.test
async def every_fault(dut):
    """Each check of each instruction, at its limit and one beyond it."""
    random = rng("decoder faults", chosen_variant())
    text = reader()
    writer = Writer(random, text)
    instructions, bus = [], text.config.host_bus_bytes

    def add(bits, error=0):
        instructions.append(payload(random, bits, error))

    def use_window(**fields):
        add(word(Opcode.SET_CONFIG_WINDOW, {**writer.window(), **fields}))

    def fitting(opcode):
        """Operands that are right, with a new window where it matters."""
        while opcode in WINDOWED:
            setting = word(Opcode.SET_CONFIG_WINDOW, writer.window())
            text.execute(setting)
            operands = writer.legal(opcode)
            cause, _ = text.fault(word(opcode, operands))
            if cause in (Fault.NONE, Fault.UNAVAILABLE):
                add(setting)
                return operands
        return writer.legal(opcode)

    for entry in INSTRUCTIONS:
        if entry.opcode not in SETTINGS:
            for field in entry.fields:
                for _ in range(3):
                    operands = fitting(entry.opcode)
                    step = bus if field.name in ("host", "stride") else 1
                    legal = operands.get(field.name, 0)
                    for value in (legal + step, legal - step, 0, 2**field.width - step):
                        add(word(entry.opcode, {**operands, field.name: value}))
        if entry.opcode in WINDOWED:
            operands = fitting(entry.opcode)
            use_window(width=9, pitch=1)
            add(word(entry.opcode, {**operands, "channels": 0}))
        if Fault.OVERLAP in entry.checks:
            operands = fitting(entry.opcode)
            if entry.opcode == Opcode.VECTOR:
                operands |= {"rows": 3, "buffer": 5, "operand": 5, "destination": 6}
            else:
                operands |= {"buffer": 0, "destination": 0}
            add(word(entry.opcode, operands))
            # What only Vector may do must not count for the one before it.
            replacing = {"wide": 0, "wide_operands": 0, "buffer": 0, "destination": 0}
            add(word(Opcode.VECTOR, {**writer.legal(Opcode.VECTOR), **replacing}))
        if entry.opcode == Opcode.MEASURE:
            lines = {"source": Measured.LINES, "rows": 1, "buffer": text.config.buffer_lines - 1}
            add(word(entry.opcode, {**fitting(entry.opcode), **lines}))
        if entry.width < 128:
            add(int(entry.opcode) | 1 << entry.width)
            use_window()
    for opcode in (Opcode.LOOP, Opcode.END_LOOP):
        bits = word(opcode, writer.legal(opcode))
        instructions += [
            {"word": bits, "error": 0, "pc": 7, "loop_fault": 1, "loops": loops}
            for loops in range(LOOP_DEPTH + 1)
        ]
    for opcode in (Opcode.ACTIVATE, Opcode.VECTOR):
        lookup = {"wide": 0, "accumulate": 0, "function": Function.TABLE, "table": 0}
        for table in (text.config.tables, text.config.tables - 1, 15):
            cause, operands = None, {}
            while cause not in (Fault.NONE, Fault.UNAVAILABLE):
                operands = {**writer.legal(opcode), **lookup}
                cause, _ = text.fault(word(opcode, operands))
            add(word(opcode, {**operands, "table": table}))
    for source in Measured:
        operands = {**writer.legal(Opcode.MEASURE), "source": source}
        add(word(Opcode.MEASURE, operands))
        add(word(Opcode.MEASURE, {**operands, "buffer": (1 << 20) - 1}))
        add(word(Opcode.MEASURE, {**operands, "accumulator": (1 << 16) - 1}))
    for number in range(256):
        add(number)
        use_window()
    add(int(Opcode.HALT), error=1)
    add(0, error=1)
    causes = await decode(dut, instructions, never(), never())
    found = {
        (given["word"] & 0xFF, cause) for given, cause in zip(instructions, causes, strict=True)
    }
    # Where hardware is missing, UNAVAILABLE stands in front of much else.
    is_bare = chosen_variant() == "bare"
    expected = {
        (entry.opcode, cause)
        for entry in INSTRUCTIONS
        for cause in entry.checks
        if cause not in WEIGHT_QUEUE
        and (cause == Fault.UNAVAILABLE) == is_bare
        and (text.config.training or is_bare or entry.opcode not in TRAINING)
    }
    assert expected <= found, f"the test misses {expected - found}"


ONE = {field.name: 1 for field in BY_OPCODE[Opcode.SET_CONFIG_WINDOW].fields} | {
    "top": 0,
    "left": 0,
}
"""A window of one tap over a map of one pixel."""
BOTH = {"height": 2048, "pitch": 2048}
WINDOWS = {"out_height": 2048, "out_width": 2048}
EXTREMES = [
    # Products that would look small in too few bits.
    (BOTH, Opcode.POOL, {"blocks": 2048}),
    (BOTH, Opcode.DEPTHWISE, {"blocks": 2048}),
    (WINDOWS, Opcode.POOL, {"blocks": 2048, "destination": 4096}),
    (WINDOWS, Opcode.DEPTHWISE, {"blocks": 2048, "taps": 4096, "destination": 8192}),
    (WINDOWS, Opcode.CONVOLVE, {"k_tiles": 1, "n_tiles": 2048}),
    (BOTH, Opcode.CONVOLVE, {"k_tiles": 1, "n_tiles": 1}),
    ({}, Opcode.CONVOLVE, {"k_tiles": 2049, "n_tiles": 1, "plane": 1 << 19}),
    ({}, Opcode.MATRIX_MULTIPLY, {"rows": 1 << 15, "k_tiles": 2048, "n_tiles": 1}),
    ({}, Opcode.MATRIX_MULTIPLY, {"rows": 1 << 15, "k_tiles": 1, "n_tiles": 2048}),
    ({}, Opcode.ACTIVATE, {"rows": 1 << 15, "n_tiles": 2048}),
    ({}, Opcode.READ_HOST_MEMORY, {"rows": 1 << 15, "blocks": 2048, "tail": 1}),
    ({}, Opcode.READ_HOST_MEMORY, {"rows": 257, "blocks": 1, "tail": 1, "stride": 1 << 23}),
    # Numbers that need all their bits.
    (
        {"kernel_height": 128, "kernel_width": 128},
        Opcode.CONVOLVE,
        {"k_tiles": 2048, "n_tiles": 200, "plane": 0},
    ),
    (
        {"height": 100, "pitch": 3900, "top": -4096, "stride_y": 127, "out_height": 34},
        Opcode.POOL,
        {"blocks": 1, "destination": 500000},
    ),
    (
        {"width": 255, "pitch": 255, "left": -256, "stride_x": 127, "out_width": 3},
        Opcode.POOL,
        {"blocks": 1, "destination": 300},
    ),
    # Depthwise: 64 taps, and one more.
    *(
        (
            {"kernel_height": height, "kernel_width": width},
            Opcode.DEPTHWISE,
            {"blocks": 1, "taps": 300, "destination": 400},
        )
        for height, width in ((8, 8), (1, 64), (5, 13), (13, 5), (255, 255))
    ),
    # A row as long as its pitch, and longer.
    *(
        ({"width": width, "pitch": 9}, opcode, {**fields, "buffer": 20})
        for width in (9, 10, 4095)
        for opcode, fields in (
            (Opcode.POOL, {"blocks": 1}),
            (Opcode.DEPTHWISE, {"blocks": 1, "taps": 3}),
            (Opcode.CONVOLVE, {"k_tiles": 1, "n_tiles": 1}),
        )
    ),
]


def packed_limits(rows):
    """Packed channels at each limit of the window, and one beyond it."""
    fitting = {"k_tiles": 1, "n_tiles": 1, "buffer": 7}
    for channels in (1, 2, rows):
        most = rows // channels
        for field, values in {
            "kernel_width": (most, most + 1),
            "stride_x": (most, most + 1),
            "left": (most - 1, most, -most, -most - 1),
            "width": (2 * rows // channels, 2 * rows // channels + 1),
            "dilation_x": (1, 2),
        }.items():
            for value in values:
                if -256 <= value < (128 if field == "stride_x" else 256):
                    window = {"pitch": 2, field: value}
                    yield window, Opcode.CONVOLVE, {**fitting, "channels": channels}
        yield {}, Opcode.CONVOLVE, {**fitting, "channels": channels, "k_tiles": 2}


@cocotb.test
async def extremes(dut):
    """The largest products, and the limits of the window."""
    random = rng("decoder extremes")
    instructions = []
    for window, opcode, fields in (*EXTREMES, *packed_limits(reader().config.rows)):
        instructions.append(payload(random, word(Opcode.SET_CONFIG_WINDOW, {**ONE, **window})))
        instructions.append(payload(random, word(opcode, fields)))
    causes = await decode(dut, instructions, never(), never())
    assert set(causes[::2]) == {Fault.NONE}
    if chosen_variant() == "complete":
        assert causes[1::2].count(Fault.NONE) > 20


@pytest.mark.parametrize(("simulator", "variant"), long_variants(*CONFIGS))
def test_decoder(simulator, variant):
    run_unit("test_decoder", simulator, unit(variant), variant=variant)
