# SPDX-License-Identifier: Apache-2.0
"""The queue of commands that wait for their unit."""

from collections.abc import Mapping

from amaranth.hdl import Array, Cat, Module, Mux, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from systola.hdl.memories.block_ring import BlockRing
from systola.hdl.parts.in_flight import Awaited, Progress, kept
from systola.hdl.parts.payload_ring import PayloadRing
from systola.hdl.parts.promise import promised

LATENCY = 2
"""Cycles from the `push` of a command into an empty queue until it is `valid`."""
BLOCK_BITS = 170
"""Least width in bits of commands in block RAM. FPGAs of small machines have few block RAMs."""


class CommandQueue(wiring.Component):
    """A queue that holds up to `depth` commands of a unit, and masks of the entries they await.

    | port           | meaning |
    |---|---|
    | `push`         | appends a command; only while not `full` |
    | `pushed`       | the command; present from one cycle before its `push` |
    | `pushed_masks` | masks of this command, one cycle after `push` |
    | `full`         | there is no place for another command |
    | `progress`     | the report of each mask's list |
    | `valid`        | there is an oldest command: LATENCY cycles after its push, or in the cycle
                       after the `pop` of the command before |
    | `command`      | the oldest command |
    | `masks`        | masks of the oldest command |
    | `blocked`      | a bit for each mask: the oldest command still awaits an entry |
    | `unblocked`    | there is an oldest command, and it awaits no entry |
    | `pop`          | drops the oldest command |

    The commands lie in a ring in a memory, wide commands in block RAM. Only the masks are
    flip-flops, as each loses its entry when the entry leaves its list. The parameter `masks` gives
    for each mask the width of its addresses in bits; all lists have `list_depth` entries.
    """

    def __init__(
        self,
        *,
        command: data.StructLayout,
        depth: int,
        masks: Mapping[str, int] | None = None,
        list_depth: int = 1,
    ):
        self._depth = depth
        members: dict[str, wiring.Member] = {}
        if masks:
            flags = data.StructLayout(dict.fromkeys(masks, 1))
            awaited = data.StructLayout(dict.fromkeys(masks, Awaited(list_depth)))
            progress = {name: Progress(width, list_depth) for name, width in masks.items()}
            members = {
                "pushed_masks": In(awaited),
                "progress": In(data.StructLayout(progress)),
                "masks": Out(awaited),
                "blocked": Out(flags),
                "unblocked": Out(1),
            }
        self._has_masks = bool(masks)
        super().__init__(
            {
                **members,
                "push": In(1),
                "pushed": In(command),
                "full": Out(1),
                "pop": In(1),
                "valid": Out(1),
                "command": Out(command),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        commands_waiting = Signal(self._depth)  # thermometer code of the number of commands
        commands_kept = Signal.like(commands_waiting)
        layout = self.command.shape()
        ring = BlockRing if layout.size >= BLOCK_BITS else PayloadRing
        commands = m.submodules.commands = ring(payload=layout, depth=self._depth)
        m.d.comb += [
            self.full.eq(commands_waiting[-1]),
            commands_kept.eq(Mux(self.pop, commands_waiting[1:], commands_waiting)),
            commands.push.eq(self.push),
            commands.pushed.eq(self.pushed),
            commands.pop.eq(self.pop),
            self.command.eq(commands.oldest),
        ]
        m.d.sync += [
            commands_waiting.eq(commands_kept | Mux(self.push, Cat(1, commands_kept), 0)),
            self.valid.eq(commands_kept[0]),
        ]
        if self._has_masks:
            self._keep_masks(m)
        promised(m, platform, ~(self.push & self.full), "a command for a full queue")
        promised(m, platform, ~self.pop | self.valid, "a command is taken that is not there")
        return m

    def _keep_masks(self, m: Module) -> None:
        """Keep the masks of the command at each place; they arrive one cycle after the command."""
        push_place, oldest_place = (
            Signal(ceil_log2(self._depth), name=name) for name in ("push_place", "oldest_place")
        )
        masks_come = Signal()
        masks_place = Signal.like(push_place)
        m.d.sync += [
            push_place.eq(push_place + self.push),
            oldest_place.eq(oldest_place + self.pop),
            masks_come.eq(self.push),
            masks_place.eq(push_place),
        ]
        places: list[data.View] = []
        for place in range(1 << len(push_place)):
            masks = Signal.like(self.masks, name=f"masks_{place}", reset_less=True)
            masks_now = Signal.like(masks, name=f"masks_{place}_now")
            m.d.comb += masks_now.eq(
                Mux(masks_come & (masks_place == place), self.pushed_masks, masks)
            )
            m.d.sync += masks.eq(kept(masks_now, self.progress))
            places.append(masks)
        pending: list[Value] = [self.masks[name].pending for name, _ in self.masks.shape()]
        m.d.comb += [
            self.masks.eq(Array(places)[oldest_place]),
            self.blocked.eq(Cat(pending)),
            self.unblocked.eq(self.valid & ~Cat(pending).any()),
        ]
