# SPDX-License-Identifier: Apache-2.0
"""Nested loops over the lines of a feature map, by additions alone."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from operator import or_

from amaranth.hdl import Cat, Module, Mux, Signal, Value, ValueLike, signed
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

COORDINATE_BITS = 21
"""Rows and columns of windows that may lie outside the map on both sides."""

WALK_GAP = 1
"""Cycles between two walks, and from `walk_valid` to the first place."""


class Position(data.StructLayout):
    """A place in a feature map: its buffer line, its row y and its column x.

    Outside the map the line means nothing; it wraps, and comes back right.
    """

    def __init__(self, *, line_bits: int):
        super().__init__(
            {
                "line": line_bits,
                "y": signed(COORDINATE_BITS),
                "x": signed(COORDINATE_BITS),
            }
        )


@dataclass(frozen=True, kw_only=True)
class Level:
    """One loop: its name, the width of its count, and the coordinates that it moves, each with the
    width of its steps."""

    name: str
    count_bits: int
    moves: Mapping[str, int] = field(default_factory=dict[str, int])


class Walk(data.StructLayout):
    """What a `Walker` walks: where it starts, and for each level its count, whether that is one
    (`single`) or two (`double`), and its steps. `counts` sets the three."""

    def __init__(self, levels: Sequence[Level], *, line_bits: int):
        self.levels = tuple(levels)
        self.position = Position(line_bits=line_bits)
        flags = data.StructLayout({level.name: 1 for level in levels})
        super().__init__(
            {
                "start": self.position,
                "single": flags,
                "double": flags,
                "count": data.StructLayout({level.name: level.count_bits for level in levels}),
                "step": data.StructLayout(
                    {
                        level.name: data.StructLayout(dict(level.moves))
                        for level in levels
                        if level.moves
                    }
                ),
            }
        )


def counts(walk: data.View, **numbers: ValueLike) -> list[object]:
    """Sets the counts of some levels of a `walk`."""
    return [
        assignment
        for level, number in numbers.items()
        for assignment in (
            walk.count[level].eq(number),
            walk.single[level].eq(Value.cast(number) == 1),
            walk.double[level].eq(Value.cast(number) == 2),
        )
    ]


class Walker(wiring.Component):
    """Runs through the loops of a `walk`, whose first level is the innermost.

    `position` is the present place while `present`; `first` and `last` tell for each level whether
    it is in its first or last iteration, `ends` whether it is the last place of all: all from
    registers. `advance` goes on to the next place, one a cycle; it means nothing while there is
    none. `walk.ready` as soon as the last place is left: a walk is kept where it is taken, begins
    WALK_GAP cycles later, and WALK_GAP cycles lie between two. `will_be_present`: what `present`
    will be in the next cycle, for copies of it.
    """

    def __init__(self, *, walk: Walk):
        self._levels = walk.levels
        self._position = walk.position
        flags = data.StructLayout({level.name: 1 for level in walk.levels})
        super().__init__(
            {
                "walk": In(stream.Signature(walk)),
                "present": Out(1),
                "will_be_present": Out(1),
                "advance": In(1),
                "position": Out(walk.position),
                "first": Out(flags),
                "last": Out(flags),
                "ends": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        levels, position = self._levels, self._position
        walk = self.walk.payload
        flags = data.StructLayout({level.name: 1 for level in levels})
        # What is kept of the walk.
        count = Signal.like(walk.count, reset_less=True)
        step = Signal.like(walk.step, reset_less=True)
        single, double = Signal(flags, reset_less=True), Signal(flags, reset_less=True)
        idle = Signal(init=1)  # not `present`, for all but what follows
        # Of each level where its present iteration began (of the innermost: the place), how many
        # iterations are left where it is not the first, this one too, and whether the one behind it
        # is the last.
        begun = {level.name: Signal(position, name=f"begun_{level.name}") for level in levels}
        left = {level.name: Signal(level.count_bits, name=f"left_{level.name}") for level in levels}
        nears = Signal(flags, reset_less=True)
        # The innermost level that is not at its end goes on, and those inside start again there.
        # In the last place all do, which means nothing, as there is none behind it.
        goes_on, again = Signal(flags), Signal(flags)
        # The opposite of `goes_on`, for the multiplexer of the places alone.
        stays = Signal(flags, init=dict.fromkeys(flags.members, 1))
        m.d.comb += [self.walk.ready.eq(idle), self.position.eq(begun[levels[0].name])]

        target = Signal(position)
        reached = [Mux(idle, walk.start.as_value(), 0)]
        for level in levels:
            place = Signal(position, name=f"after_{level.name}")
            m.d.comb += place.eq(begun[level.name])
            for name in level.moves:
                m.d.comb += place[name].eq(begun[level.name][name] + step[level.name][name])
            reached.append(Mux(stays[level.name], 0, place.as_value()))
        pairs = [reduce(or_, reached[n : n + 2]) for n in range(0, len(reached), 2)]
        m.d.comb += target.as_value().eq(reduce(or_, pairs))

        following = Signal(flags)  # `last` in the next place
        for level in levels:
            name = level.name
            now = Signal(level.count_bits, name=f"now_{name}")
            m.d.comb += [
                following[name].eq(
                    Mux(goes_on[name], nears[name], Mux(again[name], single[name], self.last[name]))
                ),
                now.eq(Mux(self.first[name], count[name], left[name])),
            ]
            with m.If(idle):
                m.d.sync += [
                    begun[name].eq(target),
                    nears[name].eq(walk.double[name]),
                    self.first[name].eq(1),
                ]
            with m.Elif(self.advance):
                with m.If(again[name]):
                    m.d.sync += [
                        begun[name].eq(target),
                        nears[name].eq(double[name]),
                        self.first[name].eq(1),
                    ]
                with m.If(goes_on[name]):
                    m.d.sync += [
                        begun[name].eq(target),
                        left[name].eq(now - 1),
                        nears[name].eq(now == 3),
                        self.first[name].eq(0),
                    ]
        with m.If(idle):
            m.d.sync += [
                count.eq(walk.count),
                single.eq(walk.single),
                double.eq(walk.double),
                step.eq(walk.step),
            ]

        def enter(last: data.View, valid: Value) -> list[object]:
            """The place that has `last`."""
            values = [last[level.name] for level in levels]
            ends = Cat(values).all()
            result = [self.last.eq(last), self.ends.eq(ends)]
            for index, level in enumerate(levels):
                on = valid & Cat(values[:index]).all() & ~values[index]
                result += [
                    goes_on[level.name].eq(on),
                    stays[level.name].eq(~on),
                    again[level.name].eq(valid & Cat(values[: index + 1]).all()),
                ]
            return result

        with m.If(~self.present):
            m.d.comb += self.will_be_present.eq(self.walk.valid)
            m.d.sync += enter(walk.single, self.walk.valid)
        with m.Elif(self.advance):
            m.d.comb += self.will_be_present.eq(~self.ends)
            m.d.sync += enter(following, ~self.ends)
        with m.Else():
            m.d.comb += self.will_be_present.eq(1)
        m.d.sync += [self.present.eq(self.will_be_present), idle.eq(~self.will_be_present)]
        return m
