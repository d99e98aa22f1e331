# SPDX-License-Identifier: Apache-2.0
"""The scoreboard that issues instructions and keeps them in lists with sequence numbers."""

from amaranth.hdl import Cat, Module, Signal
from amaranth.lib import wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from systola.arch.config import Config
from systola.arch.isa import WEIGHT_READS_IN_FLIGHT, Unit
from systola.hdl.commands import TAG_BITS, parameter_space
from systola.hdl.control.hazards import COMPLETES, list_bits
from systola.hdl.control.numbered_list import (
    PLACES,
    RING_BITS,
    NumberedList,
    NumberedProgress,
)
from systola.hdl.control.numbered_queue import NumberedQueue
from systola.hdl.control.region_scan import Found, RegionScan
from systola.hdl.control.scan_rom import LISTS, QUEUE_BITS, QUEUES, STARTS
from systola.hdl.control.spans import Spans
from systola.hdl.control.step_row import CELL_BITS, CELLS
from systola.hdl.control.tag_queue import TagQueue

COMPLETES_IN = {
    "host_reads": "host_reading",
    "host_writes": "host_writing",
    "matrix": "matrix_summing",
    "activate": "activate_writing",
}
"""For each queue, the list that its instructions leave last.

An instruction leaves its queue, and its other lists, earlier. So if this list has room, the queue
and the other lists have room, too.
"""
RINGS = ("host_reads", "host_read", "host_writes", "weights", "matrix", "activate")
"""Names of the queues of commands; the host reader has two, for its requests and for its data."""


class NumberedListSignature(wiring.Signature):
    """A signature that joins a list with sequence numbers to its unit.

    | member       | meaning |
    |---|---|
    | `advance`    | the oldest instruction has got to `advance_to` |
    | `advance_to` | lowest address that the oldest instruction may still need |
    | `retire`     | the oldest instruction leaves the list |
    | `progress`   | report of the list, for the commands that await its entries |

    A list that `follows` another list has only `progress`.
    """

    def __init__(self, *, width: int, follows: bool):
        inputs = {} if follows else {"advance": In(1), "advance_to": In(width), "retire": In(1)}
        super().__init__({**inputs, "progress": Out(NumberedProgress(width))})


class NumberedScoreboard(wiring.Component):
    """A scoreboard that finds the older instructions which each decoded instruction awaits.

    It then issues the instruction, and keeps it in lists until it is done, as `Scoreboard` does. It
    is for machines without training and links.

    | port | meaning |
    |---|---|
    | `keeps`, `cell`, `kept`, `taken`, `opcode`, `takes`, `judged` | ports of `RegionScan`, which
                                              finds the older instructions |
    | `finds` | a sequence number for the instruction is found |
    | `found` | this number, and its mask among `masks_of` the `queue` |
    | `ready` | the oldest decoded instruction may be issued; stays until `issue` |
    | `queue` | while `ready`: queue of this instruction |
    | `issue` | issues the instruction; only while `ready` |
    | `code`, `units` | with `issue` of a Debug_Tag: its tag, and the units it waits for |
    | `idle` | all instructions are complete, and at most one tag waits; a register |
    | `hold_tags` | no tag may enter the trace |
    | `tagged`, `tag` | `tag` enters the trace |

    Each queue of RINGS has a port with `free`, `valid`, `oldest` and `pop`, as in `NumberedQueue`.
    Each list of LISTS has a port of NumberedListSignature.

    An instruction that needs no unit is also issued, but enters neither a queue nor a list. The
    oldest instruction of the machine waits for no other, and `ready` waits only for issued
    instructions, so there is no deadlock.
    """

    def __init__(self, *, config: Config):
        self._config = config
        lists = {
            name: NumberedListSignature(width=list_bits(name, config), follows=name == "loading")
            for name in LISTS
        }
        ring = wiring.Signature(
            {"free": Out(RING_BITS), "valid": Out(1), "oldest": Out(RING_BITS), "pop": In(1)}
        )
        super().__init__(
            {
                "keeps": In(1),
                "cell": In(ceil_log2(CELLS)),
                "kept": In(CELL_BITS),
                "taken": In(1),
                "opcode": In(ceil_log2(STARTS)),
                "takes": Out(1),
                "judged": In(1),
                "finds": Out(1),
                "found": Out(Found()),
                "ready": Out(1),
                "queue": Out(QUEUE_BITS),
                "code": In(TAG_BITS),
                "units": In(len(Unit)),
                "issue": In(1),
                "idle": Out(1),
                "hold_tags": In(1),
                "tagged": Out(1),
                "tag": Out(TAG_BITS),
                **{name: Out(ring) for name in RINGS},
                **{name: Out(signature) for name, signature in lists.items()},
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self._config
        scan = m.submodules.scan = RegionScan(config=config)
        for name in ("keeps", "cell", "kept", "taken", "opcode", "judged", "issue"):
            m.d.comb += getattr(scan, name).eq(getattr(self, name))
        for name in ("takes", "finds", "found", "queue"):
            m.d.comb += getattr(self, name).eq(getattr(scan, name))
        lists = self._make_lists(m, scan)
        queues = self._make_queues(m)
        spans = self._make_spans(m, lists)
        tags = self._make_tags(m, lists)

        enters = scan.lists_in.any()
        m.d.comb += spans.issue.eq(self.issue & enters)
        places_free = Signal()
        issue_settled = Signal()
        full = {name: lists[COMPLETES_IN[name]].full for name in COMPLETES_IN}
        full |= {"weights": queues["weights"].full, "tags": tags.full}
        m.d.sync += [
            places_free.eq(
                ~Cat(full[name] & (scan.queue == n) for n, name in enumerate(QUEUES)).any()
            ),
            # In the cycle after an issue it is not known yet if there is room for the next
            # instruction.
            issue_settled.eq(scan.complete & ~self.issue),
            self.idle.eq(
                Cat(lists[name].empties for name in COMPLETES.values()).all() & tags.one_at_most
            ),
        ]
        m.d.comb += self.ready.eq(issue_settled & places_free & ~(spans.holds & enters))
        return m

    def _make_lists(self, m: Module, scan: RegionScan) -> dict[str, NumberedList]:
        lists: dict[str, NumberedList] = {}
        for number, name in enumerate(LISTS):
            each = NumberedList(width=list_bits(name, self._config), depth=self._config.queue_depth)
            lists[name] = m.submodules[name] = each
            port = getattr(self, name)
            if name != "loading":
                m.d.comb += [
                    each.advance.eq(port.advance),
                    each.advance_to.eq(port.advance_to),
                    each.retire.eq(port.retire),
                ]
            m.d.comb += [
                port.progress.eq(each.progress),
                each.push.eq(self.issue & scan.lists_in[number]),
                each.rises.eq(scan.rises[number]),
                scan.lists[name].oldest.eq(each.progress.oldest),
                scan.lists[name].youngest.eq(each.youngest),
                scan.lists[name].some.eq(each.some),
            ]
        self._follow_loads(m, lists["host_reading"], lists["loading"])
        return lists

    def _follow_loads(self, m: Module, reading: NumberedList, loading: NumberedList) -> None:
        """Drive the list `loading`; each of its instructions is in `host_reading` too."""
        loads = m.submodules.loads = Memory(shape=1, depth=PLACES, init=[])
        write = loads.write_port()
        read = loads.read_port(domain="comb")
        m.d.comb += [
            # The bit that marks an entry as a load lies at the place before the entry.
            write.addr.eq(reading.youngest),
            write.data.eq(loading.push),
            write.en.eq(reading.push),
            read.addr.eq((reading.progress.oldest - 1)[:RING_BITS]),
            # A load may still be in `loading` when the read after it reports its first line. Loads
            # fill only parameters and tables, with addresses above the buffer lines. So reports of
            # lower addresses do not count.
            loading.advance.eq(
                reading.advance & (reading.advance_to > parameter_space(self._config))
            ),
            loading.advance_to.eq(reading.advance_to),
            loading.retire.eq(reading.retire & read.data),
        ]

    def _make_queues(self, m: Module) -> dict[str, NumberedQueue]:
        queues: dict[str, NumberedQueue] = {}
        for name in RINGS:
            depth = WEIGHT_READS_IN_FLIGHT if name == "weights" else self._config.queue_depth
            queues[name] = m.submodules[f"{name}_queue"] = NumberedQueue(depth=depth)
            port = getattr(self, name)
            pushed_with = "host_reads" if name == "host_read" else name
            m.d.comb += [
                queues[name].push.eq(self.issue & (self.queue == QUEUES.index(pushed_with))),
                queues[name].pop.eq(port.pop),
                port.free.eq(queues[name].free),
                port.valid.eq(queues[name].valid),
                port.oldest.eq(queues[name].oldest),
            ]
        return queues

    def _make_spans(self, m: Module, lists: dict[str, NumberedList]) -> Spans:
        spans = m.submodules.spans = Spans(lists=tuple(COMPLETES.values()))
        for name in COMPLETES.values():
            view = spans.lists[name]
            m.d.comb += [
                view.youngest.eq(lists[name].youngest),
                view.oldest.eq(lists[name].progress.oldest),
                view.some.eq(lists[name].some),
                view.retires.eq(lists[name].retire),
            ]
        return spans

    def _make_tags(self, m: Module, lists: dict[str, NumberedList]) -> TagQueue:
        depth = self._config.queue_depth
        tags = m.submodules.tag_queue = TagQueue(depth=depth)
        m.d.comb += [
            tags.push.eq(self.issue & (self.queue == QUEUES.index("tags"))),
            tags.tag.eq(self.code),
            tags.units.eq(self.units),
            tags.hold.eq(self.hold_tags),
            self.tagged.eq(tags.enters),
            self.tag.eq(tags.entering),
        ]
        for number, unit in enumerate(Unit):
            each = lists[COMPLETES[unit]]
            before = (each.youngest - each.progress.oldest)[:RING_BITS]
            m.d.comb += [
                tags.under_way[number].eq(
                    Cat(each.some, *(each.some & (before >= i) for i in range(1, depth)))
                ),
                tags.retire[number].eq(each.retire),
            ]
        return tags
