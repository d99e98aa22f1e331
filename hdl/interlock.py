# SPDX-License-Identifier: Apache-2.0
"""Where addresses wait for older instructions: compared in one cycle, judged in the next."""

from collections.abc import Sequence
from dataclasses import dataclass

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from systola.hdl.in_flight import Region, holds


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
    gates; `input.ready` is a register. `waits` tells for each list whether the `oldest` item was
    seen to wait for it.
    """

    def __init__(self, *, item: data.StructLayout, checks: Sequence[Check], depth: int):
        self._item = item
        self._checks = tuple(checks)
        self._depth = depth
        self._lists = lists = list(dict.fromkeys(check.watched for check in checks))
        self._masks = data.StructLayout(dict.fromkeys(lists, depth))
        widths = dict.fromkeys(lists, 1)
        for check in checks:
            if check.address is not None:
                width = max(item[check.address].width, check.space.bit_length())
                widths[check.watched] = max(widths[check.watched], width)
        super().__init__(
            {
                "input": In(stream.Signature(item)),
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
        compared = Signal(slot, reset_less=True)
        compared_valid = Signal()
        judged = Signal(slot, reset_less=True)
        judged_valid = Signal()
        changed = Signal()
        conflicts = [
            Signal(self._depth, name=f"conflicts_{check.watched}_{check.used}", reset_less=True)
            for check in self._checks
        ]

        clear = Signal()
        exchange = Signal()
        move = Signal()
        load = Signal()
        m.d.comb += [
            clear.eq(~Cat(conflicts).any()),
            exchange.eq(changed | (judged_valid & ~clear)),
            move.eq(~exchange & (~judged_valid | self.output.ready)),
            load.eq(move | (~exchange & ~compared_valid)),
            self.output.valid.eq(judged_valid & ~changed & clear),
            self.output.payload.eq(judged.item),
            self.input.ready.eq(~arrived_valid),
            self.oldest.eq(Mux(changed, compared.item, judged.item)),
            self.oldest_valid.eq(judged_valid | changed),
        ]

        incoming = Signal(slot)
        m.d.comb += incoming.eq(arrived)
        with m.If(~arrived_valid):
            m.d.comb += [incoming.item.eq(self.input.payload), incoming.masks.eq(self.masks)]
            m.d.sync += arrived.item.eq(self.input.payload)
        following = Signal(slot)
        m.d.comb += following.eq(Mux(exchange, judged, incoming))

        m.d.sync += arrived_valid.eq(~load & (arrived_valid | self.input.valid))
        with m.If(exchange | load):
            m.d.sync += [
                compared.item.eq(following.item),
                compared_valid.eq(
                    Mux(exchange, judged_valid, arrived_valid | self.input.valid),
                ),
            ]
        with m.If(exchange | move):
            m.d.sync += [judged.item.eq(compared.item), judged_valid.eq(compared_valid)]
            for check, found in zip(self._checks, conflicts, strict=True):
                named = compared.masks[check.watched]
                if check.address is not None:
                    address = compared.item[check.address] | check.space
                    named &= Cat(holds(region, address) for region in self.regions[check.watched])
                m.d.sync += found.eq(Mux(compared.item[check.used], named, 0))
        m.d.sync += changed.eq(exchange & ~changed)

        # Masks move with their items, and with the lists.
        def shifted(masks: data.View) -> list[Value]:
            return [masks[name] >> self.retired[name] for name in self._lists]

        def keep(target: data.View, masks: list[Value]) -> list[object]:
            return [
                target.masks[name].eq(mask) for name, mask in zip(self._lists, masks, strict=True)
            ]

        m.d.sync += [
            *keep(arrived, shifted(incoming.masks)),
            *keep(compared, shifted(compared.masks)),
            *keep(judged, shifted(judged.masks)),
        ]
        with m.If(exchange):
            m.d.sync += keep(compared, shifted(judged.masks))
        with m.Elif(load):
            m.d.sync += keep(compared, shifted(incoming.masks))
        with m.If(exchange | move):
            m.d.sync += keep(judged, shifted(compared.masks))

        # A changed-over item was seen to wait when it was last judged.
        waited = Signal.like(self.waits)
        m.d.comb += self.waits.eq(waited)
        with m.If(~changed):
            m.d.sync += waited.eq(self.waits)
            for name in self._lists:
                found = [
                    bits
                    for check, bits in zip(self._checks, conflicts, strict=True)
                    if check.watched == name
                ]
                m.d.comb += self.waits[name].eq(judged_valid & Cat(found).any())
        return m
