# SPDX-License-Identifier: Apache-2.0
"""The sequencer: issues decoded instructions in program order, and finds faults that stop them."""

from amaranth.hdl import Module, Mux, Signal, Value
from amaranth.lib import stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from systola.arch.config import Config
from systola.arch.isa import WEIGHT_READS_IN_FLIGHT, Fault, Opcode
from systola.hdl.commands import PC_BITS, TILE_BITS
from systola.hdl.control.decoded import Decoded
from systola.hdl.control.hazards import PRODUCTS
from systola.hdl.control.scalar_unit import is_one_of
from systola.hdl.ports import FaultReport, ProgramStatusSignature

ISSUE_INTERVAL = 3
"""Cycles from the issue of an instruction to the next issue, at the least."""
COUNT_BITS = TILE_BITS - 1
"""Bits of the tile count of one Read_Weights, after the check that the weight window has so many
tiles.
"""
TOTAL_BITS = COUNT_BITS + exact_log2(WEIGHT_READS_IN_FLIGHT)
"""Bits of a count of the tiles of WEIGHT_READS_IN_FLIGHT Read_Weights.

No more tiles than these wait at one time.
"""

_DRAINING = (Opcode.SYNCHRONIZE, Opcode.INTERRUPT_HOST, Opcode.SYNCHRONIZE_HOST)
"""Opcodes of the instructions, beside Barrier, that wait until all earlier instructions are done.
"""


class Sequencer(wiring.Component):
    """A unit that passes decoded instructions to the scoreboard in order, and stops at faults.

    | port             | meaning |
    |---|---|
    | `enable`         | the program runs |
    | `decoded`        | the next instruction |
    | `frees`          | the value of `decoded.ready` in the next cycle: the instruction will pass |
    | `exhausted`      | the program has left the host window, and all of its instructions are
                         decoded |
    | `pc`             | with `exhausted`: number of the first instruction outside of the window |
    | `program`        | byte offset of the program |
    | `room`           | the scoreboard can take the instruction |
    | `idle`           | the scoreboard has no instruction under way |
    | `passable`       | the instruction is checked and may pass |
    | `issue`          | the instruction passes |
    | `program_status` | progress of the program; `halted` and `rejected` are registers |
    | `resume`         | the host lets a Synchronize_Host pass |
    | `waits`          | an instruction is there and checked, and cannot be issued |
    | `arrived`        | a Barrier waits for the other cores, with links |
    | `passed`         | all cores have come to this Barrier, with links |

    Throughput: one instruction every ISSUE_INTERVAL cycles. An instruction is checked in its first
    cycle. In its second cycle, or later, it is `passable`. It passes one cycle after `passable` and
    `room` are both high. Both stay high until then: as long as no instruction is issued, lists and
    queues only become shorter.

    - Synchronize, Interrupt_Host, Synchronize_Host and Barrier wait until the scoreboard is `idle`.
    - Synchronize_Host then waits for `resume`, or takes a `resume` that came before.
    - Barrier then has `arrived`, until it has `passed`.
    - `halted` is high in the fourth cycle of a Halt.
    - `rejected` is high in the fifth cycle of an instruction that fails a check. Neither this
      instruction nor any later one is issued. All earlier instructions have been issued.

    docs/architecture.md, "Ready a cycle ahead", has the timing of `frees`.
    """

    def __init__(self, *, config: Config):
        self._training = config.training
        self._links = config.links
        super().__init__(
            {
                "enable": In(1),
                "decoded": In(stream.Signature(Decoded(config=config))),
                "frees": Out(1),
                "exhausted": In(1),
                "pc": In(PC_BITS),
                "program": In(32),
                "room": In(1),
                "idle": In(1),
                "passable": Out(1),
                "issue": Out(1),
                "program_status": Out(ProgramStatusSignature()),
                "resume": In(1),
                "waits": Out(1),
                **({"arrived": Out(1), "passed": In(1)} if config.links else {}),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        decoded = self.decoded.payload
        kind = decoded.kind
        instruction_passes = Signal()
        # the instruction is in its second cycle or later, and stays in the next cycle
        instruction_checked = Signal()
        instruction_decided = Signal()  # the instruction is in its third cycle or later
        instruction_sound = Signal()  # no check of the instruction has failed
        m.d.sync += instruction_checked.eq(self.decoded.valid & ~(instruction_passes | self.frees))

        # The kind of the instruction, and the conditions that instructions of its kind await.
        is_read = Signal()
        consumes_tiles = Signal()
        is_halt = Signal()
        is_interrupt = Signal()
        waits_for_host = Signal()
        awaits_idle = Signal()
        m.d.sync += [
            is_read.eq(is_one_of(kind, Opcode.READ_WEIGHTS)),
            consumes_tiles.eq(is_one_of(kind, *PRODUCTS)),
            is_halt.eq(is_one_of(kind, Opcode.HALT)),
            is_interrupt.eq(is_one_of(kind, Opcode.INTERRUPT_HOST)),
            waits_for_host.eq(is_one_of(kind, Opcode.SYNCHRONIZE_HOST)),
            awaits_idle.eq(
                is_one_of(kind, *_DRAINING, *((Opcode.BARRIER,) if self._links else ()))
            ),
        ]

        tiles_waiting, tiles_lack, tiles_unconsumed, weights_overtake = self._follow_tiles(
            m,
            reads_tiles=instruction_passes & is_read,
            consumes_tiles=instruction_passes & consumes_tiles,
        )

        # The faults of the instruction.
        found = decoded.failed
        had_found = Signal()
        instruction_fails = Signal()
        fault_found = Signal(FaultReport())
        m.d.sync += had_found.eq(found)
        m.d.comb += [
            instruction_fails.eq(
                found
                | (consumes_tiles & tiles_lack)
                | (is_read & tiles_unconsumed)
                | weights_overtake
            ),
            fault_found.cause.eq(decoded.cause),
            fault_found.pc.eq(decoded.pc),
            fault_found.address.eq(
                Mux(had_found | is_read | weights_overtake, decoded.address, tiles_waiting)
            ),
            self.program_status.rejection.eq(fault_found),
        ]
        with m.If(~had_found):
            m.d.comb += fault_found.cause.eq(
                Mux(is_read | weights_overtake, Fault.WEIGHT_OVERFLOW, Fault.WEIGHT_UNDERFLOW)
            )
        fetch_exhausted = Signal()
        missing_address = Signal(32)
        m.d.sync += [
            fetch_exhausted.eq(self.enable & self.exhausted & ~self.decoded.valid),
            missing_address.eq(self.program + (self.pc << 4)),
        ]
        with m.If(fetch_exhausted):
            m.d.comb += [
                fault_found.cause.eq(Fault.FETCH_WINDOW),
                fault_found.pc.eq(self.pc),
                fault_found.address.eq(missing_address),
            ]

        instruction_refused = Signal()
        instruction_active = Signal()
        host_resumed = Signal()
        instruction_stays = Signal()
        held = (awaits_idle & ~self.idle) | (waits_for_host & ~host_resumed)
        if self._links:
            is_barrier = Signal()
            barrier_met = Signal()
            m.d.sync += [
                is_barrier.eq(is_one_of(kind, Opcode.BARRIER)),
                barrier_met.eq(self.passed | (barrier_met & ~instruction_passes)),
            ]
            m.d.comb += self.arrived.eq(
                instruction_decided & instruction_sound & is_barrier & self.idle & ~barrier_met
            )
            held |= is_barrier & ~barrier_met
        m.d.comb += [
            instruction_active.eq(self.enable & self.decoded.valid & instruction_checked),
            self.program_status.waiting.eq(
                instruction_decided & instruction_sound & waits_for_host & self.idle & ~host_resumed
            ),
            instruction_stays.eq(held),
            self.passable.eq(
                instruction_active & ~instruction_fails & ~is_halt & ~instruction_stays
            ),
            self.frees.eq(self.passable & self.room),
            self.issue.eq(instruction_passes),
            self.decoded.ready.eq(instruction_passes),
            self.waits.eq(instruction_decided & ~instruction_passes),
            self.program_status.interrupt.eq(instruction_passes & is_interrupt & self.enable),
            self.program_status.code.eq(decoded.code),
        ]
        m.d.sync += [
            instruction_decided.eq(instruction_active),
            instruction_sound.eq(~instruction_fails),
            instruction_refused.eq(self.decoded.valid & instruction_decided & ~instruction_sound),
            instruction_passes.eq(self.frees),
            self.program_status.halted.eq(
                self.enable & instruction_decided & instruction_sound & is_halt
            ),
            self.program_status.rejected.eq(self.enable & (instruction_refused | fetch_exhausted)),
        ]
        with m.If(self.resume & self.enable):
            m.d.sync += host_resumed.eq(1)
        with m.Elif(instruction_passes & waits_for_host):
            m.d.sync += host_resumed.eq(0)
        return m

    def _follow_tiles(
        self, m: Module, *, reads_tiles: Value, consumes_tiles: Value
    ) -> tuple[Signal, Signal, Signal, Signal]:
        """Follow the weight queue in program order.

        In a cycle with `reads_tiles` a Read_Weights passes, in a cycle with `consumes_tiles` an
        instruction that consumes tiles. Returns the number of waiting tiles, and three faults:

        - The instruction consumes more tiles than wait.

        - The instruction reads tiles, but tiles wait that are older than the last
          WEIGHT_READS_IN_FLIGHT - 1 Read_Weights.

        - The instruction takes weights from the buffer while tiles wait.
        """
        decoded = self.decoded.payload
        # The weight queue in program order. `tiles_waiting`: tiles queued and not yet consumed.
        # `tiles_recent`: tiles of the last WEIGHT_READS_IN_FLIGHT - 1 Read_Weights. `counts`: tiles
        # of each of these Read_Weights.
        tiles_waiting = Signal(TOTAL_BITS)
        tiles_recent = Signal(TOTAL_BITS)
        counts = m.submodules.counts = Memory(
            shape=COUNT_BITS, depth=WEIGHT_READS_IN_FLIGHT, init=[]
        )
        write = counts.write_port()
        read = counts.read_port(domain="comb")
        count_place = Signal(range(WEIGHT_READS_IN_FLIGHT))
        all_written = Signal()
        oldest_count = Signal(COUNT_BITS)  # the count that `tiles_recent` loses next
        tiles_queued = Signal()
        m.d.comb += [
            tiles_queued.eq(reads_tiles),
            write.en.eq(tiles_queued),
            write.addr.eq(count_place),
            write.data.eq(decoded.tiles),
            read.addr.eq(count_place + 1),
            oldest_count.eq(Mux(all_written, read.data, 0)),
        ]
        with m.If(tiles_queued):
            m.d.sync += [
                tiles_waiting.eq(tiles_waiting + decoded.tiles),
                tiles_recent.eq(tiles_recent + decoded.tiles - oldest_count),
                count_place.eq(count_place + 1),
            ]
            with m.If(count_place == WEIGHT_READS_IN_FLIGHT - 2):
                m.d.sync += all_written.eq(1)
        with m.If(consumes_tiles):
            m.d.sync += tiles_waiting.eq(tiles_waiting - decoded.tiles)
        tiles_lack = Signal()
        tiles_unconsumed = Signal()
        # the instruction takes weights from the buffer while tiles are queued
        weights_overtake = Signal()
        if self._training:
            matrix = is_one_of(decoded.kind, Opcode.MATRIX_MULTIPLY)
            m.d.sync += weights_overtake.eq(matrix & decoded.from_buffer & (tiles_waiting != 0))
        m.d.sync += [
            tiles_lack.eq(tiles_waiting - decoded.tiles < 0),
            tiles_unconsumed.eq(tiles_recent - tiles_waiting < 0),
        ]
        return tiles_waiting, tiles_lack, tiles_unconsumed, weights_overtake
