# SPDX-License-Identifier: Apache-2.0
"""The queues in front of the units, and the interlocks between what is in them."""

from dataclasses import dataclass

from amaranth.hdl import Cat, Module, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from systola.arch.config import Config
from systola.arch.isa import WEIGHT_READS_IN_FLIGHT, Opcode, Unit
from systola.hdl.commands import (
    HOST_OFFSET_BITS,
    TAG_BITS,
    ActivateCommand,
    HostReadEntry,
    HostTransfer,
    HostWriteCommand,
    Kind,
    MatrixCommand,
    WeightCommand,
    address_bits,
    row_bits,
)
from systola.hdl.control.command_queue import CommandQueue
from systola.hdl.control.decoder import Decoded
from systola.hdl.control.list_scan import ListScan
from systola.hdl.control.scalar_unit import is_one_of
from systola.hdl.control.tag_queue import TagQueue
from systola.hdl.parts.in_flight import InFlight, Region, overlaps
from systola.hdl.parts.replica import Replica

WATCHED = {
    "host_memory": ("host_reading", "host_memory"),
    "tiles_reading": ("matrix_summing", "tiles"),
    "tiles_loading": ("host_reading", "tiles"),
    "tiles_writing": ("activate_writing", "tiles"),
}
"""Masks that do not carry the name of their list, which then has two: a Write_Host_Memory waits
for reads of the same buffer lines line by line, and for reads of the same host memory as a
whole. Weights from the buffer wait for whole instructions that write them, and are waited for until
the MatrixMultiply has its last sum: by then the array has had all of them."""
WAIT_WHOLE = ("host_reads", "weights")
"""Queues whose unit does not begin an instruction before all that it waits for has ended."""
SOURCES = {
    "destination": "buffer",
    "buffer": "buffer",
    "accumulator": "accumulator",
    "source": "source",
}
"""The region of a decoded instruction that becomes the one of a list's entry."""
COMPLETES = {
    Unit.HOST_READER: "host_reading",
    Unit.MATRIX_UNIT: "matrix_summing",
    Unit.ACTIVATION_UNIT: "activate_writing",
    Unit.HOST_WRITER: "host_writing",
}
"""The list that an instruction of each unit leaves when it completes."""


class QueueSignature(wiring.Signature):
    """A queue seen from its unit: the oldest command, what it waits for, and `pop`.

    `blocked`, a cycle late, is for units that wait for whole instructions, and so is `unblocked`, a
    register: there is a command, and none of its masks has a bit. Others compare addresses with
    `regions`, those of all entries of a list, oldest first."""

    def __init__(
        self,
        *,
        command: data.StructLayout,
        lists: dict[str, int],
        regions: dict[str, data.ArrayLayout],
    ):
        members: dict[str, wiring.Member] = {}
        if regions:
            members = {"regions": Out(data.StructLayout(regions))}
        super().__init__(
            {
                **members,
                "valid": Out(1),
                "command": Out(command),
                "masks": Out(data.StructLayout(lists)),
                "blocked": Out(data.StructLayout(dict.fromkeys(lists, 1))),
                "unblocked": Out(1),
                "pop": In(1),
            }
        )


class OpenQueueSignature(wiring.Signature):
    """A queue whose instructions wait for nobody."""

    def __init__(self, *, command: data.StructLayout):
        super().__init__({"valid": Out(1), "command": Out(command), "pop": In(1)})


class ListSignature(wiring.Signature):
    """A list seen from the unit that works its instructions off: the progress of the oldest."""

    def __init__(self, *, advance_bits: int):
        super().__init__(
            {
                "advance": In(1),
                "advance_to": In(advance_bits),
                "retire": In(1),
            }
        )


def _region_of(entry: data.StructLayout) -> data.StructLayout:
    """The layout of the one region of a list's entries, which shrinks while its oldest instruction
    walks on."""
    (region,) = entry.members.values()
    return region


@dataclass(frozen=True)
class _Group:
    """Instructions that take the same way: into `queue` and into `lists`, `from_buffer` only with
    weights from there."""

    opcodes: tuple[Opcode, ...]
    queue: str
    lists: tuple[str, ...] = ()
    from_buffer: bool = False


GROUPS = (
    _Group(
        (
            Opcode.READ_HOST_MEMORY,
            Opcode.READ_HOST_MEMORY_ALTERNATE,
            Opcode.LOAD_PARAMETERS,
            Opcode.LOAD_TABLE,
        ),
        "host_reads",
        ("host_reading",),
    ),
    _Group(
        (Opcode.WRITE_HOST_MEMORY, Opcode.WRITE_HOST_MEMORY_ALTERNATE),
        "host_writes",
        ("host_writing",),
    ),
    _Group((Opcode.READ_WEIGHTS,), "weights"),
    _Group((Opcode.MATRIX_MULTIPLY,), "weights", from_buffer=True),
    _Group(
        (Opcode.MATRIX_MULTIPLY, Opcode.CONVOLVE), "matrix", ("matrix_reading", "matrix_summing")
    ),
    _Group((Opcode.ACTIVATE,), "activate", ("activate_reading", "activate_writing")),
    _Group(
        (Opcode.DEPTHWISE, Opcode.POOL, Opcode.VECTOR, Opcode.TRANSPOSE, Opcode.RANDOM),
        "activate",
        ("activate_operands", "activate_writing"),
    ),
    _Group(
        (Opcode.MEASURE,), "activate", ("activate_reading", "activate_operands", "activate_writing")
    ),
    _Group((Opcode.DEBUG_TAG,), "tags"),
)


class Scoreboard(wiring.Component):
    """Takes the instruction `decoded` with `issue`, in the cycle behind one in which it is
    `passable` and there is `room` for it, and was in the one before; its comparison with all that
    it may have to wait for is through with that cycle.

    That begins with the first cycle of `offered` and takes a cycle for each entry of the fullest
    list that matters to it, and one at least: it must not be `passable` in the first cycle, in
    which `room` means nothing. Behind `issue` `decoded` is the next instruction.

    Four queues with interlocks (`host_reads`, `matrix`, `activate`, `host_writes`), one without
    (`weights`: tiles are consumed in order, nothing else touches them, but for those that lie in
    the buffer, where there is training), and seven lists of regions under way:

    | list | instructions | until |
    |---|---|---|
    | `host_reading` | reads from host memory, Load_* | the last line is written |
    | `matrix_reading` | MatrixMultiply, Convolve, their buffer lines | the last vector is read |
    | `matrix_summing` | MatrixMultiply, Convolve, their rows | the last row is announced |
    | `activate_reading` | Activate, Measure, their rows | the last row is read |
    | `activate_operands` | the unit's others, and Measure, their lines | the last line is read |
    | `activate_writing` | all of these, their results, parameters, table | the last is announced |
    | `host_writing` | writes to host memory | the last write is acknowledged |

    `idle`: all is complete, and the queue of tags is empty behind this cycle; it is a register and
    means nothing in the cycle behind an `issue`. The oldest instruction in any list waits for
    nothing, so there is no deadlock. `tagged`: `tag` enters the trace; `hold_tags`: none does.
    """

    def __init__(self, *, config: Config):
        self._depth = depth = config.queue_depth
        self._training = training = config.training
        tiles = {"tiles_reading": depth} if training else {}
        self._groups = [group for group in GROUPS if training or not group.from_buffer]
        self._queues: dict[str, tuple[data.StructLayout, dict[str, int]]] = {
            "host_reads": (
                HostTransfer(config=config),
                {
                    "matrix_reading": depth,
                    "activate_operands": depth,
                    "activate_writing": depth,
                    "host_writing": depth,
                    **tiles,
                },
            ),
            "matrix": (
                MatrixCommand(config=config),
                {"host_reading": depth, "activate_writing": depth, "activate_reading": depth},
            ),
            "activate": (
                ActivateCommand(config=config),
                {
                    "matrix_summing": depth,
                    "matrix_reading": depth,
                    "activate_writing": depth,
                    "host_writing": depth,
                    "host_reading": depth,
                    **tiles,
                },
            ),
            "host_writes": (
                HostWriteCommand(config=config),
                {"host_reading": depth, "activate_writing": depth, "host_memory": depth},
            ),
            # Weights from the buffer wait for others, those from memory for nobody.
            "weights": (
                WeightCommand(config=config),
                {"tiles_loading": depth, "tiles_writing": depth} if training else {},
            ),
        }

        def on_chip(*names: str) -> data.StructLayout:
            return data.StructLayout(dict.fromkeys(names, Region(address_bits(config))))

        lines = on_chip("buffer")
        rows = data.StructLayout({"accumulator": Region(row_bits(config))})
        host = data.StructLayout({"host": Region(HOST_OFFSET_BITS)})
        # Of each list what the units see of its entries, and what only counts at issue.
        self._lists: dict[str, tuple[data.StructLayout, data.StructLayout | None]] = {
            "host_reading": (on_chip("destination"), host),
            "matrix_reading": (lines, None),
            "matrix_summing": (rows, on_chip("source") if training else None),
            "activate_reading": (rows, None),
            "activate_operands": (on_chip("source"), on_chip("operand")),
            "activate_writing": (lines, on_chip("parameters", "table")),
            "host_writing": (lines, host),
        }
        self._host_read = HostReadEntry(config=config)
        super().__init__(
            {
                "offered": In(1),
                "passable": In(1),
                "issue": In(1),
                "decoded": In(Decoded(config=config)),
                "room": Out(1),
                "idle": Out(1),
                "hold_tags": In(1),
                "tagged": Out(1),
                "tag": Out(TAG_BITS),
                **{
                    name: Out(
                        QueueSignature(command=command, lists=lists, regions=self._regions(name))
                        if lists
                        else OpenQueueSignature(command=command)
                    )
                    for name, (command, lists) in self._queues.items()
                },
                "host_read": Out(OpenQueueSignature(command=self._host_read)),
                **{
                    name: Out(ListSignature(advance_bits=_region_of(entry)["base"].width))
                    for name, (entry, _) in self._lists.items()
                },
            }
        )

    def _kinds(self, name: str) -> tuple[str, ...]:
        """The masks that the queues have for a list."""
        used = {mask for _, masks in self._queues.values() for mask in masks}
        others = {
            kind for mask, (watched, kind) in WATCHED.items() if watched == name and mask in used
        }
        return ("lines", *sorted(others))

    def _regions(self, queue: str) -> dict[str, data.ArrayLayout]:
        """What the queue's unit sees of the lists that its instructions wait for."""
        _, masks = self._queues[queue]
        if queue in WAIT_WHOLE:
            return {}
        return {
            name: data.ArrayLayout(_region_of(self._lists[name][0]), self._depth)
            for name in masks
            if name not in WATCHED
        }

    def elaborate(self, platform: object) -> Module:
        m = Module()
        decoded = self.decoded
        queues: dict[str, CommandQueue] = {}
        lists: dict[str, InFlight] = {}
        scans: dict[str, ListScan] = {}
        restart = Signal()
        m.d.comb += restart.eq(self.issue | ~self.offered)
        for name, (entry, beside) in self._lists.items():
            in_flight = lists[name] = m.submodules[name] = InFlight(
                entry=entry, depth=self._depth, advancing=next(iter(entry.members))
            )
            scan = scans[name] = m.submodules[f"{name}_scan"] = ListScan(
                entry=entry,
                depth=self._depth,
                masks=self._kinds(name),
                beside=beside,
            )
            port = getattr(self, name)
            m.d.comb += [
                in_flight.advance.eq(port.advance),
                in_flight.advance_to.eq(port.advance_to),
                in_flight.retire.eq(port.retire),
                scan.valid.eq(in_flight.valid),
                scan.entries.eq(in_flight.entries),
                scan.retire.eq(port.retire),
                scan.restart.eq(restart),
            ]
            m.d.comb += [
                in_flight.pushed[part].eq(decoded[SOURCES[part]]) for part in entry.members
            ]
            if beside is not None:
                m.d.comb += scan.push.eq(in_flight.push)
                m.d.comb += [scan.pushed_beside[part].eq(decoded[part]) for part in beside.members]
        for name, (command, masks) in self._queues.items():
            depth = WEIGHT_READS_IN_FLIGHT if name == "weights" else self._depth
            queue = CommandQueue(command=command, depth=depth, lists=masks)
            queues[name] = m.submodules[f"{name}_queue"] = queue
            port = getattr(self, name)
            m.d.comb += [
                port.valid.eq(queue.valid),
                port.command.eq(queue.command),
                queue.pop.eq(port.pop),
            ]
            if masks:
                m.d.comb += [
                    port.masks.eq(queue.masks),
                    port.blocked.eq(queue.blocked),
                    port.unblocked.eq(queue.unblocked),
                ]
            # Registers of its own for each unit: it compares addresses with all of them in a cycle,
            # far from others that do so.
            for watched in self._regions(name):
                following = lists[watched].following.as_value()
                copies = m.submodules[f"{name}_{watched}"] = Replica(width=len(following))
                m.d.comb += [copies.input.eq(following), port.regions[watched].eq(copies.output)]
            for mask in masks:
                watched, kind = WATCHED.get(mask, (mask, "lines"))
                m.d.comb += [
                    queue.retired[mask].eq(lists[watched].retire),
                    queue.pushed_masks[mask].eq(scans[watched].masks[kind]),
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
        m.d.sync += self.idle.eq(
            Cat(lists[name].empties for name in COMPLETES.values()).all() & tags.one_at_most
        )

        # Where each instruction goes, known from the second cycle on. What it is pushed into learns
        # of its issue from a register of its own. What is full becomes known a cycle late: behind
        # an issue that is the first one of the next instruction, and later things only get better.
        places = {**queues, **lists, "tags": tags}
        pushes: dict[str, list[Signal]] = {name: [] for name in places}
        full = []
        awaited: dict[str, list[Value]] = {name: [] for name in scans}
        for group in self._groups:
            chosen = Signal(name=f"{group.queue}_chosen")
            issued = Signal(name=f"{group.queue}_issued")
            names = (group.queue, *group.lists)
            _, waits_for = self._queues.get(group.queue, (None, {}))
            is_here = is_one_of(decoded.kind, *group.opcodes)
            if group.from_buffer:
                is_here &= decoded.from_buffer
            full.append(is_here & Cat(places[name].full for name in names).any())
            for name in sorted({WATCHED.get(mask, (mask, ""))[0] for mask in waits_for}):
                awaited[name].append(is_here)
            m.d.sync += [
                chosen.eq(is_here),
                issued.eq(self.passable & self.room & chosen),
            ]
            for name in names:
                pushes[name].append(issued)
        no_place = Signal()
        m.d.sync += no_place.eq(Cat(full).any())
        unseen = []
        for name, scan in scans.items():
            watched = Signal(name=f"{name}_watched")
            m.d.sync += watched.eq(Cat(awaited[name]).any())
            unseen.append(watched & ~scan.complete)
        m.d.comb += self.room.eq(~(no_place | Cat(unseen).any()))
        m.d.comb += [places[name].push.eq(Cat(issued).any()) for name, issued in pushes.items()]

        self._fill(m, queues, lists["host_reading"])
        self._compare(m, scans)
        return m

    def _fill(self, m: Module, queues: dict[str, CommandQueue], reading: InFlight) -> None:
        """What goes into the queues, from the fields of the decoded instruction."""
        decoded = self.decoded
        # A read leaves this queue no later than its list, so there is always room.
        reads = m.submodules.host_read_queue = CommandQueue(
            command=self._host_read, depth=self._depth, lists={}
        )
        read = reads.pushed
        # An instruction is there for a cycle at least before its issue.
        m.d.sync += read.last.eq(decoded.buffer.end - 1)
        with m.If(is_one_of(decoded.kind, Opcode.LOAD_PARAMETERS)):
            m.d.comb += read.kind.eq(Kind.PARAMETERS)
        with m.Elif(is_one_of(decoded.kind, Opcode.LOAD_TABLE)):
            m.d.comb += read.kind.eq(Kind.TABLE)
        with m.Else():
            m.d.comb += read.kind.eq(Kind.BUFFER)

        write, weights = queues["host_writes"].pushed, queues["weights"].pushed
        m.d.comb += [
            reads.push.eq(reading.push),
            read.pc.eq(decoded.pc),
            read.destination.eq(decoded.buffer.base),
            read.tail.eq(decoded.tail),
            self.host_read.valid.eq(reads.valid),
            self.host_read.command.eq(reads.command),
            reads.pop.eq(self.host_read.pop),
            queues["host_reads"].pushed.eq(decoded.transfer),
            write.pc.eq(decoded.pc),
            write.transfer.eq(decoded.transfer),
            write.buffer.eq(decoded.buffer),
            write.tail.eq(decoded.tail),
            queues["matrix"].pushed.eq(decoded.matrix),
            queues["activate"].pushed.eq(decoded.activate),
            weights.pc.eq(decoded.pc),
            weights.transfer.eq(decoded.weight_transfer),
        ]
        if self._training:
            m.d.comb += [
                weights.from_buffer.eq(decoded.from_buffer),
                weights.wide.eq(decoded.matrix.wide_weights),
            ]

    def _compare(self, m: Module, scans: dict[str, ListScan]) -> None:
        """Whether the entry of each list that is compared is in the way, a cycle later.

        An instruction without such a region has an empty one, which is in nobody's way.
        """
        decoded = self.decoded

        def meets(name: str, part: str, *regions: str) -> Value:
            """Whether region `part` of the list's entry shares an address with one of these."""
            scan = scans[name]
            known = scan.entry if part in scan.entry.shape().members else scan.beside
            met = Signal(len(regions), name=f"{name}_{part}_meets")
            m.d.sync += met.eq(Cat(overlaps(known[part], decoded[region]) for region in regions))
            return met.any()

        touched = ("buffer", "source", "operand")
        copies = Signal()
        m.d.sync += copies.eq(is_one_of(decoded.kind, *GROUPS[0].opcodes))
        found = {
            "host_reading": meets("host_reading", "destination", *touched, "parameters", "table"),
            "matrix_reading": meets("matrix_reading", "buffer", "buffer"),
            "matrix_summing": meets("matrix_summing", "accumulator", "accumulator"),
            "activate_reading": meets("activate_reading", "accumulator", "accumulator"),
            "activate_operands": meets("activate_operands", "source", "buffer")
            | meets("activate_operands", "operand", "buffer"),
            "activate_writing": meets("activate_writing", "buffer", *touched)
            | meets("activate_writing", "parameters", "buffer")
            | meets("activate_writing", "table", "buffer"),
            "host_writing": meets("host_writing", "buffer", "buffer")
            | (copies & meets("host_writing", "host", "host")),
        }
        m.d.comb += [scans[name].conflicts.lines.eq(met) for name, met in found.items()]
        m.d.comb += scans["host_reading"].conflicts.host_memory.eq(
            meets("host_reading", "host", "host")
        )
        if self._training:
            m.d.comb += [
                scans[name].conflicts.tiles.eq(meets(name, part, region))
                for name, part, region in (
                    ("matrix_summing", "source", "buffer"),
                    ("host_reading", "destination", "source"),
                    ("activate_writing", "buffer", "source"),
                )
            ]
