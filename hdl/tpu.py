# SPDX-License-Identifier: Apache-2.0
"""The top level: registers, the life of a program, counters, and the core."""

from amaranth.hdl import ClockDomain, ClockSignal, DomainRenamer, Module, ResetSignal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out, connect, flipped
from amaranth.utils import exact_log2

from systola.arch.config import Config, ConfigError
from systola.arch.registers import REGISTER_SPACE_BITS, BusPort
from systola.hdl.core import UNITS, Core
from systola.hdl.host.bus_watchdog import BusWatchdog, handshakes
from systola.hdl.host.control_registers import ControlRegisters
from systola.hdl.host.counters import Counters
from systola.hdl.host.machine_control import MachineControl
from systola.hdl.transfers.axi import LiteSignature, ReadSignature, WriteSignature


class TPU(wiring.Component):
    """One machine of the given configuration.

    Members
    -------
    control : AXI4-Lite slave, the registers of arch/registers.py
    host_read, host_write : AXI4 master for host memory; ARID 0 data, 1 instructions
    weight_read : AXI4 master for weight memory, read only
    irq : a pending interrupt is enabled
    """

    def __init__(self, *, config: Config):
        if config.links:
            raise ConfigError(f"configuration '{config.name}': links are for the golden model only")
        self._config = config
        host = {"address_bits": config.address_bits, "data_bytes": config.host_bus_bytes}
        weight = {"address_bits": config.address_bits, "data_bytes": config.weight_bus_bytes}
        super().__init__(
            {
                "control": In(LiteSignature(address_bits=REGISTER_SPACE_BITS)),
                "host_read": Out(ReadSignature(**host)),
                "host_write": Out(WriteSignature(**host)),
                "weight_read": Out(ReadSignature(**weight)),
                "irq": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        registers = m.submodules.registers = ControlRegisters(config=self._config)
        control = m.submodules.machine_control = MachineControl(units=UNITS)
        counters = m.submodules.counters = Counters()
        watchdog = m.submodules.watchdog = BusWatchdog()
        core = Core(config=self._config)
        m.submodules.core = DomainRenamer("core")(core)
        m.domains.core = ClockDomain(local=True)
        # A reset of the machine shows there, too.
        m.d.comb += [
            ClockSignal("core").eq(ClockSignal()),
            ResetSignal("core").eq(control.clear["core"]),
        ]

        connect(m, flipped(self.control), registers.bus)
        connect(m, core.host_read, flipped(self.host_read))
        connect(m, core.host_write, flipped(self.host_write))
        connect(m, core.weight_read, flipped(self.weight_read))
        for port, bus, sends, gets in (
            (BusPort.HOST_READ, self.host_read, ["ar"], "r"),
            (BusPort.HOST_WRITE, self.host_write, ["aw", "w"], "b"),
            (BusPort.WEIGHT_READ, self.weight_read, ["ar"], "r"),
        ):
            number = exact_log2(port)
            m.d.comb += [
                watchdog.to_memory[number].eq(handshakes(bus, *sends)),
                watchdog.from_memory[number].eq(handshakes(bus, gets)),
            ]
        m.d.comb += [
            self.irq.eq(registers.irq),
            control.start.eq(registers.start),
            control.soft_reset.eq(registers.soft_reset),
            control.halted.eq(core.halted),
            control.rejected.eq(core.rejected),
            control.rejection.eq(core.rejection),
            control.error.eq(core.error),
            control.error_cause.eq(core.error_cause),
            control.error_pc.eq(core.error_pc),
            control.idle.eq(core.idle),
            control.corrupt.eq(core.corrupt),
            control.waiting.eq(core.waiting),
            control.quiet.eq(core.quiet),
            control.expired.eq(watchdog.expired),
            control.waits.eq(watchdog.ports),
            watchdog.limit.eq(registers.bus_timeout),
            watchdog.quiet.eq(core.quiet),
            watchdog.written.eq(
                self.host_write.wvalid & self.host_write.wready & self.host_write.wlast
            ),
            core.running.eq(control.running),
            core.stop.eq(control.stop),
            core.clear.eq(control.clear),
            core.resume.eq(registers.resume),
            core.program.eq(registers.program),
            core.host_base.eq(registers.host_base),
            core.host_limit.eq(registers.host_limit),
            core.weight_base.eq(registers.weight_base),
            core.weight_tiles.eq(registers.weight_tiles),
            registers.status.eq(control.status),
            registers.begins.eq(control.begins),
            registers.tagged.eq(core.tagged),
            registers.tag.eq(core.tag),
            registers.fault.eq(control.report),
            registers.finished.eq(control.finished),
            registers.faulted.eq(control.faulted),
            registers.forget.eq(control.forget),
            registers.interrupt.eq(core.interrupt),
            registers.interrupt_code.eq(core.code),
            registers.counted.eq(counters.value),
            counters.word.eq(registers.counter),
            counters.start.eq(control.begins),
            counters.busy.eq(control.busy),
            counters.draining.eq(control.draining),
            counters.active.eq(core.activity.active),
            counters.awaiting_weights.eq(core.activity.awaiting_weights),
            counters.weights_moving.eq(core.activity.weights_moving),
            counters.matrix_waits.eq(core.activity.matrix_waits),
            counters.input_blocked.eq(core.activity.input_blocked),
            counters.operand_blocked.eq(core.activity.operand_blocked),
            counters.vector.eq(core.activity.vector),
            counters.host_wait.eq(core.activity.host_wait),
            counters.issue_waits.eq(core.activity.issue_waits),
        ]
        return m
