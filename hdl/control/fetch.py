# SPDX-License-Identifier: Apache-2.0
"""Instruction fetch: reads the program ahead of the sequencer, and keeps what loops need again."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from systola.arch.config import Config
from systola.arch.isa import INSTRUCTION_BYTES, OPCODE_BITS, Opcode
from systola.hdl.commands import HOST_OFFSET_BITS, PC_BITS
from systola.hdl.memories.sram import Sram
from systola.hdl.transfers.host_read_port import ReadBeat, ReadRequest

CHUNK_BYTES = 64
"""Bytes of one fetch burst, where bus width and burst limit allow it."""
AHEAD = 9
"""Instructions fetched ahead at most, as whole beats; two chunks where that is more."""


def fetch_chunk_bytes(config: Config) -> int:
    """Return the bytes of one fetch burst."""
    bus_bytes = config.host_bus_bytes
    return max(bus_bytes, min(CHUNK_BYTES, config.max_burst_beats * bus_bytes))


def fetched_ahead(config: Config) -> int:
    """Return the largest number of instructions that are fetched ahead."""
    beat = max(1, config.host_bus_bytes // INSTRUCTION_BYTES)
    return max(AHEAD // beat * beat, 2 * fetch_chunk_bytes(config) // INSTRUCTION_BYTES)


class FetchedInstruction(data.StructLayout):
    """An instruction word, whether its fetch was answered with an error, its number in the
    program, and whether it is an End_Loop, which is needed before all else."""

    def __init__(self) -> None:
        super().__init__({"word": 8 * INSTRUCTION_BYTES, "error": 1, "pc": PC_BITS, "ends": 1})


class Fetch(wiring.Component):
    """Delivers the instructions from byte offset `program` on, in order, while `enable`.

    It asks for a chunk as soon as there is room for it; `urgent` when it has nothing left, nothing
    on its way, and the decoder has nothing either (`starved`). Chunks at or beyond `limit` (bytes
    of the host window) are not asked for: `exhausted` tells that all instructions inside the window
    have been handed out, the last of them without a jump. `program` and `limit` are multiples of a
    chunk and stay as they are from two cycles before `enable` on. Latency: beat to instruction four
    cycles. Throughput: one instruction every two cycles. The request behind another comes in the
    second cycle behind the acceptance of that, or of the instruction that makes room for it.

    `jump`, in the cycle in which an instruction is taken: it is followed by number `jump_to`, not
    above its own, instead of the next. The last `instruction_buffer` instructions less one chunk
    that were asked for are kept (a chunk is always free for the request being offered). What is
    among them is not asked for again, and follows in two cycles if it has come; else all is
    dropped, and the chunk of `jump_to` is asked for in the fifth cycle behind the jump, or, if a
    request was still being offered, in the third behind its acceptance. As at most AHEAD
    instructions are fetched ahead of the one that is offered, a loop body of at most
    `loop_capacity` instructions is always kept.
    """

    def __init__(self, *, config: Config):
        self._config = config
        super().__init__(
            {
                "enable": In(1),
                "program": In(32),
                "limit": In(HOST_OFFSET_BITS),
                "request": Out(stream.Signature(ReadRequest())),
                "starved": In(1),
                "urgent": Out(1),
                "beat": In(stream.Signature(ReadBeat(data_bytes=config.host_bus_bytes))),
                "instruction": Out(stream.Signature(FetchedInstruction())),
                "jump": In(1),
                "jump_to": In(PC_BITS),
                "exhausted": Out(1),
            }
        )

    @staticmethod
    def loop_capacity(config: Config) -> int:
        """Instructions, End_Loop included, of the largest loop body that is fetched only once
        wherever it lies in the program: the memory less what is fetched ahead of the instruction
        behind the End_Loop, less the chunk that stays free."""
        chunk = fetch_chunk_bytes(config) // INSTRUCTION_BYTES
        return config.instruction_buffer - fetched_ahead(config) - chunk

    def elaborate(self, platform: object) -> Module:
        m = Module()
        # All is counted in units of the memory: an instruction, or a beat of a wide bus.
        word = 8 * INSTRUCTION_BYTES
        bus_bytes = self._config.host_bus_bytes
        chunk_bytes = fetch_chunk_bytes(self._config)
        unit_bytes = max(bus_bytes, INSTRUCTION_BYTES)
        per_unit = unit_bytes // INSTRUCTION_BYTES
        index_bits = exact_log2(per_unit)
        chunk = chunk_bytes // unit_bytes
        ahead = fetched_ahead(self._config) // per_unit
        depth = self._config.instruction_buffer // per_unit
        width = 8 * unit_bytes + per_unit + 1
        ring = m.submodules.ring = Sram(width=width, depth=depth, output_register=True)

        following = Signal(PC_BITS)  # the instruction that is offered, or will be next
        unit = following[index_bits:]
        requested = Signal(PC_BITS - index_bits + 1)  # the first unit not asked for
        oldest = Signal.like(requested)  # the first one that is there, or will be
        # Units are never further apart than the depth, so that few bits tell which is before.
        few = exact_log2(depth) + 2
        skipped = exact_log2(chunk)
        arrived = Signal(few)  # the first unit not there
        readable = Signal(few)  # the first one that cannot be read yet
        kept = Signal(range(depth))  # units from there to `requested`
        full = Signal()  # as many as can be
        on_their_way = Signal(range(2 * ahead + 1))
        unwanted = Signal.like(on_their_way)  # those of them that a jump has dropped
        dropping = Signal()  # there are such

        def before(first: Value, second: Value) -> Value:
            return (first[:few] - second)[few - 1]

        # A jump is looked at in the next cycle, in which the others mean nothing if it goes to what
        # is not kept, and that takes effect in the one behind.
        jumped = Signal()
        leaves = Signal()
        drops = Signal()
        unsure = Signal()  # one of these two
        lost = Signal()  # `offset` does not belong to `requested`
        some = Signal()
        all_came = Signal(init=1)  # all that is asked for, a cycle late
        empty = Signal()
        m.d.comb += [
            leaves.eq(jumped & (unit - oldest < 0)),
            some.eq(before(unit, readable)),
            empty.eq(~some & all_came & ~unsure),
        ]
        m.d.sync += [jumped.eq(self.jump), drops.eq(leaves), unsure.eq(self.jump | leaves)]

        # Requests, in chunks: programs begin at a multiple of them, and so does what is behind the
        # window. One that has been offered stays until it is taken, and is not wanted any more if
        # a jump has come between. The first one is there before the program starts.
        whole = exact_log2(chunk_bytes)
        offset = Signal(HOST_OFFSET_BITS - whole, reset_less=True)
        offered = Signal(reset_less=True)
        # A chunk may be asked for once this unit is offered.
        allowed = Signal(few, init=(chunk - ahead) % (1 << few))
        inside = Signal()
        room = Signal()
        granted = Signal()
        started = Signal()
        m.d.comb += [
            inside.eq(offset - self.limit[whole:] < 0),
            room.eq(~before(unit, allowed)),
            self.request.valid.eq(self.enable & offered),
            self.request.payload.offset.eq(offset << whole),
            self.request.payload.length.eq(chunk_bytes // bus_bytes - 1),
            granted.eq(self.request.valid & self.request.ready),
        ]
        m.d.sync += started.eq(self.enable)
        with m.If(granted):
            m.d.sync += [offered.eq(0), offset.eq(offset + 1)]
        with m.Elif(~started):
            m.d.sync += [offered.eq(inside), offset.eq(self.program[whole:])]
        with m.Elif(~offered):
            m.d.sync += offered.eq(inside & room & ~(unsure | lost))
            with m.If(lost):
                m.d.sync += [lost.eq(0), offset.eq(self.program[whole:] + requested[skipped:])]
        m.d.sync += [
            full.eq(kept == depth - chunk),
            all_came.eq((requested[:few] == readable) & ~(granted & ~lost)),
        ]
        with m.If(granted & ~lost):
            m.d.sync += [requested.eq(requested + chunk), allowed.eq(allowed + chunk)]
            with m.If(full):
                m.d.sync += oldest.eq(oldest + chunk)
            with m.Else():
                m.d.sync += kept.eq(kept + chunk)

        # Narrow buses: beats are collected to an instruction. What a word needs is found out of
        # registers, not of the bus.
        arrives = Signal()
        arriving = Signal(8 * unit_bytes)
        failing = Signal()
        beats = unit_bytes // bus_bytes
        beat = Signal.like(self.beat.payload, reset_less=True)
        m.d.sync += beat.eq(self.beat.payload)
        m.d.comb += self.beat.ready.eq(1)
        if beats == 1:
            m.d.sync += arrives.eq(self.beat.valid)
            m.d.comb += [arriving.eq(beat.data), failing.eq(beat.error)]
        else:
            came = Signal()
            earlier = Signal((beats - 1) * 8 * bus_bytes, reset_less=True)
            earlier_error = Signal()
            count = Signal(range(beats))
            complete = count == beats - 1
            m.d.sync += [came.eq(self.beat.valid), arrives.eq(self.beat.valid & complete)]
            with m.If(self.beat.valid):
                with m.If(complete):
                    m.d.sync += count.eq(0)
                with m.Else():
                    m.d.sync += count.eq(count + 1)
            m.d.comb += [
                arriving.eq(Cat(earlier, beat.data)),
                failing.eq(earlier_error | beat.error),
            ]
            with m.If(came):
                m.d.sync += [
                    earlier.eq(arriving[8 * bus_bytes :]),
                    earlier_error.eq(failing & ~arrives),
                ]
        m.d.comb += [
            ring.write_enable.eq(arrives & ~dropping),
            ring.write_address.eq(arrived),
            ring.write_data.eq(
                Cat(
                    arriving,
                    *(
                        arriving.word_select(i, word)[:OPCODE_BITS] == Opcode.END_LOOP
                        for i in range(per_unit)
                    ),
                    failing,
                )
            ),
        ]
        # A request is counted a cycle later, in which it is still known whether it was `lost`.
        asked = Signal()
        left = Signal.like(on_their_way)
        m.d.comb += left.eq(on_their_way + Mux(asked, chunk, 0) - arrives)
        m.d.sync += asked.eq(granted)

        def none_left(count: Value, more: Value, fewer: Value) -> Value:
            """Whether a count will be zero, without waiting for what it will be."""
            return ~more & ((count == 0) | ((count == 1) & fewer))

        m.d.sync += [
            readable.eq(arrived),
            on_their_way.eq(left),
            unwanted.eq(unwanted + Mux(asked & lost, chunk, 0) - (arrives & dropping)),
            dropping.eq(~none_left(unwanted, asked & lost, arrives)),
        ]
        with m.If(ring.write_enable):
            m.d.sync += arrived.eq(arrived + 1)

        # Wide buses: a unit holds several instructions. An address is there for two cycles before
        # its instruction, which is when that is offered at the earliest.
        valid = Signal()
        taken = valid & self.instruction.ready
        behind = Signal(PC_BITS)
        successor = Signal(PC_BITS)
        m.d.comb += [
            self.instruction.valid.eq(valid),
            self.instruction.payload.word.eq(
                ring.read_data.word_select(following[:index_bits], word)
            ),
            self.instruction.payload.ends.eq(
                ring.read_data[8 * unit_bytes : -1].word_select(following[:index_bits], 1)
            ),
            self.instruction.payload.error.eq(ring.read_data[-1]),
            self.instruction.payload.pc.eq(following),
            successor.eq(Mux(self.jump, self.jump_to, Mux(taken, behind, following))),
            ring.read_enable.eq(1),
            ring.read_address.eq(successor[index_bits:]),
        ]
        m.d.sync += [
            following.eq(successor),
            behind.eq(following + 1),
            valid.eq(some & ~(taken | leaves | drops)),
        ]

        # An instruction is handed out only when all dropped units have come: none is `unwanted`.
        with m.If(drops):
            first = Cat(Const(0, skipped), unit[skipped:])
            m.d.sync += [
                lost.eq(1),
                requested.eq(first),
                allowed.eq(first - (ahead - chunk)),
                arrived.eq(first),
                readable.eq(first),
                oldest.eq(first),
                all_came.eq(1),
                kept.eq(0),
                unwanted.eq(left),
                dropping.eq(~none_left(on_their_way, asked, arrives)),
            ]

        nothing = Signal(init=1)
        settled = Signal()
        m.d.sync += [
            nothing.eq(empty),
            settled.eq(~(offered | lost)),
            self.exhausted.eq(self.enable & nothing & settled & ~(offered | inside | lost)),
        ]
        m.d.comb += self.urgent.eq(nothing & self.starved)
        return m
