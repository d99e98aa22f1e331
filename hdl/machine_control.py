# SPDX-License-Identifier: Apache-2.0
"""The life of a program: run, drain, stop, clear."""

from amaranth.hdl import Module, Signal
from amaranth.lib import enum, wiring
from amaranth.lib.wiring import In, Out

from systola.arch.isa import Fault
from systola.arch.registers import BusPort, Status
from systola.hdl.commands import PC_BITS
from systola.hdl.control_registers import FaultReport


class State(enum.Enum, shape=2):
    """IDLE; RUN; DRAIN: issued instructions complete; STOP: bus transfers end."""

    IDLE = 0
    RUN = 1
    DRAIN = 2
    STOP = 3


class MachineControl(wiring.Component):
    """Every program ends the same way, at Halt, by a fault or by a soft reset: `stop` until all
    bus transfers are over (`quiet`), then one cycle of `clear`, which resets all units. In that
    cycle the program is over, and the next one may be started.

    A fault found at issue lets the issued instructions complete first, as Halt does; a bus error
    (`error` with `error_cause` and `error_pc`) stops at once. `finished` and `faulted` are up in
    the cycle before the bits show in `status`. `waiting`, a program that waits for the host, shows
    there at once and only while the program runs. `expired`: a memory has not answered the ports
    `waits` in time; that is a fault at once, and the machine then stays busy until it is quiet.
    `forget`: a soft reset is over. `stop` and
    `clear` are registers, as they go everywhere.
    """

    start: In(1)
    soft_reset: In(1)
    halted: In(1)
    rejected: In(1)
    rejection: In(FaultReport())
    error: In(1)
    error_cause: In(Fault)
    error_pc: In(PC_BITS)
    waiting: In(1)
    expired: In(1)
    waits: In(BusPort)
    idle: In(1)
    quiet: In(1)
    begins: Out(1)
    running: Out(1)
    draining: Out(1)
    busy: Out(1)
    stop: Out(1)
    clear: Out(1)
    finished: Out(1)
    faulted: Out(1)
    forget: Out(1)
    status: Out(len(Status))
    report: Out(FaultReport())

    def elaborate(self, platform: object) -> Module:
        m = Module()
        state = Signal(State)
        failed = Signal()
        abandoned = Signal()
        done = Signal()
        fault = Signal()
        lost = Signal()  # the end has been told already: a memory does not answer

        with m.Switch(state):
            with m.Case(State.IDLE):
                m.d.comb += self.begins.eq(self.start & ~self.soft_reset)
                with m.If(self.begins):
                    m.d.sync += [
                        state.eq(State.RUN),
                        done.eq(0),
                        fault.eq(0),
                        failed.eq(0),
                        abandoned.eq(0),
                        lost.eq(0),
                        self.report.eq(0),
                    ]
            with m.Case(State.RUN):
                with m.If(self.halted):
                    m.d.sync += state.eq(State.DRAIN)
                with m.If(self.rejected):
                    m.d.sync += [
                        state.eq(State.DRAIN),
                        failed.eq(1),
                        self.report.eq(self.rejection),
                    ]
            with m.Case(State.DRAIN):
                with m.If(self.idle):
                    m.d.sync += [state.eq(State.STOP), self.stop.eq(1)]
            with m.Case(State.STOP):
                with m.If(self.quiet & ~self.soft_reset):
                    m.d.sync += [
                        state.eq(State.IDLE),
                        self.clear.eq(1),
                        done.eq(self.finished),
                        fault.eq(failed & ~abandoned),
                    ]
                    m.d.comb += [
                        self.finished.eq(~failed & ~abandoned),
                        self.faulted.eq(failed & ~abandoned & ~lost),
                        self.forget.eq(abandoned),
                    ]
        with m.If(self.clear):
            m.d.sync += [self.clear.eq(0), self.stop.eq(0)]

        # An instruction whose transfer fails is older than one that is rejected at issue.
        with m.If(self.error & ((state == State.RUN) | (state == State.DRAIN))):
            m.d.sync += [
                state.eq(State.STOP),
                self.stop.eq(1),
                failed.eq(1),
                self.report.cause.eq(self.error_cause),
                self.report.pc.eq(self.error_pc),
                self.report.address.eq(0),
            ]

        with m.If(self.expired & self.busy & ~self.quiet & ~lost):
            m.d.comb += self.faulted.eq(1)
            m.d.sync += [
                state.eq(State.STOP),
                self.stop.eq(1),
                failed.eq(1),
                fault.eq(1),
                lost.eq(1),
                self.report.cause.eq(Fault.BUS_TIMEOUT),
                self.report.pc.eq(0),
                self.report.address.eq(self.waits),
            ]

        with m.If(self.soft_reset):
            with m.If(state == State.IDLE):
                m.d.comb += self.forget.eq(1)
            with m.Else():
                m.d.sync += [state.eq(State.STOP), self.stop.eq(1), abandoned.eq(1)]
        with m.If(self.forget):
            m.d.sync += [done.eq(0), fault.eq(0), self.report.eq(0)]

        m.d.comb += [
            self.running.eq(state == State.RUN),
            self.draining.eq((state != State.RUN) & (state != State.IDLE)),
            self.busy.eq(state != State.IDLE),
            self.status.eq(
                self.busy * int(Status.BUSY)
                | done * int(Status.DONE)
                | fault * int(Status.FAULT)
                | (self.running & self.waiting) * int(Status.WAITING)
            ),
        ]
        return m
