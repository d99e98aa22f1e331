# SPDX-License-Identifier: Apache-2.0
"""Tests of the training instructions, against plain integers and loops."""

from __future__ import annotations

import random

import numpy as np
import pytest
from numpy.typing import NDArray

from systola.arch.isa import INVERSE_ROOT, RECIPROCAL, Fault, Function, Opcode, Source, encode
from systola.golden.gates import exponential, inverse_root, reciprocal
from systola.golden.training import Generators
from systola.golden.wide import joined
from systola.verif.golden import gemmlowp, scalar
from systola.verif.golden.rig import HALT, SQUARE, TRAINING, Rig
from systola.verif.kit.seeds import random_seed

SIZE = TRAINING.rows


def measure(source: Source = Source.NONE, exponent: int = 1, **changes: int) -> bytes:
    return encode(Opcode.MEASURE, source=source, exponent=exponent, **changes)


def multiply(**changes: int) -> bytes:
    at = {"buffer": 0, "accumulator": 0, "rows": 3, "k_tiles": 2, "n_tiles": 2}
    return encode(Opcode.MATRIX_MULTIPLY, **(at | {"from_buffer": 1} | changes))


def transpose(**changes: int) -> bytes:
    at = {"buffer": 0, "destination": 100, "count": 3, "step": 5}
    return encode(Opcode.TRANSPOSE, **(at | changes))


def rig_at_random() -> tuple[Rig, random.Random]:
    rng = random.Random(random_seed())
    rig = Rig(TRAINING, tiles=8)
    rig.randomise(rng)
    return rig, rng


@pytest.mark.parametrize("wide", [0, 1])
@pytest.mark.parametrize("wide_vectors", [0, 1])
def test_weights_from_the_buffer(wide: int, wide_vectors: int) -> None:
    rig, _ = rig_at_random()
    lines = rig.lines()
    rows, k_tiles, n_tiles, first = 3, 2, 2, 200

    def value(start: int, place: int, byte: int, pairs: int) -> int:
        if not pairs:
            return lines[start + place][byte]
        low, high = (lines[start + 2 * place + which][byte] for which in (0, 1))
        return scalar.int16(low, high)

    rig.complete(multiply(weights=first, wide_weights=wide, wide_vectors=wide_vectors), HALT)
    for n in range(n_tiles):
        for m in range(rows):
            for c in range(SIZE):
                total = sum(
                    value(0, k * rows + m, i, wide_vectors)
                    * value(first, (n * k_tiles + k) * SIZE + i, c, wide)
                    for k in range(k_tiles)
                    for i in range(SIZE)
                )
                assert rig.machine.accumulators[n * rows + m, c] == scalar.wrap32(total)


def test_weights_from_the_buffer_need_an_empty_queue() -> None:
    rig = Rig(TRAINING, tiles=2)
    read = encode(Opcode.READ_WEIGHTS, tile=0, count=1)
    assert rig.fault(read, multiply(weights=77)) == (Fault.WEIGHT_OVERFLOW, 1, 77)
    take = multiply(from_buffer=0, k_tiles=1, n_tiles=1)
    rig.complete(read, take, multiply(weights=77), HALT)
    # A product with weights from the buffer needs no tile of the queue, and leaves it unchanged.
    assert rig.fault(multiply(), take) == (Fault.WEIGHT_UNDERFLOW, 1, 0)


@pytest.mark.parametrize(
    ("word", "cause", "address"),
    [
        (multiply(weights=1024 - 16), None, 0),
        (multiply(weights=1024 - 15), Fault.BUFFER_RANGE, 1024 - 15),
        (multiply(weights=1024 - 31, wide_weights=1), Fault.BUFFER_RANGE, 1024 - 31),
        (multiply(weights=1023, buffer=1020), Fault.BUFFER_RANGE, 1020),
        (multiply(weights=1023, from_buffer=0), Fault.WEIGHT_UNDERFLOW, 0),
        (transpose(buffer=1010), None, 0),
        (transpose(buffer=1011), Fault.BUFFER_RANGE, 1011),
        (transpose(destination=1012), None, 0),
        (transpose(destination=1013), Fault.BUFFER_RANGE, 1013),
        (transpose(destination=14), None, 0),
        (transpose(destination=13), Fault.OVERLAP, 13),
        (transpose(buffer=112), None, 0),
        (transpose(buffer=111), Fault.OVERLAP, 100),
        (measure(Source.LINES, buffer=1022), None, 0),
        (measure(Source.LINES, buffer=1021, rows=2), Fault.BUFFER_RANGE, 1021),
        (measure(Source.LINES, accumulator=300), None, 0),
        (measure(Source.ACCUMULATORS, accumulator=254, rows=2, buffer=2000), None, 0),
        (measure(Source.ACCUMULATORS, accumulator=255, rows=2), Fault.ACCUMULATOR_RANGE, 255),
        (measure(accumulator=300, buffer=2000, rows=9), None, 0),
        (encode(Opcode.RANDOM, destination=1020, rows=4), None, 0),
        (encode(Opcode.RANDOM, destination=1020, rows=5), Fault.BUFFER_RANGE, 1020),
    ],
)
def test_limits(word: bytes, cause: Fault | None, address: int) -> None:
    rig = Rig(TRAINING)
    if cause is None:
        rig.complete(word, HALT)
    else:
        assert rig.fault(word) == (cause, 0, address)
    assert Rig(SQUARE).fault(word)[0] in (Fault.UNAVAILABLE, Fault.WEIGHT_UNDERFLOW)


def test_measure_by_hand() -> None:
    """Check Measure with the least and the largest numbers of 0, 1, 7, 8 and 15 bits.

    The number of bits that Measure finds is visible as a right shift of a later Vector.
    """
    rig = Rig(TRAINING)
    rig.set_entry(0, 0, scalar.Entry(bias=0, multiplier=1 << 30, left=0, right=0))
    show = {"operation": 0, "buffer": 500, "destination": 600, "rows": 1, "parameter": 0}
    rig.machine.buffer[500:502, 0] = 0, 64  # the int16 number 2^14
    cases = {0: 0, -1: 0, 1: 1, -2: 1, 127: 7, -128: 7, 128: 8, -129: 8, 32767: 15, -32768: 15}
    for value, bits in cases.items():
        rig.machine.buffer[10:14] = 0
        rig.machine.buffer[12:14, 2] = np.array([value], "<i2").view(np.int8)
        rig.machine.accumulators[7:9] = 0
        rig.machine.accumulators[8, 3] = value << 16
        for source, more in ((Source.LINES, 0), (Source.ACCUMULATORS, 16)):
            word = measure(source, buffer=10, accumulator=7, rows=2, bits=more, exponent=3)
            vector = encode(Opcode.VECTOR, **show, wide_operands=1, wide=1, exponent=3)
            rig.complete(word, vector, HALT)
            shown = int(rig.machine.buffer[600:602, 0].copy().view("<i2")[0])
            # Measure subtracts 16 bits for an accumulator. So nothing is left of the 16 bits of -1
            # << 16. For a sum of 0 the result stays 0.
            assert shown == 1 << 14 >> bits + 1


def test_exponents_by_hand() -> None:
    """Check exponent registers: sums, the maximum of a sum and a measured size, a start at 0."""
    rig = Rig(TRAINING)
    for channel in range(SIZE):
        rig.set_entry(0, channel, scalar.Entry(bias=0, multiplier=1 << 30, left=5, right=9))
    rig.machine.accumulators[0] = 1000

    def shown(*words: bytes, register: int = 4) -> int:
        at = {"accumulator": 0, "buffer": 0, "rows": 1, "n_tiles": 1, "parameter": 0, "wide": 1}
        rig.complete(*words, encode(Opcode.ACTIVATE, **at, rounding=1, exponent=register), HALT)
        return int(rig.machine.buffer[0:2, 0].copy().view("<i2")[0])

    two, three = measure(exponent=1, value=2), measure(exponent=2, value=3)
    assert shown(two, three, measure(exponent=4, first=1, second=2, value=-1)) == 31  # 1000 / 2^5
    assert shown(two, three, measure(exponent=4, first=1, third=2)) == 1000
    assert shown(two, measure(exponent=4, third=1, value=-1)) == 4000
    assert shown(measure(exponent=4, value=-8)) == 32767
    assert shown(measure(exponent=4, value=127)) == 0
    assert shown(measure(exponent=4, value=127), measure(exponent=4, first=4, value=127)) == 2000
    larger = measure(Source.ACCUMULATORS, exponent=4, bits=7)  # the sum 1000 has 10 bits
    assert shown(larger) == 63
    assert shown(two, measure(Source.ACCUMULATORS, exponent=4, bits=7, first=1, value=2)) == 31
    assert shown() == 500  # the register is zero again in the next program
    assert shown(register=0) == 31  # 1000 * 32 / 2 / 512, without an exponent register


def test_transpose() -> None:
    rig, _ = rig_at_random()
    before = rig.lines()
    rig.complete(transpose(), HALT)
    after = rig.lines()
    for t in range(3):
        for i in range(SIZE):
            expected = [before[t * 5 + j][i] for j in range(SIZE)]
            assert after[100 + t * SIZE + i] == expected
    assert after[:100] == before[:100] and after[112:] == before[112:]


def xorshift(x: int) -> int:
    x = (x ^ x << 13) % (1 << 64)
    x ^= x >> 7
    return (x ^ x << 17) % (1 << 64)


def test_random() -> None:
    """Check random bytes by plain integers; other seeds, counters and columns give other bytes."""
    rng = random.Random(random_seed())
    for cols in (4, 8, 16, 20):
        seed, counter = rng.getrandbits(31), rng.getrandbits(32)
        lines = Generators(cols).lines(5, seed, counter).view(np.uint8)
        for c in range(cols):
            g, j = divmod(c, 8)
            x = (1 << 63 | seed << 32 | counter) ^ g * 0x1E3779B97F4A7C15 % (1 << 63)
            for step in range(16 + 5):
                x = xorshift(x)
                byte = [x >> 8 * i & 255 for i in range(8)]
                if step >= 16:
                    expected = byte[j] ^ byte[(j + 1) % 8] & byte[(j + 2) % 8]
                    assert lines[step - 16, c] == expected
    assert not np.array_equal(Generators(8).lines(9, 1, 2), Generators(8).lines(9, 1, 3))
    assert not np.array_equal(Generators(8).lines(9, 1, 2), Generators(8).lines(9, 2, 2))


def activate(**changes: int) -> bytes:
    at = {"accumulator": 0, "buffer": 300, "rows": 3, "n_tiles": 2, "parameter": 0, "wide": 1}
    return encode(Opcode.ACTIVATE, **(at | {"stochastic": 1} | changes))


@pytest.mark.parametrize("exponent", [0, 3])
def test_stochastic_rounding(exponent: int) -> None:
    """Check stochastic rounding by its formula in plain integers.

    Several instructions continue one random sequence.
    """
    rig, rng = rig_at_random()
    seed, counter = rng.getrandbits(31), rng.getrandbits(32)
    draw = encode(Opcode.RANDOM, destination=200, rows=2, seed=seed, counter=counter)
    shift = measure(exponent=3, value=5)
    more = activate(buffer=400, accumulator=9, rows=1, n_tiles=1, rounding=1, exponent=exponent)
    between = activate(buffer=450, stochastic=0)
    rig.machine.accumulators[:10] >>= 8
    rig.complete(draw, shift, activate(exponent=exponent), between, more, HALT)
    state = 1 << 63 | seed << 32 | counter
    for _ in range(16 + 2):
        state = xorshift(state)
    for vector, row in enumerate((*range(6), 9)):
        line = 300 + 2 * vector if vector < 6 else 400
        state = xorshift(state)
        for c in range(SIZE):
            entry = rig.entry(vector // 3 % 2, c)
            left, right = (0, 5) if exponent else (entry.left, entry.right)
            total = scalar.wrap32(int(rig.machine.accumulators[row, c]) + entry.bias)
            x = scalar.saturate32(total << left)
            t = state >> 8 * c & 15
            y = (x * entry.multiplier + t * 2 ** (27 + right)) // 2 ** (31 + right)
            shown = rig.machine.buffer[line : line + 2, c].copy().view("<i2")[0]
            assert shown == min(max(y, -32768), 32767)


def test_stochastic_rounding_is_even() -> None:
    """Check that stochastic rounding rounds up as often as a number's fraction demands.

    Whole numbers stay unchanged. Before a Random instruction, all numbers are rounded down.
    """
    rig = Rig(TRAINING)
    for channel in range(SIZE):
        rig.set_entry(0, channel, scalar.Entry(bias=0, multiplier=1 << 30, left=0, right=4))
    rig.machine.accumulators[:200] = [-32 * 7, -32 * 7 + 12, 32 * 5, 32 * 5 + 30]
    word = activate(rows=200, n_tiles=1)

    def shown() -> NDArray[np.int16]:
        return joined(rig.machine.buffer[300:700].reshape(200, 2, SIZE))

    rig.complete(word, HALT)
    assert (shown() == [-7, -7, 5, 5]).all()
    rig.complete(encode(Opcode.RANDOM, destination=0, rows=1, seed=5), word, HALT)
    ups = (shown() - [-7, -7, 5, 5]).mean(axis=0)
    assert ups[0] == ups[2] == 0
    assert ups[1] == pytest.approx(12 / 32, abs=0.12)
    assert ups[3] == pytest.approx(30 / 32, abs=0.07)


def test_stochastic_rounding_needs_training() -> None:
    assert Rig(SQUARE).fault(activate(wide=0))[:2] == (Fault.ILLEGAL_FIELD, 0)


def test_random_bytes_are_even() -> None:
    lines = Generators(16).lines(4096, 5, 6).view(np.uint8)
    counts = np.bincount(lines.reshape(-1), minlength=256)
    assert abs(counts - counts.mean()).max() < 6 * np.sqrt(counts.mean())
    kept = (lines < 204).astype(float)
    related = np.corrcoef(kept.T) - np.eye(16)
    assert abs(related).max() < 0.1


@pytest.mark.parametrize("bits", range(5))
def test_exponential(bits: int) -> None:
    every = np.arange(-32768, 32768, dtype=np.int16)
    result = exponential(every, bits)
    exact = np.exp(-np.abs(every / 2.0 ** (15 - bits)))
    assert np.abs(result / 32768 - exact).max() < 13 / 32768
    rng = random.Random(random_seed())
    cases = [0, 1, -1, 32767, -32768, *(rng.randint(-32768, 32767) for _ in range(300))]
    for case in cases:
        assert result[case + 32768] == gemmlowp.exp_on_negative_values(-abs(case), bits)


@pytest.mark.parametrize("opcode", [Opcode.ACTIVATE, Opcode.VECTOR])
@pytest.mark.parametrize("table", [3, RECIPROCAL, INVERSE_ROOT])
def test_exponential_in_instructions(opcode: Opcode, table: int) -> None:
    rig, _ = rig_at_random()
    for channel in range(SIZE):
        rig.set_entry(0, channel, scalar.Entry(bias=0, multiplier=1 << 30, left=1, right=0))
    values = np.array([-5, 12345, 0, -32768], np.int16)
    rig.machine.accumulators[0] = values
    rig.machine.buffer[0:2] = values.view(np.int8).reshape(-1, 2).T
    how = {"parameter": 0, "function": Function.EXP, "table": table, "wide": 1}
    if opcode == Opcode.ACTIVATE:
        word = encode(opcode, accumulator=0, buffer=9, rows=1, n_tiles=1, **how)
    else:
        at = {"operation": 0, "buffer": 0, "destination": 9, "rows": 1, "wide_operands": 1}
        word = encode(opcode, **at, **how)
    rig.complete(word, HALT)
    result = rig.machine.buffer[9:11].T.copy().view("<i2").reshape(-1)
    inverse = {RECIPROCAL: reciprocal, INVERSE_ROOT: inverse_root}.get(table)
    expected = inverse(values) if inverse else exponential(values, table)
    assert result.tolist() == expected.tolist()
