# SPDX-License-Identifier: Apache-2.0
"""Nested loops over the lines of a feature map, by additions alone."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from operator import or_

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value, signed
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

ADDRESS_BITS = 21
"""On-chip addresses, and one past their end."""
COORDINATE_BITS = 21
"""Rows and columns of windows that may lie outside the map on both sides."""

WALK_GAP = 1
"""Cycles between two walks, and from `walk_valid` to the first place."""


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

    `position` is the present place while `present`; `first` and `last` tell for each level whether
    it is in its first or last iteration, `ends` whether it is the last place of all: all from
    registers. `advance` (only while `present`) goes on to the next place, one a cycle. A walk
    begins WALK_GAP cycles after `walk_valid`, unless one is under way; `walk` must stay until the
    cycle in which its last place is left, and WALK_GAP cycles lie between that and the next walk.
    """

    def __init__(self, *, walk: Walk):
        self._levels = walk.levels
        flags = data.StructLayout({level.name: 1 for level in walk.levels})
        super().__init__(
            {
                "walk": In(walk),
                "walk_valid": In(1),
                "present": Out(1),
                "advance": In(1),
                "position": Out(Position()),
                "first": Out(flags),
                "last": Out(flags),
                "ends": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        levels = self._levels
        # Of each level where its present iteration began (of the innermost: the place), how many
        # iterations are left, this one too, and whether the one behind it is the last.
        begun = {level.name: Signal(Position(), name=f"begun_{level.name}") for level in levels}
        left = {level.name: Signal(level.count_bits, name=f"left_{level.name}") for level in levels}
        nears = {level.name: Signal(name=f"nears_{level.name}") for level in levels}
        # The innermost level that is not at its end goes on, and those inside start again there.
        goes_on = Signal(data.StructLayout({level.name: 1 for level in levels}))
        m.d.comb += self.position.eq(begun[levels[0].name])

        target = Signal(Position())
        reached: list[Value] = []
        for level in levels:
            place = Signal(Position(), name=f"after_{level.name}")
            m.d.comb += place.eq(begun[level.name])
            for name in level.moves:
                step = self.walk.step[level.name][name]
                m.d.comb += place[name].eq(begun[level.name][name] + step)
            reached.append(Mux(goes_on[level.name], place.as_value(), 0))
        with m.If(self.present):
            m.d.comb += target.as_value().eq(reduce(or_, reached))
        with m.Else():
            m.d.comb += target.eq(self.walk.start)

        # All levels start again behind the outermost one, or where there is no walk.
        outside = {
            level.name: Cat(goes_on[outer.name] for outer in levels[index + 1 :]).any()
            for index, level in enumerate(levels)
        }
        last: list[Value] = []
        for level in levels:
            count = self.walk.count[level.name]
            is_last = Signal(name=f"will_be_last_{level.name}")
            last.append(is_last)
            starts = Signal(name=f"starts_{level.name}")
            moves = Signal(name=f"moves_{level.name}")
            m.d.comb += [
                starts.eq(~self.present | (outside[level.name] & self.advance)),
                moves.eq(self.present & self.advance & goes_on[level.name]),
                is_last.eq(self.last[level.name]),
            ]
            with m.If(starts):
                m.d.comb += is_last.eq(count == 1)
                m.d.sync += [
                    begun[level.name].eq(target),
                    left[level.name].eq(count),
                    nears[level.name].eq(count == 2),
                    self.first[level.name].eq(1),
                ]
            with m.Elif(moves):
                m.d.comb += is_last.eq(nears[level.name])
                m.d.sync += [
                    begun[level.name].eq(target),
                    left[level.name].eq(left[level.name] - 1),
                    nears[level.name].eq(left[level.name] == 3),
                    self.first[level.name].eq(0),
                ]
            m.d.sync += self.last[level.name].eq(is_last)
        before: Value = Const(1)
        for level, is_last in zip(levels, last, strict=True):
            m.d.sync += goes_on[level.name].eq(before & ~is_last)
            before = before & is_last
        m.d.sync += self.ends.eq(before)
        with m.If(~self.present):
            m.d.sync += self.present.eq(self.walk_valid)
        with m.Elif(self.advance):
            m.d.sync += self.present.eq(~self.ends)
        return m
