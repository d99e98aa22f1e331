# SPDX-License-Identifier: Apache-2.0
"""The common start of the cores of a pod, and their common end after a fault."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import bits_for, ceil_log2

from systola.arch.isa import Fault
from systola.arch.registers import Status
from systola.hdl.parts.promise import promised

LAUNCH = 6
"""Cycles from the reset of the links to the first look at the status of the cores."""


class PodControl(wiring.Component):
    """A state machine that starts the cores of a pod together, and ends them together after a
    fault.

    | port          | meaning |
    |---|---|
    | `start`       | starts the pod; ignored while a core is busy |
    | `soft_reset`  | forgets the last program; the cores get their soft reset in another way |
    | `statuses`    | the register STATUS of each core |
    | `causes`      | the cause of the fault of each core |
    | `moved`       | a bit for each core: something has moved on its links |
    | `core_start`  | starts all cores |
    | `clear_links` | empties all links |
    | `alive`       | a core has `moved` |
    | `stop`        | stops all cores after a fault, until none is busy |
    | `in_vain`     | with `stop`: the fault was a LINK_TIMEOUT |
    | `status`      | word of the register STATUS; BUSY from the start on |
    | `first`       | the first core with a fault, the lowest one if there are several |
    | `cause`       | the cause of its fault |
    | `finished`    | all cores have ended at Halt; high for one cycle |
    | `faulted`     | there is a first fault; high for one cycle |
    | `forget`      | clears the pending interrupts |

    `settle` cycles after the start, nothing is on its way from core to core any longer. Then the
    links are emptied, and two cycles later all cores start. All outputs but `status` are registers.
    Signals of the cores take effect one cycle later.
    """

    def __init__(self, *, cores: int, settle: int):
        self._cores, self._settle = cores, settle
        cause = ceil_log2(len(Fault))
        super().__init__(
            {
                "start": In(1),
                "soft_reset": In(1),
                "statuses": In(data.ArrayLayout(len(Status), cores)),
                "causes": In(data.ArrayLayout(cause, cores)),
                "moved": In(cores),
                "core_start": Out(1),
                "clear_links": Out(1),
                "alive": Out(1),
                "stop": Out(1),
                "in_vain": Out(1),
                "status": Out(len(Status)),
                "first": Out(bits_for(cores - 1)),
                "cause": Out(cause),
                "finished": Out(1),
                "faulted": Out(1),
                "forget": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()

        def all_with(bit: Status) -> Signal:
            fault_found = Signal(self._cores, name=f"{str(bit.name).lower()}_cores")
            for number in range(self._cores):
                m.d.sync += fault_found[number].eq((self.statuses[number] & bit).any())
            return fault_found

        busy, done, faults = (all_with(bit) for bit in (Status.BUSY, Status.DONE, Status.FAULT))
        # cycles until the start of the cores is over
        start_remaining = Signal(range(self._settle + LAUNCH + 1))
        program_runs = Signal()  # the program that was started has not ended
        ended_well = Signal()
        fault_found = Signal()  # there is a fault; its cause is known in the next cycle
        cause_known = Signal()  # the cause is known
        program_begins = Signal()
        program_ends = Signal()
        finds_fault = Signal()
        m.d.comb += [
            program_begins.eq(self.start & ~self.soft_reset & ~busy.any() & (start_remaining == 0)),
            program_ends.eq(
                program_runs
                & (start_remaining == 0)
                & ~busy.any()
                & (fault_found == cause_known)
                & ~finds_fault
            ),
            finds_fault.eq(program_runs & (start_remaining == 0) & faults.any() & ~fault_found),
            self.status.eq(
                ((start_remaining != 0) | program_runs | busy.any()) * int(Status.BUSY)
                | ended_well * int(Status.DONE)
                | cause_known * int(Status.FAULT)
            ),
        ]
        m.d.sync += [
            start_remaining.eq(Mux(start_remaining == 0, 0, start_remaining - 1)),
            self.clear_links.eq(start_remaining == LAUNCH),
            self.core_start.eq((start_remaining == LAUNCH - 2) & ~self.soft_reset),
            self.alive.eq(self.moved.any()),
            self.finished.eq(program_ends & done.all()),
            self.faulted.eq(fault_found & ~cause_known),
            cause_known.eq(fault_found),
            self.stop.eq(cause_known & program_runs & ~program_ends),
            self.forget.eq(self.soft_reset),
        ]
        with m.If(finds_fault):
            m.d.sync += fault_found.eq(1)
            for number in reversed(range(self._cores)):
                with m.If(faults[number]):
                    m.d.sync += self.first.eq(number)
        with m.If(fault_found & ~cause_known):
            m.d.sync += [
                self.cause.eq(self.causes[self.first]),
                self.in_vain.eq(self.causes[self.first] == Fault.LINK_TIMEOUT),
            ]
        with m.If(program_ends):
            m.d.sync += [program_runs.eq(0), ended_well.eq(done.all())]
        with m.If(program_begins):
            m.d.sync += [start_remaining.eq(self._settle + LAUNCH), program_runs.eq(1)]
        with m.If(self.soft_reset):
            m.d.sync += [start_remaining.eq(0), program_runs.eq(0)]
        with m.If(program_begins | self.soft_reset):
            m.d.sync += [
                ended_well.eq(0),
                fault_found.eq(0),
                cause_known.eq(0),
                self.cause.eq(0),
                self.first.eq(0),
                self.in_vain.eq(0),
            ]
        promised(m, platform, ~(self.finished & self.faulted), "a pod has succeeded and failed")
        promised(m, platform, ~cause_known | fault_found, "the cause of no fault is known")
        promised(m, platform, ~self.core_start | program_runs, "the cores start without a program")
        in_vain = ~self.in_vain | (self.cause == Fault.LINK_TIMEOUT)
        promised(m, platform, in_vain, "another fault is taken for a timeout of links")
        return m
