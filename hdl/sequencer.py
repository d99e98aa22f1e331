# SPDX-License-Identifier: Apache-2.0
"""Issues decoded instructions in program order, and finds the faults that stop them."""

from itertools import pairwise

from amaranth.hdl import Cat, Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from systola.arch.config import Config
from systola.arch.isa import WEIGHT_READS_IN_FLIGHT, Fault, Opcode
from systola.hdl.commands import PC_BITS
from systola.hdl.control_registers import FaultReport
from systola.hdl.decoder import Decoded

TOTAL_BITS = 32
"""Width of the running totals of tiles; differences count, so they may wrap."""


class Sequencer(wiring.Component):
    """Passes one instruction a cycle to the scoreboard while `enable` and there is `room`.

    Synchronize, Interrupt_Host and Synchronize_Host wait until the scoreboard is `idle`; the last
    one then for a `resume` (`waiting`), or takes the one that came before. `interrupt`: an
    Interrupt_Host with `code` passes. `halted` is up when Halt is reached, `faulted` with `fault`
    when an instruction fails a check: neither it nor any later one is issued, while all earlier
    ones have been. `exhausted` with `program` and `pc`: the program has left the host window, and
    nothing is left to decode.

    `waits`: an instruction is there and cannot be issued.
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

        # The weight queue in program order: totals of tiles queued and consumed, and the total
        # after each of the last Read_Weights.
        queued = Signal(TOTAL_BITS)
        consumed = Signal(TOTAL_BITS)
        history = [Signal(TOTAL_BITS, name=f"queued_{i}") for i in range(WEIGHT_READS_IN_FLIGHT)]
        reads = Signal(WEIGHT_READS_IN_FLIGHT)
        waiting = Signal(TOTAL_BITS)
        consumes = Signal()
        underflow = Signal()
        overflow = Signal()
        m.d.comb += [
            waiting.eq(queued - consumed),
            consumes.eq(
                (decoded.opcode == Opcode.MATRIX_MULTIPLY) | (decoded.opcode == Opcode.CONVOLVE)
            ),
            underflow.eq(consumes & (decoded.tiles > waiting)),
            overflow.eq(
                (decoded.opcode == Opcode.READ_WEIGHTS)
                & reads[-1]
                & ((history[-1] - consumed)[:TOTAL_BITS].as_signed() > 0)
            ),
        ]

        fails = Signal()
        m.d.comb += [
            fails.eq((decoded.cause != Fault.NONE) | underflow | overflow),
            self.fault.cause.eq(decoded.cause),
            self.fault.pc.eq(decoded.pc),
            self.fault.address.eq(decoded.address),
        ]
        with m.If(decoded.cause == Fault.NONE):
            with m.If(underflow):
                m.d.comb += [
                    self.fault.cause.eq(Fault.WEIGHT_UNDERFLOW),
                    self.fault.address.eq(waiting),
                ]
            with m.Elif(overflow):
                m.d.comb += [
                    self.fault.cause.eq(Fault.WEIGHT_OVERFLOW),
                    self.fault.address.eq(decoded.address),
                ]

        drains = Signal()
        resumed = Signal()
        with m.Switch(decoded.opcode):
            with m.Case(Opcode.SYNCHRONIZE, Opcode.INTERRUPT_HOST):
                m.d.comb += drains.eq(~self.idle)
            with m.Case(Opcode.SYNCHRONIZE_HOST):
                m.d.comb += [
                    drains.eq(~self.idle | ~resumed),
                    self.waiting.eq(
                        self.enable & self.decoded.valid & ~fails & self.idle & ~resumed
                    ),
                ]

        passes = Signal()
        with m.If(self.enable & self.decoded.valid):
            with m.If(fails):
                m.d.comb += self.faulted.eq(1)
            with m.Elif(decoded.opcode == Opcode.HALT):
                m.d.comb += self.halted.eq(1)
            with m.Else():
                m.d.comb += passes.eq(self.room & ~drains)
        with m.Elif(self.enable & self.exhausted):
            m.d.comb += [
                self.faulted.eq(1),
                self.fault.cause.eq(Fault.FETCH_WINDOW),
                self.fault.pc.eq(self.pc),
                self.fault.address.eq(self.program + (self.pc << 4)),
            ]
        m.d.comb += [
            self.issue.eq(passes),
            self.decoded.ready.eq(passes),
            self.waits.eq(self.enable & self.decoded.valid & ~passes),
            self.interrupt.eq(passes & (decoded.opcode == Opcode.INTERRUPT_HOST)),
            self.code.eq(decoded.code),
        ]
        with m.If(self.resume & self.enable):
            m.d.sync += resumed.eq(1)
        with m.Elif(passes & (decoded.opcode == Opcode.SYNCHRONIZE_HOST)):
            m.d.sync += resumed.eq(0)
        with m.If(passes):
            with m.If(decoded.opcode == Opcode.READ_WEIGHTS):
                total = Signal(TOTAL_BITS)
                m.d.comb += total.eq(queued + decoded.tiles)
                m.d.sync += [
                    queued.eq(total),
                    history[0].eq(total),
                    reads.eq(Cat(1, reads)),
                ]
                m.d.sync += [later.eq(earlier) for earlier, later in pairwise(history)]
            with m.If(consumes):
                m.d.sync += consumed.eq(consumed + decoded.tiles)
        return m
