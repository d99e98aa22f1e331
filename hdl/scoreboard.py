# SPDX-License-Identifier: Apache-2.0
"""The queues in front of the units, and the interlocks between what is in them."""

from collections.abc import Callable

from amaranth.hdl import Cat, Module, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from systola.arch.config import Config
from systola.arch.isa import WEIGHT_READS_IN_FLIGHT, Opcode, Unit
from systola.hdl.commands import (
    ACCUMULATOR_BITS,
    ADDRESS_BITS,
    ActivateCommand,
    ActivateReadEntry,
    ActivateWriteEntry,
    HostReadEntry,
    HostTransfer,
    HostWriteCommand,
    HostWriteEntry,
    Kind,
    MatrixCommand,
    WeightCommand,
)
from systola.hdl.decoder import Decoded
from systola.hdl.in_flight import CommandQueue, InFlight, Region, overlaps
from systola.hdl.tag_queue import TAG_BITS, TagQueue

WATCHED = {"host_memory": "host_reading"}
"""Masks that do not carry the name of their list: a Write_Host_Memory waits for reads of the same
buffer lines line by line, and for reads of the same host memory as a whole."""
COMPLETES = {
    Unit.HOST_READER: "host_reading",
    Unit.MATRIX_UNIT: "matrix_summing",
    Unit.ACTIVATION_UNIT: "activate_writing",
    Unit.HOST_WRITER: "host_writing",
}
"""The list that an instruction of each unit leaves when it completes."""


class QueueSignature(wiring.Signature):
    """A queue seen from its unit: the oldest command, what it waits for, and `pop`."""

    def __init__(self, *, command: data.StructLayout, lists: dict[str, int]):
        super().__init__(
            {
                "valid": Out(1),
                "command": Out(command),
                "masks": Out(data.StructLayout(lists)),
                "pop": In(1),
            }
        )


class WeightQueueSignature(wiring.Signature):
    """The queue of the weight fetch, which waits for nobody."""

    def __init__(self, *, command: data.StructLayout):
        super().__init__({"valid": Out(1), "command": Out(command), "pop": In(1)})


class ListSignature(wiring.Signature):
    """A list seen from the units: its entries, oldest first, and the progress of the oldest."""

    def __init__(self, *, entry: data.StructLayout, depth: int, advance_bits: int):
        super().__init__(
            {
                "entries": Out(data.ArrayLayout(entry, depth)),
                "advance": In(1),
                "advance_to": In(advance_bits),
                "retire": In(1),
            }
        )


class Scoreboard(wiring.Component):
    """Takes an instruction with `issue` when there is `room` for it, one a cycle.

    Four queues with interlocks (`host_reads`, `matrix`, `activate`, `host_writes`), one without
    (`weights`: tiles are consumed in order, nothing else touches them), and seven lists of regions
    under way:

    | list | instructions | until |
    |---|---|---|
    | `host_reading` | reads from host memory, Load_* | the last line is written |
    | `matrix_reading` | MatrixMultiply, Convolve, their buffer lines | the last vector is read |
    | `matrix_summing` | MatrixMultiply, Convolve, their rows | the last row is written |
    | `activate_reading` | Activate, its rows | the last row is read |
    | `activate_operands` | Depthwise, Pool, Vector, their operands | the last line is read |
    | `activate_writing` | all four, their lines, parameters, table | the last line is written |
    | `host_writing` | writes to host memory | the last write is acknowledged |

    `idle`: all lists are empty, and so is the queue of tags behind this cycle. The oldest
    instruction in any list waits for nothing, so there is no deadlock. `tagged`: `tag` enters the
    trace; `hold_tags`: none does.
    """

    def __init__(self, *, config: Config):
        depth = config.queue_depth
        self._depth = depth
        self._queues: dict[str, tuple[data.StructLayout, dict[str, int]]] = {
            "host_reads": (
                HostTransfer(),
                {
                    "matrix_reading": depth,
                    "activate_operands": depth,
                    "activate_writing": depth,
                    "host_writing": depth,
                },
            ),
            "matrix": (
                MatrixCommand(),
                {"host_reading": depth, "activate_writing": depth, "activate_reading": depth},
            ),
            "activate": (
                ActivateCommand(),
                {
                    "matrix_summing": depth,
                    "matrix_reading": depth,
                    "activate_writing": depth,
                    "host_writing": depth,
                    "host_reading": depth,
                },
            ),
            "host_writes": (
                HostWriteCommand(),
                {"host_reading": depth, "activate_writing": depth, "host_memory": depth},
            ),
        }
        lines = data.StructLayout({"buffer": Region(ADDRESS_BITS)})
        rows = data.StructLayout({"accumulator": Region(ACCUMULATOR_BITS)})
        # Of each list the entry and the region that shrinks while its oldest instruction walks on.
        self._lists: dict[str, tuple[data.StructLayout, str]] = {
            "host_reading": (HostReadEntry(), "destination"),
            "matrix_reading": (lines, "buffer"),
            "matrix_summing": (rows, "accumulator"),
            "activate_reading": (rows, "accumulator"),
            "activate_operands": (ActivateReadEntry(), "source"),
            "activate_writing": (ActivateWriteEntry(), "buffer"),
            "host_writing": (HostWriteEntry(), "buffer"),
        }
        self._weight_command = WeightCommand(config=config)
        super().__init__(
            {
                "issue": In(1),
                "decoded": In(Decoded(config=config)),
                "room": Out(1),
                "idle": Out(1),
                "hold_tags": In(1),
                "tagged": Out(1),
                "tag": Out(TAG_BITS),
                **{
                    name: Out(QueueSignature(command=command, lists=lists))
                    for name, (command, lists) in self._queues.items()
                },
                "weights": Out(WeightQueueSignature(command=self._weight_command)),
                **{
                    name: Out(
                        ListSignature(
                            entry=entry,
                            depth=depth,
                            advance_bits=entry[advancing].shape["base"].width,
                        )
                    )
                    for name, (entry, advancing) in self._lists.items()
                },
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        decoded = self.decoded
        queues: dict[str, CommandQueue] = {}
        lists: dict[str, InFlight] = {}
        for name, (entry, advancing) in self._lists.items():
            lists[name] = m.submodules[name] = InFlight(
                entry=entry, depth=self._depth, advancing=advancing
            )
            port = getattr(self, name)
            m.d.comb += [
                port.entries.eq(lists[name].entries),
                lists[name].advance.eq(port.advance),
                lists[name].advance_to.eq(port.advance_to),
                lists[name].retire.eq(port.retire),
            ]
        for name, (command, masks) in self._queues.items():
            queue = CommandQueue(command=command, depth=self._depth, lists=masks)
            queues[name] = m.submodules[f"{name}_queue"] = queue
            port = getattr(self, name)
            m.d.comb += [
                port.valid.eq(queue.valid),
                port.command.eq(queue.command),
                port.masks.eq(queue.masks),
                queue.pop.eq(port.pop),
            ]
            for mask in masks:
                watched = WATCHED.get(mask, mask)
                m.d.comb += queue.retired[mask].eq(lists[watched].retire)

        weights = m.submodules.weight_queue = InFlight(
            entry=self._weight_command, depth=WEIGHT_READS_IN_FLIGHT
        )
        m.d.comb += [
            self.weights.valid.eq(weights.valid[0]),
            self.weights.command.eq(weights.entries[0]),
            weights.retire.eq(self.weights.pop),
            weights.pushed.pc.eq(decoded.pc),
            weights.pushed.transfer.eq(decoded.weight_transfer),
        ]

        tags = m.submodules.tag_queue = TagQueue(depth=self._depth)
        m.d.comb += [
            tags.tag.eq(decoded.code),
            tags.units.eq(decoded.units),
            tags.hold.eq(self.hold_tags),
            self.tagged.eq(tags.enters),
            self.tag.eq(tags.entering),
        ]
        for number, unit in enumerate(Unit):
            m.d.comb += [
                tags.under_way[number].eq(lists[COMPLETES[unit]].valid),
                tags.retire[number].eq(lists[COMPLETES[unit]].retire),
            ]

        # Where each instruction goes.
        host_reads = ("host_reads", "host_reading")
        host_writes = ("host_writes", "host_writing")
        matrix = ("matrix", "matrix_reading", "matrix_summing")
        vector = ("activate", "activate_operands", "activate_writing")
        targets = {
            Opcode.READ_HOST_MEMORY: host_reads,
            Opcode.READ_HOST_MEMORY_ALTERNATE: host_reads,
            Opcode.LOAD_PARAMETERS: host_reads,
            Opcode.LOAD_TABLE: host_reads,
            Opcode.WRITE_HOST_MEMORY: host_writes,
            Opcode.WRITE_HOST_MEMORY_ALTERNATE: host_writes,
            Opcode.READ_WEIGHTS: ("weights",),
            Opcode.MATRIX_MULTIPLY: matrix,
            Opcode.CONVOLVE: matrix,
            Opcode.ACTIVATE: ("activate", "activate_reading", "activate_writing"),
            Opcode.DEPTHWISE: vector,
            Opcode.POOL: vector,
            Opcode.VECTOR: vector,
            Opcode.DEBUG_TAG: ("tags",),
        }
        rooms = {"weights": weights, "tags": tags} | {
            name: place for places in (queues, lists) for name, place in places.items()
        }
        m.d.comb += self.room.eq(1)
        with m.Switch(decoded.opcode):
            for opcode, names in targets.items():
                places = [rooms[name] for name in names]
                with m.Case(opcode):
                    m.d.comb += self.room.eq(~Cat(place.full for place in places).any())
                    m.d.comb += [place.push.eq(self.issue) for place in places]
        busy = Cat(entry.valid for entry in lists.values()).any()
        m.d.comb += self.idle.eq(~busy & tags.one_at_most)

        self._fill(m, queues, lists)
        self._interlock(m, queues, lists)
        return m

    def _fill(self, m: Module, queues: dict[str, CommandQueue], lists: dict[str, InFlight]) -> None:
        """What goes into queues and lists, from the fields of the decoded instruction."""
        decoded = self.decoded
        reading = lists["host_reading"].pushed
        with m.Switch(decoded.opcode):
            with m.Case(Opcode.LOAD_PARAMETERS):
                m.d.comb += reading.kind.eq(Kind.PARAMETERS)
            with m.Case(Opcode.LOAD_TABLE):
                m.d.comb += reading.kind.eq(Kind.TABLE)
            with m.Default():
                m.d.comb += reading.kind.eq(Kind.BUFFER)

        write = queues["host_writes"].pushed
        reads = lists["activate_operands"].pushed
        writing = lists["activate_writing"].pushed
        m.d.comb += [
            queues["host_reads"].pushed.eq(decoded.transfer),
            reading.pc.eq(decoded.pc),
            reading.destination.eq(decoded.destination),
            reading.host.eq(decoded.host),
            reading.tail.eq(decoded.tail),
            write.pc.eq(decoded.pc),
            write.transfer.eq(decoded.transfer),
            write.buffer.eq(decoded.buffer),
            write.tail.eq(decoded.tail),
            lists["host_writing"].pushed.buffer.eq(decoded.buffer),
            lists["host_writing"].pushed.host.eq(decoded.host),
            queues["matrix"].pushed.eq(decoded.matrix),
            lists["matrix_reading"].pushed.buffer.eq(decoded.buffer),
            lists["matrix_summing"].pushed.accumulator.eq(decoded.accumulator),
            queues["activate"].pushed.eq(decoded.activate),
            lists["activate_reading"].pushed.accumulator.eq(decoded.accumulator),
            reads.source.eq(decoded.source),
            reads.operand.eq(decoded.operand),
            writing.buffer.eq(decoded.buffer),
            writing.parameters.eq(decoded.parameters),
            writing.table.eq(decoded.table),
        ]

    def _interlock(
        self, m: Module, queues: dict[str, CommandQueue], lists: dict[str, InFlight]
    ) -> None:
        """Masks: which entries of each list the decoded instruction must wait for."""
        decoded = self.decoded

        def against(name: str, conflict: Callable[[data.View], Value]) -> Value:
            conflicts = Signal(self._depth, name=f"{name}_conflicts")
            m.d.comb += conflicts.eq(
                Cat(
                    valid & conflict(entry)
                    for valid, entry in zip(lists[name].valid, lists[name].entries, strict=True)
                )
            )
            return conflicts

        def touches(region: data.View) -> Value:
            """Whether an instruction of the activation unit, or any other, uses these lines."""
            return (
                overlaps(region, decoded.buffer)
                | overlaps(region, decoded.source)
                | overlaps(region, decoded.operand)
            )

        buffer = {
            name: against(name, lambda entry: overlaps(entry.buffer, decoded.buffer))
            for name in ("activate_writing", "host_writing", "matrix_reading")
        }
        rows = {
            name: against(name, lambda entry: overlaps(entry.accumulator, decoded.accumulator))
            for name in ("matrix_summing", "activate_reading")
        }
        host = {
            name: against(name, lambda entry: overlaps(entry.host, decoded.host))
            for name in ("host_reading", "host_writing")
        }
        filled = against("host_reading", lambda entry: overlaps(entry.destination, decoded.buffer))
        produced = against("activate_writing", lambda entry: touches(entry.buffer))
        configured = against(
            "host_reading",
            lambda entry: (
                touches(entry.destination)
                | overlaps(entry.destination, decoded.parameters)
                | overlaps(entry.destination, decoded.table)
            ),
        )
        destination = {
            name: against(name, lambda entry: overlaps(entry.buffer, decoded.destination))
            for name in ("matrix_reading", "host_writing")
        }
        operands = against(
            "activate_operands",
            lambda entry: (
                overlaps(entry.source, decoded.destination)
                | overlaps(entry.operand, decoded.destination)
            ),
        )
        destination_in_use = against(
            "activate_writing",
            lambda entry: (
                overlaps(entry.buffer, decoded.destination)
                | overlaps(entry.parameters, decoded.destination)
                | overlaps(entry.table, decoded.destination)
            ),
        )

        reads = queues["host_reads"].pushed_masks
        matrix = queues["matrix"].pushed_masks
        activate = queues["activate"].pushed_masks
        writes = queues["host_writes"].pushed_masks
        m.d.comb += [
            reads.matrix_reading.eq(destination["matrix_reading"]),
            reads.activate_operands.eq(operands),
            reads.activate_writing.eq(destination_in_use),
            reads.host_writing.eq(destination["host_writing"] | host["host_writing"]),
            matrix.host_reading.eq(filled),
            matrix.activate_writing.eq(buffer["activate_writing"]),
            matrix.activate_reading.eq(rows["activate_reading"]),
            activate.matrix_summing.eq(rows["matrix_summing"]),
            activate.matrix_reading.eq(buffer["matrix_reading"]),
            activate.activate_writing.eq(produced),
            activate.host_writing.eq(buffer["host_writing"]),
            activate.host_reading.eq(configured),
            writes.host_reading.eq(filled),
            writes.activate_writing.eq(buffer["activate_writing"]),
            writes.host_memory.eq(host["host_reading"]),
        ]
