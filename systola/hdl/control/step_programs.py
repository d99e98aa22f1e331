# SPDX-License-Identifier: Apache-2.0
"""The steps of each instruction, as rows of the step ROM.

Steps check the instruction, compute its regions as `arch/isa` describes them, and write the words
of its command. Flags go into a command as they stand in the instruction word. Numbers that follow
from the window or the scale are written once, by the Set_Config that sets the window or scale.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from systola.arch.built_for import machine_operands
from systola.arch.config import Config
from systola.arch.features import has
from systola.arch.isa import (
    DEPTHWISE_TAPS,
    OPCODE_BITS,
    PARAMETER_PLANES,
    REGISTERS,
    TABLE_BYTES,
    Executor,
    Fault,
    Memory,
    Opcode,
    Use,
    instructions_of,
)
from systola.hdl.control import step_links, step_training
from systola.hdl.control.step_program import Program, constant
from systola.hdl.control.step_row import (
    IDLE,
    INDEXED,
    SECOND_INDEX,
    TWO_LINES,
    ZERO,
    Base,
    Bits,
    Note,
    Row,
    Times,
    When,
)

ALTERNATE = (Opcode.READ_HOST_MEMORY_ALTERNATE, Opcode.WRITE_HOST_MEMORY_ALTERNATE)
LONGEST, SHORTEST = (1 << 15) - 1, -(1 << 15)
"""Bounds of int16 results."""
HIGHEST, LOWEST = 127, -128
"""Bounds of int8 results."""


def reset_rows() -> tuple[Row, ...]:
    """Return the ROM rows that run after a reset: they set the registers and the scale to zero.

    They also set a window that fails all checks: its width is above its pitch, and above the limit
    for packed rows.
    """
    registers = (Row(into=f"register {number}") for number in range(1, REGISTERS))
    window = (
        Row(base=constant(1), into="width"),
        Row(into="pitch"),
        Row(into="packed_limit"),
    )
    scale = (Row(into=cell) for cell in ("ceiling", "limit"))
    words = (Row(word=word) for word in ("scale_a", "scale_b", "zeros"))
    return (*registers, *window, *scale, *words)


def failing_rows(fault: Fault) -> tuple[Row, ...]:
    """Return the ROM rows that raise `fault` for a word, with its opcode as the FAULT_ADDRESS."""
    return (
        Row(x=Bits(0, OPCODE_BITS), names=True),
        Row(base=constant(1), limit=ZERO, fault=fault),
    )


def programs(config: Config) -> Mapping[Opcode, tuple[Row, ...]]:
    """Return the ROM rows of each instruction that a machine knows."""
    known = instructions_of(links=config.links)
    return {entry.opcode: _rows(Program(entry, config)) for entry in known}


def _rows(p: Program) -> tuple[Row, ...]:
    entry = p.entry
    p.begin()
    if entry.needs is not None and not has(p.config, entry.needs):
        if entry.opcode is Opcode.LOAD_TABLE:
            p.base("host", names=False)
        p.flush()
        p.check_reserved()
        p.fail(Fault.UNAVAILABLE)
        return tuple(p.rows)
    if entry.opcode in (Opcode.ACTIVATE, Opcode.VECTOR):
        p.fail(Fault.ILLEGAL_FIELD, When.MISFIT)
    if Fault.UNAVAILABLE in entry.checks and entry.needs is None and lacks(p.config):
        p.fail(Fault.UNAVAILABLE, When.LACKS)
    rest: Mapping[Executor, Callable[[Program], None]] = {
        Executor.SEQUENCER: _sequence,
        Executor.SCALAR_UNIT: _compute,
        Executor.DECODER: _set,
        Executor.HOST_READER: _transfer,
        Executor.HOST_WRITER: _transfer,
        Executor.WEIGHT_FETCH: _read_weights,
        Executor.MATRIX_UNIT: _matrix,
        Executor.ACTIVATION_UNIT: _activate,
        Executor.LINK_UNIT: step_links.link,
    }
    rest[entry.executor](p)
    p.flush()
    if entry.opcode is not Opcode.SET_REGISTER:
        p.check_reserved()
    return tuple(p.rows) or (Row(),)


def _sequence(p: Program) -> None:
    if p.entry.opcode is Opcode.INTERRUPT_HOST:
        p.move("code", word="code")
    if p.entry.opcode is Opcode.DEBUG_TAG:
        p.move("tag", word="code")
        p.move("wait", word="units")


def _compute(p: Program) -> None:
    if p.entry.opcode is Opcode.LOOP:
        p.base("count", word="count")
    if p.entry.opcode is Opcode.SET_REGISTER:
        p.check_reserved()
        value = p.bits("value")
        p.emit(x=Bits(value.offset, value.width), base=Base.INDEX_0)
        # An idle row: the instruction before may be a Set_Register that is still writing.
        p.rows.append(IDLE)
        p.emit(x=SECOND_INDEX, base=Base.SUM, wraps=value.width, into=INDEXED)


def _set(p: Program) -> None:
    if p.entry.opcode is Opcode.REQUIRE_MACHINE:
        for name, value in machine_operands(p.config).items():
            other = Fault.OTHER_MACHINE
            p.emit(x=p.bits(name), base=constant(-value), limit=ZERO, fault=other)
    elif p.entry.opcode is Opcode.SET_CONFIG_SCALE:
        p.emit(x=p.bits("multiplier_a", "shift_a"), word="scale_a")
        p.emit(x=p.bits("multiplier_b", "shift_b"), word="scale_b")
        p.emit(x=p.bits("zero_a", "zero_b"), word="zeros")
        p.move("ceiling", into="ceiling")
        p.move("limit", into="limit")
    else:
        _set_window(p)


def _set_window(p: Program) -> None:
    """Append the ROM rows of Set_Config_Window.

    The rows that multiply come first, as the next instruction may need the products soon. The rows
    that only copy fields come after them.
    """
    for name in ("kernel_height", "kernel_width", "left"):
        p.move(name, into=name, word=name)
    for name in ("width", "pitch", "stride_x", "dilation_x"):
        p.move(name, into=name)
    for name in ("height", "width", "out_height", "out_width"):
        p.move(name, word=name)
    times = partial(p.emit, times=Times.KEPT)
    p.take("kernel_height")
    times(x=p.bits("kernel_width"), into="kernel_taps", word="taps")
    p.take("out_height")
    times(x=p.bits("out_width"), into="windows")
    p.take("pitch")
    times(x=p.bits("height"), into="map_lines", word="map_lines")
    times(x=p.bits("top"), into="top_line")
    p.emit(base=Base.SUM, x=p.bits("left"), into="origin")
    times(x=constant(p.config.rows), into="packed_limit")
    p.move("stride_y", times=Times.KEPT, word="row_step")
    p.move("dilation_y", times=Times.KEPT, word="tap_step")
    p.emit(x=p.bits("stride_y", "top"), word="moves")


def _transfer(p: Program) -> None:
    (host,) = (use for use in (*p.entry.reads, *p.entry.writes) if use.memory is Memory.HOST)
    (chip,) = (use for use in (*p.entry.reads, *p.entry.writes) if use is not host)
    reads = p.entry.executor is Executor.HOST_READER
    # The command of a read from host memory has the last address that is filled, see `_last`. The
    # command of a write has the end of the lines, which is one higher.
    region = partial(p.region, chip, "result", word="buffer", end=None if reads else "end")
    if chip.memory is Memory.BUFFER:
        _copy(p, host, region)
        return
    bus = p.config.host_bus_bytes
    if chip.memory is Memory.PARAMETERS:
        p.flush(keep="count")
        region()
        p.region(host, "host", word="address")
        _last(p)
        entry_beats = PARAMETER_PLANES * p.config.output_pitch // bus
        p.emit(x=constant(entry_beats), times=Times.KEPT, word="beats")
    else:
        region()
        p.region(host, "host", word="address")
        _last(p)
        p.emit(x=constant(TABLE_BYTES // bus), word="beats")


def _last(p: Program) -> None:
    """Append a row that computes the last address that a read from host memory fills."""
    p.emit(base="result.end", x=constant(1), times=Times.MINUS_ONE, word="last")


def _copy(p: Program, host: Use, region: Callable[[], None]) -> None:
    """Append the ROM rows of a copy between host memory and the chip.

    A run is contiguous in host memory. If all lines follow one another there, they are a single
    run. Else each line is a run or, in an alternate copy, the lines of one row in all blocks.
    """
    config = p.config
    alternate = p.entry.opcode in ALTERNATE
    reads = p.entry.executor is Executor.HOST_READER
    pitch = config.input_pitch if reads else config.output_pitch
    line_beats = pitch // config.host_bus_bytes
    p.move("tail", base=constant(1), word="tail_bytes")
    p.limit("tail", config.rows if reads else config.cols)
    p.move("stride", into="stride", word="stride", aligned=True)
    if alternate:
        p.move("blocks", word="tail_every")
        p.emit(x=constant(1), word="blocks")
    else:
        p.move("blocks", word="blocks", limit=constant(1), note=Note.EQUAL_C)
        p.emit(word="tail_every")
    p.flush(keep="blocks", later=("rows",))
    p.products["blocks", "P_in" if reads else "P_out"] = "row_bytes"
    row = {"x": constant(pitch), "times": Times.KEPT, "into": "row_bytes"}
    p.emit(**row, limit="stride", note=Note.EQUAL_A)
    region()
    rows = p.bits("rows")
    p.emit(base=Base.SUM, x=rows, times=Times.MINUS_ONE, word="tail_line")
    p.emit(x=rows, times=Times.KEPT, into="run")
    if reads:
        _last(p)
    p.emit(x=constant(line_beats), times=Times.KEPT if alternate else Times.ONE, word="beats")
    p.move("rows", word="rows", limit=constant(1), note=Note.EQUAL_B)
    p.take("rows")
    p.region(host, "host", word="address")
    linear = When.LINEAR_ALTERNATE if alternate else When.LINEAR
    if line_beats == 1:
        p.emit(x="run", word="beats", when=linear)
    else:
        p.keep(constant(line_beats))
        p.emit(x="run", times=Times.KEPT, word="beats", when=linear)
    for word in ("rows",) if alternate else ("rows", "blocks"):
        p.emit(x=constant(1), word=word, when=linear)


def _read_weights(p: Program) -> None:
    (weights,) = p.entry.reads
    p.region(weights, "tile")
    p.move("count", word="tiles")
    p.flush()
    p.keep(constant(p.config.tile_bytes // p.config.weight_bus_bytes))
    p.emit(x=p.bits("count"), times=Times.KEPT, word="weight_beats")
    p.keep(constant(p.config.tile_bytes))
    p.emit(x="tile.base", times=Times.KEPT, word="weight_address")


def _matrix(p: Program) -> None:
    if p.entry.opcode is Opcode.CONVOLVE:
        _convolve(p)
        return
    if p.config.wide:
        p.emit(x=constant(1), word=TWO_LINES, when=When.FLAG_A)
    p.move("rows", word="matrix_rows")
    p.move("k_tiles", word="k_tiles")
    p.move("n_tiles", word="n_tiles")
    p.flush(keep="k_tiles", later=("n_tiles",))
    vectors = p.entry.reads[0]
    if p.config.training:
        step_training.count_tiles(p)
        p.region(vectors, "result", word="start_line")
        step_training.weights(p)
    else:
        p.region(vectors, "result", word="start_line")
        tiles = {"x": p.bits("n_tiles"), "times": Times.KEPT, "word": "tiles"}
        p.emit(**tiles)
        if p.config.wide:
            p.emit(**tiles, base=Base.SUM, when=When.FLAG_B)
    p.take("n_tiles")
    p.region(p.entry.writes[0], "sums", word="accumulator")


def _convolve(p: Program) -> None:
    """Append the ROM rows of a Convolve.

    Without packed channels, the instruction ends before the rows for packed channels.
    """
    not_packed = Note.EQUAL_A
    p.emit(x=p.bits("channels"), limit=ZERO, note=not_packed, word="channels")
    p.move("fill", word="fill")
    p.move("plane", word="plane")
    p.move("n_tiles", word="n_tiles")
    p.move("k_tiles", word="k_tiles")
    p.flush(keep="k_tiles", later=("n_tiles",))
    p.emit(x="kernel_taps", times=Times.KEPT, into="tap_tiles")
    p.emit(base="width", limit="pitch", fault=Fault.WINDOW, when=When.NOT_PACKED)
    p.region(p.entry.reads[0], "result")
    p.take("n_tiles")
    p.region(p.entry.writes[0], "sums", word="accumulator")
    p.emit(base="result.base", x="origin", word="start_line")
    p.emit(x="tap_tiles", times=Times.KEPT, word="tiles", ends=True)
    _packed(p)


def _packed(p: Program) -> None:
    """Append the rows for packed channels.

    They give the position of a byte in a row of the map, counted from R bytes before the row.
    """
    rows, wrong = p.config.rows, Fault.WINDOW
    whole, one = constant(rows), constant(1)
    less = {"x": whole, "times": Times.MINUS_ONE}
    p.emit(x="kernel_height", times=Times.KEPT, word="tiles")
    p.keep(p.bits("channels"))
    start = {"x": "left", "times": Times.KEPT, "base": whole, "into": "start"}
    p.emit(**start, limit=constant(2 * rows - 1), fault=wrong)
    p.emit(base=Base.SUM, **less, word="start_byte")
    p.emit(x="width", times=Times.KEPT, limit="packed_limit", fault=wrong, word="row_bytes")
    p.emit(base="start", limit=constant(rows - 1), note=Note.BEYOND, word="byte")
    p.emit(x="kernel_width", times=Times.KEPT, limit=whole, fault=wrong)
    p.emit(base="start", **less, word="byte", when=When.INSIDE)
    p.emit(x="stride_x", times=Times.KEPT, limit=whole, fault=wrong, word="byte_step")
    p.emit(x=p.bits("k_tiles"), limit=one, fault=wrong)
    p.emit(base="dilation_x", limit=one, fault=wrong)
    p.emit(base="result.base", x="top_line", word="start_line")
    p.emit(base=Base.SUM, x=one, word="start_line", when=When.INSIDE)


def lacks(config: Config) -> bool:
    """Return whether the flags of an instruction can require hardware that the machine lacks."""
    return not (config.wide and config.tables and config.training)


def _activate(p: Program) -> None:
    match p.entry.opcode:
        case Opcode.ACTIVATE:
            p.move("zero_point", word="zero_point")
            p.move("rows", word="vector_rows")
            p.move("n_tiles", word="n_tiles")
            p.flush(keep="n_tiles")
            sums, entries, table = p.entry.reads
            p.region(sums, "sums", word="accumulator")
            p.region(p.entry.writes[0], "result", word="destination")
            p.region(entries, "entries", word="parameter")
            p.region(table, "table", word="table")
            _bounds(p, p.bits("ceiling"))
        case Opcode.VECTOR:
            _vector(p)
        case Opcode.MEASURE:
            step_training.measure(p)
        case Opcode.TRANSPOSE:
            step_training.transpose(p)
        case Opcode.RANDOM:
            step_training.random(p)
        case _:
            _map(p)


def _vector(p: Program) -> None:
    if p.config.wide:
        p.emit(x=constant(1), word=TWO_LINES, when=When.FLAG_B)
    p.move("zero_point", word="zero_point")
    p.move("rows", word="vector_rows")
    p.flush()
    first, second, entries, table = p.entry.reads
    p.region(first, "source", word="start_line")
    p.region(second, "operand", word="operand")
    p.region(p.entry.writes[0], "result", word="destination")
    p.overlap("source", When.REPLACES_NOT)
    p.overlap("operand", When.SECOND_REPLACES_NOT)
    p.region(entries, "entries", word="parameter")
    p.region(table, "table", word="table")
    _bounds(p, "ceiling")
    if p.config.wide:
        p.emit(base="limit", limit=ZERO, note=Note.EQUAL_B)
        p.emit(base="limit", word="high", when=When.LIMITED)
        p.emit(x="limit", times=Times.MINUS_ONE, word="low", when=When.LIMITED)


def _map(p: Program) -> None:
    """Append the ROM rows of Depthwise and Pool."""
    p.emit(base="width", limit="pitch", fault=Fault.WINDOW)
    depthwise = p.entry.opcode is Opcode.DEPTHWISE
    if depthwise:
        p.emit(x="kernel_taps", limit=constant(DEPTHWISE_TAPS), fault=Fault.WINDOW)
        p.emit(x=p.bits("zero_point", "fill"), word="zero_point")
    else:
        p.move("zero_point", word="zero_point")
    p.move("blocks", word="n_tiles")
    p.flush(keep="blocks")
    lines = [use for use in p.entry.reads if use.memory is Memory.BUFFER]
    (entries,) = (use for use in p.entry.reads if use.memory is Memory.PARAMETERS)
    p.region(lines[0], "source")
    if depthwise:
        p.region(lines[1], "operand", word="operand")
    p.region(p.entry.writes[0], "result", word="destination")
    p.overlap("source", When.OVERLAPS)
    if depthwise:
        p.overlap("operand", When.OVERLAPS)
    p.emit(base="source.base", x="origin", word="start_line")
    p.region(entries, "entries", word="parameter")
    if depthwise:
        _bounds(p, p.bits("ceiling"))
    else:
        p.emit(x=p.bits("floor"), word="low")
        p.emit(x=p.bits("ceiling"), word="high")


def _bounds(p: Program, ceiling: Bits | str) -> None:
    """Append rows that set the bounds of results, which follow from the function."""
    p.emit(x=constant(LOWEST), word="low")
    p.emit(x=p.bits("zero_point"), word="low", when=When.RECTIFIES)
    p.emit(x=constant(HIGHEST), word="high")
    p.emit(x=ceiling, word="high", when=When.CLAMPS)
    if p.config.wide and p.entry.opcode is not Opcode.DEPTHWISE:
        p.emit(x=constant(SHORTEST), word="low", when=When.FLAG_A)
        p.emit(x=constant(LONGEST), word="high", when=When.FLAG_A)
