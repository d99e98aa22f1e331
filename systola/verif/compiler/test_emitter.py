# SPDX-License-Identifier: Apache-2.0
"""Tests of the programs that the emitter writes: parameters, weight reads, settings in loops."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from systola.arch.config import preset
from systola.arch.image import Image
from systola.arch.isa import INSTRUCTION_BYTES, WEIGHT_READS_IN_FLIGHT, Opcode, decode
from systola.compiler.errors import CompileError
from systola.compiler.lower.channels import Channels
from systola.compiler.lower.emitter import Emitter
from systola.compiler.lower.entries import channel_entries, common_entry, division_entry
from systola.compiler.lower.feature_map import new_map
from systola.compiler.operations import Requantisation, Window, scalar_requantisation
from systola.verif.kit.images import parameter_entry
from systola.verif.kit.seeds import random_seed

CONFIG = preset("6x10")


def emitter(**changes: int) -> Emitter:
    return Emitter(dataclasses.replace(CONFIG, **changes), {}, 0, set(), set())


def listing(image: Image) -> list[tuple[Opcode, dict[str, int]]]:
    result: list[tuple[Opcode, dict[str, int]]] = []
    for at in range(0, len(image.program), INSTRUCTION_BYTES):
        decoded = decode(image.program[at : at + INSTRUCTION_BYTES])
        assert decoded is not None
        result.append((decoded[0].opcode, decoded[1]))
    return result


def test_division() -> None:
    """Check that a parameter entry makes Activate divide as gemmlowp's RoundingDivideByPOT does.

    The dividends are products of two int16, and Activate's formula is from the instruction set's
    text.
    """
    rng = np.random.default_rng(random_seed())
    for bits in (15, 19, 26, 30):
        entry = np.frombuffer(division_entry(CONFIG, bits).content, np.uint8)
        assert np.array_equal(
            entry,
            parameter_entry(
                CONFIG,
                bias=np.zeros(CONFIG.cols, np.int32),
                multiplier=np.full(CONFIG.cols, 1 << 30, np.int32),
                left=np.full(CONFIG.cols, 1, np.uint8),
                right=np.full(CONFIG.cols, bits, np.uint8),
            ),
        )
        s = rng.integers(-(2**30) + 1, 2**30, 1000, dtype=np.int64)
        h = (2 * s * 2**30 + 2**30) >> 31
        y = (h + 2 ** (bits - 1) - (h < 0)) >> bits
        exact = np.sign(s) * ((np.abs(s) + 2 ** (bits - 1)) >> bits)
        assert np.array_equal(y, exact)


def test_channel_entries() -> None:
    rng = np.random.default_rng(random_seed())
    channels = Channels((4, 7), 6)
    bias, multiplier = (rng.integers(0, 1 << 30, 11, dtype=np.int32) for _ in range(2))
    shift = rng.integers(-31, 8, 11, dtype=np.int32)
    output = Requantisation(bias=bias, multiplier=multiplier, shift=shift)
    entries = channel_entries(CONFIG, output, channels)
    assert entries.count == 3
    # The channels come in two parts of 4 and 7. A block has 6 columns, and each part begins a new
    # block. So three entries take 4, 6 and 1 channels.
    for number, part in enumerate((slice(0, 4), slice(4, 10), slice(10, 11))):
        columns = np.zeros((4, CONFIG.cols), np.int64)
        values = (bias, multiplier, np.maximum(shift, 0), np.maximum(-shift, 0))
        for row, value in zip(columns, values, strict=True):
            row[: len(value[part])] = value[part]
        size = len(entries.content) // 3
        expected = parameter_entry(
            CONFIG,
            bias=columns[0].astype(np.int32),
            multiplier=columns[1].astype(np.int32),
            left=columns[2].astype(np.uint8),
            right=columns[3].astype(np.uint8),
        )
        assert entries.content[number * size : (number + 1) * size] == expected.tobytes()


def test_weight_reads() -> None:
    """Check that one Read_Weights reads adjacent tiles, and that reads come before tiles are used.

    No more than WEIGHT_READS_IN_FLIGHT reads may wait.
    """
    target = emitter()
    first = target.store_weights(np.zeros((30, CONFIG.tile_bytes), np.uint8))
    for repeat in range(20):
        for number in range(3):
            target.use_weights(first + 10 * number, 10)
            target.emit(Opcode.DEBUG_TAG, tag=3 * repeat + number)
    waiting: list[int] = []
    ahead = 0
    for opcode, operands in listing(target.image()):
        if opcode == Opcode.READ_WEIGHTS:
            assert (operands["tile"], operands["count"]) == (0, 30)
            waiting.append(3)
        elif opcode == Opcode.DEBUG_TAG:
            ahead = max(ahead, len(waiting))
            waiting[0] -= 1
            if waiting[0] == 0:
                waiting.pop(0)
        assert len(waiting) <= WEIGHT_READS_IN_FLIGHT
    assert waiting == []
    assert ahead > 1


def test_reads_stay_in_their_loop() -> None:
    target = emitter()
    first = target.store_weights(np.zeros((8, CONFIG.tile_bytes), np.uint8))
    target.use_weights(first, 2)
    target.emit(Opcode.NOP)
    target.loop(3)
    target.use_weights(first + 2, 2)
    target.emit(Opcode.NOP)
    target.end_loop()
    target.use_weights(first + 4, 4)
    target.emit(Opcode.NOP)
    opcodes = [opcode for opcode, _ in listing(target.image())]
    read, nop = Opcode.READ_WEIGHTS, Opcode.NOP
    body = [read, nop, Opcode.LOOP, read, nop, Opcode.END_LOOP, read, nop]
    assert opcodes == [Opcode.REQUIRE_MACHINE, *body, Opcode.HALT]


def test_loops_forget_window_and_scale() -> None:
    """Check that a loop's body sets window and scale again, even to values from before the loop.

    Before the body's second pass, other values may be set than before the first pass.
    """
    target = emitter()
    source = new_map("", 4, 4, Channels((3,), 6))
    window = Window(kernel=(1, 1), out=(4, 4))
    target.window(source, window)
    target.window(source, window)
    target.scale(limit=7)
    target.scale(limit=7)
    target.loop(2)
    target.window(source, window)
    target.scale(limit=7)
    target.end_loop()
    target.window(source, window)
    opcodes = [opcode for opcode, _ in listing(target.image())]
    assert opcodes.count(Opcode.SET_CONFIG_WINDOW) == 3
    assert opcodes.count(Opcode.SET_CONFIG_SCALE) == 2


def test_parameters_stay_or_come_again() -> None:
    entries = [common_entry(CONFIG, scalar_requantisation(q, 0)) for q in (1, 2, 3)]
    for places, loads in ((3, 3), (2, 6)):
        config = dataclasses.replace(CONFIG, parameter_entries=places)
        target = Emitter(config, {}, 0, set(entries), set())
        for _ in range(2):
            found = [target.parameters(each) for each in entries]
            assert (len(set(found)) == 3) == (places == 3)
        opcodes = [opcode for opcode, _ in listing(target.image())]
        assert opcodes.count(Opcode.LOAD_PARAMETERS) == loads


def test_registers() -> None:
    target = emitter()
    registers = [target.take_register() for _ in range(7)]
    assert sorted(registers) == list(range(1, 8))
    with pytest.raises(CompileError, match="more than 7 index registers"):
        target.take_register()
    target.free_register(registers[3])
    assert target.take_register() == registers[3]
