# SPDX-License-Identifier: Apache-2.0
"""Generated programs with numbers that lie halfway between two results, or next to halfway.

The low bits of a product matter only for such numbers, which hardly ever occur at random.
"""

from __future__ import annotations

import random

import numpy as np

from systola.arch.config import HOST_PAGE_BYTES, Config
from systola.arch.image import Image
from systola.arch.isa import PARAMETER_PLANES, Opcode, Operation, encode
from systola.verif.kit.copies import lines_out
from systola.verif.kit.images import make_image, parameter_entry

_ENTRIES = 256
_ROWS = 16
_SCALES = 12
_PARAMETERS, _OUTPUT = HOST_PAGE_BYTES, 16 * HOST_PAGE_BYTES


def sums_program(config: Config, seed: str) -> Image:
    """Make a program in which Activate rounds biases, as all weights are zero.

    Activate rounds each bias in both rounding modes, to int8 and, if the machine has it, to int16.
    """
    rng = random.Random(f"{config.name} {seed}")
    size = PARAMETER_PLANES * config.output_pitch
    count = min(
        *(_ENTRIES, config.parameter_entries, config.accumulator_rows, config.buffer_lines // 2),
        (_OUTPUT - _PARAMETERS) // size,
    )
    pages = -(-(_OUTPUT + 6 * count * config.output_pitch) // HOST_PAGE_BYTES)
    host = np.zeros(pages * HOST_PAGE_BYTES, np.uint8)
    for number in range(count):
        cases = np.array([_halfway(rng) for _ in range(config.cols)])
        entry = parameter_entry(
            config,
            bias=cases[:, 0].astype(np.int32),
            multiplier=cases[:, 1].astype(np.int32),
            left=cases[:, 2].astype(np.uint8),
            right=cases[:, 3].astype(np.uint8),
        )
        host[_PARAMETERS + number * size :][:size] = entry
    words = [
        encode(Opcode.LOAD_PARAMETERS, host=_PARAMETERS, parameter=0, count=count),
        encode(
            Opcode.READ_HOST_MEMORY,
            **{"host": 0, "buffer": 0, "rows": 1, "stride": 0, "blocks": 1, "tail": 1},
        ),
        encode(Opcode.READ_WEIGHTS, tile=0, count=count),
        encode(
            Opcode.MATRIX_MULTIPLY,
            **{"buffer": 0, "accumulator": 0, "rows": 1, "k_tiles": 1, "n_tiles": count},
        ),
    ]
    shown = _OUTPUT
    for wide in range(1 + config.wide):
        for rounding in (0, 1):
            zero_point = rng.choice((0, rng.randint(-128, 127)))
            words.append(
                encode(
                    Opcode.ACTIVATE,
                    **{"accumulator": 0, "buffer": 0, "rows": 1, "n_tiles": count},
                    **{"parameter": 0, "rounding": rounding, "wide": wide},
                    zero_point=0 if wide else zero_point,
                )
            )
            words.append(_show(config, shown, 0, count << wide))
            shown += (count << wide) * config.output_pitch
    words.append(encode(Opcode.HALT))
    weights = np.zeros(count * config.tile_bytes, np.uint8)
    return make_image(words, host=host, weights=weights)


def scales_program(config: Config, seed: str) -> Image:
    """Make a program in which Vector scales operands that come to lie halfway between two
    integers.
    """
    rng = random.Random(f"{config.name} {seed}")
    size = PARAMETER_PLANES * config.output_pitch
    lines = 2 * _ROWS << int(config.wide)
    pitch = max(config.input_pitch, config.output_pitch)
    pages = -(-(_OUTPUT + 2 * _SCALES * lines * pitch) // HOST_PAGE_BYTES)
    host = np.zeros(pages * HOST_PAGE_BYTES, np.uint8)
    ones = np.ones(config.cols, np.int32)
    host[_PARAMETERS:][:size] = parameter_entry(
        config, bias=0 * ones, multiplier=ones << 30, left=ones.astype(np.uint8), right=0 * ones
    )
    words = [encode(Opcode.LOAD_PARAMETERS, host=_PARAMETERS, parameter=0, count=1)]
    place = _OUTPUT
    for _ in range(_SCALES):
        wide = int(config.wide and rng.random() < 0.7)
        scales: dict[str, int] = {}
        for number, operand in enumerate("ab"):
            count = _ROWS * config.cols
            values, scale = (
                _far_operands(rng, count)
                if wide and rng.random() < 0.5
                else _operands(rng, wide, count)
            )
            scales |= {f"{name}_{operand}": value for name, value in scale.items()}
            flat = np.array(values).reshape(_ROWS, config.cols).astype(f"<i{1 + wide}")
            # low bytes and high bytes have a line each
            parts = flat[..., np.newaxis].view(np.uint8)
            for row in range(_ROWS):
                for part in range(1 + wide):
                    line = number * (_ROWS << wide) + (row << wide) + part
                    host[place + line * pitch :][: config.cols] = parts[row, :, part]
        count = _ROWS << wide
        words += [
            encode(
                Opcode.READ_HOST_MEMORY,
                **{"host": place, "buffer": 0, "rows": 2 * count, "stride": pitch},
                **{"blocks": 1, "tail": config.rows},
            ),
            encode(Opcode.SET_CONFIG_SCALE, **scales, ceiling=127),
            encode(
                Opcode.VECTOR,
                operation=rng.choice((Operation.ADD, Operation.SUBTRACT)),
                **{"buffer": 0, "operand": count, "destination": 2 * count, "rows": _ROWS},
                **{"parameter": 0, "wide_operands": wide, "wide": int(config.wide)},
            ),
        ]
        place += 2 * count * pitch
        words.append(_show(config, place, 2 * count, _ROWS << int(config.wide)))
        place += lines * pitch
    words.append(encode(Opcode.HALT))
    assert place <= len(host)
    return make_image(words, host=host)


def _show(config: Config, host: int, line: int, rows: int) -> bytes:
    return encode(Opcode.WRITE_HOST_MEMORY, **lines_out(config, host=host, line=line, rows=rows))


def _near(rng: random.Random, bits: int) -> int:
    """Return 2^(`bits` - 1) or a number next to it, as half of the range of `bits` bits.

    Perhaps another power of two is added or subtracted.
    """
    other = rng.choice((0, 1, -1)) << rng.randrange(bits)
    return (1 << bits - 1) + rng.choice((0, 0, 0, -1, -1, -1, 1)) + other


def _signed(rng: random.Random, value: int, bits: int) -> int:
    """Return `value` modulo 2^bits; in half of the cases subtract 2^bits, for a negative result."""
    value %= 1 << bits
    return value - (1 << bits) if value and rng.random() < 0.5 else value


def _halfway(rng: random.Random) -> tuple[int, int, int, int]:
    """Return bias, multiplier, left shift and right shift for a result that is about halfway.

    The bits of the product that are cut off are worth about half of the result's lowest bit.
    """
    while True:
        right = rng.choice((0, rng.randrange(8), rng.randrange(32)))
        odd = rng.randrange(1, 1 << rng.randint(1, 15), 2)
        # The sum gets `zeros` zeros as its lowest bits, and the multiplier gets `others` zeros.
        zeros = rng.choice((0, rng.randrange(8), rng.randrange(31)))
        others = rng.choice((0, rng.randrange(8), rng.randrange(31)))
        bits = 31 + right - zeros - others
        if bits < 1:
            continue
        solved = _signed(rng, _near(rng, bits) * pow(odd, -1, 1 << bits), bits)
        small = odd * rng.choice((1, -1))
        for total, multiplier in ((solved, odd), (small, solved)):
            total, multiplier = total << zeros, multiplier << others
            if 0 <= multiplier < 1 << 31 and -(1 << 31) <= total < 1 << 31:
                left = rng.randint(0, min(zeros, 7))
                return total >> left, multiplier, left, right


def _operands(rng: random.Random, wide: int, count: int) -> tuple[list[int], dict[str, int]]:
    """Return `count` operands, with a multiplier and a shift.

    Many scaled operands lie about halfway between two results.
    """
    cut = 16 if wide else 11
    shift = rng.choice((0, 0, rng.randrange(14), rng.randrange(30)))
    if wide:
        odd = rng.randrange(1, 1 << rng.randint(1, min(15, 31 - shift)), 2)
        multiplier = odd << shift
        inverse = pow(odd, -1, 1 << cut)
        values = [_signed(rng, _near(rng, cut) * inverse, cut + 1) for _ in range(count)]
        values = [(value + (1 << 15)) % (1 << 16) - (1 << 15) for value in values]
    else:
        # Some of the scaled numbers lie about halfway between two results, the others anywhere.
        value = rng.randrange(1, 128, 2)
        size = cut + min(shift, 31 - cut)
        multiplier = _near(rng, size) * pow(value, -1, 1 << size) % (1 << size)
        values = [rng.choice((value, -value, rng.randint(-128, 127))) for _ in range(count)]
    return values, {"multiplier": multiplier, "shift": shift}


def _far_operands(rng: random.Random, count: int) -> tuple[list[int], dict[str, int]]:
    """Return int16 operands, and a scale with a shift that cuts off nearly all operand bits.

    Of the bits that are cut off, the highest is 1, and at most one other bit is 1.
    """
    # Before this shift, a product is the operand followed by `zeros` zero bits.
    zeros = 14
    shift = rng.randint(zeros + 2, zeros + 15)
    first = 1 << shift - zeros - 1
    values: list[int] = []
    for _ in range(count):
        other = rng.choice((0, 1 << rng.randrange(shift - zeros - 1)))
        values.append(rng.randrange(-(1 << 15), 1 << 15) & -2 * first | first | other)
    return values, {"multiplier": 1 << zeros + 16, "shift": shift}
