# SPDX-License-Identifier: Apache-2.0
"""The planner of the matrix unit, which finds the buffer line for each place of a feature map."""

from amaranth.hdl import Cat, Module, Mux, Signal, signed
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from systola.arch.config import Config
from systola.hdl.commands import MatrixCommand, line_bits, matrix_walk
from systola.hdl.matrix.vector_feeder import FeedEvent
from systola.hdl.parts.replica import Replica


class Plan(data.StructLayout):
    """A plan to read a line of the buffer, for a vector or in preparation of a vector.

    | field    | meaning |
    |---|---|
    | `line`   | the line of the buffer |
    | `reads`  | the line is read |
    | `vector` | the feeder makes a vector; else the line is read only because the next vector
                 begins in it |
    | `feed`   | the note for the feeder |
    """

    def __init__(self, *, config: Config):
        super().__init__(
            {
                "line": line_bits(config),
                "reads": 1,
                "vector": 1,
                "feed": FeedEvent(rows=config.rows),
            }
        )


class Place(data.StructLayout):
    """A place of a walk, and its position. Two flags mark the first and last place of a map row."""

    def __init__(self, *, config: Config):
        position = matrix_walk(config).position
        super().__init__({"position": position, "row_starts": 1, "row_ends": 1})


class VectorPlanner(wiring.Component):
    """A unit that turns places of a walk into plans.

    | port      | meaning |
    |---|---|
    | `command` | the command of the present walk |
    | `places`  | the places of the walk; `places.ready` is a register |
    | `plan`    | the plan of the place, from the cycle after the place was taken |
    | `frees`   | the value of `plan.ready` in the next cycle |

    A plan reads the line of its place, or no line if the place lies outside the map. Throughput:
    one plan a cycle. Latency: one cycle. Back-pressure: a plan stays until it is taken, and the
    places wait.

    Packed channels: a vector begins at any byte of a row and ends in the next line, so it needs two
    lines. The feeder still has the first of them, as the vectors before have used it. So the plan
    reads only the second line, and only if it was not read before. This leaves the bank of the line
    to other units most of the time. At the start of a row inside the map, the feeder does not have
    the first line. A plan of its own reads it before the plan of the vector; the code calls this to
    prime.

    docs/architecture.md, "Ready a cycle ahead", describes `frees`.
    """

    def __init__(self, *, config: Config):
        self._config = config
        super().__init__(
            {
                "command": In(MatrixCommand(config=config)),
                "places": In(stream.Signature(Place(config=config))),
                "plan": Out(stream.Signature(Plan(config=config))),
                "frees": In(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        rows, command, place = self._config.rows, self.command, self.places.payload
        position = place.position
        packed = command.packed
        plan = self.plan.payload

        # Packed channels: a vector begins at byte `first_byte` of its first line. With
        # `vector_crosses`, the next vector of the row begins one line later. The first line of a
        # vector is `lines_crossed` + `kept_crosses` lines after the line of its position.
        first_byte = Signal(range(rows))
        kept_byte = Signal.like(first_byte)
        next_byte = Signal(range(2 * rows))
        vector_crosses = Signal()
        lines_crossed = Signal(line_bits(self._config))
        kept_crosses = Signal()
        m.d.comb += [
            first_byte.eq(Mux(place.row_starts, command.byte, kept_byte)),
            next_byte.eq(first_byte + command.byte_step),
            vector_crosses.eq(next_byte >= rows),
        ]

        # Registers that take a place. `place_free` is a copy of `places.ready` for this unit.
        place_taken = Signal()
        place_free = Signal()
        at_row_start = Signal(reset_less=True)
        place_inside = Signal(reset_less=True)
        # the plan primes: at the start of a row it only reads the first line
        place_primes = Signal(reset_less=True)
        # number of bytes of the vector in its first line
        bytes_in_line = Signal(range(rows + 1), reset_less=True)
        first_line = Signal(line_bits(self._config), reset_less=True)
        # number of columns from the vector's x to the end of the row
        columns_remaining = Signal(signed(len(position.x) + 1), reset_less=True)
        feed_here = Signal(FeedEvent(rows=rows), reset_less=True)
        moves_on = Signal(reset_less=True)
        # Taken as an unsigned number, a negative coordinate is beyond any map. The sign of a
        # difference comes directly out of a carry chain. A comparison does not.
        inside_y = (position.y.as_unsigned() - command.height)[-1]
        inside_x = (position.x.as_unsigned() - command.width)[-1]
        with m.If(place_taken):
            m.d.sync += kept_byte.eq(Mux(vector_crosses, next_byte - rows, next_byte))
            with m.If(place.row_ends | ~packed):
                m.d.sync += [lines_crossed.eq(0), kept_crosses.eq(0)]
            with m.Else():
                m.d.sync += [
                    lines_crossed.eq(lines_crossed + kept_crosses),
                    kept_crosses.eq(vector_crosses),
                ]
        with m.If(place_free):
            m.d.sync += [
                at_row_start.eq(place.row_starts),
                place_inside.eq(~command.bounded | (inside_y & (inside_x | packed))),
                # `kept_crosses` enters the adder as its carry.
                first_line.eq((Cat(1, position.line) + Cat(kept_crosses, lines_crossed))[1:]),
                bytes_in_line.eq(rows - first_byte),
                columns_remaining.eq(command.width - position.x),
                moves_on.eq(vector_crosses),
                feed_here.rotates.eq(packed),
                feed_here.shift.eq(first_byte),
                feed_here.fill.eq(command.fill),
                feed_here.head.eq(
                    Mux(position.x >= 0, 0, Mux(position.x > -rows, -position.x, rows))
                ),
            ]

        # The plan of the place. At the start of a row, a plan that only reads the first line comes
        # before the plan of the vector.
        plan_valid = Signal()
        stays_valid = Signal()
        primes_next = Signal()
        line_read = Signal()
        row_continues = Signal()  # the row continues in the second line of the vector
        # the line that was read last has become the first line of the vector
        line_moved_on = Signal()
        m.d.comb += [
            stays_valid.eq(place_taken | (plan_valid & ~(self.plan.ready & ~place_primes))),
            place_taken.eq(self.places.valid & place_free),
            self.plan.valid.eq(plan_valid),
            plan.line.eq(first_line - place_primes),
            # If the row ends in the first line, there is no second line to read.
            row_continues.eq((bytes_in_line - columns_remaining)[-1]),
            line_read.eq(
                place_inside
                & (
                    ~feed_here.rotates
                    | place_primes
                    | ((at_row_start | line_moved_on) & row_continues)
                )
            ),
            plan.reads.eq(line_read),
            plan.vector.eq(~place_primes),
            plan.feed.rotates.eq(feed_here.rotates),
            plan.feed.shift.eq(feed_here.shift),
            plan.feed.fill.eq(feed_here.fill),
            plan.feed.head.eq(feed_here.head),
            plan.feed.fetched.eq(line_read),
            plan.feed.moved_on.eq(line_moved_on),
            plan.feed.outside.eq(~place_inside),
            plan.feed.body.eq(
                Mux(
                    columns_remaining >= rows,
                    rows,
                    Mux(columns_remaining > 0, columns_remaining, 0),
                )
            ),
        ]
        m.d.sync += [plan_valid.eq(stays_valid), place_primes.eq(primes_next)]
        with m.If(plan_valid & self.plan.ready):
            m.d.sync += line_moved_on.eq(place_primes | moves_on)
        # `starts_inside`: the place is inside the map, so its first line must be read. This signal
        # comes late in the cycle. So `primes_next` leaves out `places.valid`: with it, synthesis
        # would derive `will_be_free` from `primes_next`, which is late, too.
        starts_inside = inside_x & (~command.bounded | inside_y)
        begins_row = place_free & packed & place.row_starts
        still_primes = ~place_free & place_primes & ~self.plan.ready
        begins = self.places.valid & begins_row
        m.d.comb += primes_next.eq((begins_row & starts_inside) | still_primes)
        will_be_free = ~stays_valid | (self.frees & ~still_primes)
        for name, copy in (("ready", place_free), ("place_ready", self.places.ready)):
            replica = m.submodules[name] = Replica()
            m.d.comb += [
                replica.input.eq(will_be_free & ~(begins & starts_inside)),
                copy.eq(replica.output),
            ]
        return m
