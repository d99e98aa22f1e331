# SPDX-License-Identifier: Apache-2.0
"""What the decoder makes of an instruction."""

from amaranth.lib import data
from amaranth.utils import ceil_log2

from systola.arch.config import Config
from systola.arch.isa import Fault, Unit
from systola.hdl.commands import (
    HOST_OFFSET_BITS,
    PC_BITS,
    TILE_COUNT_BITS,
    ActivateCommand,
    HostTransfer,
    LinkCommand,
    MatrixCommand,
    Tail,
    WeightTransfer,
    address_bits,
    row_bits,
)
from systola.hdl.control.hazards import groups_of
from systola.hdl.control.scalar_unit import kind_bits
from systola.hdl.parts.in_flight import Region


class Decoded(data.StructLayout):
    """An instruction ready for issue; what does not concern its opcode is undefined. `kind`: see
    `kind_bits`; `ways` has a bit for each of `groups_of` the configuration, for both sides.

    From the second cycle on, `failed`: a check does not hold; then `cause` and `address` tell of
    the first one that does not. The address of a Read_Weights that has not failed is its first
    tile. The end of `host` is there from then on, too.
    Regions on the chip, empty where an instruction has no such one:
    `buffer` is what MatrixMultiply, Convolve or a write to host memory reads, an instruction of the
    activation unit writes, or a read from host memory fills (parameters and tables included);
    `source` and `operand` are what the activation unit reads, `parameters` and `table` what it
    uses. `tiles`: weight tiles queued or consumed. `from_buffer`: a MatrixMultiply with weights
    there, its `source`; a WeightCommand says of them what `weight_transfer` does. `code`: that
    of an Interrupt_Host, or the tag of a Debug_Tag, which waits for `units`. `link`, for `side`, is
    what a Send reads or a Receive or Reduce writes, its `buffer` or `accumulator`.
    """

    def __init__(self, *, config: Config):
        super().__init__(
            {
                "kind": kind_bits(links=config.links),
                "ways": len(groups_of(config)),
                "pc": PC_BITS,
                "failed": 1,
                "cause": ceil_log2(len(Fault)),
                "address": 32,
                "buffer": Region(address_bits(config)),
                "accumulator": Region(row_bits(config)),
                "parameters": Region(address_bits(config)),
                "table": Region(address_bits(config)),
                "source": Region(address_bits(config)),
                "operand": Region(address_bits(config)),
                "host": Region(HOST_OFFSET_BITS),
                "transfer": HostTransfer(config=config),
                "tail": Tail(config=config),
                "weight_transfer": WeightTransfer(config=config),
                "tiles": TILE_COUNT_BITS,
                **({"from_buffer": 1} if config.training else {}),
                "matrix": MatrixCommand(config=config),
                "activate": ActivateCommand(config=config),
                "code": 16,
                "units": len(Unit),
                **({"link": LinkCommand(config=config), "side": 1} if config.links else {}),
            }
        )
