# SPDX-License-Identifier: Apache-2.0
"""The interlock, a unit in which items wait until older instructions no longer need their
addresses.

Addresses are compared in one cycle, and judged in the next.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from systola.hdl.parts.in_flight import Awaited, Progress, holds, kept
from systola.hdl.parts.promise import promised, promised_next, promised_offer
from systola.hdl.parts.selecting_adder import SelectingAdder


@dataclass(frozen=True, kw_only=True)
class Check:
    """A comparison of one field of an item with the entry that one mask awaits.

    | field     | meaning |
    |---|---|
    | `watched` | name of the mask that the check uses |
    | `used`    | name of a bit of the item; the check is left out if this bit is 0 |
    | `address` | name of the field with the address; None: the item waits until the entry has left
                  its list |
    | `space`   | further bits of the address, which name its address space |
    """

    watched: str
    used: str
    address: str | None = None
    space: int = 0


class Interlock(wiring.Component):
    """A gate that lets items pass, in order, once their addresses are free.

    An item passes as soon as none of the entries that it awaits needs one of its addresses any
    longer. Such an entry has left its list, or the oldest entry of its run has got past the
    address.

    | port                     | meaning |
    |---|---|
    | `input`                  | items; `input.ready` is a register |
    | `frees`                  | the value of `input.ready` in the next cycle |
    | `awaited`                | the masks of the `input`, valid in the same cycle |
    | `progress`               | the report of the list of each mask |
    | `output`                 | items that may pass; they come from registers through a gate;
                                 `output.ready` must be a register |
    | `waits`                  | a bit for each mask: the `oldest` item waits for its entry |
    | `oldest`, `oldest_valid` | the next item to pass, and whether there is one |

    The interlock keeps the masks of the items that it holds. A taken item is compared in the next
    cycle. If it is clear then, it is offered in the cycle after. Else it is compared again in every
    other cycle, and is offered in the cycle after it is clear. With a comparison in every cycle, a
    follower would run in step with its producer: it would meet the producer's reads in the same
    bank of the buffer again and again. Throughput: one item a cycle, however long the item before
    has waited.

    `widths` has the bits of the addresses of each mask. docs/architecture.md, "Ready a cycle
    ahead", has the timing of `frees`.
    """

    def __init__(
        self,
        *,
        item: data.StructLayout,
        checks: Sequence[Check],
        depth: int,
        widths: Mapping[str, int],
    ):
        self._item = item
        self._checks = tuple(checks)
        self._masks = data.StructLayout(dict.fromkeys(widths, Awaited(depth)))
        super().__init__(
            {
                "input": In(stream.Signature(item)),
                "frees": Out(1),
                "awaited": In(self._masks),
                "progress": In(
                    data.StructLayout(
                        {name: Progress(width, depth) for name, width in widths.items()}
                    )
                ),
                "output": Out(stream.Signature(item)),
                "waits": Out(data.StructLayout(dict.fromkeys(widths, 1))),
                "oldest": Out(item),
                "oldest_valid": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        slot = data.StructLayout({"item": self._item, "masks": self._masks})
        # An item moves through three registers. `arrived` makes `input.ready` a register. The
        # addresses of the item in `compared` are compared in this cycle. The result for the item in
        # `judged` is known. While `judged` is `blocked`, its item is compared again instead.
        arrived = Signal(slot, reset_less=True)
        arrived_valid = Signal()
        compared = Signal(slot, reset_less=True)
        compared_valid = Signal()
        judged = Signal(slot, reset_less=True)
        judged_valid = Signal()
        blocked = Signal()
        looks_again = Signal()  # high in the second, fourth, ... cycle in which `judged` is blocked
        arrived_free = Signal(init=1)  # `arrived` holds no item

        judged_moves = Signal()  # `judged` takes the item in `compared`
        compared_moves = Signal()  # `compared` takes the next item
        incoming = Signal(slot)
        item_comes = Signal()
        m.d.comb += [
            judged_moves.eq(~judged_valid | (self.output.ready & ~blocked)),
            compared_moves.eq(judged_moves | ~compared_valid),
            incoming.eq(Mux(arrived_free, Cat(self.input.payload, self.awaited), arrived)),
            item_comes.eq(arrived_valid | self.input.valid),
            self.frees.eq(compared_moves | ~item_comes),
            self.input.ready.eq(arrived_free),
            self.output.valid.eq(judged_valid & ~blocked),
            self.output.payload.eq(judged.item),
            self.oldest.eq(judged.item),
            self.oldest_valid.eq(judged_valid),
        ]

        looked_at = Signal(slot)
        waits = Signal.like(self.waits)
        seen = Signal.like(waits)
        found: dict[str, list[Value]] = {name: [] for name, _ in self._masks}
        for number, check in enumerate(self._checks):
            awaited, progress = looked_at.masks[check.watched], self.progress[check.watched]
            held = awaited.pending
            if check.address is not None:
                # The adder computes address - reached. The choice of `looked_at` is in its look-up
                # tables, too.
                width = len(progress.reached) + 1
                below = m.submodules[f"check_{number}"] = SelectingAdder(
                    width=width, subtracted=True
                )
                m.d.comb += [
                    below.a.eq(progress.reached),
                    below.choose_b.eq(looks_again.replicate(width)),
                    below.b.eq(judged.item[check.address] | check.space),
                    below.c.eq(compared.item[check.address] | check.space),
                    below.carry.eq(1),
                ]
                held = holds(awaited, progress, below.total[-1])
            found[check.watched].append(held & looked_at.item[check.used])
        m.d.comb += [
            # `looks_again` makes the choice, as it is known early. In a cycle that is `blocked`
            # without `looks_again`, the comparison is not used.
            looked_at.eq(Mux(looks_again, judged, compared)),
            waits.eq(Cat(Cat(held).any() for held in found.values())),
            self.waits.eq(Mux(blocked, seen, 0)),
        ]
        with m.If(looks_again | ~blocked):
            m.d.sync += [
                seen.eq(waits),
                # Once the entry of a mask has left its list, the mask holds nothing back.
                blocked.eq(
                    waits.as_value().any() & (looks_again | (judged_moves & compared_valid))
                ),
            ]
        m.d.sync += [
            looks_again.eq(blocked & ~looks_again),
            arrived_free.eq(self.frees),
            arrived_valid.eq(~self.frees),
        ]

        # When an entry leaves its list, it is cleared in the masks of all three registers.
        masks: dict[str, data.View] = {}
        for name, source in (
            ("incoming", incoming.masks),
            ("compared", compared.masks),
            ("judged", judged.masks),
        ):
            masks[name] = Signal(self._masks, name=f"{name}_kept")
            m.d.comb += masks[name].eq(kept(source, self.progress))
        m.d.sync += [
            arrived.item.eq(incoming.item),
            arrived.masks.eq(masks["incoming"]),
            compared.masks.eq(Mux(compared_moves, masks["incoming"], masks["compared"])),
            judged.masks.eq(Mux(judged_moves, masks["compared"], masks["judged"])),
        ]
        with m.If(compared_moves):
            m.d.sync += [compared.item.eq(incoming.item), compared_valid.eq(item_comes)]
        with m.If(judged_moves):
            m.d.sync += [judged.item.eq(compared.item), judged_valid.eq(compared_valid)]
        passes, message = self.output, "an item that passes is withdrawn"
        promised_offer(m, platform, passes.valid, passes.ready, judged.item.as_value(), message)
        message = "the interlock is not ready as it has said"
        promised_next(m, platform, self.frees, self.input.ready, message, init=1)
        promised(m, platform, arrived_free != arrived_valid, "an item is there and not there")
        promised(m, platform, ~blocked | judged_valid, "an item waits that is not there")
        return m
