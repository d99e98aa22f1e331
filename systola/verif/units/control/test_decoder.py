# SPDX-License-Identifier: Apache-2.0
"""The test of the decoder against the instruction set: each instruction and each fault."""

import cocotb
import pytest

from systola.arch.isa import BY_OPCODE, INSTRUCTIONS, LOOP_DEPTH, Fault, Function, Opcode
from systola.arch.isa import Source as Measured
from systola.hdl.control.decoded import Decoded
from systola.hdl.control.indexed_operands import ADDERS, indexed
from systola.hdl.control.scalar_unit import EffectiveInstruction
from systola.verif.kit.stream import StreamSource, never, randomly
from systola.verif.units.control.decoder_checks import check_operands
from systola.verif.units.control.decoder_extremes import EXTREMES, ONE, packed_limits
from systola.verif.units.control.decoder_words import Writer, payload, some
from systola.verif.units.control.instruction_reader import (
    SETTINGS,
    TRAINING,
    WEIGHT_QUEUE,
    WINDOWED,
    Reader,
    operands_of,
    word,
)
from systola.verif.units.control.scalar_model import KNOWN, kind
from systola.verif.units.control.staged_decoder import Staged
from systola.verif.units.packing import from_bits, to_bits
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
    "attention": small_config(
        **SIZES,
        buffer_lines=500,
        accumulator_rows=300,
        parameter_entries=40,
        tables=12,
        attention=True,
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
RARE = ("bare",)
DECODED = {name: Decoded(config=config) for name, config in CONFIGS.items()}
INSTRUCTION = EffectiveInstruction()
LIMITS = {
    "complete": (3 * 4096, 70),
    "bare": (3 * 4096, 70),
    "training": (3 * 4096, 70),
    "attention": (3 * 4096, 70),
    "largest": (1 << 32, (1 << 24) - 1),
}
"""For each variant, the size of the host window in bytes and of the weight window in tiles."""
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
WALKED = 0x7F
"""Mask of the bits of an opcode that choose the decoder's steps."""
MOVED = 3
"""Cycles from the take of an instruction until the decoder moves it to the last register."""
CHECKED = 2
"""Cycles after which the decoder has checked an instruction that it shows."""


def unit(variant=None):
    return Staged(config=CONFIGS[variant or chosen_variant()])


def reader():
    """Return a reader of instructions at the start of a program, without a window."""
    limit, tiles = LIMITS[chosen_variant()]
    return Reader(CONFIGS[chosen_variant()], limit=limit, tiles=tiles)


def program(name, count):
    """Return `count` or more random instructions, legal or with a fault.

    A setting is a Set_Config. A fault ends a program, so a setting with a fault leaves an undefined
    window or scale. In this list a right setting follows such a wrong one.
    """
    random = rng("decoder", name, chosen_variant())
    text = reader()
    writer = Writer(random, text)
    found = []
    while len(found) < count:
        found.append(some(random, writer))
        while found[-1]["word"] & WALKED in SETTINGS and verdict(text, found[-1])[0] != Fault.NONE:
            setting = Opcode(found[-1]["word"] & WALKED)
            found.append(payload(random, word(setting, writer.legal(setting))))
        text.execute(found[-1]["word"])
    return found


def verdict(text, instruction):
    """Return the expected cause and address of an instruction's fault."""
    loops = instruction.get("loops") if instruction.get("loop_fault") else None
    return text.fault(instruction["word"], error=instruction["error"], loops=loops)


def check(text, instruction, raw):
    """Check that `raw` is the decoder's right output for an instruction; return the cause."""
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
        check_operands(d, opcode, operands_of(bits), text)
    text.execute(bits)
    return cause


def offered(instruction):
    """Return the bits of the decoder's input for an instruction.

    Operands that can have an index register are not in the word. They come as sums with the
    register, which have more bits than the operands.
    """
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
    """Run instructions through the decoder, check all its outputs, and return the causes of faults.

    Each instruction is taken after the decoder has checked it, with random pauses.
    """
    bench = Bench(dut, unit())
    await bench.start()
    text = reader()
    bench.set(host_limit=text.limit, weight_tiles=text.tiles)
    source = StreamSource(dut, "instruction", dut.clk, source_pauses)
    source.put(offered(instruction) for instruction in instructions)
    shown, seen, frees = [], 0, False
    while len(shown) < len(instructions):
        takes, frees = frees, seen >= CHECKED - 1 and not frees and not next(sink_pauses)
        await bench.cycle(frees=frees)
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
    await bench.cycle(frees=0)
    await bench.cycle()
    assert bench.get("idle")
    return causes


def cycles_of(instructions):
    """Return the cycles in which instructions enter and leave the decoder if they never wait.

    The cycles follow from the number of decoder steps of each opcode.
    """
    entering, leaving, free, copied = [], [], 0, 0
    for given in instructions:
        opcode = given["word"] & 0xFF
        steps = STEPS.get(opcode & WALKED, 3)
        if CONFIGS[chosen_variant()].training:
            steps += opcode & WALKED == Opcode.MATRIX_MULTIPLY
        elif opcode & WALKED in TRAINING:
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
    """Check that the decoder does a step in each cycle, without a gap between instructions."""
    instructions = program("rate", COUNT)
    bench = Bench(dut, unit())
    await bench.start()
    bench.set(host_limit=reader().limit, weight_tiles=reader().tiles)
    source = StreamSource(dut, "instruction", dut.clk, never())
    source.put(offered(given) for given in instructions)
    entering, leaving, now = [], [], 0
    while len(leaving) < len(instructions):
        await bench.cycle(frees=1)
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
    """Check that an instruction that needs a window fails before there is a window.

    The cause is WINDOW even if the instruction has another mistake, except for one in its fields.
    """
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
    """Check that each check of each instruction passes at its limit and fails one beyond it."""
    random = rng("decoder faults", chosen_variant())
    text = reader()
    writer = Writer(random, text)
    instructions, bus = [], text.config.host_bus_bytes

    def add(bits, error=0):
        instructions.append(payload(random, bits, error))

    def use_window(**fields):
        add(word(Opcode.SET_CONFIG_WINDOW, {**writer.window(), **fields}))

    def fitting(opcode):
        """Return right operands for an opcode; set a new window before, if the opcode uses one."""
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
            # A rule for Vector only must not apply to the instruction before it.
            replacing = {"wide": 0, "wide_operands": 0, "buffer": 0, "destination": 0}
            add(word(Opcode.VECTOR, {**writer.legal(Opcode.VECTOR), **replacing}))
        if entry.opcode == Opcode.MEASURE:
            lines = {"source": Measured.LINES, "rows": 1, "buffer": text.config.buffer_lines - 1}
            add(word(entry.opcode, {**fitting(entry.opcode), **lines}))
        for start, end in entry.reserved:
            for bit in (start, end - 1):
                add(int(entry.opcode) | 1 << bit)
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
    # If hardware is missing, UNAVAILABLE comes before most other causes.
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


@cocotb.test
async def extremes(dut):
    """Check windows and operands with the largest products, and packed channels at their limits."""
    random = rng("decoder extremes")
    instructions = []
    for window, opcode, fields in (*EXTREMES, *packed_limits(reader().config.rows)):
        instructions.append(payload(random, word(Opcode.SET_CONFIG_WINDOW, {**ONE, **window})))
        instructions.append(payload(random, word(opcode, fields)))
    causes = await decode(dut, instructions, never(), never())
    assert set(causes[::2]) == {Fault.NONE}
    if chosen_variant() == "complete":
        assert causes[1::2].count(Fault.NONE) > 20


@pytest.mark.parametrize(("simulator", "variant"), long_variants(*CONFIGS, rare=RARE))
def test_decoder(simulator, variant):
    run_unit("test_decoder", simulator, unit(variant), variant=variant)
