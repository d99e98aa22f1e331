# SPDX-License-Identifier: Apache-2.0
"""The ISA text's rules for an instruction word, in plain Python."""

from __future__ import annotations

from systola.arch.config import Config
from systola.arch.isa import (
    BY_OPCODE,
    CURVE_TABLES,
    DEPTHWISE_TAPS,
    LINK_OPCODES,
    LONG_TABLES,
    PARAMETER_PLANES,
    TABLE_BYTES,
    Fault,
    Function,
    Opcode,
    Operation,
    Reduction,
    Source,
)

COPIES_IN = (Opcode.READ_HOST_MEMORY, Opcode.READ_HOST_MEMORY_ALTERNATE)
COPIES_OUT = (Opcode.WRITE_HOST_MEMORY, Opcode.WRITE_HOST_MEMORY_ALTERNATE)
COPIES = (*COPIES_IN, *COPIES_OUT)
ALTERNATE = (Opcode.READ_HOST_MEMORY_ALTERNATE, Opcode.WRITE_HOST_MEMORY_ALTERNATE)
TRAINING = (Opcode.MEASURE, Opcode.TRANSPOSE, Opcode.RANDOM)
WINDOWED = (Opcode.CONVOLVE, Opcode.DEPTHWISE, Opcode.POOL)
SETTINGS = (Opcode.SET_CONFIG_WINDOW, Opcode.SET_CONFIG_SCALE)
NO_SCALE = {field.name: 0 for field in BY_OPCODE[Opcode.SET_CONFIG_SCALE].fields}
WEIGHT_QUEUE = (Fault.WEIGHT_UNDERFLOW, Fault.WEIGHT_OVERFLOW)
"""Checks that this model does not make."""

Fields = dict[str, int]
Region = tuple[int, int]


def word(opcode: Opcode, operands: Fields) -> int:
    """Return an instruction word with fields of any value; others have their default, or 0."""
    value = int(opcode)
    entry = BY_OPCODE[opcode]
    for field in entry.fields:
        bits = field.stored(operands.get(field.name, field.default or 0))
        value |= bits << entry.offset(field.name)
    return value


def reserved_mask(opcode: Opcode) -> int:
    """Return the bits of a word that must be zero."""
    return sum((1 << end) - (1 << start) for start, end in BY_OPCODE[opcode].reserved)


def operands_of(opcode: Opcode, bits: int) -> Fields:
    """Return the fields of a word, by name."""
    found: Fields = {}
    for field in BY_OPCODE[opcode].fields:
        stored = bits >> BY_OPCODE[opcode].offset(field.name) & ((1 << field.width) - 1)
        found[field.name] = field.loaded(stored)
    return found


class Reader:
    """A reader of words in the order of a program, with the window and the scale at each word."""

    def __init__(self, config: Config, *, limit: int, tiles: int):
        self.config = config
        self.limit = limit
        self.tiles = tiles
        self.window: Fields | None = None
        self.scale: Fields = dict(NO_SCALE)

    def execute(self, bits: int) -> None:
        """Keep the fields of a Set_Config_Window or Set_Config_Scale."""
        if bits & 0xFF == Opcode.SET_CONFIG_WINDOW:
            self.window = operands_of(Opcode.SET_CONFIG_WINDOW, bits)
        if bits & 0xFF == Opcode.SET_CONFIG_SCALE:
            self.scale = operands_of(Opcode.SET_CONFIG_SCALE, bits)

    def machine(self) -> Fields:
        """Return the fields of the Require_Machine that this machine accepts."""
        config = self.config
        array = {"rows": config.rows, "columns": config.cols}
        return array | {"host_bus": config.host_bus_bytes, "weight_bus": config.weight_bus_bytes}

    def pitch(self, opcode: Opcode) -> int:
        """Return the bytes of host memory from one vector to the next."""
        return self.config.output_pitch if opcode in COPIES_OUT else self.config.input_pitch

    def sizes(self) -> tuple[int, int, int]:
        """Return the lines of a map, the windows, and the taps of each window."""
        w = self.window
        assert w is not None
        return (
            w["height"] * w["pitch"],
            w["out_height"] * w["out_width"],
            w["kernel_height"] * w["kernel_width"],
        )

    def regions(self, opcode: Opcode, f: Fields) -> dict[str, Region]:
        """Return base and end of each region.

        The activation unit reads `source` and `operand`; `buffer` is any other lines.
        """
        found: dict[str, Region] = {}

        def use(name: str, field: str, count: int) -> None:
            found[name] = f[field], f[field] + count

        if opcode in WINDOWED:
            map_lines, windows, taps = self.sizes()
        if opcode in COPIES:
            use("buffer", "buffer", f["rows"] * f["blocks"])
            use("host", "host", (f["rows"] - 1) * f["stride"] + f["blocks"] * self.pitch(opcode))
        elif opcode == Opcode.LOAD_PARAMETERS:
            use("parameter", "parameter", f["count"])
            use("host", "host", f["count"] * PARAMETER_PLANES * self.config.output_pitch)
        elif opcode == Opcode.LOAD_TABLE:
            use("table", "table", 1)
            use("host", "host", TABLE_BYTES)
        elif opcode == Opcode.READ_WEIGHTS:
            use("tile", "tile", f["count"])
        elif opcode == Opcode.MATRIX_MULTIPLY:
            use("buffer", "buffer", f["rows"] * f["k_tiles"] * (1 + f["wide_vectors"]))
            use("accumulator", "accumulator", f["rows"] * f["n_tiles"])
            if f["from_buffer"]:
                tiles = f["k_tiles"] * f["n_tiles"] * (1 + f["wide_weights"])
                use("source", "weights", tiles * self.config.rows)
        elif opcode == Opcode.MEASURE:
            if f["source"] == Source.ACCUMULATORS:
                use("accumulator", "accumulator", f["rows"])
            elif f["source"] == Source.LINES:
                use("source", "buffer", 2 * f["rows"])
        elif opcode == Opcode.TRANSPOSE:
            size = self.config.cols
            use("source", "buffer", (f["count"] - 1) * f["step"] + size)
            use("buffer", "destination", f["count"] * size)
        elif opcode == Opcode.RANDOM:
            use("buffer", "destination", f["rows"])
        elif opcode in LINK_OPCODES:
            sums = opcode == Opcode.REDUCE or f.get("sums")
            name = "accumulator" if sums else "buffer"
            use(name, name, f["rows"])
        elif opcode == Opcode.CONVOLVE:
            use("buffer", "buffer", (f["k_tiles"] - 1) * f["plane"] + map_lines)
            use("accumulator", "accumulator", windows * f["n_tiles"])
        elif opcode == Opcode.ACTIVATE:
            use("accumulator", "accumulator", f["rows"] * f["n_tiles"])
            use("buffer", "buffer", f["rows"] * f["n_tiles"] * (1 + f["wide"]))
            use("parameter", "parameter", f["n_tiles"])
        elif opcode == Opcode.DEPTHWISE:
            use("source", "buffer", f["blocks"] * map_lines)
            use("operand", "taps", f["blocks"] * taps)
            use("buffer", "destination", f["blocks"] * windows)
            use("parameter", "parameter", f["blocks"])
        elif opcode == Opcode.POOL:
            use("source", "buffer", f["blocks"] * map_lines)
            use("buffer", "destination", f["blocks"] * windows)
            use("parameter", "parameter", taps if f["reduction"] == Reduction.AVERAGE else 1)
        elif opcode == Opcode.VECTOR:
            use("source", "buffer", f["rows"] * (1 + f["wide_operands"]))
            if f["operation"] != Operation.COPY:
                use("operand", "operand", f["rows"] * (1 + f["wide_operands"]))
            use("buffer", "destination", f["rows"] * (1 + f["wide"]))
            use("parameter", "parameter", 1)
        if opcode in (Opcode.ACTIVATE, Opcode.VECTOR) and f["function"] == Function.TABLE:
            use("table", "table", CURVE_TABLES if f["wide"] else 1)
        if opcode == Opcode.VECTOR and self._gathers(f):
            use("table", "table", LONG_TABLES)
        return found

    def _gathers(self, f: Fields) -> bool:
        """Return whether a Vector takes its sums from a table of int32."""
        return f["function"] == Function.QUOTIENT and f["operation"] == Operation.COPY

    def consumed(self, opcode: Opcode, f: Fields) -> int:
        """Return the number of weight tiles that a MatrixMultiply or Convolve consumes."""
        tiles = f["k_tiles"] * f["n_tiles"]
        if opcode == Opcode.MATRIX_MULTIPLY:
            return 0 if f["from_buffer"] else tiles * (1 + f["wide_weights"])
        assert self.window is not None
        return tiles * (self.window["kernel_height"] if f["channels"] else self.sizes()[2])

    def fault(self, bits: int, *, error: int = 0, loops: int | None = None) -> tuple[Fault, int]:
        """Return cause and address for an instruction word; NONE and 0 if it is legal.

        `loops` is the number of open loops if check LOOP fails.
        """
        if error:
            return Fault.FETCH_ERROR, 0
        number = bits & 0xFF
        if number in LINK_OPCODES and not self.config.links:
            return Fault.UNAVAILABLE, number
        if number not in set(Opcode):
            return Fault.ILLEGAL_OPCODE, number
        opcode = Opcode(number)
        f = operands_of(opcode, bits)
        if bits & reserved_mask(opcode) or self._illegal(opcode, f):
            return Fault.ILLEGAL_FIELD, 0
        for cause in BY_OPCODE[opcode].checks:
            address = None
            if cause == Fault.LOOP:
                address = loops
            elif cause == Fault.UNAVAILABLE:
                address = number if self._unavailable(opcode, f) else None
            elif cause == Fault.OTHER_MACHINE:
                address = None if f == self.machine() else 0
            elif cause == Fault.WINDOW:
                address = 0 if self._window_misfits(opcode, f) else None
            elif cause not in WEIGHT_QUEUE:
                address = self._out_of_range(cause, opcode, f)
            if address is not None:
                return cause, address
        return Fault.NONE, 0

    def _illegal(self, opcode: Opcode, f: Fields) -> bool:
        for field in BY_OPCODE[opcode].fields:
            if field.minimum is not None and f[field.name] < field.minimum:
                return True
            if field.values is not None and f[field.name] not in list(field.values):
                return True
        bus = self.config.host_bus_bytes
        if f.get("host", 0) % bus or f.get("stride", 0) % bus:
            return True
        longest = self.config.cols if opcode in COPIES_OUT else self.config.rows
        if f.get("tail", 1) > longest:
            return True
        function = f.get("function", Function.NONE)
        if opcode == Opcode.DEPTHWISE:
            return function == Function.TABLE
        if opcode in (Opcode.ACTIVATE, Opcode.VECTOR):
            if function == Function.QUOTIENT and not (
                (self.config.training and f.get("operation") == Operation.MULTIPLY)
                or (self.config.attention and f.get("operation") == Operation.COPY)
            ):
                return True
            if f["wide"]:
                if function in (Function.RELU, Function.RELU6):
                    return True
                if function == Function.TABLE and not self.config.attention:
                    return True
            elif f["accumulate"] or function in (Function.SIGMOID, Function.TANH, Function.EXP):
                return True
            if f.get("stochastic") and not self.config.training:
                return True
            most = 6 if function == Function.EXP and self.config.training else 4
            return function in (Function.TANH, Function.EXP) and f["table"] > most
        return False

    def _unavailable(self, opcode: Opcode, f: Fields) -> bool:
        trains = opcode in TRAINING
        if opcode == Opcode.MATRIX_MULTIPLY:
            trains = bool(f["from_buffer"])
        if opcode in (Opcode.ACTIVATE, Opcode.VECTOR):
            trains = bool(f["exponent"]) or f["function"] == Function.EXP
        flags = ("wide", "wide_operands", "wide_vectors", "wide_weights")
        is_table = opcode == Opcode.LOAD_TABLE or (
            opcode != Opcode.DEPTHWISE and f.get("function") == Function.TABLE
        )
        return (
            (not self.config.wide and any(f.get(flag) for flag in flags))
            or (not self.config.tables and is_table)
            or (not self.config.depthwise and opcode == Opcode.DEPTHWISE)
            or (not self.config.training and trains)
        )

    def _window_misfits(self, opcode: Opcode, f: Fields) -> bool:
        w, rows = self.window, self.config.rows
        if w is None:
            return True
        if channels := f.get("channels", 0):
            return not (
                f["k_tiles"] == 1
                and w["dilation_x"] == 1
                and w["kernel_width"] * channels <= rows
                and w["stride_x"] * channels <= rows
                and -rows <= w["left"] * channels < rows
                and w["width"] * channels <= rows * w["pitch"]
            )
        too_many = opcode == Opcode.DEPTHWISE and self.sizes()[2] > DEPTHWISE_TAPS
        return too_many or w["width"] > w["pitch"]

    def _out_of_range(self, cause: Fault, opcode: Opcode, f: Fields) -> int | None:
        regions = self.regions(opcode, f)
        if cause == Fault.OVERLAP:
            base, end = regions["buffer"]
            for name in ("source", "operand"):
                first, behind = regions.get(name, (0, 0))
                same = opcode == Opcode.VECTOR and (first, behind) == (base, end)
                if first < end and base < behind and not same:
                    return base
            return None
        names, limit = {
            Fault.BUFFER_RANGE: (
                ("buffer", "source")
                if opcode == Opcode.MATRIX_MULTIPLY
                else ("source", "operand", "buffer"),
                self.config.buffer_lines,
            ),
            Fault.ACCUMULATOR_RANGE: (("accumulator",), self.config.accumulator_rows),
            Fault.PARAMETER_RANGE: (("parameter",), self.config.parameter_entries),
            Fault.TABLE_RANGE: (("table",), self.config.tables),
            Fault.HOST_WINDOW: (("host",), self.limit),
            Fault.WEIGHT_WINDOW: (("tile",), self.tiles),
        }[cause]
        for name in names:
            base, end = regions.get(name, (0, 0))
            if end > limit:
                return base
        return None
