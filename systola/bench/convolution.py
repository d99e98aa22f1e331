# SPDX-License-Identifier: Apache-2.0
"""Convolutions by themselves: each is a program of a few instructions with its expected result."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from systola.arch.config import HOST_PAGE_BYTES, Config, preset
from systola.arch.image import Image
from systola.arch.isa import Opcode, Rounding, encode
from systola.bench.workloads import PRESET, Convolution, Memory
from systola.compiler.layer import Layer
from systola.compiler.layout import entry_bytes, pack_parameters, pack_tiles, tiles
from systola.runtime.reference import layer_reference
from systola.runtime.rtl import RtlBackend


@dataclass(frozen=True)
class Case:
    """A convolution of random numbers: the program, the place of its result, and the expected
    result.
    """

    image: Image
    output: int
    """Byte offset of the result: blocks of C channels, each out_size**2 lines of P_out bytes."""
    expected: NDArray[np.int8]
    """Expected result, int8 [out_size**2, outputs]."""

    def is_right(self, host: NDArray[np.uint8], config: Config) -> bool:
        """Return whether the host window after a run holds the expected bytes."""
        pixels, outputs = self.expected.shape
        blocks = tiles(outputs, config.cols)
        size = blocks * pixels * config.output_pitch
        planes = host[self.output : self.output + size].view(np.int8)
        found = planes.reshape(blocks, pixels, config.output_pitch)[:, :, : config.cols]
        found = found.transpose(1, 0, 2).reshape(pixels, -1)[:, :outputs]
        return bool(np.array_equal(found, self.expected))


def measure(shape: Convolution, memory: Memory) -> dict[str, Any]:
    """Run one convolution on the RTL, and return the result as a JSON object."""
    config = preset(PRESET)
    case = make_case(config, shape, seed=0)
    result = RtlBackend(config, latency=memory.latency, stall=memory.stall).run(case.image)
    assert result.cycles is not None
    return {
        "convolution": shape.name,
        "latency": memory.latency,
        "stall": memory.stall,
        "cycles": result.cycles,
        "macs": shape.macs,
        "utilization": shape.macs / (config.peak_macs * result.cycles),
        "bit_exact": result.fault is None and case.is_right(result.host, config),
        "counters": result.counters,
    }


def make_case(config: Config, shape: Convolution, seed: int) -> Case:
    """Make the program for `shape`, with random numbers from `seed`."""
    data = np.random.default_rng(seed)
    kernel, pixels = shape.kernel, shape.out_size**2
    feature_map = data.integers(-128, 128, (shape.size, shape.size, shape.channels), np.int8)
    weights = data.integers(-127, 128, (kernel, kernel, shape.channels, shape.outputs), np.int8)
    fill = int(data.integers(-128, 128))
    layer = Layer(
        weights=weights.reshape(-1, shape.outputs),
        bias=data.integers(-(1 << 14), 1 << 14, shape.outputs).astype(np.int32),
        multiplier=data.integers(1 << 30, 1 << 31, shape.outputs).astype(np.int32),
        shift=np.full(shape.outputs, -9, np.int32),
        rounding=Rounding.DOUBLE,
        zero_point=-3,
    )
    packed = shape.channels * kernel <= config.rows and shape.dilation == 1
    k_tiles = 1 if packed else tiles(shape.channels, config.rows)
    n_tiles = tiles(shape.outputs, config.cols)

    # The feature map has packed rows, or a line for each pixel of a block of channels.
    if packed:
        pitch = tiles(shape.size * shape.channels, config.rows)
        rows = np.zeros((shape.size, pitch * config.rows), np.int8)
        rows[:, : shape.size * shape.channels] = feature_map.reshape(shape.size, -1)
        lines = rows.reshape(-1, config.rows)
        matrix = weights.reshape(kernel, kernel * shape.channels, shape.outputs)
    else:
        pitch = shape.size
        padded = np.zeros((shape.size**2, k_tiles * config.rows), np.int8)
        padded[:, : shape.channels] = feature_map.reshape(-1, shape.channels)
        lines = padded.reshape(-1, k_tiles, config.rows).transpose(1, 0, 2)
        lines = lines.reshape(-1, config.rows)
        matrix = weights.reshape(kernel**2, shape.channels, shape.outputs)
    # Each tap has its tiles along K; the order is n, tap, k.
    tiles_of = np.stack([pack_tiles(config, tap, config.rows, config.cols) for tap in matrix])
    tiles_of = tiles_of.transpose(1, 0, 2, 3).reshape(-1)
    count = tiles_of.size // config.tile_bytes
    source = np.zeros((len(lines), config.input_pitch), np.int8)
    source[:, : config.rows] = lines
    parameters = pack_parameters(config, layer, config.cols)

    at: dict[str, int] = {}
    size = 0
    for name, needed in (
        ("program", HOST_PAGE_BYTES),
        ("input", source.size),
        ("parameters", n_tiles * entry_bytes(config)),
        ("output", n_tiles * pixels * config.output_pitch),
    ):
        at[name] = size
        size += tiles(needed, HOST_PAGE_BYTES) * HOST_PAGE_BYTES
    host = np.zeros(size, np.uint8)
    host[at["input"] : at["input"] + source.size] = source.reshape(-1).view(np.uint8)
    host[at["parameters"] : at["parameters"] + parameters.size] = parameters
    program = b"".join(
        (
            encode(Opcode.READ_WEIGHTS, tile=0, count=count),
            encode(
                Opcode.SET_CONFIG_WINDOW,
                height=shape.size,
                width=shape.size,
                pitch=pitch,
                kernel_height=kernel,
                kernel_width=kernel,
                stride_y=shape.stride,
                stride_x=shape.stride,
                dilation_y=shape.dilation,
                dilation_x=shape.dilation,
                top=-shape.padding,
                left=-shape.padding,
                out_height=shape.out_size,
                out_width=shape.out_size,
            ),
            encode(
                Opcode.READ_HOST_MEMORY,
                host=at["input"],
                buffer=0,
                rows=len(lines),
                stride=config.input_pitch,
                blocks=1,
                tail=config.rows,
            ),
            encode(
                Opcode.CONVOLVE,
                buffer=0,
                accumulator=0,
                plane=shape.size * pitch,
                k_tiles=k_tiles,
                n_tiles=n_tiles,
                channels=shape.channels if packed else 0,
                fill=fill,
            ),
            encode(Opcode.LOAD_PARAMETERS, host=at["parameters"], parameter=0, count=n_tiles),
            encode(
                Opcode.ACTIVATE,
                accumulator=0,
                buffer=len(lines),
                rows=pixels,
                n_tiles=n_tiles,
                parameter=0,
                zero_point=layer.zero_point,
            ),
            encode(
                Opcode.WRITE_HOST_MEMORY,
                host=at["output"],
                buffer=len(lines),
                rows=n_tiles * pixels,
                stride=config.output_pitch,
                blocks=1,
                tail=config.cols,
            ),
            encode(Opcode.HALT),
        )
    )
    host[: len(program)] = np.frombuffer(program, np.uint8)
    expected = layer_reference(_columns(feature_map, shape, fill), layer)
    return Case(Image(program, host, 0, tiles_of), at["output"], expected)


def _columns(feature_map: NDArray[np.int8], shape: Convolution, fill: int) -> NDArray[np.int8]:
    """Return the windows as rows of a matrix, int8 [out_size**2, taps * channels]."""
    reach = (shape.out_size - 1) * shape.stride + (shape.kernel - 1) * shape.dilation + 1
    padded = np.full((reach, reach, shape.channels), fill, np.int8)
    inside = min(shape.size, reach - shape.padding)
    padded[shape.padding :, shape.padding :][:inside, :inside] = feature_map[:inside, :inside]
    taps = [
        padded[i * shape.dilation :, j * shape.dilation :][
            : (shape.out_size - 1) * shape.stride + 1 : shape.stride,
            : (shape.out_size - 1) * shape.stride + 1 : shape.stride,
        ].reshape(-1, shape.channels)
        for i in range(shape.kernel)
        for j in range(shape.kernel)
    ]
    return np.concatenate(taps, axis=1)
