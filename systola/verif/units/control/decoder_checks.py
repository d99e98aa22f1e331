# SPDX-License-Identifier: Apache-2.0
"""Checks that the output of the decoder agrees with the fields of its instruction."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

from systola.arch.config import Config
from systola.arch.isa import Function, Opcode, Operation, Reduction
from systola.arch.isa import Source as Measured
from systola.hdl.commands import (
    OTHER,
    MeasureLayout,
    Other,
    Source,
    matrix_walk,
    parameter_space,
    table_space,
    vector_walk,
)
from systola.verif.units.control.instruction_reader import (
    ALTERNATE,
    COPIES,
    TRAINING,
    Fields,
    Reader,
    Region,
)

SAMPLE = 300
"""The number of lines that are checked one by one at the beginning of a copy, and at its end."""


def region(view: Any) -> Region:
    return view.base, view.end


def runs(transfer: Any, pitch: int, bus: int) -> list[tuple[int, int]]:
    """Return start and length in bytes of each run of a transfer; runs that touch are joined."""
    starts = [
        transfer.address + row * transfer.stride + block * pitch
        for block in range(transfer.blocks)
        for row in range(transfer.rows)
    ]
    return joined(starts, transfer.beats * bus)


def joined(starts: list[int], size: int) -> list[tuple[int, int]]:
    """Return runs of `size` bytes at `starts`, as start and length; runs that touch are joined."""
    found = []
    for start in starts:
        if found and sum(found[-1]) == start:
            found[-1] = found[-1][0], found[-1][1] + size
        else:
            found.append((start, size))
    return found


class Walked:
    """A walk that the decoder shows, interpreted as the Walker's contract describes."""

    def __init__(self, walk: Any, layout: Any):
        levels = layout.levels
        self.lines = 1 << layout.position["line"].width
        self.start = {name: walk.start[name] for name in ("line", "y", "x")}
        self.counts = {level.name: walk.count[level.name] for level in levels}
        for name, count in self.counts.items():
            assert (walk.single[name], walk.double[name]) == (count == 1, count == 2), name
        self.steps = {
            level.name: {name: walk.step[level.name][name] for name in level.moves}
            for level in levels
        }

    def place(self, **iterations: int) -> tuple[int, int, int]:
        """Return line, y and x of the walk's place in the given iteration of each level."""
        found = dict(self.start)
        for level, index in iterations.items():
            for name, step in self.steps[level].items():
                found[name] += index * step
        return found["line"] % self.lines, found["y"], found["x"]

    def corners(self) -> Iterator[dict[str, int]]:
        """Yield all combinations of the first and the last iteration of each level of the walk."""
        names = list(self.counts)
        ends = ({0, self.counts[name] - 1} for name in names)
        for indices in itertools.product(*ends):
            yield dict(zip(names, indices, strict=True))


def check_map_walk(
    walk: Walked, window: Fields, buffer: int, plane: int, index: dict[str, int]
) -> None:
    """Check line, row and column of one place of a walk over a feature map.

    `index` has the block, tap (i, j) and window (p, q).
    """
    y = window["top"] + index["oy"] * window["stride_y"] + index["ky"] * window["dilation_y"]
    x = window["left"] + index["ox"] * window["stride_x"] + index["kx"] * window["dilation_x"]
    line, at_y, at_x = walk.place(**index)
    assert (at_y, at_x) == (y, x), index
    if 0 <= y < window["height"] and 0 <= x < window["width"]:
        assert line == buffer + index["block"] * plane + y * window["pitch"] + x, index


def check_transfer(d: Any, opcode: Opcode, f: Fields, text: Reader) -> None:
    """Check the decoded copy: its runs in host memory, its lines, and which lines are short."""
    bus, pitch = text.config.host_bus_bytes, text.pitch(opcode)
    base, end = text.regions(opcode, f)["buffer"]
    alternate = opcode in ALTERNATE
    tail = d.tail
    blocks = f["blocks"]
    some_lines = {*range(base, min(base + SAMPLE, end)), *range(max(base, end - SAMPLE), end)}
    for line in some_lines:
        shown = (line - base + 1) % tail.every == 0 if tail.every else line >= tail.line
        block = (line - base) % blocks if alternate else (line - base) // f["rows"]
        assert shown == (block == blocks - 1), f"line {line}"
    assert tail.bytes == f["tail"]
    if end - base > SAMPLE:
        return
    order = itertools.product(range(f["rows"]), range(blocks))
    if not alternate:
        order = ((m, b) for b in range(blocks) for m in range(f["rows"]))
    starts = [f["host"] + m * f["stride"] + b * pitch for m, b in order]
    assert runs(d.transfer, pitch, bus) == joined(starts, pitch)
    if len(joined(starts, pitch)) == 1:
        assert d.transfer.rows == d.transfer.blocks == 1, "contiguous, but not one run"


def check_multiply(d: Any, f: Fields, config: Config) -> None:
    """Check the decoded command of a MatrixMultiply."""
    c = d.matrix
    wide_vectors, wide_weights = f["wide_vectors"], f["wide_weights"]
    assert (c.wide_vectors, c.wide_weights) == (wide_vectors, wide_weights)
    assert (c.bounded, c.packed, c.sequential) == (0, 0, 1)
    walk = Walked(c.walk, matrix_walk(config))
    assert walk.counts == {
        "ox": 1 + wide_vectors,
        "oy": f["rows"],
        "block": 1 + wide_weights,
        "kx": f["k_tiles"],
        "ky": 1,
        "n": f["n_tiles"],
    }
    for index in walk.corners():
        vector = index["kx"] * f["rows"] + index["oy"]
        line = f["buffer"] + vector * (1 + wide_vectors) + index["ox"]
        assert walk.place(**index)[0] == line, index


def check_convolve(d: Any, f: Fields, window: Fields, config: Config) -> None:
    """Check the decoded command of a Convolve."""
    c = d.matrix
    channels, rows = f["channels"], config.rows
    assert (c.wide_vectors, c.wide_weights) == (0, 0)
    assert (c.bounded, c.packed, c.fill) == (1, channels > 0, f["fill"])
    assert c.height == window["height"]
    walk = Walked(c.walk, matrix_walk(config))
    assert walk.counts == {
        "ox": window["out_width"],
        "oy": window["out_height"],
        "block": f["k_tiles"],
        "kx": 1 if channels else window["kernel_width"],
        "ky": window["kernel_height"],
        "n": f["n_tiles"],
    }
    if not channels:
        assert c.width == window["width"]
        for index in walk.corners():
            check_map_walk(walk, window, f["buffer"], f["plane"], index)
        return
    assert c.width == window["width"] * channels
    assert c.byte_step == window["stride_x"] * channels
    first = window["left"] * channels
    assert c.byte == first % rows
    for index in walk.corners():
        y = window["top"] + index["oy"] * window["stride_y"] + index["ky"] * window["dilation_y"]
        line, at_y, at_x = walk.place(**index)
        assert at_y == y
        assert at_x == first + index["ox"] * window["stride_x"] * channels
        if index["ox"] == 0 and 0 <= y < window["height"]:
            before = f["buffer"] + y * window["pitch"] + first // rows
            assert line == (before + 1) % walk.lines, index


def check_tiles(d: Any, f: Fields, regions: dict[str, Region]) -> None:
    """Check the decoded places of a MatrixMultiply's weights in the buffer, if it takes them
    there.
    """
    assert d.from_buffer == f["from_buffer"]
    if f["from_buffer"]:
        tiles = f["k_tiles"] * f["n_tiles"] << f["wide_weights"]
        lines = 1 << (len(bin(regions["source"][1])) - 2)
        assert d.weight_transfer.address % lines == f["weights"]
        assert (d.weight_transfer.beats, d.address) == (tiles, f["weights"])
    else:
        assert d.source.base == d.source.end


def check_activation_command(d: Any, opcode: Opcode, f: Fields, text: Reader) -> None:
    """Check the decoded command of an instruction of the activation unit."""
    c = d.activate
    walk = Walked(c.walk, vector_walk(text.config))
    wide = f.get("wide", 0)
    function = f.get("function", Function.NONE)
    if opcode == Opcode.POOL:
        low, high = f["floor"], f["ceiling"]
    elif wide:
        limit = text.scale["limit"] if opcode == Opcode.VECTOR else 0
        low, high = -(1 << 15), (1 << 15) - 1
        if limit and function in (Function.NONE, Function.QUOTIENT):
            low, high = -limit, limit
    else:
        ceiling = text.scale["ceiling"] if opcode == Opcode.VECTOR else f["ceiling"]
        low = f["zero_point"] if function in (Function.RELU, Function.RELU6) else -128
        high = ceiling if function == Function.RELU6 else 127
    assert (c.low, c.high) == (low, high)
    partition = _is_partition(opcode, f)
    assert (c.wide, c.accumulate) == (wide, 0 if partition else f.get("accumulate", 0))
    stochastic = f.get("stochastic", 0)
    assert (c.rounding, c.zero_point) == (f["rounding"] | stochastic, f["zero_point"])
    if text.config.training:
        assert (c.exponent, c.stochastic) == (f.get("exponent", 0), stochastic)
        assert c.quotient == (function == Function.QUOTIENT)
    if text.config.reads_pairs:
        assert c.paired == _paired(opcode, f, text)
    if text.config.attention:
        copies = opcode == Opcode.VECTOR and f["operation"] == Operation.COPY
        assert c.relative == _is_relative(opcode, f)
        assert c.partition == partition
        assert c.gathers == ((function == Function.QUOTIENT and copies) or c.relative)
        assert not c.gathers or c.table == f["table"]
    for late in (Function.TABLE, Function.SIGMOID, Function.TANH, Function.EXP):
        assert (c.function == late) == (function == late)
        if function == late:
            assert c.table == f["table"] or late == Function.SIGMOID
    assert c.parameter == f["parameter"]
    if not partition:
        assert c.destination == f["buffer" if opcode == Opcode.ACTIVATE else "destination"]
    average = opcode == Opcode.POOL and f["reduction"] == Reduction.AVERAGE
    assert c.by_taps == average
    if walk.counts["block"] > 1:
        assert c.by_block == (opcode in (Opcode.ACTIVATE, Opcode.DEPTHWISE))

    if opcode in (Opcode.DEPTHWISE, Opcode.POOL):
        window = text.window
        map_lines, _, taps = text.sizes()
        assert (c.height, c.width) == (window["height"], window["width"])
        assert c.wide_operands == 0
        assert walk.counts == {
            "kx": window["kernel_width"],
            "ky": window["kernel_height"],
            "ox": window["out_width"],
            "oy": window["out_height"],
            "block": f["blocks"],
        }
        for index in walk.corners():
            check_map_walk(walk, window, f["buffer"], map_lines, index)
        if opcode == Opcode.DEPTHWISE:
            assert c.source == Source.DEPTHWISE
            assert (c.operand, c.taps, c.fill) == (f["taps"], taps, f["fill"])
        else:
            assert c.source == Source.POOL
            assert c.maximum == (f["reduction"] == Reduction.MAX)
        return
    counts = walk.counts
    if opcode == Opcode.ACTIVATE:
        assert (c.source, c.accumulator) == (Source.ACCUMULATORS, f["accumulator"])
        assert counts["kx"] == counts["ky"] == 1
        assert (counts["ox"] * counts["oy"], counts["block"]) == (f["rows"], f["n_tiles"])
        return
    halves = 1 + f["wide_operands"]
    # A pair of lines is read from its second line on.
    second = f["wide_operands"] & _paired(opcode, f, text)
    operation = Operation.COPY if _is_relative(opcode, f) else f["operation"]
    assert (c.source, c.operation) == (Source.VECTOR, operation)
    assert c.wide_operands == f["wide_operands"]
    expected = {"kx": halves - second, "ky": 1, "ox": f["rows"], "oy": 1, "block": 1}
    if partition:
        expected |= {"kx": f["rows"], "ox": 1}
    assert counts == expected
    for index in walk.corners():
        line = f["buffer"] + second + index["ox"] * halves + index["kx"]
        assert walk.place(**index)[0] == line
    if f["operation"] != Operation.COPY:
        assert c.operand == f["operand"] + second
    names = ("multiplier_a", "shift_a", "multiplier_b", "shift_b", "zero_a", "zero_b")
    assert {name: c.scale[name] for name in names} == {name: text.scale[name] for name in names}


def _is_relative(opcode: Opcode, f: Fields) -> bool:
    """Return whether a Vector subtracts one line from all vectors before it looks them up."""
    how = f.get("function"), f.get("operation")
    return opcode == Opcode.VECTOR and how == (Function.QUOTIENT, Operation.ADD)


def _is_partition(opcode: Opcode, f: Fields) -> bool:
    """Return whether an instruction makes a parameter entry of the sum of all vectors."""
    return _is_relative(opcode, f) and bool(f["accumulate"]) and not f["wide"]


def _paired(opcode: Opcode, f: Fields, text: Reader) -> int:
    """Return whether an instruction reads both lines of its int16 operands and addends at once."""
    if not text.config.reads_pairs or opcode not in (Opcode.ACTIVATE, Opcode.VECTOR):
        return 0
    names = (
        [] if not f["accumulate"] else ["buffer" if opcode == Opcode.ACTIVATE else "destination"]
    )
    names = [] if _is_partition(opcode, f) else names
    if f.get("wide_operands"):
        names += ["buffer"] if f["operation"] == Operation.COPY else ["buffer", "operand"]
    return int(all(f[name] % 2 == 0 for name in names))


def check_training_command(d: Any, opcode: Opcode, f: Fields, text: Reader) -> None:
    """Check the decoded command of an instruction that exists for training alone."""
    c, size = d.activate, text.config.cols
    walk = Walked(c.walk, vector_walk(text.config))
    assert (c.function, c.wide, c.accumulate, c.exponent) == (OTHER, 0, 0, 0)
    counts = {"kx": 1, "ky": 1, "ox": 1, "oy": 1, "block": 1}
    if opcode == Opcode.MEASURE:
        kind = Measured(f["source"])
        assert c.table == (Other.SUM if kind == Measured.NONE else Other.MEASURE)
        about = MeasureLayout().from_bits(c.scale.multiplier_b & ((1 << MeasureLayout().size) - 1))
        for name in MeasureLayout().members:
            assert about[name] == f[name] & ((1 << MeasureLayout()[name].width) - 1), name
        assert (c.scale.zero_a, c.scale.shift_a) == (0, 0)
        if kind == Measured.NONE:
            assert (c.source, c.taps) == (Source.DEPTHWISE, 1)
        elif kind == Measured.ACCUMULATORS:
            assert (c.source, c.accumulator) == (Source.ACCUMULATORS, f["accumulator"])
            counts["ox"] = f["rows"]
        else:
            assert (c.source, c.operation) == (Source.VECTOR, Operation.COPY)
            assert c.wide_operands == 1
            counts |= {"kx": 2, "ox": f["rows"]}
            for index in walk.corners():
                assert walk.place(**index)[0] == f["buffer"] + 2 * index["ox"] + index["kx"]
    elif opcode == Opcode.TRANSPOSE:
        assert (c.source, c.table) == (Source.DEPTHWISE, Other.TRANSPOSE)
        assert (c.operand, c.taps, c.destination) == (f["buffer"], size, f["destination"])
        counts |= {"ox": size, "block": f["count"]}
        if f["count"] > 1:
            assert (c.walk.step.block.line + size - f["step"]) % walk.lines == 0
    else:
        assert (c.source, c.table, c.taps) == (Source.DEPTHWISE, Other.RANDOM, 1)
        assert c.scale.multiplier_a == f["seed"]
        assert c.scale.multiplier_b | (c.scale.shift_b & 1) << 31 == f["counter"]
        assert c.destination == f["destination"]
        counts["ox"] = f["rows"]
    assert walk.counts == counts


def check_operands(d: Any, opcode: Opcode, f: Fields, text: Reader) -> None:
    """Check that the decoder's output `d` agrees with the fields `f` of its instruction."""
    config = text.config
    regions = text.regions(opcode, f)
    for name in ("buffer", "source", "operand", "accumulator", "host"):
        if name in regions:
            assert region(d[name]) == regions[name], name
    if "host" in regions:
        # The host window may end at 2^32, but no address inside it is 2^32.
        assert d.transfer.address == f["host"]
    if opcode in COPIES:
        check_transfer(d, opcode, f, text)
    entries = tuple(parameter_space(config) + entry for entry in regions.get("parameter", ()))
    tables = tuple(table_space(config) + table for table in regions.get("table", ()))
    if _is_partition(opcode, f):
        assert d.buffer.base == d.buffer.end == 0
    if opcode in (Opcode.LOAD_PARAMETERS, Opcode.LOAD_TABLE):
        assert region(d.buffer) == (entries or tables)
        base, end = regions["host"]
        assert runs(d.transfer, 0, config.host_bus_bytes) == [(base, end - base)]
    if opcode == Opcode.READ_WEIGHTS:
        transfer = d.weight_transfer
        size = config.tile_bytes
        assert transfer.address == f["tile"] * size
        assert transfer.beats * config.weight_bus_bytes == f["count"] * size
        assert (d.tiles, d.address) == (f["count"], f["tile"])
    if opcode in (Opcode.MATRIX_MULTIPLY, Opcode.CONVOLVE):
        assert d.tiles == text.consumed(opcode, f)
        if config.training and opcode == Opcode.MATRIX_MULTIPLY:
            check_tiles(d, f, regions)
        c = d.matrix
        assert (c.accumulator, c.accumulate) == (f["accumulator"], f["accumulate"])
        if opcode == Opcode.CONVOLVE:
            check_convolve(d, f, text.window, config)
        else:
            check_multiply(d, f, config)
    if opcode in (Opcode.ACTIVATE, Opcode.DEPTHWISE, Opcode.POOL, Opcode.VECTOR):
        assert region(d.parameters) == entries
        for name in ("source", "operand"):
            assert name in regions or d[name].base == d[name].end, f"{name} is not empty"
        if tables:
            assert region(d.table) == tables
        else:
            assert d.table.base == d.table.end, "a table that is not used"
        check_activation_command(d, opcode, f, text)
    if opcode in TRAINING:
        for name in ("buffer", "source", "operand", "accumulator", "parameters", "table"):
            assert name in regions or d[name].base == d[name].end, f"{name} is not empty"
        check_training_command(d, opcode, f, text)
    if opcode == Opcode.INTERRUPT_HOST:
        assert d.code == f["code"]
    if opcode == Opcode.DEBUG_TAG:
        assert (d.code, d.units) == (f["tag"], f["wait"])
