# SPDX-License-Identifier: Apache-2.0
"""The queues of the units' commands, and the interlocks between the commands."""

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out, connect, flipped
from amaranth.utils import bits_for

from systola.arch.config import Config
from systola.arch.isa import WEIGHT_READS_IN_FLIGHT, Opcode, Unit
from systola.hdl.commands import (
    TABLE_BITS,
    TAG_BITS,
    Kind,
    parameter_space,
    table_space,
)
from systola.hdl.control.command_queue import CommandQueue
from systola.hdl.control.decoded import Decoded
from systola.hdl.control.hazards import (
    COMPLETES,
    CONFLICTS,
    FILLS,
    LINK_GROUPS,
    LOADS,
    PRODUCTS,
    READS,
    RECEIVING,
    SCANS,
    SENDING,
    STORES,
    TOUCHES,
    groups_of,
    list_bits,
    list_of,
    masks_of,
)
from systola.hdl.control.link_gate import LinkGate
from systola.hdl.control.link_interlock import LinkInterlock
from systola.hdl.control.link_list import LinkList
from systola.hdl.control.list_scan import ListScan
from systola.hdl.control.scalar_unit import is_one_of
from systola.hdl.control.signatures import (
    COMMANDS,
    LinkListSignature,
    list_signature,
    queue_signature,
)
from systola.hdl.control.tag_queue import TagQueue
from systola.hdl.link_commands import link_address
from systola.hdl.parts.in_flight import InFlight, Region, overlaps


class Scoreboard(wiring.Component):
    """A scoreboard that issues decoded instructions into queues once their conflicts are known.

    | port        | meaning |
    |---|---|
    | `offered`   | `decoded` has an instruction |
    | `decoded`   | the instruction; from the cycle after `issue` the next instruction |
    | `passable`  | nothing but the scoreboard holds the instruction back; never in the first cycle
                    of `offered` |
    | `room`      | queues and lists have places for the instruction, and its comparison ends with
                    this cycle; meaningless in the first cycle of `offered` |
    | `issue`     | takes the instruction, one cycle after both `passable` and `room` |
    | `idle`      | all instructions are complete, and the queue of tags is empty after this cycle;
                    a register, meaningless in the cycle after `issue` |
    | `hold_tags` | no tag may enter the trace |
    | `tagged`    | `tag` enters the trace |
    | `tag`       | tag of a Debug_Tag |

    Each queue and each list has a port of its own name. The comparison with older instructions
    begins in the first cycle of `offered`. Each scan of SCANS takes one cycle for each entry of
    the lists that matter to the instruction, and at least one cycle.

    Four queues have interlocks: `host_reads`, `matrix`, `activate` and `host_writes`. The queue
    `weights` has none, as tiles are consumed in order and only the matrix unit touches them. Only
    with training it waits too, for tiles in the buffer. These are the lists of unfinished
    instructions:

    | list | instructions | until |
    |---|---|---|
    | `host_reading` | reads from host memory, Load_* | the last line is written |
    | `loading` | Load_*, which are in `host_reading` too | the last line is written |
    | `matrix_reading` | MatrixMultiply, Convolve: their buffer lines | the last vector is read |
    | `matrix_summing` | MatrixMultiply, Convolve: their rows | the last row is announced |
    | `activate_reading` | Activate, Measure: their accumulator rows | the last row is read |
    | `activate_operands` | activation unit without Activate: buffer lines | the last line is read |
    | `activate_writing` | activation unit: results, parameters, tables | last line announced, or
                           the entry of a partition written |
    | `host_writing` | writes to host memory | the last write is acknowledged |

    With links there is also a queue for each part of the link unit. Each part has a port of
    LinkListSignature, named after its list (`sending_` or `receiving_` and a side).

    The oldest instruction of the machine waits for no other instruction, so there is no deadlock.
    """

    def __init__(self, *, config: Config):
        self._depth = config.queue_depth
        self._training = config.training
        self._config = config
        self._spaces = {
            "parameters": (parameter_space(config), bits_for(config.parameter_entries)),
            "table": (table_space(config), TABLE_BITS),
        }
        links = LINK_GROUPS if config.links else ()
        self._queues = (*COMMANDS, *(group.queue for group in links))
        self._masks = {name: masks_of(name, config) for name in self._queues}
        part = LinkListSignature(config=config)
        self._lists = {
            name: list_bits(name, config) for lists, _ in SCANS.values() for name in lists
        }
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
                **{name: Out(queue_signature(name, config)) for name in self._queues},
                **{name: Out(part) for group in links for name in group.lists},
                **{
                    name: Out(list_signature(name, config))
                    for name in self._lists
                    if name != "loading"
                },
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        lists: dict[str, InFlight] = {}
        for name, width in self._lists.items():
            lists[name] = m.submodules[name] = InFlight(width=width, depth=self._depth)
            if name != "loading":
                self._report(m, getattr(self, name), lists[name])
        self._follow_loads(m, lists["host_reading"], lists["loading"])
        scans = {name: self._scan(m, name, lists) for name in SCANS}
        found = {
            mask: scan.masks[mask] for scan in scans.values() for mask, _ in scan.masks.shape()
        }
        queues: dict[str, CommandQueue] = {}
        for name in self._queues:
            port = getattr(self, name)
            queue = queues[name] = m.submodules[f"{name}_queue"] = CommandQueue(
                command=port.command.shape(),
                depth=WEIGHT_READS_IN_FLIGHT if name == "weights" else self._depth,
                masks=self._masks[name],
                list_depth=self._depth,
            )
            shown = [member for member in port.signature.members if member != "pop"]
            m.d.comb += [
                queue.pop.eq(port.pop),
                *(getattr(port, member).eq(getattr(queue, member)) for member in shown),
            ]
            for mask in self._masks[name]:
                m.d.comb += [
                    queue.progress[mask].eq(lists[list_of(mask)].progress),
                    queue.pushed_masks[mask].eq(found[mask]),
                ]
        self._fill(m, queues)

        tags = m.submodules.tag_queue = TagQueue(depth=self._depth)
        m.d.comb += [
            tags.tag.eq(self.decoded.code),
            tags.units.eq(self.decoded.units),
            tags.hold.eq(self.hold_tags),
            self.tagged.eq(tags.enters),
            self.tag.eq(tags.entering),
        ]
        for number, unit in enumerate(Unit):
            m.d.comb += [
                tags.under_way[number].eq(lists[COMPLETES[unit]].valid),
                tags.retire[number].eq(lists[COMPLETES[unit]].retire),
            ]
        links = self._link_lists(m) if self._config.links else {}
        complete = [lists[name].empties for name in COMPLETES.values()]
        complete += [link.empties for link in links.values()]
        m.d.sync += self.idle.eq(Cat(complete).all() & tags.one_at_most)

        # Each group has a register that asserts the push into its queue and lists. `no_place` is
        # one cycle late. In the cycle after an issue it is wrong, but this is the first cycle of
        # the next instruction, in which `room` is meaningless. In later cycles places only become
        # free.
        places = {**queues, **lists, **links, "tags": tags}
        pushes: dict[str, list[Signal]] = {name: [] for name in places}
        full: list[Value] = []
        watched: dict[str, list[Value]] = {name: [] for name in lists}
        for group, here in zip(groups_of(self._config), self.decoded.ways, strict=True):
            group_issues = Signal(name=f"{group.queue}_issued")
            names = (group.queue, *group.lists)
            is_here = here if group.side is None else here & (self.decoded.side == group.side)
            full.append(is_here & Cat(places[name].full for name in names).any())
            for name in dict.fromkeys(map(list_of, self._masks.get(group.queue, ()))):
                watched[name].append(is_here)
            m.d.sync += group_issues.eq(self.passable & self.room & is_here)
            for name in (*names, *(("host_read",) if group.queue == "host_reads" else ())):
                pushes[name].append(group_issues)
        no_place = Signal()
        m.d.sync += no_place.eq(Cat(full).any())
        has_room = ~no_place & Cat(scan.complete for scan in scans.values()).all()
        if links:
            has_room &= self._lets_go(m, links)
        m.d.comb += self.room.eq(has_room)
        m.d.comb += [
            places[name].push.eq(Cat(group_issues).any()) for name, group_issues in pushes.items()
        ]
        for scan in scans.values():
            for name, _ in scan.watched.shape():
                m.d.comb += scan.watched[name].eq(Cat(watched[name]).any())
        return m

    def _follow_loads(self, m: Module, reading: InFlight, loading: InFlight) -> None:
        """Drive the list `loading`; each of its instructions is in `host_reading` too."""
        # a bit for each place in `reading`: the instruction there is a load
        are_loads = Signal(1 << len(reading.free))
        is_load = Signal()
        with m.If(reading.push):
            m.d.sync += are_loads.bit_select(reading.free, 1).eq(loading.push)
        m.d.comb += [
            is_load.eq(are_loads.bit_select(reading.progress.place, 1)),
            # A load may still be in `loading` when the read after it reports its first line. Loads
            # fill only parameters and tables, with addresses above the buffer lines. So reports of
            # lower addresses do not count.
            loading.advance.eq(
                reading.advance & (reading.advance_to > self._spaces["parameters"][0])
            ),
            loading.advance_to.eq(reading.advance_to),
            loading.retire.eq(reading.retire & is_load),
        ]

    def _report(self, m: Module, port: wiring.PureInterface, entries: InFlight | LinkList) -> None:
        """Connect a list with the port on which its unit reports progress."""
        m.d.comb += [
            entries.advance.eq(port.advance),
            entries.advance_to.eq(port.advance_to),
            entries.retire.eq(port.retire),
        ]

    def _fill(self, m: Module, queues: dict[str, CommandQueue]) -> None:
        """Form the commands that go into the queues from the decoded instruction."""
        decoded = self.decoded
        weights, read = queues["weights"].pushed, queues["host_read"].pushed
        # `decoded` is stable for at least one cycle before the issue, so `read.last` may be a
        # register.
        m.d.sync += read.last.eq(decoded.buffer.end - 1)
        with m.If(is_one_of(decoded.kind, Opcode.LOAD_PARAMETERS)):
            m.d.comb += read.kind.eq(Kind.PARAMETERS)
        with m.Elif(is_one_of(decoded.kind, Opcode.LOAD_TABLE)):
            m.d.comb += read.kind.eq(Kind.TABLE)
        with m.Else():
            m.d.comb += read.kind.eq(Kind.BUFFER)
        write = queues["host_writes"].pushed
        m.d.comb += [
            weights.pc.eq(decoded.pc),
            weights.transfer.eq(decoded.weight_transfer),
            read.pc.eq(decoded.pc),
            read.destination.eq(decoded.buffer.base),
            read.tail.eq(decoded.tail),
            queues["host_reads"].pushed.eq(decoded.transfer),
            write.pc.eq(decoded.pc),
            write.transfer.eq(decoded.transfer),
            write.buffer.eq(decoded.buffer),
            write.tail.eq(decoded.tail),
            queues["matrix"].pushed.eq(decoded.matrix),
            queues["activate"].pushed.eq(decoded.activate),
        ]
        if self._config.links:
            m.d.comb += [queues[group.queue].pushed.eq(decoded.link) for group in LINK_GROUPS]
        if self._training:
            m.d.comb += [
                weights.from_buffer.eq(decoded.from_buffer),
                weights.wide.eq(decoded.matrix.wide_weights),
            ]

    def _scan(self, m: Module, scan_name: str, lists: dict[str, InFlight]) -> ListScan:
        """Compare the decoded instruction with the lists of one of SCANS.

        If an instruction lacks a region, its region there is empty and conflicts with none.
        """
        decoded = self.decoded
        names, parts = SCANS[scan_name]
        used = {mask for masks in self._masks.values() for mask in masks}
        masks = {
            mask: list_of(mask) for mask in CONFLICTS if list_of(mask) in names and mask in used
        }
        used_of = {part: self._low(decoded[part], part) for part in parts}
        entry = data.StructLayout({part: region.shape() for part, region in used_of.items()})
        scan = m.submodules[f"{scan_name}_scan"] = ListScan(
            entry=entry, depth=self._depth, lists=names, masks=masks, walked=parts[0]
        )
        m.d.comb += [
            scan.restart.eq(self.issue | ~self.offered),
            scan.pushed.eq(Cat(used_of.values())),
        ]
        for name in names:
            m.d.comb += [
                scan.push[name].eq(lists[name].push),
                lists[name].rises.eq(scan.rises),
                scan.rising[name].eq(lists[name].rising),
                scan.free[name].eq(lists[name].free),
                scan.oldest[name].eq(lists[name].progress.place),
                scan.valid[name].eq(lists[name].valid),
                scan.retire[name].eq(lists[name].retire),
            ]
        # Only copies use host memory. The region `host` of other instructions is meaningless.
        copies = Signal(name=f"{scan_name}_are_copies")
        m.d.sync += copies.eq(is_one_of(decoded.kind, *READS, *LOADS, *STORES))
        met: dict[tuple[str, str], Signal] = {}
        for pair in dict.fromkeys(pair for mask in masks for pair in CONFLICTS[mask]):
            met[pair] = Signal(name="{}_meets_{}".format(*pair))
            m.d.sync += met[pair].eq(self._meet(*pair, decoded[pair[0]], scan.entry[pair[1]]))
        for mask in masks:
            m.d.comb += scan.conflicts[mask].eq(
                Cat(met[pair] & (copies | (pair[0] != "host")) for pair in CONFLICTS[mask]).any()
            )
        return scan

    def _link_lists(self, m: Module) -> dict[str, LinkList]:
        """Join the lists of the links to their interlocks.

        A Send waits for older Receives and Reduces. A Receive or Reduce waits for all older
        instructions of other lists.
        """
        decoded, sums = self.decoded, self.decoded.link.sums
        links: dict[str, LinkList] = {}
        for name in (*SENDING, *RECEIVING):
            link = links[name] = m.submodules[name] = LinkList(config=self._config)
            port = getattr(self, name)
            for end in ("base", "end"):
                place = Mux(sums, decoded.accumulator[end], decoded.buffer[end])
                m.d.comb += link.pushed[end].eq(link_address(place, sums, self._config))
            self._report(m, port, link)
        for name, link in links.items():
            others = [
                other
                for other in links
                if other != name and (name in RECEIVING or other in RECEIVING)
            ]
            lock = LinkInterlock(config=self._config, others=others)
            m.submodules[f"{name}_interlock"] = lock
            port = getattr(self, name)
            connect(m, flipped(port.rows), lock.rows)
            connect(m, lock.cleared, flipped(port.cleared))
            m.d.comb += [
                lock.push.eq(link.push),
                lock.free.eq(link.free),
                lock.taken.eq(port.taken),
                *(lock.others[other].eq(links[other].view) for other in others),
            ]
        return links

    def _lets_go(self, m: Module, links: dict[str, LinkList]) -> Value:
        """Return whether no instruction of the links conflicts with the decoded instruction.

        The decoded instruction has no masks for the lists of the links.
        """
        decoded = self.decoded
        gate = m.submodules.link_gate = LinkGate(
            config=self._config, sending=SENDING, receiving=RECEIVING
        )
        m.d.sync += [
            gate.fills.eq(is_one_of(decoded.kind, *FILLS)),
            gate.sums.eq(is_one_of(decoded.kind, *PRODUCTS)),
        ]
        m.d.comb += [
            gate.restart.eq(self.issue | ~self.offered),
            gate.passes.eq(~is_one_of(decoded.kind, *TOUCHES)),
            *(
                getattr(gate, name).eq(decoded[name])
                for name in ("buffer", "source", "operand", "accumulator")
            ),
            *(gate.lists[name].eq(link.view) for name, link in links.items()),
        ]
        return gate.clear

    def _low(self, region: data.View, *names: str) -> data.View:
        """Return the part of a region that a comparison needs.

        If one of `names` is a region of parameters or tables, the low bits of addresses are enough.
        Otherwise the comparison needs the whole region.
        """
        bits = [self._spaces[name][1] for name in names if name in self._spaces]
        if not bits:
            return region
        ends = (end[: bits[0]] for end in (region.base, region.end))
        return data.View(Region(bits[0]), Cat(ends))

    def _meet(self, one: str, two: str, younger: data.View, older: data.View) -> Value:
        """Return whether the regions `younger` and `older`, named `one` and `two`, share an
        address.

        Regions of parameters and tables lack the bits that name their space. If one region is of
        this kind, the other must also lie in this space.
        """
        meets = overlaps(self._low(younger, one, two), self._low(older, one, two))
        for name, other in ((one, older), (two, younger)):
            if name in self._spaces:
                space, bits = self._spaces[name]
                meets &= other.base[bits:] == space >> bits
        return meets
