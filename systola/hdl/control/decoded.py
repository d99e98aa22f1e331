# SPDX-License-Identifier: Apache-2.0
"""The layout of a decoded instruction."""

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
    MatrixCommand,
    Tail,
    WeightTransfer,
    address_bits,
    row_bits,
)
from systola.hdl.control.hazards import groups_of
from systola.hdl.control.scalar_unit import kind_bits
from systola.hdl.link_commands import LinkCommand
from systola.hdl.parts.in_flight import Region


class Decoded(data.StructLayout):
    """A layout that describes an instruction ready for issue.

    Fields that do not concern the opcode are undefined. Cycles count from the first one in which
    the instruction is offered. A region on the chip is empty if the instruction has no such region.

    | field | meaning |
    |---|---|
    | `kind` | a bit for each opcode (`kind_bits`) |
    | `ways` | a bit for each group of `groups_of`: the instruction belongs to it; an instruction of
               the links has the bits of both sides |
    | `pc` | address of the instruction |
    | `failed` | a check has failed; valid from the second cycle |
    | `cause`, `address` | fault of the first failed check, and its address; valid from the second
                           cycle. Without a fault, `address` is the first tile of a Read_Weights |
    | `buffer` | lines that a MatrixMultiply, Convolve or write to host memory reads, that the
                 activation unit writes, or that a read from host memory fills. Parameters and
                 tables loaded from host memory count as lines here |
    | `accumulator` | accumulator rows read or written |
    | `parameters`, `table` | parameter entries and tables that the activation unit uses |
    | `source`, `operand` | lines that the activation unit reads |
    | `host` | bytes of host memory; its end is valid from the second cycle |
    | `transfer`, `tail` | command of a copy from or to host memory |
    | `weight_transfer` | command of a Read_Weights, or of the weights of a MatrixMultiply that
                          takes them from the buffer |
    | `tiles` | weight tiles queued or consumed |
    | `from_buffer` | a MatrixMultiply takes its weights from the lines `source` |
    | `matrix`, `activate` | commands of the matrix unit and of the activation unit |
    | `code` | code of an Interrupt_Host, or tag of a Debug_Tag |
    | `units` | units that a Debug_Tag waits for |
    | `link` | command of a Send (which reads `buffer` or `accumulator`), or of a Receive or Reduce
               (which writes one of them) |
    | `side` | side of the machine that `link` uses |
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
