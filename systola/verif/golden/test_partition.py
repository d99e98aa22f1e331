# SPDX-License-Identifier: Apache-2.0
"""Tests of partitions, a mode of Vector, against plain integers and the compiler's softmax."""

from __future__ import annotations

import dataclasses
import random

import numpy as np
import pytest

from systola.arch.config import Config, preset
from systola.arch.isa import Fault, Function, Opcode, Operation, encode
from systola.compiler.softmax import reciprocal
from systola.golden.partition import partition_planes
from systola.verif.golden.rig import HALT, Rig
from systola.verif.kit.partition import corners, expected_channel
from systola.verif.kit.seeds import random_seed

CONFIG = dataclasses.replace(
    preset("4x4-attention"), tables=8, buffer_lines=64, parameter_entries=8
)
HOW = {
    "operation": Operation.ADD,
    "function": Function.QUOTIENT,
    "accumulate": 1,
    "buffer": 0,
    "operand": 40,
    "destination": 0,
    "rows": 4,
    "parameter": 2,
}
"""Fields of a partition."""


def bytes_of(entry: tuple[int, int, int, int]) -> list[int]:
    """Return the nine bytes of a channel with a bias, a multiplier, and shifts left and right."""
    bias, multiplier, left, right = entry
    words = (bias % 2**32).to_bytes(4, "little") + multiplier.to_bytes(4, "little")
    return [*words, left << 5 | right]


def test_sums_of_all_sizes_against_plain_integers() -> None:
    rng = random.Random(random_seed())
    totals = corners() + [rng.getrandbits(32) >> rng.randrange(32) for _ in range(20_000)]
    numbers = np.array(totals, np.uint32).view(np.int32)[np.newaxis]
    planes = partition_planes(numbers).T.tolist()
    assert planes == [bytes_of(expected_channel(total)) for total in totals]


def test_against_softmax_of_the_compiler() -> None:
    """Check multipliers and shifts for all sums with which the compiler's softmax divides."""
    rng = np.random.default_rng(random_seed())
    totals = np.concatenate(
        [
            [total for total in corners() if 0 < total < 1 << 28],
            rng.integers(1, 1 << rng.integers(1, 29, 100_000)),
        ]
    )
    factor, shift = reciprocal(totals.astype(np.int64))
    planes = partition_planes(totals.astype(np.int32)[np.newaxis])
    words = np.ascontiguousarray(planes[4:8].T).view("<u4").ravel()
    assert np.array_equal(words, factor)
    assert np.array_equal(planes[8], np.minimum(shift, 31))
    assert not planes[:4].any()


def test_programs_against_loops() -> None:
    """Check the sums of looked-up numbers, and that a partition changes nothing but its entry."""
    rng = random.Random(random_seed())
    rig = Rig(CONFIG)
    for _ in range(40):
        zero, rows, table = rng.randrange(-128, 128), rng.randrange(1, 30), rng.randrange(5)
        operand, parameter = rng.randrange(CONFIG.buffer_lines), rng.randrange(8)
        rig.randomise(rng)
        lines, parameters = rig.lines(), rig.machine.parameters.copy()
        numbers = np.frombuffer(rig.machine.tables.tobytes()[256 * table :][:1024], "<i4").tolist()
        for c in range(CONFIG.cols):
            elements = [lines[3 + m][c] - zero - lines[operand][c] for m in range(rows)]
            total = sum(numbers[k % 256] for k in elements) % 2**32
            parameters[parameter, :, c] = bytes_of(expected_channel(total))
        at = {**HOW, "rows": rows, "table": table, "buffer": 3, "operand": operand}
        ignored = {
            "destination": rng.getrandbits(20),
            "zero_point": rng.randrange(-128, 128),
            "rounding": rng.randrange(2),
        }
        vector = encode(Opcode.VECTOR, **{**at, **ignored, "parameter": parameter})
        rig.complete(encode(Opcode.SET_CONFIG_SCALE, zero_a=zero, zero_b=77), vector, HALT)
        assert rig.lines() == lines
        assert np.array_equal(rig.machine.parameters, parameters)


@pytest.mark.parametrize(
    ("more", "fault"),
    [
        ({}, None),
        ({"destination": (1 << 20) - 1}, None),
        ({"destination": 2, "operand": 3}, None),
        ({"table": 5}, Fault.TABLE_RANGE),
        ({"parameter": 8}, Fault.PARAMETER_RANGE),
        ({"buffer": 61}, Fault.BUFFER_RANGE),
        ({"operand": 64}, Fault.BUFFER_RANGE),
        ({"wide_operands": 1}, Fault.ILLEGAL_FIELD),
        ({"operation": Operation.COPY}, Fault.ILLEGAL_FIELD),
        ({"operation": Operation.SUBTRACT}, Fault.ILLEGAL_FIELD),
        ({"function": Function.NONE}, Fault.ILLEGAL_FIELD),
    ],
)
def test_faults(more: dict[str, int], fault: Fault | None) -> None:
    at = {**HOW, "table": 4, **more}
    outcome = Rig(CONFIG).run(encode(Opcode.VECTOR, **at), HALT)
    assert (outcome.fault and outcome.fault.cause) == fault


@pytest.mark.parametrize("config", [preset("4x4"), preset("4x4-training")], ids=["plain", "train"])
def test_machines_without_attention_refuse_it(config: Config) -> None:
    outcome = Rig(config).run(encode(Opcode.VECTOR, **HOW), HALT)
    assert outcome.fault and outcome.fault.cause == Fault.ILLEGAL_FIELD
