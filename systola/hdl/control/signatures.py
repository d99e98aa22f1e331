# SPDX-License-Identifier: Apache-2.0
"""Signatures that join the scoreboard to the units: queues, lists, and lists of the links."""

from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from systola.arch.config import Config
from systola.hdl.link_commands import LinkRow, link_address_bits
from systola.hdl.parts.in_flight import Awaited, Progress


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

    The last three exist only if commands of this queue wait for entries of lists.
    """

    def __init__(self, *, command: data.StructLayout, masks: tuple[str, ...] = (), depth: int = 1):
        members: dict[str, wiring.Member] = {}
        if masks:
            members = {
                "masks": Out(data.StructLayout(dict.fromkeys(masks, Awaited(depth)))),
                "blocked": Out(data.StructLayout(dict.fromkeys(masks, 1))),
                "unblocked": Out(1),
            }
        super().__init__({**members, "valid": Out(1), "command": Out(command), "pop": In(1)})


class ListSignature(wiring.Signature):
    """A signature that joins a list of unfinished instructions to the unit that executes them.

    | member       | meaning |
    |---|---|
    | `advance`    | the oldest instruction has got to `advance_to` |
    | `advance_to` | lowest address that it may still need |
    | `retire`     | the oldest instruction is done with this resource and leaves the list |
    | `progress`   | report of the list, for the commands that await its entries |
    """

    def __init__(self, *, width: int, depth: int):
        super().__init__(
            {
                "advance": In(1),
                "advance_to": In(width),
                "retire": In(1),
                "progress": Out(Progress(width, depth)),
            }
        )


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
