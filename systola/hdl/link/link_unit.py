# SPDX-License-Identifier: Apache-2.0
"""The link unit of a core: two senders, two receivers, and the barrier."""

from collections.abc import Sequence

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from systola.arch.config import Config
from systola.arch.isa import LinkPart
from systola.hdl.control.signatures import LinkListSignature
from systola.hdl.link.link_fifo import LinkFifo
from systola.hdl.link.link_receiver import LinkReceiver
from systola.hdl.link.link_sender import LinkSender
from systola.hdl.link.link_signature import (
    AccumulatorUpdateSignature,
    LinkSignature,
)
from systola.hdl.link.link_walk import LinkWalk
from systola.hdl.link.pod_barrier import CORES_BITS, PodBarrier
from systola.hdl.link_commands import LinkCommand
from systola.hdl.ports import AccumulatorReadSignature, BufferReadSignature, BufferWriteSignature

SIDES = ("left", "right")
PARTS = {
    f"{queue}_{side}": f"{uses}_{side}"
    for queue, uses in (("send", "sending"), ("receive", "receiving"))
    for side in SIDES
}
"""For each of the four parts of a link unit: names of its command port and its list port."""
COMMANDS_BITS = 4
"""Width in bits of a count: instructions that a part has taken and not done."""


def neighbour_ports(config: Config) -> dict[str, wiring.Member]:
    """Return the ports between a core and its neighbours."""
    link = LinkSignature(config=config)
    return {f"to_{side}": Out(link) for side in SIDES} | {
        f"from_{side}": In(link) for side in SIDES
    }


class LinkUnit(wiring.Component):
    """A unit that has two senders, two receivers, and the barrier of a core.

    | port                                | meaning |
    |---|---|
    | `to_left`, `to_right`               | links to the neighbours |
    | `from_left`, `from_right`           | links from the neighbours |
    | `send_left`, `send_right`           | streams of commands for the two senders |
    | `sending_left`, `sending_right`     | for each sender: its list of instructions, and its
                                            interlock |
    | `receive_left`, `receive_right`     | streams of commands for the two receivers |
    | `receiving_left`, `receiving_right` | for each receiver: its list of instructions, and its
                                            interlock |
    | `buffer_read`, `sums_read`          | reads of lines and of accumulator rows; both senders
                                            share these ports in turn |
    | `buffer_write`, `sums_update`       | writes of lines and updates of accumulator rows; both
                                            receivers share these ports in turn |
    | `cores`                             | number of cores in the pod |
    | `arrived`                           | this core has come to a barrier; see PodBarrier |
    | `passed`                            | all cores have come to the barrier; see PodBarrier |
    | `waits`                             | a bit for each LinkPart: the part has an instruction
                                            that is not done; the last bit is `arrived` |
    | `moved`                             | in this cycle a row was read or written, or a beat or
                                            token came; a watchdog uses it |
    | `quiet`                             | all rows that were read have been sent |
    | `mismatched`                        | a bit for each side, left first: the next beat from this
                                            side is of a line where sums are expected, or
                                            the other way round |

    A part takes one instruction after the other. LinkWalk lists its rows, and the interlock lets a
    row pass when no older instruction needs it. A sender reads the rows and sends their beats. A
    receiver collects beats to rows, and writes or adds them.

    Throughput: one beat a cycle in each of the four parts, if rows of sums have two beats or more.
    Lines of one beat share a port of the buffer.

    Latency: from the read of a row to its write four cycles, the latencies of the memories, and the
    registers on the link. LinkSender, LinkFifo and LinkReceiver have the details.

    Back-pressure: a sender reads a row only while the neighbour has room for it, by credits.
    """

    def __init__(self, *, config: Config):
        self._config = config
        commands = stream.Signature(LinkCommand(config=config))
        super().__init__(
            {
                **neighbour_ports(config),
                **{name: In(commands) for name in PARTS},
                **{name: In(LinkListSignature(config=config)) for name in PARTS.values()},
                "buffer_read": Out(BufferReadSignature(config=config)),
                "buffer_write": Out(BufferWriteSignature(config=config)),
                "sums_read": Out(AccumulatorReadSignature(config=config)),
                "sums_update": Out(AccumulatorUpdateSignature(config=config)),
                "cores": In(CORES_BITS),
                "arrived": In(1),
                "passed": Out(1),
                "waits": Out(len(LinkPart)),
                "moved": Out(1),
                "quiet": Out(1),
                "mismatched": Out(len(SIDES)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self._config
        barrier = m.submodules.barrier = PodBarrier()
        senders: list[LinkSender] = []
        receivers: list[LinkReceiver] = []
        moves = [self.passed]
        for number, side in enumerate(SIDES):
            outward, inward = getattr(self, f"to_{side}"), getattr(self, f"from_{side}")
            sender = m.submodules[f"sender_{side}"] = LinkSender(config=config)
            fifo = m.submodules[f"fifo_{side}"] = LinkFifo(config=config)
            receiver = m.submodules[f"receiver_{side}"] = LinkReceiver(config=config)
            connect(m, fifo.taken, receiver.beat)
            m.d.comb += [
                outward.valid.eq(sender.valid),
                outward.beat.eq(sender.beat),
                sender.credit.eq(outward.credit),
                outward.token.eq(getattr(barrier, f"to_{side}")),
                fifo.valid.eq(inward.valid),
                fifo.beat.eq(inward.beat),
                inward.credit.eq(fifo.credit),
                getattr(barrier, f"from_{side}").eq(inward.token),
                self.mismatched[number].eq(receiver.mismatch),
            ]
            senders.append(sender)
            receivers.append(receiver)
            moves += [sender.advance, receiver.advance, inward.valid, inward.token]

        m.d.comb += [
            barrier.cores.eq(self.cores),
            barrier.arrived.eq(self.arrived),
            self.passed.eq(barrier.passed),
            self.waits[-1].eq(self.arrived),
            self.moved.eq(Cat(moves).any()),
            self.quiet.eq(Cat(sender.empty for sender in senders).all()),
        ]
        units = (*senders, *receivers)
        for number, (name, unit) in enumerate(zip(PARTS, units, strict=True)):
            self._part(m, name, unit, number)
        self._share(m, "buffer_read", [sender.buffer for sender in senders])
        self._share(m, "sums_read", [sender.accumulators for sender in senders])
        self._share(m, "buffer_write", [receiver.buffer for receiver in receivers])
        self._share(m, "sums_update", [receiver.accumulators for receiver in receivers])
        return m

    def _part(self, m: Module, name: str, unit: LinkSender | LinkReceiver, number: int) -> None:
        """Connect one part with its commands, list and interlock, and count its unfinished
        instructions.
        """
        commands, uses = getattr(self, name), getattr(self, PARTS[name])
        walk = m.submodules[f"walk_{name}"] = LinkWalk(config=self._config)
        connect(m, flipped(commands), walk.command)
        connect(m, walk.rows, flipped(uses.rows))
        connect(m, flipped(uses.cleared), unit.cleared)
        under_way = Signal(COMMANDS_BITS, name=f"{name}_under_way")
        m.d.sync += under_way.eq(under_way + uses.taken - unit.retire)
        m.d.comb += [
            uses.taken.eq(commands.valid & commands.ready),
            uses.advance.eq(unit.advance),
            uses.advance_to.eq(unit.advance_to),
            uses.retire.eq(unit.retire),
            self.waits[number].eq((under_way != 0) | commands.valid),
        ]

    def _share(self, m: Module, name: str, users: Sequence[wiring.PureInterface]) -> None:
        """Share a memory port between the left and the right part, which take turns if both ask."""
        port = getattr(self, name)
        left, right = users
        right_turn = Signal(name=f"{name}_turn")
        right_chosen = Signal(name=f"{name}_right")
        m.d.comb += [
            right_chosen.eq(right.enable & (~left.enable | right_turn)),
            port.enable.eq(left.enable | right.enable),
            left.ready.eq(port.ready & ~right_chosen),
            right.ready.eq(port.ready & right_chosen),
        ]
        with m.If(port.enable & port.ready):
            m.d.sync += right_turn.eq(~right_chosen)
        for member, flow in port.signature.members.items():
            if member in ("enable", "ready"):
                continue
            ends = getattr(port, member), getattr(left, member), getattr(right, member)
            if flow.flow is Out:
                m.d.comb += ends[0].eq(Mux(right_chosen, ends[2], ends[1]))
            else:
                m.d.comb += [end.eq(ends[0]) for end in ends[1:]]
