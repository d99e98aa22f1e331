# SPDX-License-Identifier: Apache-2.0
"""Issues decoded instructions in program order, and finds the faults that stop them."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from systola.arch.config import Config
from systola.arch.isa import WEIGHT_READS_IN_FLIGHT, Fault, Opcode
from systola.hdl.commands import PC_BITS, TILE_BITS
from systola.hdl.control_registers import FaultReport
from systola.hdl.decoder import Decoded

ISSUE_INTERVAL = 3
"""Cycles from an instruction to the next one."""
TOTAL_BITS = TILE_BITS + 5
"""Width of the running totals of tiles. Only differences count, so they may wrap: no more than
WEIGHT_READS_IN_FLIGHT times the tiles of a Read_Weights are waiting."""


class Sequencer(wiring.Component):
    """Passes instructions to the scoreboard while `enable` and there is `room`, one every
    ISSUE_INTERVAL cycles: in the first one they are checked, in the second one, or later, it is
    decided that they may pass, and then they do. What was true when that was decided stays true:
    as long as nothing is issued lists and queues only become shorter.

    Synchronize, Interrupt_Host and Synchronize_Host wait until the scoreboard is `idle`; the last
    one then for a `resume` (`waiting`), or takes the one that came before. `interrupt`: an
    Interrupt_Host with `code` passes. `halted` is up in the third cycle of a Halt, `faulted` with
    `fault` in the fourth cycle of an instruction that fails a check: neither it nor any later one
    is issued, while all earlier ones have been. `exhausted` with `program` and `pc`: the program
    has left the host window, and nothing is left to decode.

    `waits`: an instruction is there, checked, and cannot be issued.
    """

    def __init__(self, *, config: Config):
        super().__init__(
            {
                "enable": In(1),
                "decoded": In(stream.Signature(Decoded(config=config))),
                "exhausted": In(1),
                "pc": In(PC_BITS),
                "program": In(32),
                "room": In(1),
                "idle": In(1),
                "issue": Out(1),
                "halted": Out(1),
                "faulted": Out(1),
                "fault": Out(FaultReport()),
                "interrupt": Out(1),
                "resume": In(1),
                "waiting": Out(1),
                "code": Out(16),
                "waits": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        decoded = self.decoded.payload
        may_pass = Signal()
        passes = Signal()
        checked = Signal()  # the instruction is there for the second cycle, or longer
        decided = Signal()  # for the third one, or longer,
        sound = Signal()  # and it has not failed
        m.d.sync += checked.eq(self.decoded.valid & ~passes)

        # What an instruction is.
        is_read = Signal()
        consumes = Signal()
        halts = Signal()
        interrupts = Signal()
        waits_for_host = Signal()
        drains = Signal()
        m.d.sync += [
            is_read.eq(decoded.opcode == Opcode.READ_WEIGHTS),
            consumes.eq(
                (decoded.opcode == Opcode.MATRIX_MULTIPLY) | (decoded.opcode == Opcode.CONVOLVE)
            ),
            halts.eq(decoded.opcode == Opcode.HALT),
            interrupts.eq(decoded.opcode == Opcode.INTERRUPT_HOST),
            waits_for_host.eq(decoded.opcode == Opcode.SYNCHRONIZE_HOST),
            drains.eq(
                (decoded.opcode == Opcode.SYNCHRONIZE)
                | (decoded.opcode == Opcode.INTERRUPT_HOST)
                | (decoded.opcode == Opcode.SYNCHRONIZE_HOST)
            ),
        ]

        # The weight queue in program order: totals of tiles consumed and queued, their difference,
        # and the total after each of the last Read_Weights.
        consumed = Signal(TOTAL_BITS)
        waiting = Signal(TOTAL_BITS)
        queued = Signal(TOTAL_BITS)
        total = Signal(TOTAL_BITS)
        totals = m.submodules.totals = Memory(
            shape=TOTAL_BITS, depth=WEIGHT_READS_IN_FLIGHT, init=[]
        )
        write = totals.write_port()
        oldest = totals.read_port(domain="comb")
        place = Signal(range(WEIGHT_READS_IN_FLIGHT))
        all_written = Signal()
        m.d.comb += [
            total.eq(queued + decoded.tiles),
            write.en.eq(passes & is_read),
            write.addr.eq(place),
            write.data.eq(total),
            oldest.addr.eq(place),
        ]
        with m.If(passes & is_read):
            m.d.sync += [
                waiting.eq(waiting + decoded.tiles),
                queued.eq(total),
                place.eq(place + 1),
            ]
            with m.If(place == WEIGHT_READS_IN_FLIGHT - 1):
                m.d.sync += all_written.eq(1)
        with m.If(passes & consumes):
            m.d.sync += [
                waiting.eq(waiting - decoded.tiles),
                consumed.eq(consumed + decoded.tiles),
            ]
        lacks = Signal()
        unconsumed = Signal()
        ahead = Signal(TOTAL_BITS)
        m.d.comb += ahead.eq(consumed - oldest.data)
        m.d.sync += [
            lacks.eq(waiting - decoded.tiles < 0),
            unconsumed.eq(all_written & ahead[-1]),
        ]

        # Faults.
        found = decoded.failed
        had_found = Signal()
        fails = Signal()
        m.d.sync += had_found.eq(found)
        m.d.comb += [
            fails.eq(found | (consumes & lacks) | (is_read & unconsumed)),
            self.fault.cause.eq(decoded.cause),
            self.fault.pc.eq(decoded.pc),
            self.fault.address.eq(Mux(had_found | is_read, decoded.address, waiting)),
        ]
        with m.If(~had_found):
            m.d.comb += self.fault.cause.eq(
                Mux(is_read, Fault.WEIGHT_OVERFLOW, Fault.WEIGHT_UNDERFLOW)
            )
        exhausted = Signal()
        missing = Signal(32)
        m.d.sync += [
            exhausted.eq(self.enable & self.exhausted & ~self.decoded.valid),
            missing.eq(self.program + (self.pc << 4)),
        ]

        refused = Signal()
        active = Signal()
        resumed = Signal()
        stays = Signal()
        m.d.comb += [
            active.eq(self.enable & self.decoded.valid & checked),
            self.waiting.eq(decided & sound & waits_for_host & self.idle & ~resumed),
            stays.eq((drains & ~self.idle) | (waits_for_host & ~resumed)),
            passes.eq(may_pass),
            self.faulted.eq(self.enable & (refused | exhausted)),
            self.halted.eq(decided & sound & halts),
            self.issue.eq(passes),
            self.decoded.ready.eq(passes),
            self.waits.eq(decided & ~passes),
            self.interrupt.eq(passes & interrupts & self.enable),
            self.code.eq(decoded.code),
        ]
        m.d.sync += [
            decided.eq(active & ~passes),
            sound.eq(~fails),
            refused.eq(self.decoded.valid & decided & ~sound),
            may_pass.eq(active & ~passes & ~fails & ~halts & ~stays & self.room),
        ]
        with m.If(exhausted):
            m.d.comb += [
                self.fault.cause.eq(Fault.FETCH_WINDOW),
                self.fault.pc.eq(self.pc),
                self.fault.address.eq(missing),
            ]
        with m.If(self.resume & self.enable):
            m.d.sync += resumed.eq(1)
        with m.Elif(passes & waits_for_host):
            m.d.sync += resumed.eq(0)
        return m
