# SPDX-License-Identifier: Apache-2.0
"""Nested loops over the lines of a feature map, by additions alone."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from amaranth.hdl import Cat, Module, Mux, Shape, Signal, Value, ValueLike, signed
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from systola.hdl.parts.ored import ored
from systola.hdl.parts.promise import promised, promised_next, promised_to_stay
from systola.hdl.parts.selecting_adder import SelectingAdder

WALK_GAP = 1
"""Cycles between two walks, and from the valid walk to its first place."""


class Position(data.StructLayout):
    """A place in a feature map: its buffer line, its row y and its column x.

    Outside the map the line is meaningless. It wraps around, and is right again back inside the
    map. A coordinate in the upper half of the positive numbers is beyond any map, and stays there
    for every step.
    """

    def __init__(self, *, line_bits: int, y_bits: int, x_bits: int):
        super().__init__({"line": line_bits, "y": signed(y_bits), "x": signed(x_bits)})


@dataclass(frozen=True, kw_only=True)
class Level:
    """A loop of a walk.

    | field        | meaning |
    |---|---|
    | `name`       | name of the loop |
    | `count_bits` | width in bits of the number of iterations |
    | `moves`      | the coordinates that the loop moves, each with the width in bits of its step |
    """

    name: str
    count_bits: int
    moves: Mapping[str, int] = field(default_factory=dict[str, int])


class Walk(data.StructLayout):
    """A description of a walk for a `Walker`; `levels` begins with the innermost loop.

    | field    | meaning |
    |---|---|
    | `start`  | the first place |
    | `count`  | iterations of each level, at least one |
    | `single` | for each level whether its count is one |
    | `double` | for each level whether its count is two |
    | `step`   | distance of each coordinate from one iteration of a level to the next |

    `counts` sets `count`, `single` and `double`.
    """

    def __init__(self, levels: Sequence[Level], position: Position):
        self.levels = tuple(levels)
        self.position = position
        flags = data.StructLayout({level.name: 1 for level in levels})
        super().__init__(
            {
                "start": position,
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
    """Return the assignments that set the iterations of some levels of a `walk`."""
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
    """A counter that runs through the loops of a `walk`; the first level is the innermost.

    | port              | meaning |
    |---|---|
    | `walk`            | the loops; not copied, so they must stay until `walk.ready`, in the cycle
                          that leaves the last place |
    | `present`         | there is a place |
    | `will_be_present` | the value of `present` in the next cycle, for copies of this register |
    | `advance`         | goes on to the next place; meaningless while there is none |
    | `position`        | the present place |
    | `first`           | for each level whether it is in its first iteration |
    | `last`            | for each level whether it is in its last iteration |
    | `ends`            | the present place is the last of the walk |

    All outputs but `will_be_present` and `walk.ready` are registers. Throughput: a place a cycle.
    The first place comes WALK_GAP cycles after its walk. WALK_GAP cycles lie between two walks.
    docs/architecture.md, "Ready a cycle ahead", has the timing of `will_be_present`.
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
        levels = self._levels
        walk = self.walk.payload
        flags = data.StructLayout({level.name: 1 for level in levels})
        idle = Signal(init=1)  # the inverse of `present`: a separate register, for the loops
        # `iterations_remaining`: iterations remaining in a level, the present one included; valid
        # after the first iteration. `next_is_last`: the next iteration is the last one of its
        # level.
        iterations_remaining = {
            level.name: Signal(level.count_bits, name=f"remaining_{level.name}") for level in levels
        }
        next_is_last = Signal(flags, reset_less=True)
        # The innermost level that is not in its last iteration `goes_on`, and the levels inside it
        # start again (`level_restarts`). In the last place, and without a place, all levels start
        # again. In the last place this is meaningless, as no place follows. Without a place this
        # makes `next_lasts` right for the first place of a walk. The flags of a new walk come late.
        goes_on = Signal(flags)
        level_restarts = Signal(flags, init={level.name: 1 for level in levels})
        next_lasts = Signal(flags)  # the value of `last` in the next place
        m.d.comb += self.walk.ready.eq(self.present & self.advance & self.ends)
        # Only the level that goes on counts its iterations.
        now = [
            Mux(goes_on[name], Mux(self.first[name], walk.count[name], number), 0)
            for name, number in iterations_remaining.items()
        ]
        level_remaining = Signal(max(level.count_bits for level in levels))
        m.d.comb += level_remaining.eq(ored(now))
        for level in levels:
            name = level.name
            m.d.comb += next_lasts[name].eq(
                Mux(
                    goes_on[name],
                    next_is_last[name],
                    Mux(level_restarts[name], walk.single[name], self.last[name]),
                )
            )
            with m.If(idle | self.advance):
                with m.If(level_restarts[name]):
                    m.d.sync += [next_is_last[name].eq(walk.double[name]), self.first[name].eq(1)]
                with m.If(goes_on[name]):
                    m.d.sync += [
                        iterations_remaining[name].eq(level_remaining - 1),
                        next_is_last[name].eq(level_remaining == 3),
                        self.first[name].eq(0),
                    ]
        for axis, place in self._position:
            here = self._along(m, axis, Shape.cast(place.shape), idle, goes_on, level_restarts)
            m.d.comb += self.position[axis].eq(here)

        place_follows = Signal()  # there is a next place
        m.d.comb += [
            place_follows.eq(Mux(self.present, ~self.ends, self.walk.valid)),
            self.will_be_present.eq(place_follows | (self.present & ~self.advance)),
        ]
        with m.If(~self.present | self.advance):
            values = [next_lasts[level.name] for level in levels]
            m.d.sync += [self.last.eq(next_lasts), self.ends.eq(Cat(values).all())]
            for index, level in enumerate(levels):
                m.d.sync += [
                    goes_on[level.name].eq(
                        place_follows & Cat(values[:index]).all() & ~values[index]
                    ),
                    level_restarts[level.name].eq(~place_follows | Cat(values[: index + 1]).all()),
                ]
        m.d.sync += [self.present.eq(self.will_be_present), idle.eq(~self.will_be_present)]
        message = "a walk changes before its last place is left"
        promised_to_stay(m, platform, self.present, walk, message)
        message = "a place is not present as foretold"
        promised_next(m, platform, self.will_be_present, self.present, message)
        levels_end = self.last.as_value().all()
        promised(m, platform, ~self.present | (self.ends == levels_end), "a walk ends too soon")
        promised(m, platform, idle != self.present, "a walk is idle and present")
        return m

    def _along(
        self,
        m: Module,
        axis: str,
        shape: Shape,
        idle: Signal,
        goes_on: data.View,
        level_restarts: data.View,
    ) -> Signal:
        """Make the register of one coordinate of the place.

        Each level that moves the coordinate has a register: its value when the present iteration of
        the level began. In the innermost of these levels this is the coordinate of the place. If
        another level goes on, one that does not move the coordinate, the levels inside it start
        again. They start from the value of the next level outside that moves the coordinate, or
        from the start of the walk.
        """
        names = [level.name for level in self._levels]
        moving = [level.name for level in self._levels if axis in level.moves]
        begun = {name: Signal(shape, name=f"{axis}_of_{name}", reset_less=True) for name in moving}
        target = Signal(shape, name=f"{axis}_target")
        walk = self.walk.payload
        inside = names.index(moving[0])
        reached: list[Value] = []
        for name in moving:
            index = names.index(name)
            passes = Cat(goes_on[other] for other in names[inside + 1 : index])
            moves = goes_on[name]
            by = walk.step[name][axis]
            total = Signal(shape, name=f"{axis}_behind_{name}")
            reaches = begun[name] + by
            if len(passes):
                # Steps come late out of a memory, so the look-up tables of the adder choose among
                # them.
                adder = m.submodules[f"{axis}_adder_of_{name}"] = SelectingAdder(width=len(total))
                m.d.comb += [
                    adder.a.eq(begun[name]),
                    adder.choose_b.eq(moves.replicate(len(total))),
                    adder.b.eq(by),
                ]
                reaches = adder.total
            m.d.comb += total.eq(_saturated(reaches[: len(total)]) if shape.signed else reaches)
            reached.append(Mux(moves | passes.any(), total, 0))
            inside = index
        starts = Cat(idle, *(goes_on[other] for other in names[inside + 1 :])).any()
        reached.append(Mux(starts, walk.start[axis], 0))
        pairs = [ored(reached[n : n + 2]) for n in range(0, len(reached), 2)]
        m.d.comb += target.eq(ored(pairs))
        for name, there in begun.items():
            with m.If(idle | (self.advance & (goes_on[name] | level_restarts[name]))):
                m.d.sync += there.eq(target)
        return begun[moving[0]]


def _saturated(total: Value) -> Value:
    """Return a coordinate after a step, without wrapping around.

    A sum in the lower half of the negative numbers becomes one in the upper half of the positive
    numbers, which is beyond any map.
    """
    wraps = total[-1] & ~total[-2]
    return Cat(total[:-2], total[-2] | wraps, total[-1] & ~wraps)
