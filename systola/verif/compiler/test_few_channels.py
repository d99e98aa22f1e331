# SPDX-License-Identifier: Apache-2.0
"""Tests of inputs with few channels, and of convolutions that lanes and array share.

To gather is to put several rows of a window into the channels of one pixel, by a first convolution.
A second convolution then needs fewer tiles. docs/compiler.md describes these forms.
"""

from __future__ import annotations

import numpy as np
import pytest

from systola.arch.config import Config, preset
from systola.arch.isa import INSTRUCTION_BYTES, Opcode
from systola.compiler.lower.depthwise import rows_in_lanes
from systola.compiler.network import DeviceStage, compile_network
from systola.compiler.program import Program
from systola.runtime.iss import GoldenBackend
from systola.timing.estimate import estimate
from systola.verif.compiler.model_writer import ModelWriter, interpret
from systola.verif.compiler.test_networks import network_of
from systola.verif.kit.run_network import run_network
from systola.verif.kit.seeds import random_seed
from systola.verif.plan.selection import thorough

SAME, VALID = 0, 1
BASE = preset("base")
Shape = tuple[int, int, int]
Steps = tuple[int, int]


class Writer:
    """A writer of a network that begins with a convolution; methods add further layers."""

    def __init__(self, shape: Shape, kernel: Steps, stride: Steps, channels: int) -> None:
        self.random = np.random.default_rng(random_seed())
        self.writer = ModelWriter()
        self.input = self.last = self.writer.tensor((1, *shape), "int8", 0.05, -7)
        height, width = (-(-a // b) for a, b in zip(shape[:2], stride, strict=True))
        self.shape = (1, height, width, channels)
        self._weighted("CONV_2D", (channels, *kernel, shape[2]), 0, stride)

    def _weighted(self, kind: str, shape: tuple[int, ...], axis: int, stride: Steps) -> None:
        source, self.last = self.last, self.writer.tensor(self.shape, "int8", 0.3, -100)
        channels = shape[axis]
        self.writer.weighted(
            kind,
            source,
            self.last,
            self.random.integers(-127, 128, shape, np.int8),
            self.random.integers(-5000, 5000, channels, np.int32),
            self.random.uniform(0.005, 0.02, channels),
            axis,
            padding=SAME,
            strideH=stride[0],
            strideW=stride[1],
            depthMultiplier=1,
            fusedActivationFunction=1,
        )

    def depthwise(self, kernel: Steps = (3, 3), stride: Steps = (1, 1)) -> None:
        height, width = (-(-a // b) for a, b in zip(self.shape[1:3], stride, strict=True))
        channels = self.shape[3]
        self.shape = (1, height, width, channels)
        self._weighted("DEPTHWISE_CONV_2D", (1, *kernel, channels), 3, stride)

    def pointwise(self, channels: int) -> None:
        shape = (channels, 1, 1, self.shape[3])
        self.shape = (*self.shape[:3], channels)
        self._weighted("CONV_2D", shape, 0, (1, 1))

    def average(self) -> None:
        source, height, width = self.last, *self.shape[1:3]
        self.shape = (1, 1, 1, self.shape[3])
        self.last = self.writer.tensor(self.shape, "int8", 0.3, -100)
        self.writer.operator(
            "AVERAGE_POOL_2D",
            [source],
            [self.last],
            padding=VALID,
            strideH=1,
            strideW=1,
            filterHeight=height,
            filterWidth=width,
        )

    def dense(self, outputs: int) -> None:
        source, self.last = self.last, self.writer.tensor((1, outputs), "int8", 9.0, 4)
        size = int(np.prod(self.shape))
        weights = self.random.integers(-127, 128, (outputs, size), np.int8)
        self.writer.weighted("FULLY_CONNECTED", source, self.last, weights, None, 0.01, 0)

    @property
    def content(self) -> bytes:
        return self.writer.content([self.input], [self.last])


def check(content: bytes, shape: Shape, machine: str, batch: int) -> None:
    x = np.random.default_rng(random_seed()).integers(-128, 128, (3, 1, *shape), np.int8)
    run = run_network(GoldenBackend(preset(machine)), network_of(content), x, batch=batch)
    assert np.array_equal(run.y, interpret(content, x))


def program_of(content: bytes, config: Config = BASE) -> Program:
    network = network_of(content)
    (stage,) = compile_network(config, network, 1).stages
    assert isinstance(stage, DeviceStage)
    assert sum(layer.macs for layer in stage.program.layers) == network.macs
    return stage.program


def cycles_of(content: bytes) -> int:
    return estimate(BASE, program_of(content).image).cycles


def opcodes(program: Program) -> list[int]:
    return list(program.image.program[::INSTRUCTION_BYTES])


WINDOWS: list[tuple[Shape, Steps, Steps, int]] = [
    ((49, 10, 1), (10, 4), (2, 2), 40),  # each pixel gathers four rows of a window
    # each pixel gathers five rows; the stride does not divide them
    ((21, 9, 1), (7, 3), (3, 1), 20),
    ((20, 8, 2), (6, 2), (1, 1), 33),
    ((12, 8, 1), (5, 8), (4, 2), 17),
    ((9, 9, 3), (3, 3), (2, 2), 18),  # no rows are gathered, as nothing would be gained
]


@pytest.mark.parametrize(("shape", "kernel", "stride", "channels"), WINDOWS)
@pytest.mark.parametrize(
    ("machine", "batch"), [("base", 1), ("base", 3), thorough("6x10", 2), thorough("4x4", 1)]
)
def test_rows_of_windows(
    shape: Shape, kernel: Steps, stride: Steps, channels: int, machine: str, batch: int
) -> None:
    writer = Writer(shape, kernel, stride, channels)
    writer.depthwise()
    check(writer.content, shape, machine, batch)


@pytest.mark.parametrize(
    ("shape", "kernel", "stride", "channels"),
    [
        ((13, 12, 1), (5, 4), (2, 2), 8),
        ((9, 12, 1), (3, 3), (1, 1), 4),  # four pixels share a line
        ((9, 15, 2), (3, 3), (1, 1), 5),  # three pixels of 5 columns share a line
        ((8, 13, 1), (3, 3), (1, 1), 8),  # one pixel in a line: a row of 13 pixels has no pairs
    ],
)
@pytest.mark.parametrize(
    ("machine", "batch"),
    [("base", 1), ("base", 3), thorough("6x10", 2), thorough("9x4", 1), thorough("4x4", 1)],
)
def test_pixels_in_a_line(
    shape: Shape, kernel: Steps, stride: Steps, channels: int, machine: str, batch: int
) -> None:
    writer = Writer(shape, kernel, stride, channels)
    writer.dense(5)
    check(writer.content, shape, machine, batch)


def test_a_result_that_others_take_keeps_its_pixels() -> None:
    shape = (12, 12, 1)
    writer = Writer(shape, (3, 3), (1, 1), 8)
    writer.depthwise()
    writer.dense(5)
    check(writer.content, shape, "base", 2)


def test_micro_speech_takes_less_time_than_its_weights_took() -> None:
    writer = Writer((49, 40, 1), (10, 8), (2, 2), 8)
    writer.dense(4)
    # A line of 16 bytes has two pixels of 8 channels, so the dense layer has 250 tiles, which take
    # 16 cycles each. Before, the convolution makes 250 lines from ten rows of a window each.
    assert cycles_of(writer.content) < 250 * 16 + 10 * 250 + 200


def test_gathered_rows_make_tiles_of_all_taps() -> None:
    writer = Writer((49, 10, 1), (10, 4), (2, 2), 64)
    # Each of four blocks of channels has 40 taps in three tiles, and an Activate. Before the
    # convolution, each of 29 x 5 pixels gathers four rows, and one Activate makes these pixels.
    assert cycles_of(writer.content) < (3 * 4 + 4) * 125 + (4 + 1) * 29 * 5 + 300


@pytest.mark.parametrize("batch", [1, 2])
@pytest.mark.parametrize("machine", ["base", thorough("4x4")])
def test_pooling_of_each_block_while_the_next_is_made(machine: str, batch: int) -> None:
    shape = (12, 10, 20)
    writer = Writer(shape, (1, 1), (1, 1), 40)
    writer.average()
    check(writer.content, shape, machine, batch)


def test_pooling_is_hidden() -> None:
    writer = Writer((12, 10, 64), (1, 1), (1, 1), 64)
    alone = cycles_of(writer.content)
    writer.average()
    # Each of four blocks of channels has a pooling of 120 taps. At least three of the poolings are
    # done before the convolution ends.
    assert cycles_of(writer.content) < alone + 2 * 120


def test_constants_of_a_program_without_loops_come_after_its_input() -> None:
    writer = Writer((12, 10, 3), (3, 3), (1, 1), 40)
    writer.depthwise()
    order = opcodes(program_of(writer.content))
    reads = [number for number, each in enumerate(order) if each == Opcode.READ_HOST_MEMORY]
    # Only the first steps load their constants before the input, as a load after the input has to
    # wait for all of the input.
    assert order.index(Opcode.READ_HOST_MEMORY_ALTERNATE) < order.index(Opcode.CONVOLVE) < reads[1]


@pytest.mark.parametrize(
    ("shape", "stride", "kernel", "channels"),
    [
        ((32, 12, 3), (2, 2), (3, 3), 8),
        ((20, 9, 3), (1, 1), (3, 3), 5),
        ((40, 6, 1), (1, 1), (5, 3), 6),
        # a kernel of two rows takes no row above; a half of the map has 17 rows
        ((34, 8, 2), (2, 1), (2, 3), 7),
        ((20, 8, 20), (1, 1), (3, 3), 4),
    ],
)
@pytest.mark.parametrize(
    ("machine", "batch"),
    [("base", 1), ("base", 3), thorough("6x10", 2), thorough("32x32", 1), thorough("4x4", 1)],
)
def test_halves_side_by_side(
    shape: Shape, stride: Steps, kernel: Steps, channels: int, machine: str, batch: int
) -> None:
    writer = Writer(shape, (3, 3), stride, channels)
    writer.depthwise(kernel)
    writer.pointwise(19)
    writer.depthwise()
    check(writer.content, shape, machine, batch)


def test_halves_take_half_the_time_of_the_lanes() -> None:
    writer = Writer((96, 96, 3), (3, 3), (2, 2), 8)
    writer.depthwise()
    writer.pointwise(16)
    # The lower half of the map lies beside the upper half. For each half, the first convolution
    # has three tiles. The depthwise convolution has nine taps for 24 rows of both halves, shared by
    # lanes and array. The rest is the wait for the input's rows, the last convolution, and the
    # output. Without halves, the network would take 10,000 cycles more.
    array, lanes = 2 * 3 * 25 * 48, 26 * 48 + 9 * 24 * 48
    assert cycles_of(writer.content) < (9 * array + 8 * lanes) / 17 + 2 * 24 * 48 + 3500


@pytest.mark.parametrize(
    ("shape", "channels", "stride"),
    [
        ((6, 6, 40), 75, (1, 1)),  # the array makes some blocks alone, the lanes the others
        ((6, 6, 40), 75, (2, 2)),
        ((3, 3, 40), 90, (1, 1)),
        ((12, 12, 40), 90, (2, 2)),
        ((30, 7, 20), 12, (2, 2)),  # the lanes take rows while the array makes more of the source
    ],
)
@pytest.mark.parametrize(
    ("machine", "batch"), [("base", 1), ("base", 2), thorough("6x10", 2), thorough("4x4", 1)]
)
def test_depthwise_on_lanes_and_array(
    shape: Shape, channels: int, stride: Steps, machine: str, batch: int
) -> None:
    writer = Writer(shape, (1, 1), (1, 1), channels)
    writer.depthwise(stride=stride)
    writer.pointwise(21)
    check(writer.content, shape, machine, batch)


def test_lanes_do_not_wait_for_blocks_on_the_array() -> None:
    writer = Writer((12, 12, 16), (1, 1), (1, 1), 96)
    writer.depthwise()
    writer.pointwise(16)
    # The array makes the sums of three of the six blocks. The lanes take nine taps for each of 144
    # pixels of the other three blocks, and turn the array's sums into results. Before, the first
    # convolution takes six passes, and 144 lines of the input arrive.
    assert cycles_of(writer.content) < 6 * 144 + 3 * (9 * 145 + 144) + 3 * 144 + 500


@pytest.mark.parametrize("tile", [16, 40])
@pytest.mark.parametrize("size", [(6, 6), (25, 5), (3, 3), (1, 9)])
@pytest.mark.parametrize("blocks", [1, 2, 5, 9])
@pytest.mark.parametrize("hidden", [0, 500, 100_000])
def test_no_share_of_the_lanes_is_worse_than_all(
    tile: int, size: Steps, blocks: int, hidden: int
) -> None:
    rows = rows_in_lanes(tile, 9, size, blocks, hidden, False)
    assert len(rows) == blocks
    assert all(0 <= each <= size[0] for each in rows)
    lanes = sum(9 * each * size[1] + (size[0] - each) * size[1] for each in rows)
    assert lanes <= 9 * blocks * size[0] * size[1]
    array = sum(9 * max((size[0] - each) * size[1], tile) for each in rows if each < size[0])
    assert hidden + array <= max(hidden, 9 * blocks * size[0] * (size[1] + 1) + 15 * blocks)


@pytest.mark.parametrize("pixels", [100, 480, 1000])
def test_sums_that_are_held_across_the_end_of_the_accumulators(pixels: int) -> None:
    """Check a depthwise layer with sums that go on at accumulator row 0 after the last row.

    The layer's sums begin after the sums of an earlier convolution.
    """
    rng = np.random.default_rng(random_seed())
    writer = ModelWriter()
    a, b = writer.tensor((1, 1, pixels, 16), scale=0.1), writer.tensor((1, 32, 32, 64), scale=0.1)
    y, z = writer.tensor((1, 1, pixels, 16), scale=0.9), writer.tensor((1, 32, 32, 64), scale=0.6)
    weights = rng.integers(-127, 128, (16, 1, 1, 16), np.int8)
    bias = np.zeros(64, np.int32)
    writer.weighted("CONV_2D", a, y, weights, bias[:16], 0.02, 0, strideH=1, strideW=1)
    taps = rng.integers(-127, 128, (1, 3, 3, 64), np.int8)
    options = {"strideH": 1, "strideW": 1, "depthMultiplier": 1}
    writer.weighted("DEPTHWISE_CONV_2D", b, z, taps, bias, 0.02, 3, **options)
    network = network_of(writer.content([a, b], [y, z]))
    x = [rng.integers(-128, 128, (1, *value.shape), np.int8) for value in network.inputs]
    run = run_network(GoldenBackend(preset("base")), network, *x)
    assert np.array_equal(run.outputs[0], interpret(writer.content([a, b], [y]), *x))
    assert np.array_equal(run.outputs[1], interpret(writer.content([a, b], [z]), *x))
