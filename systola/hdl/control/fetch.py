# SPDX-License-Identifier: Apache-2.0
"""The instruction fetch: reads the program ahead of the decoder, and keeps the bodies of loops."""

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
"""Bytes of one fetch burst, if bus width and burst limit allow it."""
AHEAD = 9
"""Largest number of instructions fetched ahead, rounded down to whole beats.

It is two chunks if two chunks are more.
"""


def fetch_chunk_bytes(config: Config) -> int:
    """Return the bytes of one fetch burst."""
    bus_bytes = config.host_bus_bytes
    return max(bus_bytes, min(CHUNK_BYTES, config.max_burst_beats * bus_bytes))


def fetched_ahead(config: Config) -> int:
    """Return the largest number of instructions that are fetched ahead."""
    beat = max(1, config.host_bus_bytes // INSTRUCTION_BYTES)
    return max(AHEAD // beat * beat, 2 * fetch_chunk_bytes(config) // INSTRUCTION_BYTES)


class FetchedInstruction(data.StructLayout):
    """An instruction as it comes from host memory.

    | field   | meaning |
    |---|---|
    | `word`  | the instruction word |
    | `error` | memory answered the fetch with an error |
    | `pc`    | number of the instruction in the program |
    | `ends`  | it is an End_Loop; this is needed before all else |
    """

    def __init__(self) -> None:
        super().__init__({"word": 8 * INSTRUCTION_BYTES, "error": 1, "pc": PC_BITS, "ends": 1})


class Fetch(wiring.Component):
    """A unit that delivers the instructions of a program in order.

    It keeps the instructions requested last in a ring.

    | port          | meaning |
    |---|---|
    | `enable`      | the program runs |
    | `program`     | byte offset of its first instruction in the host window, a multiple of a chunk
                      |
    | `limit`       | bytes of the host window, a multiple of a chunk |
    | `request`     | reads of chunks |
    | `starved`     | the decoder has no instruction |
    | `urgent`      | `starved`, and no instruction is in the ring or on its way |
    | `beat`        | data of the reads; always taken at once |
    | `instruction` | the next instruction |
    | `jump`        | the instruction taken in this cycle jumps |
    | `jump_to`     | number of the instruction to jump to, not above the number of the taken one |
    | `exhausted`   | all instructions inside the window are taken, and the last did not jump |

    `program` and `limit` do not change from two cycles before `enable` on.

    - Latency: four cycles from a beat to its instruction.
    - Throughput: one instruction every two cycles.
    - A chunk is requested as soon as there is room for it. Requests begin at the earliest two
      cycles after the request before was accepted, or after the instruction that makes room was
      taken. Chunks at or beyond `limit` are not requested.
    - The ring keeps the last `instruction_buffer` instructions that were requested, less one chunk.
      One chunk of the ring stays free for the next request.
    - A jump to an instruction in the ring needs no request. The instruction follows two cycles
      later, if it has arrived.
    - A jump to any other instruction drops all instructions. The chunk of `jump_to` is requested in
      the fifth cycle after the jump. If a request was on offer then, it is the third cycle after
      this request was accepted.
    - At most `fetched_ahead` instructions are fetched ahead of the offered instruction. So a loop
      body of at most `loop_capacity` instructions is always in the ring.
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
        """Return the length of the largest loop body that is fetched only once, End_Loop included.

        The length holds wherever the loop lies in the program. It is the size of the ring less two
        parts: the instructions fetched ahead after the End_Loop, and the chunk that stays free.
        """
        chunk = fetch_chunk_bytes(config) // INSTRUCTION_BYTES
        return config.instruction_buffer - fetched_ahead(config) - chunk

    def elaborate(self, platform: object) -> Module:
        m = Module()
        # Positions are counted in units of the memory: an instruction, or a beat of a wide bus.
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

        following = Signal(PC_BITS)  # number of the instruction on offer, or to be offered next
        unit = following[index_bits:]
        requested = Signal(PC_BITS - index_bits + 1)  # the first unit not requested
        oldest = Signal.like(requested)  # the oldest unit that is in the ring or on its way
        # Two units differ by no more than the depth, so their low bits show which is first.
        few = exact_log2(depth) + 2
        skipped = exact_log2(chunk)
        arrived = Signal(few)  # the first unit that has not arrived
        readable = Signal(few)  # the first unit that cannot be read yet
        kept = Signal(range(depth))  # units from `oldest` to `requested`
        full = Signal()  # `kept` has reached its maximum
        on_their_way = Signal(range(2 * ahead + 1))
        unwanted = Signal.like(on_their_way)  # units on their way, dropped by a jump
        dropping = Signal()  # `unwanted` is not 0

        def before(first: Value, second: Value) -> Value:
            return (first[:few] - second)[few - 1]

        # A jump is examined in the next cycle (`jumped`). It may leave the ring: then the other
        # signals mean nothing in this cycle, and all is dropped in the cycle after (`drops`).
        jumped = Signal()
        leaves = Signal()
        drops = Signal()
        unsure = Signal()  # `jumped` or `drops`
        lost = Signal()  # `offset` does not belong to `requested`
        some = Signal()
        all_came = Signal(init=1)  # all units that were requested, a cycle late
        empty = Signal()
        m.d.comb += [
            leaves.eq(jumped & (unit - oldest < 0)),
            some.eq(before(unit, readable)),
            empty.eq(~some & all_came & ~unsure),
        ]
        m.d.sync += [jumped.eq(self.jump), drops.eq(leaves), unsure.eq(self.jump | leaves)]

        # The next chunk may be requested once this unit is offered.
        allowed = Signal(few, init=(chunk - ahead) % (1 << few))
        offered, inside, granted = self._request(
            m, ~before(unit, allowed), unsure=unsure, lost=lost, lost_from=requested[skipped:]
        )
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

        arrives, arriving, failing = self._gather(m, unit_bytes)
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
        # A request is counted one cycle late: in this cycle `lost` still shows if it was lost.
        asked = Signal()
        left = Signal.like(on_their_way)
        m.d.comb += left.eq(on_their_way + Mux(asked, chunk, 0) - arrives)
        m.d.sync += asked.eq(granted)

        def none_left(count: Value, more: Value, fewer: Value) -> Value:
            """Return whether a count will be zero, without waiting for its new value."""
            return ~more & ((count == 0) | ((count == 1) & fewer))

        m.d.sync += [
            readable.eq(arrived),
            on_their_way.eq(left),
            unwanted.eq(unwanted + Mux(asked & lost, chunk, 0) - (arrives & dropping)),
            dropping.eq(~none_left(unwanted, asked & lost, arrives)),
        ]
        with m.If(ring.write_enable):
            m.d.sync += arrived.eq(arrived + 1)

        self._hand_out(m, ring, following, some, (leaves, drops))

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

        self._show_end(m, empty, offered, inside, lost)
        return m

    def _show_end(
        self, m: Module, empty: Signal, offered: Signal, inside: Signal, lost: Signal
    ) -> None:
        """Show whether no instruction is here, and whether none will come any longer."""
        nothing = Signal(init=1)
        settled = Signal()
        m.d.sync += [
            nothing.eq(empty),
            settled.eq(~(offered | lost)),
            self.exhausted.eq(self.enable & nothing & settled & ~(offered | inside | lost)),
        ]
        m.d.comb += self.urgent.eq(nothing & self.starved)

    def _gather(self, m: Module, unit_bytes: int) -> tuple[Signal, Signal, Signal]:
        """Gather the beats of a narrow bus to an instruction.

        Returns whether a unit of memory is complete, its bytes, and whether its fetch has failed.
        The bits stored beside a word come from registers, not from the bus.
        """
        bus_bytes = self._config.host_bus_bytes
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
        return arrives, arriving, failing

    def _hand_out(
        self, m: Module, ring: Sram, following: Signal, some: Signal, holds: tuple[Signal, Signal]
    ) -> None:
        """Offer instruction number `following` if its unit is there (`some`) and no signal `holds`.

        On wide buses a unit holds several instructions. An address is there for two cycles before
        its instruction is offered.
        """
        word = 8 * INSTRUCTION_BYTES
        unit_bytes = max(self._config.host_bus_bytes, INSTRUCTION_BYTES)
        index_bits = exact_log2(unit_bytes // INSTRUCTION_BYTES)
        leaves, drops = holds
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

    def _request(
        self, m: Module, has_room: Value, *, unsure: Signal, lost: Signal, lost_from: Value
    ) -> tuple[Signal, Signal, Signal]:
        """Request chunks: programs begin, and the window ends, at a multiple of a chunk.

        A request that has been offered stays until it is taken. If a jump comes between, its data
        is unwanted. The first request is there before the program starts. After `lost`, requests go
        on at chunk number `lost_from` of the program.

        Returns whether a request is offered, whether it is inside the window, and whether it is
        granted.
        """
        bus_bytes, chunk_bytes = self._config.host_bus_bytes, fetch_chunk_bytes(self._config)
        whole = exact_log2(chunk_bytes)
        offset = Signal(HOST_OFFSET_BITS - whole, reset_less=True)
        offered = Signal(reset_less=True)
        inside = Signal()
        room = Signal()
        granted = Signal()
        started = Signal()
        m.d.comb += [
            inside.eq(offset - self.limit[whole:] < 0),
            room.eq(has_room),
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
                m.d.sync += [lost.eq(0), offset.eq(self.program[whole:] + lost_from)]
        return offered, inside, granted
