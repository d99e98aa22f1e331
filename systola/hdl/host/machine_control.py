# SPDX-License-Identifier: Apache-2.0
"""The states of a program: it runs, drains, stops, and is cleared."""

from collections.abc import Sequence

from amaranth.hdl import Cat, Module, ResetSignal, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from systola.arch.isa import Fault
from systola.arch.registers import BusPort, CheckedMemory, Status
from systola.hdl.parts.promise import at_most_one, promised
from systola.hdl.parts.replica import Replica
from systola.hdl.ports import FaultReport, ProgramStatusSignature, TransferErrorSignature


class MachineControl(wiring.Component):
    """A state machine that leads a program from its start to its end.

    | port                           | meaning |
    |---|---|
    | `start`                        | starts a program |
    | `soft_reset`                   | ends the program |
    | `program_status`               | progress of the program |
    | `error`                        | a bus error |
    | `expired`                      | the ports in `waits` got no answer from memory in time |
    | `corrupt`                      | the memories in which a flaw was found |
    | `idle`                         | all issued instructions have completed |
    | `quiet`                        | for each bus port: no transfer is under way |
    | `broken`                       | a link is broken, or another core has a fault; only with
                                       `links` |
    | `break_cause`, `break_address` | cause and address of this fault; only with `links` |
    | `begins`                       | the first cycle of a program |
    | `running`                      | the program has not ended; a register |
    | `draining`                     | the program has ended, but the machine is busy |
    | `busy`                         | a program runs, drains or stops; a register |
    | `stop`                         | stops all bus transfers; a register |
    | `clear`                        | resets a unit, with a register for each of the `units` |
    | `finished`                     | the program has finished; DONE is set in this cycle |
    | `faulted`                      | the program has failed; FAULT is set in this cycle |
    | `forget`                       | a soft reset is over, and `status` is clear |
    | `status`                       | word of the register STATUS |
    | `report`                       | the fault, a cycle after `faulted` |

    A program is `running` until Halt or a fault. Then it drains: the issued instructions complete,
    until the machine is `idle`. Then it stops: `stop` is high until all bus transfers are over and
    all ports are `quiet`. Then `clear` is high for one cycle and resets all units, as it does after
    a reset. In this cycle the program is over, and the next program may be started. A soft reset
    also stops the program in this way.

    A fault found at issue lets the issued instructions complete first, as Halt does. A bus error, a
    flaw of a memory and a broken link stop the program at once. So does a memory that does not
    answer in time. This fault is reported at once, and the machine then stays busy until it is
    quiet.

    `program_status.waiting` shows in `status` in the same cycle, and only while the program runs.
    `clear` has several registers, as a single one would reach thousands of registers all over the
    chip.
    """

    def __init__(self, *, units: Sequence[str], links: bool = False):
        self._links = links
        of_links = {"broken": In(1), "break_cause": In(Fault), "break_address": In(32)}
        super().__init__(
            {
                **(of_links if links else {}),
                "start": In(1),
                "soft_reset": In(1),
                "program_status": In(ProgramStatusSignature()),
                "error": In(TransferErrorSignature()),
                "expired": In(1),
                "waits": In(BusPort),
                "corrupt": In(CheckedMemory),
                "idle": In(1),
                "quiet": In(len(BusPort)),
                "begins": Out(1),
                "running": Out(1),
                "draining": Out(1),
                "busy": Out(1),
                "stop": Out(1, init=1),
                "clear": Out(data.StructLayout(dict.fromkeys(units, 1))),
                "finished": Out(1),
                "faulted": Out(1),
                "forget": Out(1),
                "status": Out(len(Status)),
                "report": Out(FaultReport()),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        program_drains = Signal()
        program_stops = Signal()
        program_failed = Signal()
        program_abandoned = Signal()
        program_done = Signal()
        program_fault = Signal()
        timeout_reported = Signal()  # BUS_TIMEOUT has been reported
        rejects_instruction = Signal()
        transfer_fails = Signal()
        watchdog_expires = Signal()
        reports_timeout = Signal()
        buses_at_rest = Signal()
        program_ends = Signal()
        forgets_program = Signal()
        will_clear = Signal()
        clear_units = Signal(init=1)
        failures = self.error.found | self.corrupt.any()
        if self._links:
            failures |= self.broken
        m.d.comb += [
            self.begins.eq(~self.busy & self.start & ~self.soft_reset),
            rejects_instruction.eq(self.running & self.program_status.rejected),
            transfer_fails.eq(failures & (self.running | program_drains)),
            buses_at_rest.eq(program_stops & self.quiet.all()),
            watchdog_expires.eq(self.expired & self.busy & ~timeout_reported),
            reports_timeout.eq(watchdog_expires & ~buses_at_rest),
            program_ends.eq(buses_at_rest & ~self.soft_reset),
            will_clear.eq(program_ends | ResetSignal()),
            forgets_program.eq((program_ends & program_abandoned) | (~self.busy & self.soft_reset)),
        ]
        m.d.sync += [
            self.finished.eq(program_ends & ~program_failed & ~program_abandoned),
            self.faulted.eq(
                (program_ends & program_failed & ~program_abandoned & ~timeout_reported)
                | reports_timeout
            ),
            self.forget.eq(forgets_program),
            clear_units.eq(will_clear),
        ]
        for name in self.clear.shape().members:
            copy = m.submodules[f"clear_{name}"] = Replica()
            m.d.comb += [copy.input.eq(will_clear), self.clear[name].eq(copy.output)]
        with m.If(self.begins):
            m.d.sync += [
                self.running.eq(1),
                self.busy.eq(1),
                program_done.eq(0),
                program_fault.eq(0),
                program_failed.eq(0),
                program_abandoned.eq(0),
                timeout_reported.eq(0),
            ]
        with m.If(self.running & (self.program_status.halted | self.program_status.rejected)):
            m.d.sync += [
                self.running.eq(0),
                program_drains.eq(1),
                program_failed.eq(rejects_instruction),
            ]
        with m.If(program_drains & self.idle):
            m.d.sync += [program_drains.eq(0), program_stops.eq(1), self.stop.eq(1)]
        # In a cycle in which the program ends, the assignments down to `clear_units` have no
        # effect.
        with m.If(watchdog_expires):
            m.d.sync += timeout_reported.eq(1)
        with m.If(transfer_fails | watchdog_expires):
            m.d.sync += program_failed.eq(1)
        with m.If(self.busy & self.soft_reset):
            m.d.sync += program_abandoned.eq(1)
        with m.If(transfer_fails | watchdog_expires | (self.busy & self.soft_reset)):
            m.d.sync += [
                self.running.eq(0),
                program_drains.eq(0),
                program_stops.eq(1),
                self.stop.eq(1),
            ]
        # In a cycle with `clear_units` no event above happens, so none of them sets `stop` again.
        with m.If(clear_units):
            m.d.sync += self.stop.eq(0)
        with m.If(program_ends):
            m.d.sync += [
                program_stops.eq(0),
                self.busy.eq(0),
                program_done.eq(~program_failed & ~program_abandoned),
                program_fault.eq(program_failed & ~program_abandoned),
            ]
        with m.If(reports_timeout):
            m.d.sync += program_fault.eq(1)
        with m.If(forgets_program):
            m.d.sync += [program_done.eq(0), program_fault.eq(0)]

        report = self._report(
            m,
            keeps=rejects_instruction | transfer_fails | reports_timeout,
            drops=self.begins | forgets_program,
        )
        m.d.comb += [
            self.report.eq(report),
            self.draining.eq(self.busy & ~self.running),
            self.status.eq(
                self.busy * int(Status.BUSY)
                | program_done * int(Status.DONE)
                | program_fault * int(Status.FAULT)
                | (self.running & self.program_status.waiting) * int(Status.WAITING)
            ),
        ]
        states = Cat(self.running, program_drains, program_stops)
        promised(m, platform, at_most_one(states), "a program is in two states")
        promised(m, platform, self.busy == states.any(), "a program is busy and in no state")
        promised(
            m, platform, ~program_stops | self.stop, "a program stops, and its transfers go on"
        )
        promised(m, platform, ~(self.running & self.stop), "a program runs without transfers")
        promised(m, platform, ~(self.finished & self.faulted), "a program has succeeded and failed")
        promised(m, platform, ~self.forget | (self.status == 0), "a program is not forgotten")
        copies = self.clear.as_value()
        promised(m, platform, copies == clear_units.replicate(len(copies)), "a unit is not cleared")
        return m

    def _report(self, m: Module, *, keeps: Value, drops: Value) -> data.View:
        """Return the report of the fault that ends the program."""
        # `fault_found` is loaded in every cycle, with or without a fault. If `keeps` was high in
        # the cycle before, `fault_found` becomes the report. A failed transfer belongs to an older
        # instruction than a rejection at issue, so it overwrites the rejection.
        fault_found = Signal(FaultReport(), reset_less=True)
        keeps_report = Signal()
        drops_report = Signal(init=1)  # high after a reset, too
        kept_report = Signal(FaultReport(), reset_less=True)
        m.d.sync += [
            fault_found.eq(self.program_status.rejection),
            keeps_report.eq(keeps),
            drops_report.eq(drops),
        ]
        if self._links:
            with m.If(self.broken):
                m.d.sync += [
                    fault_found.cause.eq(self.break_cause),
                    fault_found.pc.eq(0),
                    fault_found.address.eq(self.break_address),
                ]
        with m.If(self.error.found):
            m.d.sync += [
                fault_found.cause.eq(self.error.cause),
                fault_found.pc.eq(self.error.pc),
                fault_found.address.eq(0),
            ]
        with m.If(self.corrupt.any()):
            m.d.sync += [
                fault_found.cause.eq(Fault.MEMORY_ERROR),
                fault_found.pc.eq(0),
                fault_found.address.eq(self.corrupt),
            ]
        with m.If(self.expired):
            m.d.sync += [
                fault_found.cause.eq(Fault.BUS_TIMEOUT),
                fault_found.pc.eq(0),
                fault_found.address.eq(self.waits),
            ]
        with m.If(drops_report):
            m.d.sync += kept_report.eq(0)
        with m.Elif(keeps_report):
            m.d.sync += kept_report.eq(fault_found)
        return kept_report
