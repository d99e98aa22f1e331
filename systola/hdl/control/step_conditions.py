# SPDX-License-Identifier: Apache-2.0
"""The conditions of the sequenced decoder's steps.

A condition depends on fields of the instruction and on flags, which earlier steps load or set.
"""

from collections.abc import Mapping

from amaranth.hdl import Cat, Const, Mux, Value
from amaranth.lib import data

from systola.arch.config import Config
from systola.arch.isa import (
    BY_OPCODE,
    INVERSE_ROOT,
    TANH_INTEGER_BITS,
    Function,
    Opcode,
    Operation,
    Reduction,
    Source,
)
from systola.hdl.control.step_row import Loads, When


class Conditions(data.StructLayout):
    """A layout of the numbers and flags that conditions depend on.

    | field | meaning |
    |---|---|
    | `flag_a` | the field `wide` or `wide_vectors`; in a Send, `sums` |
    | `flag_b` | the field `wide_operands` or `wide_weights` |
    | `trains` | the instruction needs training: it has an exponent register, or weights from the
                 buffer |
    | `code` | the field `operation`, `reduction` or `source` |
    | `beyond`, `equal_a`, `equal_b`, `equal_c` | flags that steps set, see `step_row.Note` |

    All other fields are loaded from the instruction's fields of the same names.
    """

    def __init__(self) -> None:
        super().__init__(
            {
                "function": 3,
                "table": 4,
                "flag_a": 1,
                "flag_b": 1,
                "accumulate": 1,
                "trains": 1,
                "code": 2,
                "beyond": 1,
                "equal_a": 1,
                "equal_b": 1,
                "equal_c": 1,
            }
        )


def loaded(loads: Loads, word: Value) -> Mapping[str, Value]:
    """Return the fields of Conditions that a step loads from the lowest bits of the instruction
    word.
    """
    entries = {
        Loads.ACTIVATE: BY_OPCODE[Opcode.ACTIVATE],
        Loads.VECTOR: BY_OPCODE[Opcode.VECTOR],
        Loads.MATRIX: BY_OPCODE[Opcode.MATRIX_MULTIPLY],
        Loads.MAP: BY_OPCODE[Opcode.DEPTHWISE],
        Loads.MEASURE: BY_OPCODE[Opcode.MEASURE],
        Loads.SEND: BY_OPCODE[Opcode.SEND],
    }
    if loads not in entries:
        return {}
    entry = entries[loads]
    found: dict[str, Value] = {
        name: Const(0)
        for name in ("function", "table", "flag_a", "flag_b", "accumulate", "trains", "code")
    }
    for field in entry.fields:
        place = entry.offset(field.name)
        if field.name in _PARTS and place + field.width <= len(word):
            bits = word[place : place + field.width]
            for part in _PARTS[field.name]:
                found[part] = bits.any() if part == "trains" else bits
    if loads is Loads.MAP:
        # A Pool has `reduction` in the bits in which a Depthwise has `function`.
        found["code"] = found["function"]
    if loads is Loads.ACTIVATE:
        # An Activate has no field `operation`, so SUBTRACT stands in its place. With SUBTRACT the
        # function QUOTIENT is a MISFIT, as it must be for an Activate.
        found["code"] = Const(Operation.SUBTRACT)
    return found


_PARTS: Mapping[str, tuple[str, ...]] = {
    "function": ("function",),
    "table": ("table",),
    "accumulate": ("accumulate",),
    "exponent": ("trains",),
    "from_buffer": ("trains",),
    "wide": ("flag_a",),
    "wide_vectors": ("flag_a",),
    "sums": ("flag_a",),
    "wide_operands": ("flag_b",),
    "wide_weights": ("flag_b",),
    "operation": ("code",),
    "source": ("code",),
}
"""Fields of an instruction, and the fields of Conditions that they are loaded into."""


def conditions(state: data.View, config: Config) -> Mapping[When, Value]:
    """Return each condition as one bit; `state` is a view of Conditions.

    Condition MISFIT: fields of Activate or Vector contradict each other. Condition LACKS: the
    instruction needs hardware that the machine does not have.
    """

    def one_of(*functions: Function) -> Value:
        return Cat(state.function == function for function in functions).any()

    rectifies = one_of(Function.RELU, Function.RELU6)
    table, quotient = (state.function == f for f in (Function.TABLE, Function.QUOTIENT))
    # `narrow`: the function gives no int16 results. With attention, a TABLE may give them: it is
    # then a curve.
    narrow = rectifies if config.attention else rectifies | table
    wide = one_of(Function.SIGMOID, Function.TANH, Function.EXP)
    most = TANH_INTEGER_BITS
    misfit = Mux(state.flag_a, narrow, wide | state.accumulate)
    misfit |= (state.function == Function.TANH) & (state.table > most)
    misfit |= (state.function == Function.EXP) & (
        state.table > (INVERSE_ROOT if config.training else most)
    )
    quotients: Value = Const(0, 1)
    if config.training:
        quotients |= state.code == Operation.MULTIPLY
    adds = state.code == Operation.ADD
    relative: Value = quotient & adds if config.attention else Const(0, 1)
    partition: Value = Const(0, 1)
    if config.attention:
        quotients |= (state.code == Operation.COPY) | (adds & ~state.flag_b)
        partition = relative & state.accumulate & ~state.flag_a
        misfit &= ~partition
    misfit |= quotient & ~quotients
    lacks: Value = Const(0, 1)
    if not config.wide:
        lacks |= state.flag_a | state.flag_b
    if not config.tables:
        lacks |= table
    if not config.training:
        lacks |= state.trains | (state.function == Function.EXP)
    second = (state.code != Operation.COPY) & ~relative
    alike = state.flag_a == state.flag_b
    # A partition writes no line, so it overlaps none.
    replaces = (state.equal_a & alike) | partition
    limited = state.flag_a & ~state.equal_b & one_of(Function.NONE, Function.QUOTIENT)
    return {
        When.ALWAYS: Const(1, 1),
        When.NEVER: Const(0, 1),
        When.TABLE: table,
        When.RECTIFIES: rectifies & ~state.flag_a,
        When.CLAMPS: (state.function == Function.RELU6) & ~state.flag_a,
        When.MISFIT: misfit,
        When.LACKS: lacks,
        When.FLAG_A: state.flag_a,
        When.FLAG_B: state.flag_b,
        When.NOT_A: ~state.flag_a,
        When.SECOND: second,
        When.SECOND_AND_B: second & state.flag_b,
        When.AVERAGE: state.code == Reduction.AVERAGE,
        When.LINEAR: state.equal_b | (state.equal_c & state.equal_a),
        When.LINEAR_ALTERNATE: state.equal_b | state.equal_a,
        When.OVERLAPS: state.beyond,
        When.REPLACES_NOT: state.beyond & ~replaces,
        When.SECOND_REPLACES_NOT: second & state.beyond & ~replaces,
        When.NOT_PACKED: state.equal_a,
        When.INSIDE: state.beyond,
        When.LIMITED: limited,
        When.FROM_BUFFER: state.trains,
        When.NO_SOURCE: state.code == Source.NONE,
        When.FROM_ROWS: state.code == Source.ACCUMULATORS,
        When.FROM_LINES: state.code == Source.LINES,
        When.CURVE: table & state.flag_a,
        When.GATHERS: quotient & (state.code != Operation.MULTIPLY),
        When.RELATIVE: relative,
        When.WRITES_LINES: ~partition,
    }
