# SPDX-License-Identifier: Apache-2.0
"""The instruction fetch, which reads the program ahead of the decoder and keeps loop bodies."""

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

If two fetch bursts have more instructions, two bursts are the limit.
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
    | `ends`  | the instruction is an End_Loop; the scalar unit needs this bit before all others |
    """

    def __init__(self) -> None:
        super().__init__({"word": 8 * INSTRUCTION_BYTES, "error": 1, "pc": PC_BITS, "ends": 1})


class Fetch(wiring.Component):
    """A unit that delivers the instructions of a program in order.

    It reads chunks of the program into a ring, a memory that keeps the instructions requested last.
    A loop body in the ring is not fetched again.

    | port          | meaning |
    |---|---|
    | `enable`      | runs the program |
    | `program`     | byte offset of its first instruction in the host window, a multiple of a chunk
                      |
    | `limit`       | bytes of the host window, a multiple of a chunk |
    | `request`     | requests of chunks, from host memory |
    | `starved`     | the decoder has no instruction |
    | `urgent`      | `starved`, and no instruction is in the ring or on its way |
    | `beat`        | the data that answer the requests; `ready` is always 1 |
    | `instruction` | the next instruction |
    | `jump`        | the instruction that is taken in this cycle jumps to `jump_to` |
    | `jump_to`     | number of the instruction to jump to, not above the number of the taken one |
    | `exhausted`   | all instructions inside the window are taken, and the last one did not jump |

    `program` and `limit` do not change from two cycles before `enable` on.

    - Latency: four cycles from a beat to `instruction`.
    - Throughput: one instruction every two cycles.
    - Requests: a chunk is requested as soon as the ring has room for it. A request comes at the
      earliest two cycles after the request before was accepted. It also comes at the earliest two
      cycles after the instruction that makes room was taken. Chunks at or beyond `limit` are not
      requested.
    - The ring keeps the last `instruction_buffer` instructions that were requested, less one chunk.
      One chunk of the ring stays free for the next request.
    - A jump to an instruction in the ring needs no request. The instruction is offered two cycles
      later, if it has arrived.
    - A jump to any other instruction empties the ring. The chunk of `jump_to` is requested in the
      fifth cycle after the jump. If a request is on offer then, the chunk is requested in the third
      cycle after this request was accepted.
    - Limit: at most `fetched_ahead` instructions are fetched ahead of the offered instruction. So a
      loop body of at most `loop_capacity` instructions stays in the ring.
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
        """Return the number of instructions in the largest loop body that is fetched only once.

        The End_Loop counts. The number holds wherever the loop lies in the program. It is the size
        of the ring less two parts: the instructions fetched ahead after the End_Loop, and the chunk
        that stays free.
        """
        chunk = fetch_chunk_bytes(config) // INSTRUCTION_BYTES
        return config.instruction_buffer - fetched_ahead(config) - chunk

    def elaborate(self, platform: object) -> Module:
        m = Module()
        # All positions below count units. A unit is a word of the ring: an instruction, or all
        # instructions of a beat of a wide bus.
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

        offered_pc = Signal(PC_BITS)  # the instruction on offer, or else the next one to be offered
        offered_unit = offered_pc[index_bits:]
        units_requested = Signal(PC_BITS - index_bits + 1)  # first unit that is not requested
        # the oldest unit that is in the ring or on its way
        oldest_unit = Signal.like(units_requested)
        # Two positions never differ by more than the depth of the ring, so their low bits show
        # which is first.
        few = exact_log2(depth) + 2
        skipped = exact_log2(chunk)
        units_arrived = Signal(few)  # first unit that has not arrived
        units_readable = Signal(few)  # first unit that cannot be read yet
        units_kept = Signal(range(depth))  # number of units from `oldest_unit` to `units_requested`
        ring_full = Signal()  # `units_kept` has reached its maximum
        units_coming = Signal(range(2 * ahead + 1))  # number of units on their way
        # number of units on their way that a jump has dropped
        units_unwanted = Signal.like(units_coming)
        units_drop = Signal()  # `units_unwanted` is not 0

        def before(first: Value, second: Value) -> Value:
            return (first[:few] - second)[few - 1]

        # In the cycle after a jump, `jump_examined` is high. If the jump leaves the ring, the other
        # signals of the ring are meaningless in this cycle. In the cycle after, `ring_drops` is
        # high and empties the ring.
        jump_examined = Signal()
        jump_leaves = Signal()
        ring_drops = Signal()
        jump_unsure = Signal()  # `jump_examined` or `ring_drops`
        request_lost = Signal()  # a jump has left the ring: a request on offer is of no use
        unit_readable = Signal()
        all_came = Signal(init=1)  # all requested units have come; one cycle late
        ring_empty = Signal()
        m.d.comb += [
            jump_leaves.eq(jump_examined & (offered_unit - oldest_unit < 0)),
            unit_readable.eq(before(offered_unit, units_readable)),
            ring_empty.eq(~unit_readable & all_came & ~jump_unsure),
        ]
        m.d.sync += [
            jump_examined.eq(self.jump),
            ring_drops.eq(jump_leaves),
            jump_unsure.eq(self.jump | jump_leaves),
        ]

        # The next chunk may be requested as soon as this unit is on offer.
        units_allowed = Signal(few, init=(chunk - ahead) % (1 << few))
        request_offered, request_inside, request_granted = self._request(
            m,
            ~before(offered_unit, units_allowed),
            jump_unsure=jump_unsure,
            request_lost=request_lost,
            lost_from=units_requested[skipped:],
        )
        m.d.sync += [
            ring_full.eq(units_kept == depth - chunk),
            all_came.eq(
                (units_requested[:few] == units_readable) & ~(request_granted & ~request_lost)
            ),
        ]
        with m.If(request_granted & ~request_lost):
            m.d.sync += [
                units_requested.eq(units_requested + chunk),
                units_allowed.eq(units_allowed + chunk),
            ]
            with m.If(ring_full):
                m.d.sync += oldest_unit.eq(oldest_unit + chunk)
            with m.Else():
                m.d.sync += units_kept.eq(units_kept + chunk)

        unit_arrives, unit_data, unit_failed = self._gather(m, unit_bytes)
        m.d.comb += [
            ring.write_enable.eq(unit_arrives & ~units_drop),
            ring.write_address.eq(units_arrived),
            ring.write_data.eq(
                Cat(
                    unit_data,
                    *(
                        unit_data.word_select(i, word)[:OPCODE_BITS] == Opcode.END_LOOP
                        for i in range(per_unit)
                    ),
                    unit_failed,
                )
            ),
        ]
        # `units_coming` counts a request one cycle late. In this cycle `request_lost` still shows
        # whether the request was lost.
        request_counted = Signal()
        units_remaining = Signal.like(units_coming)
        m.d.comb += units_remaining.eq(units_coming + Mux(request_counted, chunk, 0) - unit_arrives)
        m.d.sync += request_counted.eq(request_granted)

        def none_left(count: Value, more: Value, fewer: Value) -> Value:
            """Return whether a count will be zero in the next cycle, without an addition."""
            return ~more & ((count == 0) | ((count == 1) & fewer))

        m.d.sync += [
            units_readable.eq(units_arrived),
            units_coming.eq(units_remaining),
            units_unwanted.eq(
                units_unwanted
                + Mux(request_counted & request_lost, chunk, 0)
                - (unit_arrives & units_drop)
            ),
            units_drop.eq(~none_left(units_unwanted, request_counted & request_lost, unit_arrives)),
        ]
        with m.If(ring.write_enable):
            m.d.sync += units_arrived.eq(units_arrived + 1)

        self._hand_out(m, ring, offered_pc, unit_readable, (jump_leaves, ring_drops))

        # All units on their way become unwanted. An instruction is handed out only after all
        # unwanted units have come, so no other unit was unwanted before.
        with m.If(ring_drops):
            first = Cat(Const(0, skipped), offered_unit[skipped:])
            m.d.sync += [
                request_lost.eq(1),
                units_requested.eq(first),
                units_allowed.eq(first - (ahead - chunk)),
                units_arrived.eq(first),
                units_readable.eq(first),
                oldest_unit.eq(first),
                all_came.eq(1),
                units_kept.eq(0),
                units_unwanted.eq(units_remaining),
                units_drop.eq(~none_left(units_coming, request_counted, unit_arrives)),
            ]

        self._show_end(m, ring_empty, request_offered, request_inside, request_lost)
        return m

    def _show_end(
        self,
        m: Module,
        ring_empty: Signal,
        request_offered: Signal,
        request_inside: Signal,
        request_lost: Signal,
    ) -> None:
        """Drive `urgent` (no instruction is in the ring or coming) and `exhausted` (none will
        come).
        """
        nothing_here = Signal(init=1)
        requests_settled = Signal()
        m.d.sync += [
            nothing_here.eq(ring_empty),
            requests_settled.eq(~(request_offered | request_lost)),
            self.exhausted.eq(
                self.enable
                & nothing_here
                & requests_settled
                & ~(request_offered | request_inside | request_lost)
            ),
        ]
        m.d.comb += self.urgent.eq(nothing_here & self.starved)

    def _gather(self, m: Module, unit_bytes: int) -> tuple[Signal, Signal, Signal]:
        """Gather the beats of a narrow bus in a unit of the ring.

        Returns whether a unit is complete, its bytes, and whether its fetch has failed. The bits
        stored beside the words are computed from registers, not from the bus.
        """
        bus_bytes = self._config.host_bus_bytes
        unit_arrives = Signal()
        unit_data = Signal(8 * unit_bytes)
        unit_failed = Signal()
        beats = unit_bytes // bus_bytes
        last_beat = Signal.like(self.beat.payload, reset_less=True)
        m.d.sync += last_beat.eq(self.beat.payload)
        m.d.comb += self.beat.ready.eq(1)
        if beats == 1:
            m.d.sync += unit_arrives.eq(self.beat.valid)
            m.d.comb += [unit_data.eq(last_beat.data), unit_failed.eq(last_beat.error)]
        else:
            beat_came = Signal()
            earlier_data = Signal((beats - 1) * 8 * bus_bytes, reset_less=True)
            earlier_error = Signal()
            beat_count = Signal(range(beats))
            complete = beat_count == beats - 1
            m.d.sync += [beat_came.eq(self.beat.valid), unit_arrives.eq(self.beat.valid & complete)]
            with m.If(self.beat.valid):
                with m.If(complete):
                    m.d.sync += beat_count.eq(0)
                with m.Else():
                    m.d.sync += beat_count.eq(beat_count + 1)
            m.d.comb += [
                unit_data.eq(Cat(earlier_data, last_beat.data)),
                unit_failed.eq(earlier_error | last_beat.error),
            ]
            with m.If(beat_came):
                m.d.sync += [
                    earlier_data.eq(unit_data[8 * bus_bytes :]),
                    earlier_error.eq(unit_failed & ~unit_arrives),
                ]
        return unit_arrives, unit_data, unit_failed

    def _hand_out(
        self,
        m: Module,
        ring: Sram,
        offered_pc: Signal,
        unit_readable: Signal,
        holds: tuple[Signal, Signal],
    ) -> None:
        """Offer instruction `offered_pc` if it can be read and no signal of `holds` is high.

        With a wide bus a unit holds several instructions. The ring gets an address two cycles
        before it shows the instruction.
        """
        word = 8 * INSTRUCTION_BYTES
        unit_bytes = max(self._config.host_bus_bytes, INSTRUCTION_BYTES)
        index_bits = exact_log2(unit_bytes // INSTRUCTION_BYTES)
        jump_leaves, ring_drops = holds
        instruction_valid = Signal()
        instruction_taken = instruction_valid & self.instruction.ready
        pc_after = Signal(PC_BITS)
        next_pc = Signal(PC_BITS)
        m.d.comb += [
            self.instruction.valid.eq(instruction_valid),
            self.instruction.payload.word.eq(
                ring.read_data.word_select(offered_pc[:index_bits], word)
            ),
            self.instruction.payload.ends.eq(
                ring.read_data[8 * unit_bytes : -1].word_select(offered_pc[:index_bits], 1)
            ),
            self.instruction.payload.error.eq(ring.read_data[-1]),
            self.instruction.payload.pc.eq(offered_pc),
            next_pc.eq(Mux(self.jump, self.jump_to, Mux(instruction_taken, pc_after, offered_pc))),
            ring.read_enable.eq(1),
            ring.read_address.eq(next_pc[index_bits:]),
        ]
        m.d.sync += [
            offered_pc.eq(next_pc),
            pc_after.eq(offered_pc + 1),
            instruction_valid.eq(unit_readable & ~(instruction_taken | jump_leaves | ring_drops)),
        ]

    def _request(
        self,
        m: Module,
        has_room: Value,
        *,
        jump_unsure: Signal,
        request_lost: Signal,
        lost_from: Value,
    ) -> tuple[Signal, Signal, Signal]:
        """Request chunks; return whether a request is on offer, is inside the window, and is
        granted.

        Programs begin, and the window ends, at a multiple of a chunk. A request on offer stays
        until it is granted. If a jump comes before that, the data of the request are unwanted. The
        first request is ready before the program starts. After `request_lost`, requests continue at
        chunk `lost_from` of the program.
        """
        bus_bytes, chunk_bytes = self._config.host_bus_bytes, fetch_chunk_bytes(self._config)
        whole = exact_log2(chunk_bytes)
        chunk_offset = Signal(HOST_OFFSET_BITS - whole, reset_less=True)
        request_offered = Signal(reset_less=True)
        request_inside = Signal()
        ring_has_room = Signal()
        request_granted = Signal()
        program_started = Signal()
        m.d.comb += [
            request_inside.eq(chunk_offset - self.limit[whole:] < 0),
            ring_has_room.eq(has_room),
            self.request.valid.eq(self.enable & request_offered),
            self.request.payload.offset.eq(chunk_offset << whole),
            self.request.payload.length.eq(chunk_bytes // bus_bytes - 1),
            request_granted.eq(self.request.valid & self.request.ready),
        ]
        m.d.sync += program_started.eq(self.enable)
        with m.If(request_granted):
            m.d.sync += [request_offered.eq(0), chunk_offset.eq(chunk_offset + 1)]
        with m.Elif(~program_started):
            m.d.sync += [request_offered.eq(request_inside), chunk_offset.eq(self.program[whole:])]
        with m.Elif(~request_offered):
            m.d.sync += request_offered.eq(
                request_inside & ring_has_room & ~(jump_unsure | request_lost)
            )
            with m.If(request_lost):
                m.d.sync += [request_lost.eq(0), chunk_offset.eq(self.program[whole:] + lost_from)]
        return request_offered, request_inside, request_granted
