# SPDX-License-Identifier: Apache-2.0
"""What goes through the lanes beside the numbers."""

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
    """What accompanies the elements of a buffer line through the front of the lanes, or of zeros
    instead (`outside`), or a line of a tile to be transposed, or the load of a seed. `pair`: the
    low bytes of an int16 come with its high bytes, see `reads_pairs`."""

    def __init__(self, *, config: Config) -> None:
        super().__init__(
            {
                **({"pair": 1} if config.reads_pairs else {}),
                "load_tap": 1,
                "load_tile": 1,
                "load_seed": 1,
                "tap": range(DEPTHWISE_TAPS),
                "outside": 1,
                "element": ElementControl(),
                "scaling": ScalingControl(),
                "shift": SHIFT_BITS,
                "multiplier": 31,
                "summing": SumControl(),
            }
        )


INSTRUCTIONS = 16
"""More than have vectors in the lanes at a time: two cycles lie between two of them."""


class VectorControl(data.StructLayout):
    """What accompanies a vector through the rest of the lanes. `number`: which of the last
    INSTRUCTIONS it belongs to."""

    def __init__(self, *, config: Config):
        super().__init__(
            {
                "line": address_bits(config),
                "last": 1,
                "parameter": bits_for(config.parameter_entries),
                "use_sum": 1,
                "scaled": 1,
                "number": range(INSTRUCTIONS),
            }
        )


class PassingControl(data.StructLayout):
    """What of it passes from stage to stage: its line waits in a memory, all else is known when the
    value comes."""

    def __init__(self) -> None:
        super().__init__({"last": 1, "use_sum": 1, "number": range(INSTRUCTIONS)})


class InstructionControl(data.StructLayout):
    """What is the same for all vectors of an instruction, and waits in small memories."""

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
    """What accompanies a vector to its line, once the number of its instruction is not needed."""

    def __init__(self, *, config: Config):
        super().__init__(
            {"line": address_bits(config), "last": 1, "wide": 1, "function": 3, "table": 4}
        )
