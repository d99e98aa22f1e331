# SPDX-License-Identifier: Apache-2.0
"""The test of the command memories with the sequenced decoder.

Each command has the words of its instruction, its window and its scale, as they were when it was
decoded. The command made from these words has the same fields as the decoder's command.

A setting is a Set_Config_Window or Set_Config_Scale. Settings have numbers, so that a command can
still use an old window or scale when a new one is set.
"""

from collections import deque

import cocotb
import pytest

from systola.arch.isa import Fault, Opcode
from systola.hdl.control.command_words import NUMBERS, command_words
from systola.hdl.control.decoded import Decoded
from systola.hdl.control.scalar_unit import EffectiveInstruction
from systola.hdl.control.step_rom import StepRom
from systola.hdl.control.step_row import TWO_LINES
from systola.verif.kit.stream import StreamSource, never
from systola.verif.units.control.command_bench import (
    SETTINGS,
    UNITS,
    CommandBench,
    fetches,
    opcodes_of,
)
from systola.verif.units.control.decoder_words import Writer
from systola.verif.units.control.given_word import WORD
from systola.verif.units.control.instruction_reader import WINDOWED, Reader, word
from systola.verif.units.control.made_commands import fields_of, meaningful, shown_command
from systola.verif.units.control.scalar_model import kind
from systola.verif.units.control.step_words import Shown
from systola.verif.units.control.test_sequenced_decoder import CHECKED, Registers
from systola.verif.units.packing import from_bits, to_bits
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
    "attention": small_config(
        buffer_lines=500,
        accumulator_rows=300,
        parameter_entries=40,
        tables=5,
        training=True,
        attention=True,
    ),
}
RARE = ("complete", "attention")
LIMIT, TILES = 3 * 4096, 70
COUNT, SECOND = 200, 20
"""The number of instructions of the first program, and of the program after a reset."""
LONG = 10_000
"""A number of cycles far beyond the wait of any instruction."""
ELSEWHERE = {TWO_LINES, "tiles"}
"""Names of words that no command memory keeps.

TWO_LINES chooses a fixed window. `tiles` goes to the sequencer.
"""
SHARED = {
    "matrix": "weights",
    "weights": "matrix",
    "host_reads": "host_read",
    "host_read": "host_reads",
}
"""For each queue that shares words with another queue, the name of the other queue."""
SHORT = {"left", "start_byte", "kernel_width"}
"""Names of words with fewer bits than their part of the command.

The upper bits of the part repeat the sign, or come from another word.
"""


def config():
    return CONFIGS[chosen_variant()]


def program(random):
    """Return a random program of legal instructions, many of which set a window or a scale."""
    text = Reader(config(), limit=LIMIT, tiles=TILES)
    writer = Writer(random, text)
    users = [opcode for unit in UNITS for opcode in opcodes_of(config(), unit)]
    found = []
    kinds = [Opcode.VECTOR]
    while len(found) < COUNT:
        if not kinds:
            # Settings of one kind may follow each other quickly. So a new setting needs the number
            # of an old setting, which waiting commands still use.
            setting = random.choice(list(SETTINGS.values()))
            kinds = [setting] * random.choice((1, 1, 1, 2, NUMBERS)) + [None] * random.randint(1, 2)
        opcode = kinds.pop() or random.choice(users)
        bits = word(opcode, writer.legal(opcode))
        if text.fault(bits)[0] == Fault.NONE:
            text.execute(bits)
            found.append(bits)
    return found


class Model:
    """A model of the commands in a queue: their words as the decoder has written them."""

    def __init__(self, queue):
        self.words = command_words(config(), queue)
        self.opcodes = opcodes_of(config(), queue)
        self.fetches = queue == "weights" and config().training
        self.waiting = deque()

    def take(self, number, bits, own, lasting):
        """Store the expected command words of an instruction, if it goes into this queue."""
        opcode = Opcode(bits & 0xFF)
        if opcode not in self.opcodes and not (self.fetches and fetches(bits)):
            return
        fixed = self.words.fixed[own.get(TWO_LINES, 0)] if self.words.fixed else {}
        window = lasting if opcode in WINDOWED else fixed
        expected = {name: own[name] for name in self.words.own if name in own}
        expected |= {"pc": number} if "pc" in self.words.own else {}
        expected |= {name: window[name] for name in self.words.window if name in window}
        expected |= {name: lasting[name] for name in self.words.scale if name in lasting}
        self.waiting.append((number, bits, expected))

    def check(self, command):
        """Compare the oldest command with its expected words; return its instruction's number."""
        number, bits, expected = self.waiting.popleft()
        every = {**self.words.own, **self.words.window, **self.words.scale}
        for name, value in expected.items():
            about = f"instruction 0x{bits:032x}: {name}"
            assert command[name] == value & ((1 << every[name]) - 1), about
            if name in self.words.counts:
                assert command.single[name] == (value == 1), about
                assert command.double[name] == (value == 2), about
        return number


class Old:
    """A driver of the decoder, which takes the same instructions and shows all commands."""

    def __init__(self, bench, sources, random, instructions):
        self._bench = bench
        self._instructions = instructions
        self._shown, self._made = [], []
        self._seen, self._frees = 0, False
        given, staged = sources
        registers = Registers(random, links=config().links)
        for number, each in enumerate(instructions):
            bits, sums = registers.taken(each, 0)
            shape = EffectiveInstruction(links=config().links)
            fields = {"error": 0, "pc": number, "word": bits, "sums": sums, "kind": kind(bits)}
            staged.put([to_bits(shape, fields)])
            given.put([to_bits(WORD, {"word": bits, "error": 0})])

    async def cycle(self, **inputs):
        """Run a cycle, and store the output of the decoder if it is taken."""
        takes, self._frees = self._frees, self._seen >= CHECKED - 1 and not self._frees
        await self._bench.cycle(frees=self._frees, **inputs)
        if self._bench.get("decoded__valid"):
            self._seen += 1
            if takes:
                self._shown.append(int(self._bench.get("decoded__payload").bits))
                self._seen = 0

    def keep(self, number, queue, command):
        """Store the command of an instruction that was made from command words."""
        self._made.append((number, queue, command))

    async def compare(self):
        """Compare all stored commands with the decoder's, after the decoder has shown them."""
        while len(self._shown) < len(self._instructions):
            await self.cycle()
        for number, queue, command in self._made:
            opcode = Opcode(self._instructions[number] & 0xFF)
            decoded = from_bits(Decoded(config=config()), self._shown[number])
            wanted = meaningful(queue, opcode, shown_command(config(), queue, opcode, decoded))
            found = meaningful(queue, opcode, fields_of(command))
            about = f"{opcode.name} 0x{self._instructions[number]:032x}"
            assert wanted.keys() == found.keys(), about
            different = {path for path in wanted if wanted[path] != found[path]}
            assert not different, f"{about}: {sorted(different)}"


@cocotb.test
async def numbers_of_settings(dut):
    """Check that commands keep their windows and scales while others are set.

    A second program, after a reset, begins with a scale of zeros.
    """
    random = rng("command memory", chosen_variant())
    bench = Bench(dut, unit())
    await bench.start()
    bench.set(host_limit=LIMIT, weight_tiles=TILES)
    sources = [StreamSource(dut, name, dut.clk, never()) for name in ("given", "instruction")]
    await run(bench, sources, random, program(random))
    dut.rst.value = 1
    await bench.cycle()
    dut.rst.value = 0
    await bench.cycle()
    await run(bench, sources, random, program(random)[:SECOND])


async def run(bench, sources, random, instructions):
    """Run a program until the last command has left its queue, and check all commands."""
    decoder = Old(bench, sources, random, instructions)
    names = {number: name for name, number in StepRom(config()).words.items()}
    models = {name: Model(name) for name in UNITS}
    lasting_words = {name for model in models.values() for name in model.words.window}
    lasting_words |= {name for model in models.values() for name in model.words.scale}
    own, lasting, judged, waits, longest, still = {}, {}, 0, 0, 0, 0
    while judged < len(instructions) or any(model.waiting for model in models.values()):
        # Commands stay in their queue until it is long, or until a new setting waits for a number
        # that a command still uses.
        held = bench.get("waits")
        moves = {f"{name}_push": random.random() < 0.5 for name in models}
        for name, model in models.items():
            moves[f"{name}_pop"] = random.random() < (
                0.1 if held or len(model.waiting) > 3 else 0.002
            )
        await decoder.cycle(**moves)
        still = 0 if bench.get("judges") else still + 1
        assert still < LONG, "an instruction waits for ever"
        if bench.get("judges"):
            for model in models.values():
                model.take(judged, instructions[judged], own, lasting)
            own, judged = {}, judged + 1
        if bench.get("writes"):
            written = bench.get("written")
            place = lasting if names[written.word] in lasting_words else own
            place[names[written.word]] = written.data
        for name, model in models.items():
            if bench.get(f"{name}_popped"):
                number = model.check(bench.get(f"{name}_command"))
                decoder.keep(number, name, bench.get(f"{name}_made"))
        waits += held
        longest = max(longest, *(len(model.waiting) for model in models.values()))
    await decoder.compare()
    if len(instructions) == COUNT:
        assert waits, "no setting has waited for a command that names its number"
        assert longest > 3


@pytest.mark.parametrize("name", CONFIGS)
def test_words(name):
    """Check that the memory of a queue keeps each word of its instructions, with enough bits.

    The words that last for later instructions must come from a setting.
    """
    config = CONFIGS[name]
    rom, shown = StepRom(config), Shown(config, 0)
    lasting = set()
    for queue in UNITS:
        words = command_words(config, queue)
        every = {**words.own, **words.window, **words.scale}
        lasting |= {*words.window, *words.scale}
        others = SHARED.get(queue)
        elsewhere = set(command_words(config, others).own) if others else set()
        for opcode in opcodes_of(config, queue):
            written = {row.word for row in rom.program(opcode) if row.word}
            assert written - ELSEWHERE - elsewhere <= set(words.own), opcode.name
            for word_name, parts in shown.words(opcode).items():
                if word_name in every and word_name not in SHORT:
                    assert shown.word(parts)[1].bit_length() <= every[word_name], word_name
    settings = {row.word for opcode in SETTINGS.values() for row in rom.program(opcode)}
    assert lasting <= settings


def unit(variant=None):
    return CommandBench(config=CONFIGS[variant or chosen_variant()])


@pytest.mark.thorough
@pytest.mark.parametrize(("simulator", "variant"), long_variants(*CONFIGS, rare=RARE))
def test_command_memory(simulator, variant):
    run_unit("test_command_memory", simulator, unit(variant), variant=variant)
