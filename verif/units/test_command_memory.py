# SPDX-License-Identifier: Apache-2.0
"""The sequenced decoder with command memories.

Each command has the words of its instruction, its window and its scale, as they were when it was
decoded.
"""

from collections import deque

import cocotb
import pytest

from systola.arch.isa import Fault, Opcode
from systola.hdl.control.command_words import NUMBERS, command_words
from systola.hdl.control.step_rom import StepRom
from systola.hdl.control.step_row import TWO_LINES
from systola.verif.kit.stream import StreamSource, never
from systola.verif.units.command_bench import (
    SETTINGS,
    UNITS,
    CommandBench,
    opcodes_of,
)
from systola.verif.units.decoder_model import WINDOWED, Reader, word
from systola.verif.units.decoder_words import Writer
from systola.verif.units.given_word import WORD
from systola.verif.units.packing import to_bits
from systola.verif.units.step_words import Shown
from systola.verif.units.unit import (
    Bench,
    chosen_variant,
    long_variants,
    rng,
    run_unit,
    small_config,
)

CONFIGS = {
    "complete": small_config(buffer_lines=500, accumulator_rows=300, parameter_entries=40),
    "training": small_config(
        buffer_lines=500, accumulator_rows=300, parameter_entries=40, training=True
    ),
}
RARE = ("complete",)
LIMIT, TILES = 3 * 4096, 70
COUNT, SECOND = 300, 20
"""Instructions of the first program, and of one after a reset."""
LONG = 10_000
"""More cycles than any instruction waits, by far."""
ELSEWHERE = {TWO_LINES, "tiles", "weight_beats", "weight_address"}
"""Words that choose a window, or that the weight fetch and its queue have."""
SHORT = {"left", "start_byte", "kernel_width"}
"""Words that have a longer part in a command, which repeats a sign or has tiles elsewhere."""


def config():
    return CONFIGS[chosen_variant()]


def program(random):
    """Return legal instructions, many of them settings."""
    text = Reader(config(), limit=LIMIT, tiles=TILES)
    writer = Writer(random, text)
    users = [opcode for unit in UNITS for opcode in opcodes_of(config(), unit)]
    found = []
    kinds = [Opcode.VECTOR]
    while len(found) < COUNT:
        if not kinds:
            # A sort of settings comes round while commands wait.
            setting = random.choice(list(SETTINGS.values()))
            kinds = [setting] * random.choice((1, 1, 1, 2, NUMBERS)) + [None] * random.randint(1, 2)
        opcode = kinds.pop() or random.choice(users)
        bits = word(opcode, writer.legal(opcode))
        if text.fault(bits)[0] == Fault.NONE:
            text.execute(bits)
            found.append(bits)
    return found


class Model:
    """The words of the commands of a unit, as the decoder has written them."""

    def __init__(self, unit):
        self.words = command_words(config(), UNITS[unit])
        self.opcodes = opcodes_of(config(), unit)
        self.waiting = deque()

    def take(self, bits, own, lasting):
        """Keep the words of an instruction."""
        opcode = Opcode(bits & 0xFF)
        if opcode not in self.opcodes:
            return
        fixed = self.words.fixed[own.get(TWO_LINES, 0)]
        window = lasting if opcode in WINDOWED else fixed
        expected = {name: own[name] for name in self.words.own if name in own}
        expected |= {name: window[name] for name in self.words.window if name in window}
        expected |= {name: lasting[name] for name in self.words.scale if name in lasting}
        self.waiting.append((bits, expected))

    def check(self, command):
        """Compare the oldest command with its words."""
        bits, expected = self.waiting.popleft()
        every = {**self.words.own, **self.words.window, **self.words.scale}
        for name, value in expected.items():
            about = f"instruction 0x{bits:032x}: {name}"
            assert command[name] == value & ((1 << every[name]) - 1), about
            if name in self.words.counts:
                assert command.single[name] == (value == 1), about
                assert command.double[name] == (value == 2), about


@cocotb.test
async def numbers_of_settings(dut):
    """Commands wait with their windows and scales while others are set. A second program begins
    with a scale of zeros."""
    random = rng("command memory", chosen_variant())
    bench = Bench(dut, unit())
    await bench.start()
    source = StreamSource(dut, "given", dut.clk, never())
    await run(bench, source, random, program(random))
    dut.rst.value = 1
    await bench.cycle()
    dut.rst.value = 0
    await bench.cycle()
    await run(bench, source, random, program(random)[:SECOND])


async def run(bench, source, random, instructions):
    """Run a program to its last command."""
    source.put(to_bits(WORD, {"word": bits, "error": 0}) for bits in instructions)
    names = {number: name for name, number in StepRom(config()).words.items()}
    models = {name: Model(name) for name in UNITS}
    lasting_words = {name for model in models.values() for name in model.words.window}
    lasting_words |= {name for model in models.values() for name in model.words.scale}
    own, lasting, judged, waits, longest, still = {}, {}, 0, 0, 0, 0
    while judged < len(instructions) or any(model.waiting for model in models.values()):
        # Commands stay until their queue is full, or until a setting needs the number of one.
        held = bench.get("waits")
        moves = {f"{name}_push": random.random() < 0.5 for name in models}
        for name, model in models.items():
            moves[f"{name}_pop"] = random.random() < (
                0.1 if held or len(model.waiting) > 3 else 0.002
            )
        await bench.cycle(**moves)
        still = 0 if bench.get("judges") else still + 1
        assert still < LONG, "an instruction waits for ever"
        if bench.get("judges"):
            for model in models.values():
                model.take(instructions[judged], own, lasting)
            own, judged = {}, judged + 1
        if bench.get("writes"):
            written = bench.get("written")
            place = lasting if names[written.word] in lasting_words else own
            place[names[written.word]] = written.data
        for name, model in models.items():
            if bench.get(f"{name}_popped"):
                model.check(bench.get(f"{name}_command"))
        waits += held
        longest = max(longest, *(len(model.waiting) for model in models.values()))
    if len(instructions) == COUNT:
        assert waits, "no setting has waited for a command that names its number"
        assert longest > 3


@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize("unit_name", UNITS)
def test_words(name, unit_name):
    """Each word has room for its number, and a place in the memory of its unit."""
    config = CONFIGS[name]
    words = command_words(config, UNITS[unit_name])
    every = {**words.own, **words.window, **words.scale}
    rom, shown = StepRom(config), Shown(config, 0)
    for opcode in opcodes_of(config, unit_name):
        written = {row.word for row in rom.program(opcode) if row.word}
        assert written - ELSEWHERE <= set(words.own), opcode.name
        for word_name, parts in shown.words(opcode).items():
            if word_name in every and word_name not in SHORT:
                assert shown.word(parts)[1].bit_length() <= every[word_name], word_name
    settings = {row.word for opcode in SETTINGS.values() for row in rom.program(opcode)}
    assert {*words.window, *words.scale} <= settings


def unit(variant=None):
    return CommandBench(config=CONFIGS[variant or chosen_variant()])


@pytest.mark.parametrize(("simulator", "variant"), long_variants(*CONFIGS, rare=RARE))
def test_command_memory(simulator, variant):
    run_unit("test_command_memory", simulator, unit(variant), variant=variant)
