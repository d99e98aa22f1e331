# SPDX-License-Identifier: Apache-2.0
"""The words of the commands in each queue.

Some words belong to the instruction itself. Others come from the window or the scale.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from amaranth.hdl import Shape
from amaranth.lib import data
from amaranth.utils import bits_for

from systola.arch.config import Config
from systola.arch.isa import BY_OPCODE, WEIGHT_READS_IN_FLIGHT, Executor, Opcode
from systola.hdl.commands import (
    PC_BITS,
    HostTransfer,
    Tail,
    WeightTransfer,
    address_bits,
    height_bits,
    line_bits,
    matrix_walk,
    most_taps,
    row_bits,
    vector_walk,
    width_bits,
)
from systola.hdl.control.step_rom import StepRom
from systola.hdl.control.step_row import Bits
from systola.hdl.parts.walker import Walk

NUMBERS = 8
"""Number of windows, and of scales, that the commands can use at one time."""
FIXED = 2
"""Number of fixed windows, which serve instructions without a window.

One is for vectors of one line, the other for vectors of two lines. Their numbers are 0 and 1.
"""
_WINDOW = BY_OPCODE[Opcode.SET_CONFIG_WINDOW]
MOVES = ("stride_y", "stride_x", "dilation_y", "dilation_x", "top")
"""Fields of a window in the word `moves`, from its lowest bit on."""
_COUNTS = ("matrix_rows", "k_tiles", "n_tiles", "vector_rows")
_WINDOW_COUNTS = ("kernel_height", "kernel_width", "out_height", "out_width")


@dataclass(frozen=True, kw_only=True)
class CommandWords:
    """A list of the words, with their bits, of the commands in a queue.

    | field    | meaning |
    |---|---|
    | `own`    | words that belong to the instruction itself |
    | `window` | words that come from the instruction's window |
    | `scale`  | words that come from the instruction's scale |
    | `fixed`  | contents of the fixed windows 0 and 1; their other words are undefined |
    | `counts` | words for which the memory also shows whether their value is one or two |
    """

    own: Mapping[str, int]
    window: Mapping[str, int] = field(default_factory=dict[str, int])
    scale: Mapping[str, int] = field(default_factory=dict[str, int])
    fixed: tuple[Mapping[str, int], ...] = ()
    counts: frozenset[str] = frozenset((*_COUNTS, *_WINDOW_COUNTS))


def command_words(config: Config, queue: str) -> CommandWords:
    """Return the words of the commands in a queue.

    The word `pc` is among the words, though no step writes it.
    """
    words = {
        "matrix": _matrix_words,
        "activate": _activate_words,
        "host_reads": _request_words,
        "host_read": _entry_words,
        "host_writes": _write_words,
        "weights": _weight_words,
    }
    return words[queue](config)


def command_layout(config: Config, queue: str) -> data.StructLayout:
    """Return the layout of a command as its memory shows it: all words, and for each count whether
    it is one (`single`) or two (`double`)."""
    words = command_words(config, queue)
    every = {**words.own, **words.window, **words.scale}
    flags = data.StructLayout({name: 1 for name in every if name in words.counts})
    return data.StructLayout({**every, "single": flags, "double": flags})


def commands_of(config: Config, queue: str) -> int:
    """Return the largest number of commands in a queue."""
    return WEIGHT_READS_IN_FLIGHT if queue == "weights" else config.queue_depth


def _transfer_words(config: Config) -> dict[str, int]:
    """Return the command words of a transfer of lines, or of a Load_Parameters or Load_Table."""
    return _widths(HostTransfer(config=config))


def _tail_words(config: Config) -> dict[str, int]:
    """Return the words that describe the tail of a copy: the lines that have fewer bytes."""
    return {f"tail_{name}": width for name, width in _widths(Tail(config=config)).items()}


def _request_words(config: Config) -> CommandWords:
    """Return the command words of reads from host memory that the reader has not requested yet."""
    return CommandWords(
        own={"flags": _flags(config, Executor.HOST_READER), **_transfer_words(config)}
    )


def _entry_words(config: Config) -> CommandWords:
    """Return the command words of reads from host memory that are under way."""
    return CommandWords(
        own={
            "pc": PC_BITS,
            "flags": _flags(config, Executor.HOST_READER),
            "buffer": address_bits(config),
            "last": address_bits(config),
            **_tail_words(config),
        }
    )


def _write_words(config: Config) -> CommandWords:
    """Return the command words of writes to host memory."""
    lines = {"buffer": address_bits(config), "end": address_bits(config)}
    own = {"pc": PC_BITS, **_transfer_words(config), **lines, **_tail_words(config)}
    return CommandWords(own=own)


def _weight_words(config: Config) -> CommandWords:
    """Return the command words of reads of weights, with training also from the buffer."""
    widths = _widths(WeightTransfer(config=config))
    own = {"pc": PC_BITS, **{f"weight_{name}": width for name, width in widths.items()}}
    if config.training:
        own["flags"] = _flags(config, Executor.MATRIX_UNIT)
    return CommandWords(own=own)


def _widths(layout: data.StructLayout) -> dict[str, int]:
    return {name: Shape.cast(shape).width for name, shape in layout.members.items()}


def _matrix_words(config: Config) -> CommandWords:
    """Return the command words of MatrixMultiply and Convolve."""
    count = matrix_walk(config)["count"].shape
    own = {
        "flags": _flags(config, Executor.MATRIX_UNIT),
        "start_line": line_bits(config),
        "accumulator": row_bits(config),
        "matrix_rows": count["oy"].width,
        "k_tiles": max(count["kx"].width, count["block"].width),
        "n_tiles": count["n"].width,
        "plane": line_bits(config),
        "channels": 8,
        "fill": 8,
        "start_byte": 1 + bits_for(config.rows),
        "row_bytes": width_bits(config),
        "byte": bits_for(config.rows - 1),
        "byte_step": bits_for(config.rows),
    }
    shared = {"kernel_height": 1, "moves": 1 << _move("stride_x")}
    single = {**shared, "out_width": 1, "row_step": 1}
    double = {**shared, "out_width": 2, "row_step": 2}
    return CommandWords(
        own=own, window=_window(config, matrix_walk(config)), fixed=(single, double)
    )


def _activate_words(config: Config) -> CommandWords:
    """Return the command words of the activation unit's instructions."""
    walk = vector_walk(config)
    count = walk["count"].shape
    own = {
        "flags": _flags(config, Executor.ACTIVATION_UNIT),
        "start_line": line_bits(config),
        "accumulator": row_bits(config),
        "operand": line_bits(config),
        "destination": address_bits(config),
        "vector_rows": count["ox"].width,
        "n_tiles": count["block"].width,
        "parameter": BY_OPCODE[Opcode.ACTIVATE].field("parameter").width,
        "zero_point": 16,
        "table": 4,
        "low": 16,
        "high": 16,
    }
    if config.training:
        names = ("exponent", "bits", "first", "second", "third", "value")
        entry = BY_OPCODE[Opcode.MEASURE]
        own |= {
            "measured": sum(entry.field(name).width for name in names),
            "tile_step": line_bits(config),
            "seed": BY_OPCODE[Opcode.RANDOM].field("seed").width,
            "counter": BY_OPCODE[Opcode.RANDOM].field("counter").width,
        }
    window = {
        **_window(config, walk),
        "map_lines": line_bits(config),
        "taps": bits_for(most_taps(config)),
    }
    shared = {"kernel_height": 1, "out_height": 1}
    single = {**shared, "kernel_width": 1, "moves": 1 << _move("stride_x")}
    moves = 2 << _move("stride_x") | 1 << _move("dilation_x")
    double = {**shared, "kernel_width": 2, "moves": moves}
    scale = {"scale_a": 36, "scale_b": 36, "zeros": 16}
    return CommandWords(own=own, window=window, scale=scale, fixed=(single, double))


def _flags(config: Config, executor: Executor) -> int:
    """Return the width in bits of the word that holds flags, for the instructions of a unit."""
    rom = StepRom(config)
    rows = [
        row for op in rom.lengths if BY_OPCODE[op].executor is executor for row in rom.program(op)
    ]
    return max(row.x.width for row in rows if row.word == "flags" and isinstance(row.x, Bits))


def _window(config: Config, walk: Walk) -> dict[str, int]:
    """Return the window's words that the matrix unit and the activation unit share, with their
    bits.
    """
    count = walk["count"].shape
    return {
        "left": _WINDOW.field("left").width,
        "moves": sum(_WINDOW.field(name).width for name in MOVES),
        "kernel_height": count["ky"].width,
        "kernel_width": _WINDOW.field("kernel_width").width,
        "out_height": count["oy"].width,
        "out_width": _WINDOW.field("out_width").width,
        "height": height_bits(config),
        "width": width_bits(config),
        "row_step": line_bits(config),
        "tap_step": line_bits(config),
    }


def _move(name: str) -> int:
    """Return the offset in bits of the window's field `name` in the word `moves`."""
    return sum(_WINDOW.field(each).width for each in MOVES[: MOVES.index(name)])
