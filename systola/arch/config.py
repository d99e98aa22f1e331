# SPDX-License-Identifier: Apache-2.0
"""The configuration of one machine, and the named presets."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from systola.arch.isa import CURVE_TABLES

HOST_PAGE_BYTES = 4096
"""Granularity of the DMA windows in bytes. No AXI burst crosses a multiple of this number."""


class ConfigError(ValueError):
    """A configuration that cannot be built, with the reason in one line."""


LARGEST_THROTTLE = 1 << 10
"""Largest value of the two numbers of a `weight_throttle`: the hardware counts that far."""


@dataclass(frozen=True, kw_only=True)
class Config:
    """A configuration that has all parameters of one machine.

    A configuration that makes no sense is refused at construction. Sizes are counts of the unit in
    the name: lines, rows, tiles, entries, bytes, beats.
    """

    name: str
    rows: int
    """Rows of the array: elements of K that one weight tile covers."""
    cols: int
    """Columns of the array: elements of N that one weight tile covers."""
    columns_per_stage: int = 4
    """Columns that share one activation register; the horizontal skew is cols / this number."""
    columns_per_lane: int = 1
    """Columns that take turns in one lane of the activation unit, 1 or 2. A step takes a cycle for
    each of these columns."""
    products_per_dsp: int = 1
    """Products of the array that one DSP block makes, 1 or 2. The number matters only for the ECP5:
    the DSP blocks of other FPGAs have a fixed number.
    """
    rows_in_logic: int = 0
    """Rows of the array, or of each of its tiles, that multiply in look-up tables and not in DSP
    blocks.
    """
    buffer_lines: int
    """Unified buffer depth in lines of `line_bytes`."""
    buffer_banks: int = 4
    """Banks of the unified buffer, interleaved by line; one read and one write port each."""
    accumulator_rows: int
    """Accumulator depth in rows of cols x 32 bits."""
    weight_fifo_tiles: int = 4
    parameter_entries: int = 64
    """Depth of the parameter memory in entries; an entry serves the columns of one tile."""
    tables: int = 4
    """Number of activation tables of 256 entries. With 0 there is no function TABLE."""
    depthwise: bool = True
    """Whether there is Depthwise: it needs a multiply-accumulate for each column beside the array.
    """
    wide: bool = True
    """Whether there are 16-bit modes: int16 operands of MatrixMultiply, Activate and Vector,
    SIGMOID and TANH.
    """
    attention: bool = False
    """Whether there are parts for transformers: curves, which are TABLE with int16 results, and
    tables of int32.
    """
    training: bool = False
    """Whether there are parts for training: weights from the buffer, Measure, Transpose, Random,
    EXP, 1/x.
    """
    links: bool = False
    """Whether there are links to two neighbours, for a core of a pod: Send, Receive, Reduce and
    Barrier.
    """
    parity: bool = False
    """Whether there is a parity bit for each byte of the unified buffer and the accumulators."""
    instruction_buffer: int = 64
    """Instructions kept on the chip. A loop that fits is fetched only once."""
    host_bus_bytes: int
    weight_bus_bytes: int
    weight_throttle: tuple[int, int] = (1, 1)
    """Upper bound on weight-memory beats per cycle as a fraction (numerator, denominator)."""
    max_burst_beats: int = 16
    queue_depth: int = 4
    """Number of instructions that may wait for each unit."""
    address_bits: int = 40
    """Width of the AXI addresses."""

    def __post_init__(self) -> None:
        def need(ok: bool, why: str) -> None:
            if not ok:
                raise ConfigError(f"configuration '{self.name}': {why}")

        need(self.name.isprintable(), "its name has characters that cannot be shown")
        need(2 <= self.rows <= 256, f"rows must be 2 to 256, not {self.rows}")
        need(2 <= self.cols <= 256, f"cols must be 2 to 256, not {self.cols}")
        need(
            1 <= self.columns_per_stage <= self.cols,
            f"columns_per_stage must be 1 to cols, not {self.columns_per_stage}",
        )
        need(
            max(self.rows, self.cols) <= 32 or self.cols % self.columns_per_stage == 0,
            f"an array beyond 32x32 needs cols in multiples of columns_per_stage, not {self.cols}",
        )
        need(
            self.columns_per_lane in (1, 2),
            f"columns_per_lane must be 1 or 2, not {self.columns_per_lane}",
        )
        need(
            self.columns_per_lane == 1 or (self.cols <= 32 and self.cols % 2 == 0),
            "two columns share a lane in arrays of an even number of columns up to 32",
        )
        need(
            self.products_per_dsp in (1, 2),
            f"products_per_dsp must be 1 or 2, not {self.products_per_dsp}",
        )
        need(
            0 <= self.rows_in_logic <= self.rows,
            f"rows_in_logic must be 0 to rows, not {self.rows_in_logic}",
        )
        need(
            self.buffer_banks in (2, 4, 8, 16),
            f"buffer_banks must be 2, 4, 8 or 16, not {self.buffer_banks}",
        )
        need(
            self.buffer_banks <= self.buffer_lines <= 1 << 19
            and self.buffer_lines % self.buffer_banks == 0,
            f"buffer_lines must be a multiple of {self.buffer_banks} up to {1 << 19}, "
            f"not {self.buffer_lines}",
        )
        need(
            2 <= self.accumulator_rows <= 1 << 15 and self.accumulator_rows % 2 == 0,
            f"accumulator_rows must be even, 2 to {1 << 15}, not {self.accumulator_rows}",
        )
        need(2 <= self.weight_fifo_tiles <= 16, "weight_fifo_tiles must be 2 to 16")
        need(1 <= self.parameter_entries <= 2048, "parameter_entries must be 1 to 2048")
        need(0 <= self.tables <= 16, "tables must be 0 to 16")
        need(
            self.instruction_buffer in (32, 64, 128, 256, 512, 1024),
            "instruction_buffer must be a power of two from 32 to 1024",
        )
        for bus in ("host_bus_bytes", "weight_bus_bytes"):
            width = getattr(self, bus)
            need(width in (4, 8, 16, 32, 64, 128), f"{bus} must be 4, 8, ... 128, not {width}")
        need(
            not self.training or (self.wide and self.tables > 0 and self.rows == self.cols),
            "training needs 16-bit modes, tables, and as many rows as columns",
        )
        need(
            not self.attention
            or (self.wide and self.tables >= CURVE_TABLES and self.columns_per_lane == 1),
            f"attention needs 16-bit modes, {CURVE_TABLES} tables, and a lane for each column",
        )
        numerator, denominator = self.weight_throttle
        need(
            1 <= numerator <= denominator <= LARGEST_THROTTLE,
            f"weight_throttle must be a fraction in (0, 1] of numbers up to {LARGEST_THROTTLE}",
        )
        need(
            self.max_burst_beats in (1, 2, 4, 8, 16, 32, 64, 128, 256)
            and self.max_burst_beats * max(self.host_bus_bytes, self.weight_bus_bytes)
            <= HOST_PAGE_BYTES,
            "max_burst_beats must be a power of two and a burst at most 4 KiB",
        )
        need(
            self.max_burst_beats * self.host_bus_bytes >= 16,
            "a host burst must hold one instruction of 16 bytes",
        )
        need(2 <= self.queue_depth <= 8, "queue_depth must be 2 to 8")
        need(32 <= self.address_bits <= 64, "address_bits must be 32 to 64")

    @property
    def line_bytes(self) -> int:
        """Bytes of one unified-buffer line: the longer of an input and an output vector."""
        return max(self.rows, self.cols)

    @property
    def input_pitch(self) -> int:
        """Bytes that one input vector (`rows` bytes) takes in host memory: whole bus beats."""
        return _round_up(self.rows, self.host_bus_bytes)

    @property
    def output_pitch(self) -> int:
        """Bytes that one output vector (`cols` bytes) takes in host memory: whole bus beats."""
        return _round_up(self.cols, self.host_bus_bytes)

    @property
    def weight_row_pitch(self) -> int:
        """Bytes that one row of a weight tile takes in weight memory: whole bus beats."""
        return _round_up(self.cols, self.weight_bus_bytes)

    @property
    def tile_bytes(self) -> int:
        """Bytes of one weight tile in weight memory."""
        return self.rows * self.weight_row_pitch

    @property
    def link_beats(self) -> int:
        """Beats that a core may have sent to a neighbour and that the neighbour has not taken.

        There is room for two accumulator rows, and for at least 16 beats, which cover the way to
        the neighbour and back.
        """
        return max(16, 1 << (2 * self.link_row_beats - 1).bit_length())

    @property
    def link_line_beats(self) -> int:
        """Beats of a line of the unified buffer on a link, which is as wide as the host port."""
        return -(-self.line_bytes // self.host_bus_bytes)

    @property
    def link_row_beats(self) -> int:
        """Beats of an accumulator row on a link."""
        return -(-4 * self.cols // self.host_bus_bytes)

    @property
    def lanes(self) -> int:
        """Lanes of the activation unit."""
        return self.cols // self.columns_per_lane

    @property
    def reads_pairs(self) -> bool:
        """Whether the activation unit reads both lines of an int16 vector in one cycle.

        Where columns share a lane, a step takes two cycles and reads only one line.
        """
        return self.training and self.columns_per_lane == 1

    @property
    def stages(self) -> int:
        """Horizontal pipeline stages of the array: groups of columns_per_stage columns."""
        return -(-self.cols // self.columns_per_stage)

    @property
    def peak_macs(self) -> int:
        """Multiply-accumulates per cycle when every PE works."""
        return self.rows * self.cols


def _round_up(value: int, multiple: int) -> int:
    return -(-value // multiple) * multiple


def sized(rows: int, cols: int) -> Config:
    """Return a machine of the given array size with memories and buses in proportion."""
    if not (2 <= rows <= 256 and 2 <= cols <= 256):
        raise ConfigError(f"array {rows}x{cols}: rows and cols must be 2 to 256")
    bus = 4
    while bus < max(rows, cols) and bus < 64:
        bus *= 2
    return Config(
        name=f"{rows}x{cols}",
        rows=rows,
        cols=cols,
        columns_per_stage=next(n for n in (4, 2, 1) if cols % n == 0),
        # The largest ECP5 has too few DSP blocks to give each PE of an array above 9x9 a block of
        # its own.
        products_per_dsp=1 if rows * cols <= 81 else 2,
        # For a 16x16 array it has too few blocks even if two PEs share a block, as the lanes need
        # blocks, too.
        rows_in_logic=2 if rows == cols == 16 else 0,
        buffer_lines=8192,
        accumulator_rows=1024,
        host_bus_bytes=bus,
        weight_bus_bytes=bus,
    )


PRESETS: dict[str, Config] = {
    config.name: config
    for config in (
        Config(
            name="tiny",
            rows=4,
            cols=4,
            columns_per_lane=2,
            buffer_lines=1024,
            accumulator_rows=256,
            parameter_entries=32,
            tables=2,
            depthwise=False,
            wide=False,
            host_bus_bytes=4,
            weight_bus_bytes=4,
        ),
        Config(
            name="small",
            rows=8,
            cols=8,
            buffer_lines=4096,
            accumulator_rows=1024,
            host_bus_bytes=8,
            weight_bus_bytes=8,
        ),
        Config(
            name="base",
            rows=16,
            cols=16,
            buffer_lines=16384,
            accumulator_rows=2048,
            host_bus_bytes=16,
            weight_bus_bytes=16,
        ),
        # Jouppi et al., ISCA 2017: 24 MiB unified buffer, 4 MiB of accumulators, weight memory
        # at 34 GB/s and 700 MHz = 340/7 bytes a cycle, that is 85/112 of a 64-byte bus.
        Config(
            name="v1",
            rows=256,
            cols=256,
            buffer_lines=98304,
            accumulator_rows=4096,
            parameter_entries=128,
            host_bus_bytes=32,
            weight_bus_bytes=64,
            weight_throttle=(85, 112),
        ),
    )
}

DEFAULT_PRESET = "base"
SUFFIXES: dict[str, dict[str, int]] = {
    "-compact": {"columns_per_lane": 2},
    "-packed": {"products_per_dsp": 2},
    "-int8": {"wide": False},
    "-attention": {"attention": True, "tables": 16},
    "-training": {"training": True},
    "-links": {"links": True},
    "-parity": {"parity": True},
}
"""Endings that the name of a preset may have, and the values that they set."""


def preset(name: str) -> Config:
    """Return the configuration called `name`: a preset, or `RxC` for R rows and C columns.

    The name may have endings of SUFFIXES. Raises ConfigError for an unknown name.
    """
    for suffix, choices in SUFFIXES.items():
        if name.endswith(suffix):
            return replace(preset(name.removesuffix(suffix)), name=name, **choices)
    if name in PRESETS:
        return PRESETS[name]
    match = re.fullmatch(r"(\d{1,4})x(\d{1,4})", name)
    if match:
        return sized(int(match[1]), int(match[2]))
    known = ", ".join(PRESETS)
    raise ConfigError(
        f"unknown preset {name!r} (known: {known}, or ROWSxCOLS such as 14x14; "
        f"and each with {' or '.join(SUFFIXES)})"
    )
