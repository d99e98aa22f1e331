# SPDX-License-Identifier: Apache-2.0
"""Where addresses wait for older instructions: compared in one cycle, judged in the next."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from systola.hdl.parts.in_flight import Region, holds
from systola.hdl.parts.replica import Replica

PARTS = 4
"""Of an item, each with its own copy of what was found."""
MOVES, PASSES = PARTS, PARTS + 1
"""The copies for the moves of items, and for who takes them."""
COPIES = PARTS + 2


@dataclass(frozen=True, kw_only=True)
class Check:
    """Field `address` of an item, in that part of the addresses that begins at `space`, against the
    regions of list `watched`; without one, the item waits for whole instructions. It waits for none
    of them unless its bit `used` is set."""

    watched: str
    used: str
    address: str | None = None
    space: int = 0


class Interlock(wiring.Component):
    """Lets items pass, in order, as soon as no entry of a list that their masks name holds one of
    their addresses any longer.

    `masks` are those of the `input` and belong to the lists as they are in the same cycle, as do
    `regions`; `retired` tells that a list drops its oldest entry with this cycle. The unit keeps
    the masks of what it holds. A mask only loses bits and a region only shrinks, so what was clear
    once stays so. What is taken in a cycle is offered two cycles later if it is clear in the cycle
    between; an item that is not is looked at again in every other cycle, and offered in the cycle
    behind. Throughput: one a cycle, whatever was before. `output` comes from registers by a few
    gates; `input.ready` is a register, as must be `output.ready`; `frees` is what it will be in
    the next cycle, for copies of it. `waits` tells for each list whether the `oldest` item was seen
    to wait for it.

    `widths` has for each list the bits of its addresses.
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
        self._depth = depth
        self._lists = lists = list(dict.fromkeys(check.watched for check in checks))
        self._masks = data.StructLayout(dict.fromkeys(lists, depth))
        super().__init__(
            {
                "input": In(stream.Signature(item)),
                "frees": Out(1),
                "masks": In(self._masks),
                "regions": In(
                    data.StructLayout(
                        {name: data.ArrayLayout(Region(widths[name]), depth) for name in lists}
                    )
                ),
                "retired": In(data.StructLayout(dict.fromkeys(lists, 1))),
                "output": Out(stream.Signature(item)),
                "waits": Out(data.StructLayout(dict.fromkeys(lists, 1))),
                "oldest": Out(item),
                "oldest_valid": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        slot = data.StructLayout({"item": self._item, "masks": self._masks})
        # From `arrived`, which makes `input.ready` a register, to `compared`, whose addresses are
        # compared in this cycle, to `judged`, for which `conflicts` tell how that came out. An item
        # that has to wait changes places with its follower to be compared again.
        arrived = Signal(slot, reset_less=True)
        arrived_valid = Signal()
        free = Signal(init=1)  # nothing has arrived
        compared = Signal(slot, reset_less=True)
        compared_valid = Signal()
        judged = Signal(slot, reset_less=True)
        judged_valid = Signal()
        changed = Signal()

        # Who has to know of them learns it from registers of its own. They mean something in the
        # cycle in which an item is `fresh` in its place; else it is clear, or was not yet looked at
        # after power-up.
        fresh = m.submodules.fresh = Replica(width=COPIES)
        conflicts = []
        for number, check in enumerate(self._checks):
            copies = m.submodules[f"conflict_{number}_{check.watched}"] = Replica(width=COPIES)
            conflicts.append(copies)
        blocked = [
            fresh.output[n] & Cat(copies.output[n] for copies in conflicts).any()
            for n in range(COPIES)
        ]

        exchange = Signal(PARTS)
        proceeds = Signal()  # what is judged may be followed
        moves = Signal()  # `judged` takes `compared`, which takes what comes, or `judged`
        m.d.comb += [
            exchange.eq(Cat(changed | copy for copy in blocked[:PARTS])),
            proceeds.eq(~judged_valid | self.output.ready),
            moves.eq(changed | blocked[MOVES] | proceeds),
            fresh.input.eq(((exchange[1] | proceeds) & compared_valid).replicate(COPIES)),
            self.output.valid.eq(judged_valid & ~changed & ~blocked[PASSES]),
            self.output.payload.eq(judged.item),
            self.input.ready.eq(free),
            self.oldest.eq(Mux(changed, compared.item, judged.item)),
            self.oldest_valid.eq(judged_valid | changed),
        ]

        incoming = Signal(slot)
        m.d.comb += incoming.eq(arrived)
        with m.If(~arrived_valid):
            m.d.comb += [incoming.item.eq(self.input.payload), incoming.masks.eq(self.masks)]
            m.d.sync += arrived.item.eq(self.input.payload)
        following = Signal(self._item)
        bits = -(-self._item.size // PARTS)
        for n, exchanges in enumerate(exchange):
            changed_over, next_one = (
                place.item.as_value()[n * bits : (n + 1) * bits] for place in (judged, incoming)
            )
            m.d.comb += following.as_value()[n * bits : (n + 1) * bits].eq(
                Mux(exchanges, changed_over, next_one)
            )

        arrives = Signal()
        m.d.comb += [
            arrives.eq((exchange[1] | ~proceeds) & (arrived_valid | self.input.valid)),
            self.frees.eq(~arrives),
        ]
        m.d.sync += [arrived_valid.eq(arrives), free.eq(self.frees)]
        with m.If(moves):
            m.d.sync += [
                compared.item.eq(following),
                compared_valid.eq(Mux(exchange[1], judged_valid, arrived_valid | self.input.valid)),
                judged.item.eq(compared.item),
                judged_valid.eq(compared_valid),
            ]
        for number, (check, copies) in enumerate(zip(self._checks, conflicts, strict=True)):
            named = compared.masks[check.watched] & compared.item[check.used].replicate(self._depth)
            if check.address is not None:
                regions = self.regions[check.watched]
                address = Signal(regions[0].base.shape(), name=f"address_{number}")
                m.d.comb += address.eq(compared.item[check.address] | check.space)
                named &= Cat(holds(region, address) for region in regions)
            found = Signal(name=f"found_{number}")
            m.d.comb += [found.eq(named.any()), copies.input.eq(found.replicate(COPIES))]
        m.d.sync += changed.eq(exchange[1] & ~changed & judged_valid)

        # Masks move with their items, and with the lists.
        shifted = []
        for name, masks in (("incoming", incoming), ("compared", compared), ("judged", judged)):
            kept = Signal(self._masks, name=f"{name}_shifted")
            m.d.comb += [kept[n].eq(masks.masks[n] >> self.retired[n]) for n in self._lists]
            shifted.append(kept)
        of_incoming, of_compared, of_judged = shifted
        m.d.sync += [
            arrived.masks.eq(of_incoming),
            compared.masks.eq(Mux(exchange[0], of_judged, Mux(proceeds, of_incoming, of_compared))),
            judged.masks.eq(Mux(exchange[1] | proceeds, of_compared, of_judged)),
        ]

        # A changed-over item was seen to wait when it was last judged.
        waited = Signal.like(self.waits)
        m.d.comb += self.waits.eq(waited)
        with m.If(~changed):
            m.d.sync += waited.eq(self.waits)
            seen = judged_valid & fresh.output[PASSES]
            for name in self._lists:
                found = [
                    copies.output[PASSES]
                    for check, copies in zip(self._checks, conflicts, strict=True)
                    if check.watched == name
                ]
                m.d.comb += self.waits[name].eq(seen & Cat(found).any())
        return m
