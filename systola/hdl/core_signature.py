# SPDX-License-Identifier: Apache-2.0
"""The ports of a core."""

from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from systola.arch.config import Config
from systola.arch.isa import LinkPart
from systola.arch.registers import BusPort, CheckedMemory
from systola.hdl.commands import TAG_BITS
from systola.hdl.link.link_unit import SIDES, neighbour_ports
from systola.hdl.link.pod_barrier import CORES_BITS
from systola.hdl.ports import (
    Activity,
    ProgramStatusSignature,
    TransferErrorSignature,
    WindowsSignature,
)
from systola.hdl.transfers.axi import master_ports
from systola.hdl.unit_domains import units_of


class CoreSignature(wiring.Signature):
    """A signature with the ports of a core, as seen from the core.

    | port                                     | meaning |
    |---|---|
    | `host_read`, `host_write`, `weight_read` | AXI4 masters |
    | `running`                                | runs the program |
    | `stop`                                   | starts no more bus transfers; from the next cycle
                                                 on no tag enters the trace |
    | `clear`                                  | a reset for each unit, all in the same cycle |
    | `windows`                                | the program, and the windows of host and weight
                                                 memory |
    | `program_status`                         | progress of the program |
    | `error`                                  | a bus transfer has failed |
    | `corrupt`                                | the memories in which a flaw was found |
    | `idle`                                   | all issued instructions are complete |
    | `quiet`                                  | for each bus port: no transfer is under way, nor
                                                 was one in the two cycles before |
    | `resume`                                 | lets a waiting Synchronize_Host go on |
    | `tagged`                                 | the `tag` of a Debug_Tag enters the trace |
    | `activity`                               | the conditions that `Counters` counts |

    | port of the links                       | meaning |
    |---|---|
    | `to_left`, `to_right`                   | links to the neighbours, see LinkUnit |
    | `from_left`, `from_right`               | links from the neighbours, see LinkUnit |
    | `cores`, `waits`, `moved`, `mismatched` | ports of the LinkUnit |
    | `clear_links`                           | resets the link unit alone |
    | `sent`                                  | all beats of complete instructions have left the
                                                core |
    """

    def __init__(self, *, config: Config):
        links = {
            **neighbour_ports(config),
            "cores": In(CORES_BITS),
            "clear_links": In(1),
            "waits": Out(len(LinkPart)),
            "moved": Out(1),
            "sent": Out(1),
            "mismatched": Out(len(SIDES)),
        }
        super().__init__(
            {
                **(links if config.links else {}),
                **master_ports(config),
                "running": In(1),
                "stop": In(1),
                "clear": In(data.StructLayout(dict.fromkeys(units_of(config), 1))),
                "windows": In(WindowsSignature(config=config)),
                "program_status": Out(ProgramStatusSignature()),
                "error": Out(TransferErrorSignature()),
                "corrupt": Out(CheckedMemory),
                "idle": Out(1),
                "quiet": Out(BusPort),
                "resume": In(1),
                "tagged": Out(1),
                "tag": Out(TAG_BITS),
                "activity": Out(Activity()),
            }
        )
