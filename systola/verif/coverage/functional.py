# SPDX-License-Identifier: Apache-2.0
"""Bins (cases to cover) of the instruction set, and a golden model that counts their hits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import product

import numpy as np
from numpy.typing import NDArray

from systola.arch.config import Config
from systola.arch.isa import (
    BY_OPCODE,
    GATES,
    INSTRUCTION_BYTES,
    INSTRUCTIONS,
    INVERSE_ROOT,
    LOOP_DEPTH,
    RECIPROCAL,
    REGISTERS,
    TANH_INTEGER_BITS,
    Fault,
    Field,
    Function,
    Instruction,
    Opcode,
    Operation,
    Reduction,
    Rounding,
    decode,
)
from systola.golden.machine import Machine
from systola.golden.outcome import Outcome
from systola.golden.ranges import is_partition, one_line
from systola.golden.window import UNSET, Window
from systola.verif.coverage.hazards import Hazards, hazard_bins

_VALUES = frozenset(
    (
        *("code", "tag", "wait", "value", "fill", "zero_point", "ceiling", "floor"),
        *("multiplier_a", "multiplier_b", "shift_a", "shift_b", "zero_a", "zero_b", "limit"),
    )
)
"""Names of fields that hold numbers to compute with. All other fields hold addresses and sizes."""
_OUTSIDE = (
    *(Fault.HOST_READ_ERROR, Fault.HOST_WRITE_ERROR, Fault.WEIGHT_READ_ERROR),
    *(Fault.FETCH_ERROR, Fault.BUS_TIMEOUT, Fault.MEMORY_ERROR),
)
"""Faults with a cause outside the program, so that the golden model cannot predict them."""
_NARROW = (Function.NONE, Function.RELU, Function.RELU6, Function.TABLE)
_WIDE = (Function.NONE, *GATES)
_SCALED = (Function.TANH, Function.EXP)
"""Functions for which the field `table` gives the number of integer bits of the argument."""
_RECIPROCALS = {RECIPROCAL: "1/x", INVERSE_ROOT: "1/sqrt(x)"}
"""Names of functions, by the value of the field `table` that selects each in place of EXP."""
_RECTIFIERS = (Function.NONE, Function.RELU, Function.RELU6)


def functional_bins() -> dict[str, list[str]]:
    """Return the names of all bins of the instruction set, by group."""
    return {
        "opcodes": [entry.mnemonic for entry in INSTRUCTIONS],
        "fields": [name for entry in INSTRUCTIONS for name in _field_bins(entry)],
        "modes": list(_mode_bins()),
        "windows": list(_WINDOWS),
        "control": list(_control_bins()),
        "faults": list(_fault_bins()),
        "hazards": list(hazard_bins()),
    }


def _field_bins(entry: Instruction) -> Iterator[str]:
    for field in _watched(entry):
        for corner in _corners(field):
            if (entry.opcode, corner) == (Opcode.DEPTHWISE, "table"):
                continue  # a Depthwise may not use a table
            yield f"{entry.mnemonic} {field.name}: {corner}"


def _watched(entry: Instruction) -> Iterator[Field]:
    if entry.opcode == Opcode.REQUIRE_MACHINE:
        return  # only one value of each field is legal on a machine
    for field in entry.fields:
        # The group "control" has the bins for the number of a loop's iterations.
        if (entry.opcode, field.name) != (Opcode.LOOP, "count"):
            yield field


def _corners(field: Field) -> tuple[str, ...]:
    if field.values is not None:
        return tuple(value.name.lower() for value in field.values if _fits(field, value))
    if field.indexes:
        return ("register 0", "another register")
    if field.width == 1:
        return ("0", "1")
    if field.name in _VALUES:
        return ("least", "zero", "between", "most") if field.signed else ("zero", "between", "most")
    return ("negative", "zero", "positive") if field.signed else ("least", "more")


def _fits(field: Field, value: int) -> bool:
    low, high = field.range
    return low <= value <= high


def _corner(field: Field, value: int) -> str:
    if field.values is not None:
        return field.values(value).name.lower()
    if field.indexes:
        return "another register" if value else "register 0"
    if field.width == 1:
        return str(value)
    low, high = field.range
    if field.name in _VALUES:
        if value == 0:
            return "zero"
        return "least" if value == low else "most" if value == high else "between"
    if field.signed:
        return "negative" if value < 0 else "positive" if value else "zero"
    return "least" if value == low else "more"


def _mode_bins() -> Iterator[str]:
    for opcode in (Opcode.ACTIVATE, Opcode.VECTOR):
        for rounding in Rounding:
            for function in _NARROW:
                yield _mode(opcode, function, rounding, "int8")
            for function, added in product(_WIDE, ("", " added")):
                yield _mode(opcode, function, rounding, f"int16{added}")
        for bits in range(TANH_INTEGER_BITS + 1):
            for function in _SCALED:
                yield f"{opcode.name.lower()} {function.name.lower()} of {bits} integer bits"
        for name in _RECIPROCALS.values():
            yield f"{opcode.name.lower()} {name}"
        for rounding, added in product(Rounding, ("", " added")):
            yield _mode(opcode, Function.TABLE, rounding, f"int16{added}")
    for size in ("int8", "int16", "int16 added"):
        yield f"activate stochastic {size}"
        for rounding in Rounding:
            yield _mode(Opcode.VECTOR, Function.QUOTIENT, rounding, size)
    for operation, operands, results in product((*Operation, Function.QUOTIENT), _SIZES, _SIZES):
        yield f"vector {operation.name.lower()} {operands} to {results}"
    for operands, results in product(_SIZES, _SIZES):
        yield f"vector {_LOOK_UP} {operands} to {results}"
    for results in _SIZES:
        yield f"vector {_RELATIVE} int8 to {results}"
    yield f"vector {_RELATIVE} over its line"
    for vectors in _FEW:
        yield f"vector partition of {vectors}"
    for function, rounding in product(_RECTIFIERS, Rounding):
        yield _mode(Opcode.DEPTHWISE, function, rounding, "int8")
    for reduction, rounding in product(Reduction, Rounding):
        yield f"pool {reduction.name.lower()} {rounding.name.lower()}"
    for vectors, weights, added in product(_SIZES, _SIZES, ("", " added")):
        yield f"matrix_multiply {vectors} by {weights}{added}"
    for tiles, added in product(("1 x 1", "k x 1", "1 x n", "k x n"), ("", " added")):
        yield f"matrix_multiply {tiles}{added}"
        yield f"convolve {tiles}{added}"
    for packed, added in product(("1 channel", "some channels"), ("", " added")):
        yield f"convolve {packed}{added}"
    for copy in _COPIES:
        for rows, blocks, tail in product(_FEW, _FEW, ("whole", "part")):
            yield f"{copy} {rows} row, {blocks} block, {tail} tail"
        for stride in ("rows apart", "rows that touch", "rows that overlap", "stride 0"):
            yield f"{copy} {stride}"
    for replaced in ("a", "b"):
        yield f"vector replaces {replaced}"


_LOOK_UP = "copy by a table of int32"
_RELATIVE = "less one line by a table of int32"
_SIZES = ("int8", "int16")
_FEW = ("one", "more")
_COPIES = tuple(
    f"{way}_host_memory{alternate}"
    for way, alternate in product(("read", "write"), ("", "_alternate"))
)


def _mode(opcode: Opcode, function: int, rounding: int, size: str) -> str:
    name = opcode.name.lower()
    return f"{name} {Function(function).name.lower()} {Rounding(rounding).name.lower()} {size}"


_WINDOWS: dict[str, Callable[[Window], bool]] = {
    "padding above": lambda w: w.top < 0,
    "padding below": lambda w: (
        _last(w.top, w.out_height, w.stride_y, w.kernel_height, w.dilation_y) >= w.height
    ),
    "padding on the left": lambda w: w.left < 0,
    "padding on the right": lambda w: (
        _last(w.left, w.out_width, w.stride_x, w.kernel_width, w.dilation_x) >= w.width
    ),
    "windows wholly above": lambda w: w.top + (w.kernel_height - 1) * w.dilation_y < 0,
    "windows wholly below": lambda w: w.top + (w.out_height - 1) * w.stride_y >= w.height,
    "windows wholly left": lambda w: w.left + (w.kernel_width - 1) * w.dilation_x < 0,
    "windows wholly right": lambda w: w.left + (w.out_width - 1) * w.stride_x >= w.width,
    "steps of rows": lambda w: w.stride_y > 1,
    "steps of columns": lambda w: w.stride_x > 1,
    "gaps between rows": lambda w: w.dilation_y > 1,
    "gaps between columns": lambda w: w.dilation_x > 1,
    "one tap": lambda w: w.taps == 1,
    "a flat kernel": lambda w: w.kernel_height == 1 < w.kernel_width,
    "a narrow kernel": lambda w: w.kernel_width == 1 < w.kernel_height,
    "one window": lambda w: w.windows == 1,
    "a map of one pixel": lambda w: w.height == w.width == 1,
    "lines between rows": lambda w: w.pitch > w.width,
}
"""Kinds of windows over feature maps, by name, each with its condition.

A kind is covered by a Convolve, Depthwise or Pool with such a window.
"""


def _last(start: int, windows: int, step: int, taps: int, gap: int) -> int:
    return start + (windows - 1) * step + (taps - 1) * gap


def _control_bins() -> Iterator[str]:
    for depth in range(1, LOOP_DEPTH + 1):
        yield f"{depth} loops open"
    yield from ("a loop of one pass", "a loop of more passes", "an empty loop")
    yield "a loop body that fits the instruction buffer"
    yield "a loop body that does not fit"
    yield "a register that wraps around"
    yield "an operand that wraps around"


def _fault_bins() -> Iterator[str]:
    yield _fault(Fault.ILLEGAL_OPCODE, None)
    yield _fault(Fault.FETCH_WINDOW, None)
    for cause in _OUTSIDE:
        yield _fault(cause, None)
    for entry in INSTRUCTIONS:
        for cause in (Fault.ILLEGAL_FIELD, *entry.checks):
            yield _fault(cause, entry.opcode)
    yield "in a later pass of a loop"


def _fault(cause: Fault, opcode: Opcode | None) -> str:
    place = f" of {opcode.name.lower()}" if opcode is not None else ""
    return f"{cause.name.lower()}{place}"


def outside_fault_bin(cause: Fault) -> str | None:
    """Return the bin of a fault that the golden model cannot predict, None for any other fault."""
    return f"faults: {_fault(cause, None)}" if cause in _OUTSIDE else None


class Observer(Machine):
    """A golden model that counts in `hits` the bins, as "group: bin", that programs hit."""

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.hits: Counter[str] = Counter()
        self._offset = 0
        self._hazards = Hazards(config)
        self._again = False
        self._bodies: list[int] = []
        self._held: list[int] = []
        for opcode, function in self._execute.items():
            self._execute[opcode] = partial(self._observe, opcode, function)

    def run(
        self,
        host: NDArray[np.uint8],
        weights: NDArray[np.uint8],
        program_offset: int,
        *,
        limit: int | None = None,
    ) -> Outcome:
        """Run a program as the golden model does, and count the bins that it hits."""
        self._offset = program_offset
        self._hazards = Hazards(self.config)
        self._again, self._bodies = False, []
        self._held = [0] * REGISTERS
        outcome = super().run(host, weights, program_offset, limit=limit)
        if outcome.fault is not None:
            self._note_fault(outcome.fault.cause, outcome.fault.pc)
        return outcome

    def _hit(self, group: str, name: str) -> None:
        self.hits[f"{group}: {name}"] += 1

    def _note_fault(self, cause: Fault, pc: int) -> None:
        place = self._offset + pc * INSTRUCTION_BYTES
        decoded = decode(self._host[place : place + INSTRUCTION_BYTES].tobytes())
        at_once = cause in (Fault.ILLEGAL_OPCODE, Fault.FETCH_WINDOW)
        opcode = None if at_once or decoded is None else decoded[0].opcode
        self._hit("faults", _fault(cause, opcode))
        if self._again:
            self._hit("faults", "in a later pass of a loop")

    def _observe(self, opcode: Opcode, execute: Callable[..., None], /, **operands: int) -> None:
        entry = BY_OPCODE[opcode]
        self._hit("opcodes", entry.mnemonic)
        place = self._offset + (self._next - 1) * INSTRUCTION_BYTES
        decoded = decode(self._host[place : place + INSTRUCTION_BYTES].tobytes())
        assert decoded is not None
        for field in _watched(entry):
            value = decoded[1][field.name] if field.indexes else operands[field.name]
            self._hit("fields", f"{entry.mnemonic} {field.name}: {_corner(field, value)}")
            if field.indexes and operands[field.indexes] < decoded[1][field.indexes]:
                self._hit("control", "an operand that wraps around")
        for name in self._modes(opcode, operands):
            self._hit("modes", name)
        window = self._window
        if opcode in (Opcode.CONVOLVE, Opcode.DEPTHWISE, Opcode.POOL):
            for name, holds in _WINDOWS.items():
                if holds(window):
                    self._hit("windows", name)
        for name in self._hazards.bins(opcode, operands, window or UNSET):
            self._hit("hazards", name)
        self._control(opcode, operands)
        execute(**operands)

    def _modes(self, opcode: Opcode, at: Mapping[str, int]) -> Iterator[str]:
        name = opcode.name.lower()
        added = " added" if at.get("accumulate") else ""
        if opcode == Opcode.VECTOR and is_partition(at["accumulate"], at["wide"]):
            yield f"vector partition of {_FEW[at['rows'] > 1]}"
            return
        if opcode in (Opcode.ACTIVATE, Opcode.VECTOR):
            size = f"int16{added}" if at["wide"] else "int8"
            yield _mode(opcode, at["function"], at["rounding"], size)
            if at.get("stochastic"):
                yield f"activate stochastic {size}"
            if at["function"] in _SCALED:
                which = f"{Function(at['function']).name.lower()} of {at['table']} integer bits"
                yield f"{name} {_RECIPROCALS.get(at['table'], which)}"
        match opcode:
            case Opcode.VECTOR:
                operation = Operation(at["operation"])
                divides = at["function"] == Function.QUOTIENT
                computed = (Function.QUOTIENT if divides else operation).name.lower()
                once = one_line(operation, at["function"])
                if divides and operation == Operation.COPY:
                    computed = _LOOK_UP
                if once:
                    computed = _RELATIVE
                    written = range(at["destination"], at["destination"] + at["rows"])
                    if at["operand"] in written:
                        yield f"vector {_RELATIVE} over its line"
                sizes = _SIZES[at["wide_operands"]], _SIZES[at["wide"]]
                yield f"vector {computed} {sizes[0]} to {sizes[1]}"
                if at["destination"] == at["buffer"]:
                    yield "vector replaces a"
                two = operation != Operation.COPY and not once
                if two and at["destination"] == at["operand"]:
                    yield "vector replaces b"
            case Opcode.DEPTHWISE:
                yield _mode(opcode, at["function"], at["rounding"], "int8")
            case Opcode.POOL:
                reduction, rounding = Reduction(at["reduction"]), Rounding(at["rounding"])
                yield f"pool {reduction.name.lower()} {rounding.name.lower()}"
            case Opcode.MATRIX_MULTIPLY | Opcode.CONVOLVE:
                k, n = ("1" if at[f"{x}_tiles"] == 1 else x for x in "kn")
                yield f"{name} {k} x {n}{added}"
                if opcode == Opcode.MATRIX_MULTIPLY:
                    sizes = _SIZES[at["wide_vectors"]], _SIZES[at["wide_weights"]]
                    yield f"{name} {sizes[0]} by {sizes[1]}{added}"
                elif at["channels"]:
                    some = "1 channel" if at["channels"] == 1 else "some channels"
                    yield f"{name} {some}{added}"
            case _ if name in _COPIES:
                yield from self._copy_modes(name, at)
            case _:
                pass

    def _copy_modes(self, name: str, at: Mapping[str, int]) -> Iterator[str]:
        config, reads = self.config, name.startswith("read")
        vector = config.rows if reads else config.cols
        pitch = config.input_pitch if reads else config.output_pitch
        rows, blocks = (_FEW[at[size] > 1] for size in ("rows", "blocks"))
        tail = "whole" if at["tail"] == vector else "part"
        yield f"{name} {rows} row, {blocks} block, {tail} tail"
        if at["rows"] > 1:
            extent = at["blocks"] * pitch
            if at["stride"] == 0:
                yield f"{name} stride 0"
            elif at["stride"] < extent:
                yield f"{name} rows that overlap"
            else:
                touch = "rows that touch" if at["stride"] == extent else "rows apart"
                yield f"{name} {touch}"

    def _control(self, opcode: Opcode, at: Mapping[str, int]) -> None:
        match opcode:
            case Opcode.LOOP:
                self._bodies.append(self._next)
                self._hit("control", f"{len(self._bodies)} loops open")
                passes = "one pass" if at["count"] == 1 else "more passes"
                self._hit("control", f"a loop of {passes}")
            case Opcode.END_LOOP:
                length = self._next - self._bodies[-1]
                if length == 1:
                    self._hit("control", "an empty loop")
                fits = length <= self.config.instruction_buffer
                self._hit(
                    "control",
                    "a loop body that fits the instruction buffer"
                    if fits
                    else "a loop body that does not fit",
                )
            case Opcode.SET_REGISTER:
                total = self._held[at["first"]] + self._held[at["second"]] + at["value"]
                self._held[at["register"]] = total % (1 << 32)
                if not 0 <= total < 1 << 32:
                    self._hit("control", "a register that wraps around")
            case _:
                pass

    def end_loop(self) -> None:
        """End a pass of a loop as the golden model does, and note if another pass of it follows."""
        behind = self._next
        super().end_loop()
        if self._next != behind:
            self._again = True
            return
        self._bodies.pop()
        self._again = self._again and bool(self._bodies)
