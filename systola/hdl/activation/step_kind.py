# SPDX-License-Identifier: Apache-2.0
"""The facts about an instruction of the activation unit that all of its steps share."""

from amaranth.hdl import Const, Value, ValueLike
from amaranth.lib import data

from systola.arch.config import Config
from systola.arch.isa import Operation
from systola.hdl.activation.spacings import TAP_SPACING
from systola.hdl.commands import OTHER, Source, is_curve, is_gate, most_taps

HALF = 1 << 30
"""Multiplier that stands for a scale of one half, if the shift is 0."""


class StepKind(data.StructLayout):
    """A layout with the facts about an instruction that its steps depend on.

    | field               | meaning |
    |---|---|
    | `from_accumulators` | the vectors come from accumulator rows |
    | `from_map`          | the vectors come from a feature map |
    | `depthwise`         | a block begins with the phase TAPS: Depthwise, or a `relative` command |
    | `addend_first`      | a vector begins with the phase ADDEND |
    | `has_operand`       | a vector has operand b |
    | `elements_end`      | the last element of a vector is its last step |
    | `one_line`          | one line of operand b completes a vector |
    | `two_lines`         | a vector reads one line and writes two |
    | `gate`              | the function is one of GATES |
    | `other`             | the function is OTHER: no result is requantised |
    | `scaled`            | the requantisers scale the operands |
    | `halved_a`          | operand a is int8 and has a scale of one half |
    | `halved_b`          | operand b is int8 and has a scale of one half |
    | `one_tap`           | the phase TAPS has one step |
    | `few_taps`          | a block has at most TAP_SPACING taps, so a pause follows the loads |
    | `last_but_one`      | number of the last tap but one, counted from 0 |
    | `few_lines`         | a vector has one element, which takes one step; with training |
    | `curve`             | the function is a curve, with attention |
    """

    def __init__(self, *, config: Config):
        facts = (
            *("from_accumulators", "from_map", "depthwise", "addend_first", "has_operand"),
            *("elements_end", "one_line", "two_lines", "gate", "other", "scaled"),
            *("halved_a", "halved_b", "one_tap", "few_taps"),
        )
        super().__init__(
            {
                **dict.fromkeys(facts, 1),
                "last_but_one": range(most_taps(config) + 1),
                **({"few_lines": 1} if config.training else {}),
                **({"curve": 1} if config.attention else {}),
            }
        )


def pairs_of(config: Config, command: data.View) -> Value:
    """Return whether one step reads both lines of each int16 operand and addend."""
    return command.paired if config.reads_pairs else Const(0, 1)


def halves_of(config: Config, command: data.View) -> Value:
    """Return whether the two lines of an int16 operand are read in two steps."""
    return command.wide_operands & ~pairs_of(config, command)


def kind_of(config: Config, command: data.View) -> dict[str, ValueLike]:
    """Return the fields of StepKind for an ActivateCommand."""
    halves = halves_of(config, command)
    sums = command.source == Source.ACCUMULATORS
    vector = command.source == Source.VECTOR
    adds = (command.operation == Operation.ADD) | (command.operation == Operation.SUBTRACT)
    has_operand = vector & (command.operation != Operation.COPY)
    scale = command.scale
    halved = {
        operand: (scale[f"multiplier_{operand}"] == HALF)
        & (scale[f"shift_{operand}"] == 0)
        & ~command.wide_operands
        for operand in "ab"
    }
    begins_with_taps: Value = command.source == Source.DEPTHWISE
    one_tap: Value = command.taps == 1
    few_taps: Value = command.taps <= TAP_SPACING
    if config.attention:
        # A `relative` command first reads the line that it subtracts from all vectors, in the phase
        # TAPS. The lanes can use this line at once, so no pause follows.
        begins_with_taps |= command.relative
        one_tap |= command.relative
        few_taps &= ~command.relative
    return {
        "from_accumulators": sums,
        "from_map": ~sums & ~vector,
        "depthwise": begins_with_taps,
        "addend_first": sums & command.accumulate,
        "has_operand": has_operand,
        "elements_end": ~has_operand & (~command.accumulate | sums),
        "one_line": has_operand & ~halves & ~command.accumulate,
        "two_lines": command.wide & ~has_operand & ~halves,
        "gate": is_gate(command.function),
        "other": command.function == OTHER,
        "scaled": vector & adds,
        **{f"halved_{operand}": value for operand, value in halved.items()},
        "one_tap": one_tap,
        "few_taps": few_taps,
        "last_but_one": command.taps - 2,
        **({"few_lines": ~has_operand & ~halves} if config.training else {}),
        **({"curve": is_curve(command)} if config.attention else {}),
    }
