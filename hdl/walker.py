# SPDX-License-Identifier: Apache-2.0
"""Nested loops over the lines of a feature map, by additions alone."""

from collections.abc import Sequence
from dataclasses import dataclass

from amaranth.hdl import Const, Module, Signal, Value, signed
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

ADDRESS_BITS = 21
"""On-chip addresses, and one past their end."""
COORDINATE_BITS = 21
"""Rows and columns of windows that may lie outside the map on both sides."""


class Position(data.StructLayout):
    """A place in a feature map: its buffer line, its row y and its column x.

    Outside the map the line means nothing; it wraps, and comes back right.
    """

    def __init__(self) -> None:
        super().__init__(
            {
                "line": ADDRESS_BITS,
                "y": signed(COORDINATE_BITS),
                "x": signed(COORDINATE_BITS),
            }
        )


@dataclass(frozen=True, kw_only=True)
class Level:
    """One loop: its name, the width of its count, and the coordinates that it moves."""

    name: str
    count_bits: int
    moves: tuple[str, ...] = ()


class Walk(data.StructLayout):
    """What a `Walker` walks: where it starts, and for each level its count and its steps."""

    def __init__(self, levels: Sequence[Level]):
        self.levels = tuple(levels)
        position = Position()
        super().__init__(
            {
                "start": position,
                "count": data.StructLayout({level.name: level.count_bits for level in levels}),
                "step": data.StructLayout(
                    {
                        level.name: data.StructLayout(
                            {name: position[name].shape for name in level.moves}
                        )
                        for level in levels
                        if level.moves
                    }
                ),
            }
        )


class Walker(wiring.Component):
    """Runs through the loops of `walk`, whose first level is the innermost.

    `position` is the present place, in the first cycle of a walk without a cycle of latency;
    `first` and `last` tell for each level whether it is in its first or last iteration. `advance`
    goes on to the next place, one a cycle, and from the very last one to the start of the next
    walk: `walk` must stay until that cycle and may change with it.
    """

    def __init__(self, *, walk: Walk):
        self._levels = walk.levels
        flags = data.StructLayout({level.name: 1 for level in walk.levels})
        super().__init__(
            {
                "walk": In(walk),
                "advance": In(1),
                "position": Out(Position()),
                "first": Out(flags),
                "last": Out(flags),
                "ends": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        state = data.StructLayout(
            {
                level.name: data.StructLayout(
                    # Where the present iteration began, iterations left, is it the first.
                    {"begun": Position(), "left": level.count_bits, "first": 1}
                )
                for level in self._levels
            }
        )
        fresh = Signal(init=1)
        kept = Signal(state)
        now = Signal(state)
        for level in self._levels:
            here = now[level.name]
            with m.If(fresh):
                m.d.comb += [
                    here.begun.eq(self.walk.start),
                    here.left.eq(self.walk.count[level.name]),
                    here.first.eq(1),
                ]
            with m.Else():
                m.d.comb += here.eq(kept[level.name])
            m.d.comb += [
                self.first[level.name].eq(here.first),
                self.last[level.name].eq(here.left == 1),
            ]
        m.d.comb += [
            self.position.eq(now[self._levels[0].name].begun),
            self.ends.eq(self.last.as_value().all()),
        ]

        with m.If(self.advance):
            m.d.sync += [fresh.eq(self.ends), kept.eq(now)]
            # The innermost level that is not at its end goes on; those inside start again there.
            inner_end: Value = Const(1)
            for index, level in enumerate(self._levels):
                inner = self._levels[:index]
                here = now[level.name]
                target = Signal(Position(), name=f"after_{level.name}")
                m.d.comb += target.eq(here.begun)
                for name in level.moves:
                    step = self.walk.step[level.name][name]
                    m.d.comb += target[name].eq(here.begun[name] + step)
                with m.If(inner_end & ~self.last[level.name]):
                    m.d.sync += [
                        kept[level.name].begun.eq(target),
                        kept[level.name].left.eq(here.left - 1),
                        kept[level.name].first.eq(0),
                    ]
                    for other in inner:
                        m.d.sync += [
                            kept[other.name].begun.eq(target),
                            kept[other.name].left.eq(self.walk.count[other.name]),
                            kept[other.name].first.eq(1),
                        ]
                inner_end = inner_end & self.last[level.name]
        return m
