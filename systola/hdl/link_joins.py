# SPDX-License-Identifier: Apache-2.0
"""The connections of the link unit with the scoreboard and with the memories of a core."""

from amaranth.hdl import Cat, Module, Value
from amaranth.lib.wiring import connect

from systola.hdl.control.scoreboard import Scoreboard
from systola.hdl.link.link_unit import PARTS, LinkUnit
from systola.hdl.link.linked_accumulators import LinkedAccumulators
from systola.hdl.memories.unified_buffer import UnifiedBuffer
from systola.hdl.scoreboard_joins import settled_queue


def join_parts(m: Module, board: Scoreboard, links: LinkUnit) -> None:
    """Connect the parts of the link unit with their queues and lists."""
    for queue_name, list_name in PARTS.items():
        queue, commands = getattr(board, queue_name), getattr(links, queue_name)
        settled = settled_queue(m, queue, f"{queue_name}_settled")
        connect(m, getattr(links, list_name), getattr(board, list_name))
        m.d.comb += [
            commands.valid.eq(queue.unblocked & settled),
            commands.payload.eq(queue.command),
            queue.pop.eq(commands.valid & commands.ready),
        ]


def join_memories(
    m: Module, links: LinkUnit, buffer: UnifiedBuffer, accumulators: LinkedAccumulators
) -> Value:
    """Connect the link unit with the memories; return whether it waits for one of them.

    The link unit uses a port of a memory in cycles in which no other unit uses this port.
    """
    connect(m, links.buffer_read, buffer.link_out)
    connect(m, links.buffer_write, buffer.link_in)
    connect(m, links.sums_read, accumulators.sums_read)
    connect(m, links.sums_update, accumulators.sums_update)
    memories = (links.buffer_read, links.buffer_write, links.sums_read, links.sums_update)
    return Cat(port.enable & ~port.ready for port in memories).any()
