# SPDX-License-Identifier: Apache-2.0
"""The conditions of steps, which depend on numbers that earlier steps load."""

from collections.abc import Mapping

from amaranth.hdl import Cat, Const, Value
from amaranth.lib import data

from systola.arch.isa import Function, Operation, Reduction
from systola.hdl.control.step_row import When


class Conditions(data.StructLayout):
    """The numbers and flags that conditions depend on: see Loads and Note."""

    def __init__(self) -> None:
        super().__init__(
            {
                "function": 3,
                "flag_a": 1,
                "flag_b": 1,
                "code": 2,
                "beyond": 1,
                "equal_a": 1,
                "equal_b": 1,
                "equal_c": 1,
            }
        )


def conditions(state: data.View, *, curves: bool = False) -> Mapping[When, Value]:
    """Return each condition as one bit; `state` is a view of Conditions.

    `curves`: the machine has curves, which are TABLE with int16 results, and tables of int32, which
    are QUOTIENT with COPY.
    """

    def one_of(*functions: Function) -> Value:
        return Cat(state.function == function for function in functions).any()

    rectifies = one_of(Function.RELU, Function.RELU6)
    quotient = one_of(Function.QUOTIENT)
    # Where there are curves, QUOTIENT has rows of its own.
    never = () if curves else (Function.QUOTIENT,)
    narrow = rectifies | one_of(Function.TABLE, *never) if never else rectifies
    wide = one_of(Function.SIGMOID, Function.TANH, Function.EXP, *never)
    second = state.code != Operation.COPY
    alike = state.flag_a == state.flag_b
    replaces = state.equal_a & alike
    limited = state.flag_a & ~state.equal_b & one_of(Function.NONE, Function.QUOTIENT)
    return {
        When.ALWAYS: Const(1, 1),
        When.NEVER: Const(0, 1),
        When.TABLE: state.function == Function.TABLE,
        When.RECTIFIES: rectifies & ~state.flag_a,
        When.CLAMPS: (state.function == Function.RELU6) & ~state.flag_a,
        When.HAS_BITS: one_of(Function.TANH, Function.EXP),
        When.MISFIT: (state.flag_a & narrow) | (~state.flag_a & wide),
        When.EXP: state.function == Function.EXP,
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
        When.CURVE: one_of(Function.TABLE) & state.flag_a,
        When.GATHERS: quotient & ~second,
        When.QUOTIENT: quotient,
        When.DIVIDES: quotient & second,
    }
