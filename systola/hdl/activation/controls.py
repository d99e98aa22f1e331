# SPDX-License-Identifier: Apache-2.0
"""Layouts of the control signals that go with each line and each vector through the lanes."""

from amaranth.hdl import signed
from amaranth.lib import data
from amaranth.utils import bits_for

from systola.arch.config import Config
from systola.arch.isa import DEPTHWISE_TAPS
from systola.hdl.activation.activation_lane import ScalingControl
from systola.hdl.activation.requantiser import SHIFT_BITS
from systola.hdl.activation.vector_lane import ElementControl, SumControl
from systola.hdl.commands import address_bits


class LineControl(data.StructLayout):
    """A control that accompanies a buffer line through the front of the lanes.

    | field        | meaning |
    |---|---|
    | `pair`       | the low bytes of an int16 come with its high bytes, if the machine
                     `reads_pairs` |
    | `load_tap`   | the line has the weights of a tap, which are loaded |
    | `load_tile`  | the line belongs to a tile that is transposed |
    | `load_seed`  | a seed is loaded |
    | `tap`        | number of the tap that is loaded or used |
    | `outside`    | zeros take the place of the line |
    | `element`    | control of the elements |
    | `scaling`    | control of the elements at the requantiser |
    | `shift`      | right shift of scaled elements |
    | `multiplier` | multiplier of scaled elements |
    | `summing`    | control of the sums |
    """

    def __init__(self, *, config: Config) -> None:
        super().__init__(
            {
                **({"pair": 1} if config.reads_pairs else {}),
                "load_tap": 1,
                "load_tile": 1,
                "load_seed": 1,
                "tap": range(DEPTHWISE_TAPS),
                "outside": 1,
                "element": ElementControl(config=config),
                "scaling": ScalingControl(),
                "shift": SHIFT_BITS,
                "multiplier": 31,
                "summing": SumControl(),
            }
        )


INSTRUCTIONS = 16
"""Number of instructions that can be told apart in the lanes. No more instructions than this have
vectors in the lanes at one time.

At least two cycles lie between the vectors of two instructions, so this number is enough.
"""


class VectorControl(data.StructLayout):
    """A control that accompanies a vector from its issue on.

    | field       | meaning |
    |---|---|
    | `line`      | the first line of the result |
    | `last`      | the vector is the last of its instruction |
    | `parameter` | number of the parameter entry of the vector |
    | `use_sum`   | the vector is a sum of buffer lines, not an accumulator row |
    | `scaled`    | the elements of the sum are scaled |
    | `number`    | number of the instruction, modulo INSTRUCTIONS |
    | `partition` | the sum goes to a parameter entry, not to a line; with attention |
    """

    def __init__(self, *, config: Config):
        super().__init__(
            {
                "line": address_bits(config),
                "last": 1,
                "parameter": bits_for(config.parameter_entries),
                "use_sum": 1,
                "scaled": 1,
                "number": range(INSTRUCTIONS),
                **({"partition": 1} if config.attention else {}),
            }
        )


class PassingControl(data.StructLayout):
    """A part of VectorControl that passes through the stages of the lanes.

    The other fields need not pass: `line` waits in a memory, and `parameter` and `scaled` are used
    before the vector gets its value.
    """

    def __init__(self) -> None:
        super().__init__({"last": 1, "use_sum": 1, "number": range(INSTRUCTIONS)})


class InstructionControl(data.StructLayout):
    """A control with the settings that all vectors of an instruction share.

    The settings are kept in small memories, at the number of the instruction.

    | field        | meaning |
    |---|---|
    | `accumulate` | the result is added to the lines' old content |
    | `wide`       | results are int16 |
    | `rounding`   | operand of the instruction |
    | `function`   | operand of the instruction, or OTHER |
    | `zero_point` | operand of the instruction |
    | `low`        | smallest result |
    | `high`       | largest result |
    | `table`      | operand of the instruction |
    | `exponent`   | number of the exponent register that gives the shifts, with training |
    | `stochastic` | the rounding is random, with training |
    """

    def __init__(self, *, config: Config):
        super().__init__(
            {
                "accumulate": 1,
                "wide": 1,
                "rounding": 1,
                "function": 3,
                "zero_point": signed(8),
                "low": signed(16),
                "high": signed(16),
                "table": 4,
                **({"exponent": 3, "stochastic": 1} if config.training else {}),
            }
        )


class EndControl(data.StructLayout):
    """A control that accompanies a vector in its last stages, until its line is written.

    The control holds the settings of the instruction themselves. So the number of the instruction
    is not needed any longer.
    """

    def __init__(self, *, config: Config):
        super().__init__(
            {"line": address_bits(config), "last": 1, "wide": 1, "function": 3, "table": 4}
        )
