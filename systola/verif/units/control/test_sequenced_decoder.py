# SPDX-License-Identifier: Apache-2.0
"""The test of the sequenced decoder: command words, regions and faults equal the decoder's.

A command consists of words, which the sequenced decoder writes one by one. Cells of its scratch
memory have the base and the end of each region.
"""

import itertools

import cocotb
import pytest

from systola.arch.features import has
from systola.arch.isa import Fault, Opcode, Reduction, instructions_of
from systola.hdl.control.decoded import Decoded
from systola.hdl.control.indexed_operands import ADDERS, indexed
from systola.hdl.control.scalar_unit import EffectiveInstruction
from systola.hdl.control.sequenced_decoder import LATENCY
from systola.hdl.control.step_rom import BETWEEN, StepRom
from systola.hdl.control.step_row import CELLS, TWO_LINES
from systola.verif.kit.stream import StreamSource, never, randomly
from systola.verif.units.control.both_decoders import BothDecoders
from systola.verif.units.control.decoder_corners import corners
from systola.verif.units.control.decoder_extremes import EXTREMES, ONE, packed_limits
from systola.verif.units.control.decoder_words import Writer, payload, some
from systola.verif.units.control.given_word import WORD
from systola.verif.units.control.instruction_reader import (
    COPIES,
    SETTINGS,
    WEIGHT_QUEUE,
    WINDOWED,
    Reader,
    has_reserved_bits,
    word,
)
from systola.verif.units.control.scalar_model import MODULO, kind
from systola.verif.units.control.step_words import LOADS, PERSISTENT, Shown
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
SQUARE = {"rows": 4, "cols": 4, "host_bus_bytes": 8}
"""The sizes of a square machine: training needs as many rows as columns."""
MEMORIES = {"buffer_lines": 500, "accumulator_rows": 300, "parameter_entries": 40, "tables": 3}
CURVES = {**MEMORIES, "tables": 5}
CONFIGS = {
    "tiny": small_config(**SIZES, **MEMORIES, wide=False, depthwise=False),
    "complete": small_config(**SIZES, **MEMORIES),
    "training": small_config(**SQUARE, **MEMORIES, training=True),
    "links": small_config(**SIZES, **MEMORIES, links=True),
    "attention": small_config(**SIZES, **CURVES, attention=True),
    "training with attention": small_config(**SQUARE, **CURVES, training=True, attention=True),
    "pod": small_config(**SQUARE, **MEMORIES, training=True, links=True),
}
RARE = ("complete", "training", "links", "attention", "training with attention")
LIMIT, TILES = 3 * 4096, 70
"""The size of the host window in bytes, and of the weight window in tiles."""
COUNT = 300
CHECKED = 2
"""Cycles for which the decoder shows an instruction until its checks are complete."""


def config():
    return CONFIGS[chosen_variant()]


def known():
    """Return the entries in `arch/isa` of all instructions that the tested machine knows."""
    return instructions_of(links=config().links)


def available():
    """Return the entries in `arch/isa` of all instructions that the tested machine has."""
    return [entry for entry in known() if entry.needs is None or has(config(), entry.needs)]


def reader():
    """Return a model that reads a program's instructions, before any Set_Config_Window."""
    return Reader(config(), limit=LIMIT, tiles=TILES)


class Registers:
    """A model of the index registers that makes words to which the registers can be added."""

    def __init__(self, random, *, links=False):
        self.random = random
        self.values = [0] * 8
        self._known = {entry.opcode: entry for entry in instructions_of(links=links)}

    def taken(self, bits, error):
        """Return a word that equals `bits` after the addition of registers, and the list of sums.

        A Set_Register changes the model's registers, unless `error` is set.
        """
        entry = self._known.get(bits & 0xFF)
        sums = []
        for name, selector in indexed(entry) if entry else ():
            register = self.values[bits >> entry.offset(selector) & 7]
            mask = (1 << entry.field(name).width) - 1
            offset = entry.offset(name)
            given = (bits >> offset) - register & mask
            bits = bits & ~(mask << offset) | given << offset
            sums.append((given + register) % MODULO)
        if bits & 0xFF == Opcode.SET_REGISTER and not has_reserved_bits(entry.opcode, bits):
            selectors = ("first", "second")
            for name in selectors:
                bits |= self.random.getrandbits(3) << entry.offset(name)
            target = bits >> entry.offset("register") & 7
            numbers = [bits >> entry.offset(name) & 7 for name in selectors]
            if target and not error:
                value = bits >> entry.offset("value")
                total = sum(self.values[number] for number in numbers)
                self.values[target] = (value + total) % MODULO
        return bits, sums + [0] * (ADDERS - len(sums))


def program(random, text, count):
    """Return `count` or more random instructions, with a legal one of each opcode at the end.

    Nothing defines a window or a scale after a faulty setting, as the fault ends a program. So a
    legal setting of the same kind follows each faulty setting.
    """
    writer = Writer(random, text)
    found = []
    while len(found) < count:
        given = some(random, writer)
        found.append(given)
        if text.fault(given["word"], error=given["error"])[0] == Fault.NONE:
            text.execute(given["word"])
        elif given["word"] & 0xFF in SETTINGS:
            opcode = Opcode(given["word"] & 0xFF)
            right = word(opcode, writer.legal(opcode))
            found.append(payload(random, right))
            text.execute(right)
    for entry in available():
        right = word(entry.opcode, writer.legal(entry.opcode))
        # With some windows or scales no word of this opcode is legal.
        while text.fault(right)[0] != Fault.NONE:
            for setting in map(Opcode, SETTINGS):
                lasting = word(setting, writer.legal(setting))
                found.append(payload(random, lasting))
                text.execute(lasting)
            right = word(entry.opcode, writer.legal(entry.opcode))
        found.append(payload(random, right))
        text.execute(right)
    return found


class Recorder:
    """A recorder of the verdict, the command words and the regions of each instruction.

    The outputs of the sequenced decoder are stored by the names of words and cells.
    """

    def __init__(self, bench):
        rom = StepRom(config())
        self._bench = bench
        self._words = {number: name for name, number in rom.words.items()}
        self._cells = {number: name for name, number in rom.cells.items() if number < CELLS - 3}
        self._command, self._regions, self._lasting = {}, {}, {}
        self.found = []

    def look(self):
        """Record the verdict, the word and the cell that the decoder writes in this cycle."""
        bench = self._bench
        if not bench.get("shows"):
            return
        if bench.get("judges"):
            verdict = bench.get("verdict")
            outcome = (Fault(verdict.cause), verdict.address)
            outcome = outcome if verdict.failed else (Fault.NONE, 0)
            self.found.append((outcome, {**self._lasting, **self._command}, self._regions))
            self._command, self._regions = {}, {}
        if bench.get("writes"):
            written = bench.get("written")
            name = self._words[written.word]
            assert (written.single, written.double) == (written.data == 1, written.data == 2)
            place = self._lasting if name in PERSISTENT else self._command
            place[name] = written.data
        if bench.get("keeps"):
            self._regions[self._cells.get(bench.get("cell"))] = bench.get("kept")


async def compare(dut, instructions, pauses=None):
    """Run instructions through both decoders, and compare the results.

    Returns the fault of each instruction, NONE for a legal one.
    """
    bench = Bench(dut, BothDecoders(config=config()))
    await bench.start()
    bench.set(host_limit=LIMIT, weight_tiles=TILES)
    registers = Registers(rng("registers", chosen_variant()), links=config().links)
    staged = StreamSource(dut, "instruction", dut.clk, never())
    sequenced = StreamSource(dut, "given", dut.clk, pauses)
    words = []
    for each in instructions:
        bits, sums = registers.taken(each["word"], each["error"])
        words.append(bits)
        given = {"error": each["error"], "pc": each["pc"], "word": bits, "sums": sums}
        shape = EffectiveInstruction(links=config().links)
        number = kind(bits, links=config().links)
        staged.put([to_bits(shape, {**given, "kind": number})])
        sequenced.put([to_bits(WORD, {"word": bits, "error": each["error"]})])
    recorder = Recorder(bench)
    shown, seen, frees = [], 0, False
    while len(shown) < len(words) or len(recorder.found) < len(words):
        takes, frees = frees, seen >= CHECKED - 1 and not frees
        await bench.cycle(frees=frees)
        recorder.look()
        if bench.get("decoded__valid"):
            seen += 1
            if takes:
                shown.append(int(dut.decoded__payload.value))
                seen = 0
    return [check(*each) for each in zip(words, shown, recorder.found, strict=True)]


def check(bits, shown, found):
    """Compare the results of both decoders for a word; return the word's fault, or NONE."""
    outcome, words, regions = found
    about = f"instruction 0x{bits:032x}"
    d = from_bits(Decoded(config=config()), shown)
    cause = Fault(d.cause)
    assert outcome == ((cause, d.address) if d.failed else (Fault.NONE, 0)), about
    if d.failed:
        return cause
    opcode = Opcode(bits & 0xFF)
    decoded = Shown(config(), shown)
    words = {TWO_LINES: 0, **words}
    for name, parts in decoded.words(opcode).items():
        number, known = decoded.word(parts)
        assert words[name] & known == number, f"{about}: {name}"
    if opcode in (*COPIES, *LOADS):
        end = words["last"] + 1 if "last" in words else words["end"]
        assert (words["buffer"], end) == decoded.regions(opcode)["result"], about
    if opcode is Opcode.POOL:
        command = d.activate
        reduction = words["flags"] >> 15
        assert (reduction == Reduction.MAX, reduction == Reduction.AVERAGE) == (
            command.maximum,
            command.by_taps,
        )
    if opcode is Opcode.CONVOLVE:
        assert (words["channels"] > 0) == d.matrix.packed
    for name, (base, end) in decoded.regions(opcode).items():
        mine = regions[f"{name}.base"], regions[f"{name}.end"]
        assert mine == (base, end) or (base == end and mine[0] == mine[1]), f"{about}: {name}"
    return cause


@cocotb.test
async def random_words(dut):
    """Check words that are legal, words with one wrong field, and words of random bits."""
    text = reader()
    instructions = program(rng("sequenced", chosen_variant()), text, COUNT)
    random = rng("sequenced pauses")
    causes = await compare(dut, instructions, randomly(random, 0.3))
    assert causes.count(Fault.NONE) > COUNT / 4
    found = {(each["word"] & 0xFF, cause) for each, cause in zip(instructions, causes, strict=True)}
    missing = {entry.mnemonic for entry in available() if (entry.opcode, Fault.NONE) not in found}
    assert not missing, f"the test has no legal one of {missing}"


@cocotb.test
async def every_check(dut):
    """Check each field of each instruction at 0, at its maximum, and a step above a legal value."""
    random = rng("sequenced checks", chosen_variant())
    text = reader()
    writer = Writer(random, text)
    window = word(Opcode.SET_CONFIG_WINDOW, {**ONE, "width": 3, "pitch": 4, "height": 2})
    text.execute(window)
    instructions = [payload(random, window)]
    bus = config().host_bus_bytes
    for entry in known():
        for field in entry.fields if entry.opcode not in SETTINGS else ():
            operands = writer.legal(entry.opcode)
            step = bus if field.name in ("host", "stride") else 1
            legal = operands.get(field.name, 0)
            for value in (legal + step, 0, 2**field.width - step):
                bits = word(entry.opcode, {**operands, field.name: value})
                instructions.append(payload(random, bits))
    instructions += [payload(random, word(*corner)) for corner in corners(writer)]
    load = Opcode.LOAD_TABLE
    bits = word(load, {**writer.legal(load), "table": config().tables})
    instructions.append(payload(random, bits))
    instructions += [payload(random, number) for number in range(256)]
    window = word(Opcode.SET_CONFIG_WINDOW, {**ONE, "width": 3, "pitch": 2})
    instructions += [payload(random, window)]
    instructions += [payload(random, word(opcode, writer.legal(opcode))) for opcode in WINDOWED]
    causes = await compare(dut, instructions)
    found = {(each["word"] & 0xFF, cause) for each, cause in zip(instructions, causes, strict=True)}
    elsewhere = {*WEIGHT_QUEUE, Fault.LOOP}
    if config().training:
        elsewhere.add(Fault.UNAVAILABLE)
    for entry in known():
        there = entry.needs is None or has(config(), entry.needs)
        expected = {*entry.checks} - elsewhere if there else {Fault.UNAVAILABLE}
        if there and entry.needs is not None:
            expected.discard(Fault.UNAVAILABLE)
        missing = {cause for cause in expected if (entry.opcode, cause) not in found}
        assert not missing, f"{entry.mnemonic}: {missing}"


@cocotb.test
async def extremes(dut):
    """Check windows and operands with the largest products, and packed channels at their limits."""
    random = rng("sequenced extremes")
    instructions = []
    for window, opcode, fields in (*EXTREMES, *packed_limits(config().rows)):
        instructions.append(payload(random, word(Opcode.SET_CONFIG_WINDOW, {**ONE, **window})))
        instructions.append(payload(random, word(opcode, fields)))
    await compare(dut, instructions)


@cocotb.test
async def no_window(dut):
    """Check that an instruction that needs a window fails before the first Set_Config_Window."""
    random = rng("sequenced no window")
    writer = Writer(random, reader())
    opcodes = [entry.opcode for entry in known() if Fault.WINDOW in entry.checks]
    packed = {"channels": 1, "k_tiles": 1}
    instructions = [
        payload(random, word(opcode, {**writer.legal(opcode), **fields}))
        for opcode in opcodes
        for fields in ({}, packed if opcode is Opcode.CONVOLVE else {})
    ]
    assert set(await compare(dut, instructions)) <= {Fault.WINDOW, Fault.UNAVAILABLE}


@cocotb.test
async def full_rate(dut):
    """Check that an instruction takes one cycle more than it has rows in the step ROM."""
    random = rng("sequenced rate", chosen_variant())
    rom = StepRom(config())
    bench = Bench(dut, BothDecoders(config=config()))
    await bench.start()
    bench.set(host_limit=LIMIT, weight_tiles=TILES)
    opcodes = [random.choice(list(rom.lengths)) for _ in range(50)]
    source = StreamSource(dut, "given", dut.clk, never())
    writer = Writer(random, reader())
    operands = [writer.legal(opcode) for opcode in opcodes]
    source.put(
        to_bits(WORD, {"word": word(opcode, fields), "error": 0})
        for opcode, fields in zip(opcodes, operands, strict=True)
    )
    taken, judged, now = [], [], 0
    while len(judged) < len(opcodes):
        await bench.cycle()
        taken += [now] * (int(dut.given__valid.value) and int(dut.given__ready.value))
        judged += [now] * bench.get("judges")
        now += 1
    lengths = [
        (rom.lengths[opcode] if fields.get("channels") else rom.shortest(opcode)) + BETWEEN
        for opcode, fields in zip(opcodes, operands, strict=True)
    ]
    assert [late - early for early, late in itertools.pairwise(taken)] == lengths[1:]
    assert [late - early for early, late in zip(taken, judged, strict=True)] == [LATENCY - 1] * len(
        opcodes
    )


def unit(variant=None):
    return BothDecoders(config=CONFIGS[variant or chosen_variant()])


@pytest.mark.thorough
@pytest.mark.parametrize(("simulator", "variant"), long_variants(*CONFIGS, rare=RARE))
def test_sequenced_decoder(simulator, variant):
    run_unit("test_sequenced_decoder", simulator, unit(variant), variant=variant)
