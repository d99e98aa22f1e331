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
        # Of each level where its present iteration began (of the innermost: the place), and how
        # many iterations are left behind the next one.
        begun = {level.name: Signal(Position(), name=f"begun_{level.name}") for level in levels}
        left = {level.name: Signal(level.count_bits, name=f"left_{level.name}") for level in levels}
        single = Signal(data.StructLayout({level.name: 1 for level in levels}))
        m.d.comb += [
            self.position.eq(begun[levels[0].name]),
            self.ends.eq(self.last.as_value().all()),
            *(single[level.name].eq(self.walk.count[level.name] == 1) for level in levels),
        ]

        def restart(level: Level, place: Value) -> list[object]:
            return [
                begun[level.name].eq(place),
                left[level.name].eq(self.walk.count[level.name]),
                self.first[level.name].eq(1),
                self.last[level.name].eq(single[level.name]),
            ]

        with m.If(~self.present):
            m.d.sync += self.present.eq(self.walk_valid)
            for level in levels:
                m.d.sync += restart(level, self.walk.start)
        with m.Elif(self.advance):
            m.d.sync += self.present.eq(~self.ends)
            # The innermost level that is not at its end goes on; those inside start again there.
            inner_end: Value = Const(1)
            for index, level in enumerate(levels):
                target = Signal(Position(), name=f"after_{level.name}")
                m.d.comb += target.eq(begun[level.name])
                for name in level.moves:
                    step = self.walk.step[level.name][name]
                    m.d.comb += target[name].eq(begun[level.name][name] + step)
                with m.If(inner_end & ~self.last[level.name]):
                    m.d.sync += [
                        begun[level.name].eq(target),
                        left[level.name].eq(left[level.name] - 1),
                        self.first[level.name].eq(0),
                        self.last[level.name].eq(left[level.name] == 2),
                    ]
                    for inner in levels[:index]:
                        m.d.sync += restart(inner, target)
                inner_end = inner_end & self.last[level.name]
        return m
