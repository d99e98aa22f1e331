# SPDX-License-Identifier: Apache-2.0
"""The matrix unit, which takes vectors and weights into the array and adds sums to accumulators."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from systola.arch.config import Config
from systola.hdl.commands import line_bits, matrix_walk, row_bits
from systola.hdl.control.hazards import masks_of
from systola.hdl.control.signatures import list_signature, queue_signature
from systola.hdl.matrix.mxu import MXU
from systola.hdl.matrix.vector_feeder import FEED_LATENCY, FeedEvent, VectorFeeder
from systola.hdl.matrix.vector_planner import VectorPlanner
from systola.hdl.matrix.weight_loader import WeightLoader
from systola.hdl.memories.accumulators import BANKS, UPDATE_LATENCY, RowUpdateSignature
from systola.hdl.parts.delay_line import DelayLine
from systola.hdl.parts.in_flight import kept
from systola.hdl.parts.interlock import Check, Interlock
from systola.hdl.parts.replica import Replica
from systola.hdl.parts.walker import WALK_GAP, Walker
from systola.hdl.ports import BUFFER_LATENCY, BufferReadSignature, WeightRowSignature

FRONT_LATENCY = 6
"""Cycles from a command through walker, planner and interlock to the read of its first line."""
FOLLOW_LATENCY = 2
"""Cycles from the cycle in which a list lets a line go, through the interlock, to its read."""
SUMS_ANNOUNCED = UPDATE_LATENCY
"""Cycles from the announcement of a row to its write.

A unit with an `Interlock` reads the row at the earliest one cycle after the write.
"""
COMMAND_GAP = WALK_GAP
"""Cycles between two commands in which no vector is issued."""


class SumEvent(data.StructLayout):
    """An update of an accumulator row with the sums of one vector.

    | field        | meaning |
    |---|---|
    | `row`        | the row |
    | `accumulate` | adds to the row; else the sums replace it |
    | `shift`      | multiplies the sums by 2^(8 * shift) |
    | `final`      | the instruction does not update this row again |
    | `last`       | the instruction does not update this row or any other row again |
    """

    def __init__(self, *, config: Config):
        super().__init__(
            {"row": row_bits(config), "accumulate": 1, "shift": 2, "final": 1, "last": 1}
        )


class VectorEvent(data.StructLayout):
    """A note that accompanies a vector on its way to its sums.

    | field              | meaning |
    |---|---|
    | `first`            | the vector is the first one of its tile |
    | `unsigned_vector`  | the bytes of the vector are low bytes of int16 |
    | `unsigned_weights` | the weights of the tile are low bytes of int16 |
    | `sum`              | the update of the accumulators with the sums of the vector |
    """

    def __init__(self, *, config: Config):
        super().__init__(
            {
                "first": 1,
                "unsigned_vector": 1,
                "unsigned_weights": 1,
                "sum": SumEvent(config=config),
            }
        )


class Item(data.StructLayout):
    """An item that waits for its issue: a vector, or a line alone.

    | field       | meaning |
    |---|---|
    | `line`      | the line of the buffer |
    | `reads`     | the line is read |
    | `row`       | the row of the accumulators |
    | `vector`    | the item is a vector; else it is a line that only the next vector needs |
    | `done_with` | the instruction reads no line up to this one again |
    | `feed`      | the note for the feeder |
    | `event`     | the note for the array and the accumulators |
    """

    def __init__(self, *, config: Config):
        super().__init__(
            {
                "line": line_bits(config),
                "reads": 1,
                "row": row_bits(config),
                "vector": 1,
                "done_with": 1,
                "feed": FeedEvent(rows=config.rows),
                "event": VectorEvent(config=config),
            }
        )


class MatrixUnit(wiring.Component):
    """A unit that executes MatrixMultiply and Convolve: it issues one vector a cycle.

    A vector is made from a line of the buffer, or lies outside the feature map and reads no line
    (VectorPlanner). Its sums go to an accumulator row. Vectors are issued in the order of the
    command's walk.

    | port               | meaning |
    |---|---|
    | `queue`            | the queue of commands; `pop`: the last place of the walk is taken, so the
                           next command may come |
    | `matrix_reading`   | the list of buffer lines: reports lines that have been read for the last
                           time, and retires when all have been read |
    | `matrix_summing`   | the list of accumulator rows: reports rows that are final in
                           SUMS_ANNOUNCED cycles, and retires when all rows are |
    | `waits`            | a bit for each mask: in the cycle before, a vector waited for an entry of
                           its list |
    | `buffer`           | reads of lines |
    | `weight_rows`      | the weight FIFO, row by row |
    | `update`           | updates of accumulator rows |
    | `active`           | a vector was issued in the cycle before |
    | `awaiting_weights` | in the cycle before, the array waited for weights, and the FIFO had no
                           row |
    | `weights_moving`   | in the cycle before, a vector waited while rows of its tile moved into
                           the array |

    Back-pressure: a vector waits while older instructions still use its line or its row. The first
    vector of a tile waits for the weights of the tile. A tile is loaded into the shadow weights in
    `rows` cycles, while the array works with the tile before. Then it is swapped in without a
    bubble.

    Throughput: one vector a cycle. COMMAND_GAP cycles lie between two commands. At `queue.pop` some
    vectors of the command may not be issued yet.

    Latency: the first line is read FRONT_LATENCY cycles after its command came, and FOLLOW_LATENCY
    cycles after a list lets it go.

    The line of a vector is read in the cycle in which `active` is high. Its sums come `latency`
    cycles later, not counting cycles in which a missing weight row holds the unit. Such a row holds
    first the issue, and then all later stages, one after the other. Nothing can stop an update, so
    rows are announced before their write.
    """

    def __init__(self, *, config: Config):
        self._config = config
        super().__init__(
            {
                "queue": In(queue_signature("matrix", config)),
                "matrix_reading": In(list_signature("matrix_reading", config)),
                "matrix_summing": In(list_signature("matrix_summing", config)),
                "waits": Out(data.StructLayout(dict.fromkeys(masks_of("matrix", config), 1))),
                "buffer": Out(BufferReadSignature(config=config)),
                "weight_rows": In(WeightRowSignature(width=8 * config.cols)),
                "update": Out(RowUpdateSignature(config=config)),
                "active": Out(1),
                "awaiting_weights": Out(1),
                "weights_moving": Out(1),
            }
        )

    @staticmethod
    def latency(config: Config) -> int:
        """Return the cycles from `active` to the sums, which come SUMS_LATENCY after
        `update.enable`.
        """
        return FEED_LATENCY + MXU.latency(config)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self._config
        loader = m.submodules.loader = WeightLoader(config=config)
        mxu = m.submodules.mxu = MXU(config=config)
        feeder = m.submodules.feeder = VectorFeeder(config=config)
        interlock = m.submodules.interlock = Interlock(
            item=Item(config=config),
            checks=[
                Check(watched="host_reading", address="line", used="reads"),
                Check(watched="activate_writing", address="line", used="reads"),
                Check(watched="activate_reading", address="row", used="vector"),
            ],
            depth=config.queue_depth,
            widths=masks_of("matrix", config),
        )
        self._plan(m, interlock)

        # The issue depends on registers and on the weights. An item that has to wait for weights
        # waits in `waiting_item`, so that the interlock's `output.ready` is a register.
        passed = interlock.output
        waiting_item = Signal(Item(config=config), reset_less=True)
        waiting_valid = Signal()
        # the inverse of `waiting_valid`: a separate register, for the choice between the items
        waiting_free = Signal(init=1)
        issued_item = Signal(Item(config=config))
        item_comes = Signal()
        is_first = Signal()
        item_goes = Signal()
        vector_issues = Signal()
        m.d.comb += [
            passed.ready.eq(waiting_free),
            issued_item.eq(Mux(waiting_valid, waiting_item, passed.payload)),
            item_comes.eq(~waiting_free | passed.valid),
            is_first.eq(Mux(waiting_free, passed.payload.event.first, waiting_item.event.first)),
            item_goes.eq(item_comes & Mux(is_first, loader.ready, ~loader.hold)),
            vector_issues.eq(item_goes & issued_item.vector),
            loader.swap.eq(item_goes & is_first),
            loader.arrived.eq(self.weight_rows.valid),
            self.weight_rows.pop.eq(loader.take),
        ]
        with m.If(~waiting_valid):
            m.d.sync += waiting_item.eq(passed.payload)
        m.d.sync += [
            waiting_valid.eq(item_comes & ~item_goes),
            waiting_free.eq(~item_comes | item_goes),
        ]
        awaits_weights = Signal()
        m.d.comb += awaits_weights.eq(
            Mux(
                waiting_free,
                interlock.oldest_valid & interlock.oldest.event.first,
                waiting_item.event.first,
            )
            & ~loader.ready
        )
        item_issued = Signal()
        read_item = Signal(Item(config=config), reset_less=True)
        m.d.sync += [
            item_issued.eq(item_goes),
            read_item.eq(issued_item),
            self.buffer.enable.eq(item_goes & issued_item.reads),
            self.active.eq(vector_issues),
            self.awaiting_weights.eq(loader.hold | (awaits_weights & ~self.weight_rows.valid)),
            self.weights_moving.eq(awaits_weights & self.weight_rows.valid),
            self.waits.eq(Mux(waiting_free, interlock.waits.as_value(), 0)),
            # `matrix_reading` gets a report one cycle after the read of the line.
            self.matrix_reading.advance.eq(self.active & read_item.done_with),
            self.matrix_reading.advance_to.eq(read_item.line + 1),
            self.matrix_reading.retire.eq(self.active & read_item.event.sum.last),
        ]
        m.d.comb += [
            self.buffer.address.eq(read_item.line),
            feeder.issue.eq(item_issued),
            feeder.event.eq(read_item.feed),
        ]

        event, holds = self._feed(m, feeder, mxu, loader, read_item)
        self._update(m, event.sum, holds[-1 - BUFFER_LATENCY])
        m.d.comb += self.update.sums.eq(mxu.sums)
        return m

    def _feed(
        self, m: Module, feeder: VectorFeeder, mxu: MXU, loader: WeightLoader, read_item: data.View
    ) -> tuple[data.View, list[Signal]]:
        """Connect the array with the feeder and the weights.

        Returns the event of the item that is read, and a list: `loader.hold`, delayed by one cycle
        more for each stage.
        """
        config = self._config
        # A line arrives at the array BUFFER_LATENCY cycles after its read, and the read comes one
        # cycle after the issue. Vectors, weights and `hold` are delayed by the same number of
        # cycles.
        behind = m.submodules.behind = DelayLine(
            layout=VectorEvent(config=config), cycles=BUFFER_LATENCY
        )
        holds, load = [loader.hold], loader.load
        for stage in range(1 + BUFFER_LATENCY):
            held = Signal(name=f"hold_{stage}")
            loaded = Signal.like(load, name=f"load_{stage}")
            m.d.sync += [held.eq(holds[-1]), loaded.eq(load)]
            holds.append(held)
            load = loaded
        weights = self.weight_rows.row
        for stage in range(BUFFER_LATENCY):
            moving = Signal.like(weights, name=f"weights_{stage}", reset_less=True)
            m.d.sync += moving.eq(weights)
            weights = moving
        vector_event = Signal(VectorEvent(config=config))
        arriving = behind.output
        m.d.comb += [
            vector_event.eq(read_item.event),
            vector_event.sum.row.eq(read_item.row),
            behind.input.eq(vector_event),
            behind.input_valid.eq(self.active),
        ]

        # These flags accompany a vector through the stages of the feeder.
        swap, unsigned_weights, unsigned_vector = (
            Signal(FEED_LATENCY - BUFFER_LATENCY, name=name)
            for name in ("swap", "unsigned_weights", "unsigned_vector")
        )
        with m.If(~holds[-1]):
            m.d.sync += [
                swap.eq(Cat(behind.output_valid & arriving.first, swap)),
                unsigned_weights.eq(Cat(arriving.unsigned_weights, unsigned_weights)),
                unsigned_vector.eq(Cat(arriving.unsigned_vector, unsigned_vector)),
            ]
        m.d.comb += [
            feeder.buffer_data.eq(self.buffer.data),
            feeder.hold.eq(holds[-1]),
            mxu.vector.eq(feeder.vector),
            mxu.swap.eq(swap[-1]),
            mxu.weights.eq(weights),
            mxu.load.eq(load),
            mxu.hold_next.eq(holds[-2]),
        ]
        if config.wide:
            m.d.comb += [
                mxu.unsigned_vector.eq(unsigned_vector[-1]),
                mxu.unsigned_weights.eq(unsigned_weights[-1]),
            ]
        return vector_event, holds

    def _update(self, m: Module, rows: data.View, hold: Signal) -> None:
        """Delay the rows so that each row meets its sums, and announce the updates.

        `hold` stops the delay line of the rows. The same hold stops the array BUFFER_LATENCY cycles
        later. When a row leaves the delay line, no later hold can delay its sums, so the update
        of the row is certain.
        """
        config = self._config
        delay = m.submodules.delay = DelayLine(
            layout=SumEvent(config=config), cycles=self.latency(config) - 1 - BUFFER_LATENCY
        )
        coming_update = Signal(SumEvent(config=config), reset_less=True)
        update_comes = Signal()
        row_update = Signal(SumEvent(config=config), reset_less=True)
        m.d.sync += [
            update_comes.eq(delay.output_valid & ~hold),
            coming_update.eq(delay.output),
            self.update.enable.eq(update_comes),
            row_update.eq(coming_update),
            *(
                self.update.reads[bank].eq(
                    update_comes & coming_update.accumulate & (coming_update.row[0] == bank)
                )
                for bank in range(BANKS)
            ),
            self.matrix_summing.advance.eq(update_comes & coming_update.final),
            self.matrix_summing.retire.eq(update_comes & coming_update.last),
        ]
        m.d.comb += [
            delay.input.eq(rows),
            delay.input_valid.eq(self.active),
            delay.hold.eq(hold),
            self.update.address.eq(row_update.row),
            self.matrix_summing.advance_to.eq(row_update.row + 1),
            self.update.adds.eq(row_update.accumulate),
            self.update.shift.eq(row_update.shift),
        ]

    def _plan(self, m: Module, interlock: Interlock) -> None:
        """Connect walker and planner, which turn the command into items for the interlock."""
        config = self._config
        queue, command = self.queue, self.queue.command
        walker = m.submodules.walker = Walker(walk=matrix_walk(config))
        planner = m.submodules.planner = VectorPlanner(config=config)

        first, last = walker.first, walker.last
        taken = planner.places.ready  # the planner takes the walker's place, if there is one
        m.d.comb += [
            walker.walk.payload.eq(command.walk),
            walker.walk.valid.eq(queue.valid),
            walker.advance.eq(taken),
            queue.pop.eq(walker.walk.ready),
        ]

        first_product = first.block & first.kx & first.ky & (first.ox | ~command.wide_vectors)
        row_ends = ~command.wide_vectors | last.ox
        last_k = last.block & last.kx & last.ky

        # All tiles along K update the same rows, from `first_row` on. The tiles after them update
        # the rows after these rows.
        sum_row = Signal(row_bits(config))
        first_row = Signal(row_bits(config))
        # `place_event` and `done_with` describe the place in the planner. They are copied into
        # `planned_item` together with the plan of the place.
        place_event = Signal(VectorEvent(config=config), reset_less=True)
        done_with = Signal(reset_less=True)
        with m.If(~walker.present):
            m.d.sync += [sum_row.eq(command.accumulator), first_row.eq(command.accumulator)]
        with m.Elif(taken):
            m.d.sync += [
                sum_row.eq(sum_row + row_ends),
                place_event.first.eq(first.ox & first.oy),
                place_event.unsigned_vector.eq(command.wide_vectors & first.ox),
                place_event.unsigned_weights.eq(command.wide_weights & first.block),
                place_event.sum.row.eq(sum_row),
                place_event.sum.accumulate.eq(~first_product | command.accumulate),
                place_event.sum.shift.eq(
                    (command.wide_vectors & ~first.ox) + (command.wide_weights & ~first.block)
                ),
                place_event.sum.final.eq(last_k & row_ends),
                place_event.sum.last.eq(walker.ends),
                done_with.eq(command.sequential & last.n & last.block),
            ]
            with m.If(last.ox & last.oy):
                with m.If(last_k):
                    m.d.sync += first_row.eq(sum_row + 1)
                with m.Else():
                    m.d.sync += sum_row.eq(first_row)

        # A plan waits in `planned_item` until the interlock takes it.
        plan = planner.plan.payload
        planned_item = Signal(Item(config=config), reset_less=True)
        item_valid = Signal()
        moves = interlock.input.ready
        taken_on = m.submodules.taken_on = Replica()  # a copy of `moves` for the planner
        with m.If(moves):
            m.d.sync += [
                item_valid.eq(planner.plan.valid),
                planned_item.line.eq(plan.line),
                planned_item.reads.eq(plan.reads),
                planned_item.vector.eq(plan.vector),
                planned_item.feed.eq(plan.feed),
                planned_item.row.eq(place_event.sum.row),
                planned_item.event.eq(place_event),
                planned_item.event.first.eq(place_event.first & plan.vector),
                planned_item.done_with.eq(done_with),
            ]

        # Registers with the masks for the place in the planner, and for `planned_item`. An entry
        # that leaves its list is cleared in both registers.
        masks = queue.masks
        for stage, loads in (("place", taken), ("plan", moves)):
            stage_masks = Signal.like(queue.masks, name=f"masks_of_{stage}")
            masks_source = Signal.like(queue.masks, name=f"masks_to_{stage}")
            m.d.comb += masks_source.eq(Mux(loads, masks, stage_masks))
            m.d.sync += stage_masks.eq(kept(masks_source, queue.progress))
            masks = stage_masks

        m.d.comb += [
            planner.command.eq(command),
            planner.places.payload.eq(Cat(walker.position, first.ox, last.ox)),
            planner.places.valid.eq(walker.present),
            taken_on.input.eq(interlock.frees),
            planner.frees.eq(interlock.frees),
            planner.plan.ready.eq(taken_on.output),
            interlock.input.valid.eq(item_valid),
            interlock.input.payload.eq(planned_item),
            interlock.awaited.eq(masks),
            interlock.progress.eq(queue.progress),
        ]
