# SPDX-License-Identifier: Apache-2.0
"""The steps of each instruction: its checks and regions as `arch/isa` has them, and the words of
its command.

Flags go into a command as they stand in the instruction word. Numbers that follow from the
window or the scale are written once, by the instruction that sets it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from systola.arch.built_for import machine_operands
from systola.arch.config import Config
from systola.arch.features import has
from systola.arch.isa import (
    DEPTHWISE_TAPS,
    INSTRUCTIONS,
    OPCODE_BITS,
    PARAMETER_PLANES,
    REGISTERS,
    TABLE_BYTES,
    TANH_INTEGER_BITS,
    Executor,
    Fault,
    Function,
    Memory,
    Opcode,
)
from systola.hdl.control.step_program import Program, constant
from systola.hdl.control.step_row import (
    INDEXED,
    SECOND_INDEX,
    ZERO,
    Base,
    Bits,
    Loads,
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
    """Return the rows that begin a program: registers and a scale of zeros. The window fails
    all checks, as it is wider than its pitch and than any packed row."""
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
    """Return the rows of a word that is no instruction; its opcode is the FAULT_ADDRESS."""
    return (
        Row(x=Bits(0, OPCODE_BITS), names=True),
        Row(base=constant(1), limit=ZERO, fault=fault),
    )


def programs(config: Config) -> Mapping[Opcode, tuple[Row, ...]]:
    """Return the rows of each instruction of a machine without training and links, which has no
    other programs yet."""
    assert not config.training and not config.links
    return {entry.opcode: _rows(Program(entry, config)) for entry in INSTRUCTIONS}


def _rows(p: Program) -> tuple[Row, ...]:
    entry = p.entry
    if entry.opcode is Opcode.SET_REGISTER:
        p.emit(x=p.bits("first", "second"), loads=Loads.SELECT)
    p.begin()
    if entry.opcode in (Opcode.ACTIVATE, Opcode.VECTOR):
        _check_function(p)
    if entry.opcode is Opcode.DEPTHWISE:
        p.limit("function", Function.RELU6)
    if entry.needs is not None and not has(p.config, entry.needs):
        p.flush()
        p.name_opcode()
        p.fail(Fault.UNAVAILABLE)
    else:
        rest: Mapping[Executor, Callable[[Program], None]] = {
            Executor.SEQUENCER: _sequence,
            Executor.SCALAR_UNIT: _compute,
            Executor.DECODER: _set,
            Executor.HOST_READER: _transfer,
            Executor.HOST_WRITER: _transfer,
            Executor.WEIGHT_FETCH: _read_weights,
            Executor.MATRIX_UNIT: _matrix,
            Executor.ACTIVATION_UNIT: _activate,
        }
        rest[entry.executor](p)
    p.flush()
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
        p.move("register", loads=Loads.TARGET)
        p.flush()
        p.emit(x=SECOND_INDEX, base=Base.INDEX_0)
        value = p.bits("value")
        p.emit(x=Bits(value.offset, value.width), base=Base.SUM, wraps=value.width, into=INDEXED)


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
    """Append the numbers that follow from a window first, as the next instruction may multiply
    them. Then come the fields."""
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
    region = partial(p.region, chip, "result", word="buffer", end="end")
    if chip.memory is Memory.BUFFER:
        _copy(p)
        region()
        rows, blocks = p.bits("rows"), p.bits("blocks")
        p.emit(base=Base.SUM, x=rows, times=Times.MINUS_ONE, word="tail_line")
        p.emit(x=blocks, times=Times.KEPT, into="run")
        p.region(host, "host", word="address")
        _runs(p)
        return
    bus = p.config.host_bus_bytes
    if chip.memory is Memory.PARAMETERS:
        p.flush(keep="count")
        region()
        p.region(host, "host", word="address")
        entry_beats = PARAMETER_PLANES * p.config.output_pitch // bus
        p.emit(x=constant(entry_beats), times=Times.KEPT, word="beats")
    else:
        region()
        p.region(host, "host", word="address")
        p.emit(x=constant(TABLE_BYTES // bus), word="beats")


def _copy(p: Program) -> None:
    """Append the rows of the fields of a copy. One of them notes whether there is a single row, and
    one whether there is a single block."""
    writes = p.entry.executor is Executor.HOST_WRITER
    p.move("tail", word="tail_bytes")
    p.limit("tail", p.config.cols if writes else p.config.rows)
    p.move("stride", into="stride", word="stride")
    p.move("rows", word="rows", limit=constant(1), note=Note.EQUAL_B)
    if p.entry.opcode in ALTERNATE:
        p.move("blocks", word="tail_every")
        p.emit(x=constant(1), word="blocks")
    else:
        p.move("blocks", word="blocks", limit=constant(1), note=Note.EQUAL_C)
        p.emit(word="tail_every")
    p.flush(keep="rows")


def _runs(p: Program) -> None:
    """Append the rows that tell how long the runs in host memory are. Lines that follow one another
    are a single run. Else a run is a block, or with the alternate copies a row."""
    config = p.config
    alternate = p.entry.opcode in ALTERNATE
    reads = p.entry.executor is Executor.HOST_READER
    pitch = config.input_pitch if reads else config.output_pitch
    line_beats = constant(pitch // config.host_bus_bytes)
    linear = When.LINEAR_ALTERNATE if alternate else When.LINEAR
    p.keep(p.bits("blocks"))
    dense = Note.EQUAL_A
    p.emit(x=constant(pitch), times=Times.KEPT, limit="stride", note=dense)
    if alternate:
        p.emit(x=line_beats, times=Times.KEPT, word="beats")
    else:
        p.emit(x=line_beats, word="beats")
    p.keep(line_beats)
    p.emit(x="run", times=Times.KEPT, word="beats", when=linear)
    for word in ("rows",) if alternate else ("rows", "blocks"):
        p.emit(x=constant(1), word=word, when=linear)


def _read_weights(p: Program) -> None:
    (weights,) = p.entry.reads
    p.move("count", word="tiles")
    p.flush()
    p.region(weights, "tile")
    p.keep(constant(p.config.tile_bytes // p.config.weight_bus_bytes))
    p.emit(x=p.bits("count"), times=Times.KEPT, word="weight_beats")
    p.keep(constant(p.config.tile_bytes))
    p.emit(x="tile.base", times=Times.KEPT, word="weight_address")


def _matrix(p: Program) -> None:
    if p.entry.opcode is Opcode.CONVOLVE:
        _convolve(p)
        return
    p.name_opcode()
    for name, loads in (("wide_vectors", Loads.FLAG_A), ("wide_weights", Loads.FLAG_B)):
        if p.config.wide:
            p.move(name, loads=loads)
        else:
            p.limit(name, 0, Fault.UNAVAILABLE)
    p.limit("from_buffer", 0, Fault.UNAVAILABLE)
    p.emit(x=p.bits("accumulate", "wide_weights"), word="flags")
    p.move("rows", word="matrix_rows")
    p.move("k_tiles", word="k_tiles")
    p.move("n_tiles", word="n_tiles")
    p.flush(keep="k_tiles")
    vectors = p.entry.reads[0]
    p.region(vectors, "result", word="start_line")
    p.emit(x=p.bits("n_tiles"), times=Times.KEPT, word="tiles")
    if p.config.wide:
        p.emit(
            x=p.bits("n_tiles"),
            times=Times.KEPT,
            base=Base.SUM,
            word="tiles",
            when=When.FLAG_B,
        )
    p.region(p.entry.writes[0], "sums", word="accumulator")


def _convolve(p: Program) -> None:
    """Append the rows of a Convolve. It ends before the rows of packed channels, which are checked
    and moved there, unless it has these."""
    not_packed = Note.EQUAL_A
    p.emit(x=p.bits("channels"), limit=ZERO, note=not_packed)
    p.emit(x=p.bits("accumulate", "fill"), word="flags")
    p.move("plane", word="plane")
    p.move("n_tiles", word="n_tiles")
    p.move("k_tiles", word="k_tiles")
    p.flush(keep="k_tiles")
    p.emit(x="kernel_taps", times=Times.KEPT, into="tap_tiles")
    p.emit(base="width", limit="pitch", fault=Fault.WINDOW, when=When.NOT_PACKED)
    p.region(p.entry.reads[0], "result")
    p.region(p.entry.writes[0], "sums", word="accumulator")
    p.emit(base="result.base", x="origin", word="start_line")
    p.keep(p.bits("n_tiles"))
    p.emit(x="tap_tiles", times=Times.KEPT, word="tiles", ends=True)
    _packed(p)


def _packed(p: Program) -> None:
    """Append the rows of packed channels, which count bytes of a row from the line before it on."""
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


def _check_function(p: Program) -> None:
    """Append the rows that find fields of Activate and Vector that do not fit together."""
    p.name_opcode()
    # The function has the lowest bits.
    p.emit(x=p.bits("function", "accumulate"), word="flags", loads=Loads.FUNCTION)
    if p.config.wide:
        p.emit(x=p.bits("wide"), loads=Loads.FLAG_A)
    else:
        p.emit(x=p.bits("wide"), loads=Loads.FLAG_A, limit=ZERO, fault=Fault.UNAVAILABLE)
    wrong = Fault.ILLEGAL_FIELD
    p.fail(wrong, When.MISFIT)
    if p.config.attention and p.entry.opcode is Opcode.ACTIVATE:
        p.fail(wrong, When.QUOTIENT)
    p.emit(x=p.bits("accumulate"), limit=ZERO, fault=wrong, when=When.NOT_A)
    most = constant(TANH_INTEGER_BITS)
    p.emit(x=p.bits("table"), limit=most, fault=wrong, when=When.HAS_BITS)
    missing = Fault.UNAVAILABLE
    p.emit(x=p.bits("exponent"), limit=ZERO, fault=missing)
    if p.config.wide:
        p.fail(missing, When.EXP)
    if not p.config.tables:
        p.fail(missing, When.TABLE)


def _activate(p: Program) -> None:
    match p.entry.opcode:
        case Opcode.ACTIVATE:
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
        case _:
            _map(p)


def _vector(p: Program) -> None:
    if p.config.wide:
        p.move("wide_operands", loads=Loads.FLAG_B)
    else:
        p.limit("wide_operands", 0, Fault.UNAVAILABLE)
    p.move("operation", loads=Loads.CODE, word="operation")
    p.move("rows", word="vector_rows")
    p.flush()
    if p.config.attention:
        p.fail(Fault.ILLEGAL_FIELD, When.DIVIDES)
    first, second, entries, table = p.entry.reads
    p.region(first, "source", word="start_line")
    p.region(second, "operand", word="operand")
    p.region(p.entry.writes[0], "result", word="destination")
    _overlap(p, "source", When.REPLACES_NOT)
    _overlap(p, "operand", When.SECOND_REPLACES_NOT)
    p.region(entries, "entries", word="parameter")
    p.region(table, "table", word="table")
    _bounds(p, "ceiling")
    if p.config.wide:
        p.emit(base="limit", limit=ZERO, note=Note.EQUAL_B)
        p.emit(base="limit", word="high", when=When.LIMITED)
        p.emit(x="limit", times=Times.MINUS_ONE, word="low", when=When.LIMITED)


def _overlap(p: Program, name: str, when: When) -> None:
    """Append the rows that check that results and an operand have no line in common. `when` is
    false where they may have all."""
    p.emit(base="result.base", limit=f"{name}.base", note=Note.EQUAL_A, names=True)
    p.emit(base=f"{name}.end", limit="result.base", note=Note.BEYOND)
    p.emit(base="result.end", limit=f"{name}.base", fault=Fault.OVERLAP, when=when)


def _map(p: Program) -> None:
    """Append the rows of Depthwise and Pool."""
    p.emit(base="width", limit="pitch", fault=Fault.WINDOW)
    depthwise = p.entry.opcode is Opcode.DEPTHWISE
    if depthwise:
        p.emit(x="kernel_taps", limit=constant(DEPTHWISE_TAPS), fault=Fault.WINDOW)
        p.emit(x=p.bits("function", "fill"), word="flags")
        p.move("function", loads=Loads.FUNCTION)
    else:
        p.emit(x=p.bits("rounding", "zero_point"), word="flags")
        p.move("reduction", loads=Loads.CODE, word="operation")
    p.move("blocks", word="n_tiles")
    p.flush(keep="blocks")
    lines = [use for use in p.entry.reads if use.memory is Memory.BUFFER]
    (entries,) = (use for use in p.entry.reads if use.memory is Memory.PARAMETERS)
    p.region(lines[0], "source")
    if depthwise:
        p.region(lines[1], "operand", word="operand")
    p.region(p.entry.writes[0], "result", word="destination")
    _overlap(p, "source", When.OVERLAPS)
    if depthwise:
        _overlap(p, "operand", When.OVERLAPS)
    p.emit(base="source.base", x="origin", word="start_line")
    p.region(entries, "entries", word="parameter")
    if depthwise:
        _bounds(p, p.bits("ceiling"))
    else:
        p.emit(x=p.bits("floor"), word="low")
        p.emit(x=p.bits("ceiling"), word="high")


def _bounds(p: Program, ceiling: Bits | str) -> None:
    """Append the rows of the bounds of results, which follow from the function."""
    p.emit(x=constant(LOWEST), word="low")
    p.emit(x=p.bits("zero_point"), word="low", when=When.RECTIFIES)
    p.emit(x=constant(HIGHEST), word="high")
    p.emit(x=ceiling, word="high", when=When.CLAMPS)
    if p.config.wide and p.entry.opcode is not Opcode.DEPTHWISE:
        p.emit(x=constant(SHORTEST), word="low", when=When.FLAG_A)
        p.emit(x=constant(LONGEST), word="high", when=When.FLAG_A)
