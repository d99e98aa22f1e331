# SPDX-License-Identifier: Apache-2.0
"""Signatures that join the scoreboard to the units: queues, lists, and lists of the links."""

from collections.abc import Callable, Mapping

from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from systola.arch.config import Config
from systola.hdl.commands import (
    ActivateCommand,
    HostReadEntry,
    HostTransfer,
    HostWriteCommand,
    MatrixCommand,
    WeightCommand,
)
from systola.hdl.control.hazards import list_bits, masks_of
from systola.hdl.link_commands import LinkCommand, LinkRow, link_address_bits
from systola.hdl.parts.in_flight import Awaited, Progress

COMMANDS: Mapping[str, Callable[..., data.StructLayout]] = {
    "host_reads": HostTransfer,
    "matrix": MatrixCommand,
    "activate": ActivateCommand,
    "host_writes": HostWriteCommand,
    "weights": WeightCommand,
    # A read from host memory leaves this queue no later than its list `host_reading`. So the queue
    # has room whenever the list has room.
    "host_read": HostReadEntry,
}
"""Queues of commands that each machine has, with the layout of their commands."""


class QueueSignature(wiring.Signature):
    """A signature that joins a queue of commands to its unit, as seen from the queue.

    | member      | meaning |
    |---|---|
    | `valid`     | there is an oldest command |
    | `command`   | the oldest command |
    | `pop`       | drops the oldest command |
    | `masks`     | list entries that the command awaits |
    | `blocked`   | a bit for each mask: its entry is still awaited |
    | `unblocked` | there is an oldest command, and it awaits no entry |
    | `progress`  | the report of each mask's list |

    The last four exist only if commands of this queue wait for entries of lists. The parameter
    `masks` gives for each mask the bits of the addresses of its list.
    """

    def __init__(
        self, *, command: data.StructLayout, masks: Mapping[str, int] | None = None, depth: int = 1
    ):
        members: dict[str, wiring.Member] = {}
        if masks:
            progress = {name: Progress(width, depth) for name, width in masks.items()}
            members = {
                "masks": Out(data.StructLayout(dict.fromkeys(masks, Awaited(depth)))),
                "blocked": Out(data.StructLayout(dict.fromkeys(masks, 1))),
                "unblocked": Out(1),
                "progress": Out(data.StructLayout(progress)),
            }
        super().__init__({**members, "valid": Out(1), "command": Out(command), "pop": In(1)})


def queue_signature(name: str, config: Config) -> QueueSignature:
    """Return the signature of one of COMMANDS, or of a queue of the link unit."""
    return QueueSignature(
        command=COMMANDS.get(name, LinkCommand)(config=config),
        masks=masks_of(name, config),
        depth=config.queue_depth,
    )


class ListSignature(wiring.Signature):
    """A signature that joins a list of unfinished instructions to the unit that executes them.

    | member       | meaning, as seen from the list |
    |---|---|
    | `advance`    | the oldest instruction has got to `advance_to` |
    | `advance_to` | lowest address that the oldest instruction may still need |
    | `retire`     | the oldest instruction is done with this resource and leaves the list |
    """

    def __init__(self, *, width: int):
        super().__init__({"advance": In(1), "advance_to": In(width), "retire": In(1)})


def list_signature(name: str, config: Config) -> ListSignature:
    """Return the signature of the list `name`."""
    return ListSignature(width=list_bits(name, config))


class LinkListSignature(wiring.Signature):
    """A signature that joins a part of the link unit to its list and to its interlock.

    | member       | meaning |
    |---|---|
    | `advance`, `advance_to`, `retire` | progress of the oldest instruction, as in ListSignature |
    | `taken`      | the part takes the next command out of its queue |
    | `rows`       | stream of the lines or rows of this command, to the interlock |
    | `cleared`    | stream of the lines and rows that the interlock lets pass |
    """

    def __init__(self, *, config: Config):
        row = LinkRow(config=config)
        super().__init__(
            {
                "advance": In(1),
                "advance_to": In(link_address_bits(config)),
                "retire": In(1),
                "taken": In(1),
                "rows": In(stream.Signature(row)),
                "cleared": Out(stream.Signature(row)),
            }
        )
