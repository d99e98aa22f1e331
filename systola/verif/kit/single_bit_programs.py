# SPDX-License-Identifier: Apache-2.0
"""Generated instructions with a region that is too large by a single bit of a product.

If the hardware lost this bit, the region would seem to fit.
"""

from __future__ import annotations

import math
import random

from systola.arch.config import Config
from systola.arch.image import Image
from systola.arch.isa import Fault, Opcode
from systola.verif.kit.program_limits import LimitWriter, program_alone
from systola.verif.kit.program_state import ATTEMPTS, ProgramState
from systola.verif.kit.single_instructions import PIXEL

PRODUCTS = tuple(fault for fault in LimitWriter.FAULTS if fault != Fault.WEIGHT_UNDERFLOW)
"""The faults of a region that exceeds a memory, in which the region's length is a product."""


def product_program(config: Config, seed: str, fault: Fault) -> Image:
    """Make a program of one instruction that causes `fault`, one of PRODUCTS, by a single bit."""
    return program_alone(config, seed, lambda state: _ProductWriter(state).write(fault))


def packing_program(config: Config, seed: str) -> Image:
    """Make a program of one Convolve on packed channels that breaks a limit of its window.

    In bytes, the kernel's width, the step, the left edge or the map's width is too large.
    """
    return program_alone(config, seed, _packing)


class _ProductWriter(LimitWriter):
    def _beyond(self, limit: int, *bits: int, unit: int = 1) -> tuple[list[int], int]:
        """Return the length, as factors, and the first cell of a region that exceeds a memory.

        The memory has `limit` cells. `bits` has the largest width in bits of each factor. The
        region's length is the product of the factors times `unit`. If possible, the length is a
        power of two above `limit`, plus a rest. With only the rest as its length, the region would
        fit in the memory.
        """
        rng = self._rng
        most = unit * math.prod((1 << width) - 1 for width in bits)
        powers = [1 << bit for bit in range(limit.bit_length(), most.bit_length())]
        for _ in range(ATTEMPTS if powers else 0):
            power = rng.choice(powers)
            factors = _factors(rng, -(-power // unit), *bits)
            rest = math.prod(factors) * unit - power
            if 0 <= rest <= limit:
                return factors, rng.choice((0, limit - rest, rng.randint(0, limit - rest)))
        return super()._beyond(limit, *bits, unit=unit)

    def _window_beyond(self, opcode: Opcode) -> None:
        """Write a Depthwise or Pool with a map or results of too many lines, by a single bit.

        The number of lines is blocks times pixels. The number of pixels alone must fit, or else the
        product is not tested.
        """
        rng, lines = self._rng, self._config.buffer_lines
        pixels_end = 1 << max(lines, self._config.accumulator_rows).bit_length()
        powers = [
            1 << bit for bit in range(lines.bit_length(), (pixels_end << 12).bit_length() - 1)
        ]
        # The four largest powers are chosen more often; the other powers test the lower bits.
        power = rng.choice((*powers, *powers[-4:]))
        for _ in range(10 * ATTEMPTS):
            blocks = rng.randint(min(4095, 1 + power // pixels_end), 4095)
            if rng.random() < 0.5:
                blocks = 1 << blocks.bit_length() - 1
            pixels = -(-power // blocks)
            height = rng.randint(min(4095, 1 + pixels // 4095), min(4095, pixels))
            if rng.random() < 0.5:
                height = 1 << height.bit_length() - 1
            width = -(-pixels // height)
            rest = blocks * height * width - power
            if width > 4095 or height * width >= pixels_end or not 0 <= rest <= lines:
                continue
            start = rng.choice((0, lines - rest))
            if rng.random() < 0.5:
                self._set_window(height=height, pitch=width)
                at = self._value(opcode, "buffer", start)
            else:
                self._set_window(out_height=height, out_width=width)
                at = self._value(opcode, "destination", start)
            self._one(opcode, **at, blocks=blocks)
            return
        super()._window_beyond(opcode)


def _factors(rng: random.Random, product: int, *widths: int) -> list[int]:
    """Return random factors with a product of `product` or somewhat more, rarely less.

    `widths` has the largest width in bits of each factor.
    """
    factors = [0] * len(widths)
    for place in rng.sample(range(len(widths)), len(widths)):
        most = (1 << widths[place]) - 1
        factor = max(1, rng.getrandbits(rng.randint(1, widths[place])))
        factors[place] = min(most, product if factors.count(0) == 1 else factor)
        product = -(-product // factors[place])
    return factors


def _packing(state: ProgramState) -> None:
    rng, rows = state.rng, state.config.rows
    channels = rng.randint(1, min(rows, 255))
    operand = rng.choice(("kernel_width", "stride_x", "left", "left", "width"))
    most = {"left": 127, "width": 4095}.get(operand, 255)
    pitch = 1
    if operand == "width":
        pitch = rng.randint(1, rng.choice((4, min(4095, (most * channels - 1) // rows))))
    sign = rng.choice((1, -1)) if operand == "left" else 1
    # `first` is the smallest number of bytes that does not fit. A positive `left` must be less
    # than rows * pitch bytes, other operands may be equal. The operand gets `first` bytes or a
    # larger power of two, rounded up to whole pixels.
    first = rows * pitch + (operand != "left" or sign < 0)
    powers = [1 << bit for bit in range(first.bit_length(), (most * channels).bit_length())]
    number = -(-rng.choice([first, *powers]) // channels)
    state.emit(
        Opcode.SET_CONFIG_WINDOW,
        **{
            **PIXEL,
            "pitch": pitch,
            operand: sign * min(most, number),
        },
    )
    state.emit(
        Opcode.CONVOLVE,
        **{"buffer": 0, "accumulator": 0, "plane": 0, "k_tiles": 1, "n_tiles": 1},
        channels=channels,
    )
