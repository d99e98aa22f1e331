# SPDX-License-Identifier: Apache-2.0
"""The top level of a machine: registers, start and end of programs, counters, and the core."""

from amaranth.hdl import ClockDomain, ClockSignal, DomainRenamer, Module, ResetSignal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out, connect, flipped
from amaranth.utils import exact_log2

from systola.arch.config import Config
from systola.arch.isa import Fault, LinkPart
from systola.arch.registers import REGISTER_SPACE_BITS, BusPort
from systola.hdl.core import Core
from systola.hdl.host.bus_watchdog import BusWatchdog, handshakes
from systola.hdl.host.control_registers import ControlRegisters
from systola.hdl.host.counters import Counters
from systola.hdl.host.machine_control import MachineControl
from systola.hdl.link.link_unit import neighbour_ports
from systola.hdl.link.link_watchdog import LinkWatchdog
from systola.hdl.link.pod_barrier import CORES_BITS
from systola.hdl.ports import PodSignature
from systola.hdl.transfers.axi import LiteSignature, master_ports
from systola.hdl.unit_domains import units_of


class TPU(wiring.Component):
    """A machine of the given configuration.

    | port                      | meaning |
    |---|---|
    | `control`                 | AXI4-Lite slave, the registers of arch/registers.py |
    | `host_read`               | AXI4 master for host memory; ARID 0 is data, 1 is instructions |
    | `host_write`              | AXI4 master for host memory |
    | `weight_read`             | AXI4 master for weight memory, read only |
    | `irq`                     | a pending interrupt is enabled |
    | `to_left`, `to_right`     | links to the neighbours; only with links |
    | `from_left`, `from_right` | links from the neighbours; only with links |
    | `cores`                   | cores of the pod, a constant; only with links |
    | `pod`                     | signals between the pod and this core, see PodSignature; only with
                                  links |
    """

    def __init__(self, *, config: Config):
        self._config = config
        super().__init__(self.signature_of(config))

    @staticmethod
    def signature_of(config: Config) -> wiring.Signature:
        """Return the ports of a machine of this configuration."""
        links = {
            **neighbour_ports(config),
            "cores": In(CORES_BITS),
            "pod": Out(PodSignature()),
        }
        return wiring.Signature(
            {
                "control": In(LiteSignature(address_bits=REGISTER_SPACE_BITS)),
                **master_ports(config),
                "irq": Out(1),
                **(links if config.links else {}),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self._config
        registers = m.submodules.registers = ControlRegisters(config=config)
        control = m.submodules.machine_control = MachineControl(
            units=units_of(config), links=config.links
        )
        counters = m.submodules.counters = Counters()
        watchdog = m.submodules.watchdog = BusWatchdog()
        core = Core(config=config)
        m.submodules.core = DomainRenamer("core")(core)
        m.domains.core = ClockDomain(local=True)
        # A reset of the machine also resets the domain of the core.
        m.d.comb += [
            ClockSignal("core").eq(ClockSignal()),
            ResetSignal("core").eq(control.clear["core"]),
        ]

        connect(m, flipped(self.control), registers.bus)
        connect(m, registers.windows, core.windows)
        connect(m, core.program_status, control.program_status, registers.program_status)
        connect(m, core.error, control.error)
        for name in master_ports(config):
            connect(m, getattr(core, name), flipped(getattr(self, name)))
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
        idle, start = core.idle, registers.start
        soft_reset, resume = registers.soft_reset, registers.resume
        if config.links:
            idle = idle & core.sent
            start, resume = start | self.pod.start, resume | self.pod.resume
            soft_reset = soft_reset | self.pod.soft_reset
        m.d.comb += [
            self.irq.eq(registers.irq),
            control.start.eq(start),
            control.soft_reset.eq(soft_reset),
            control.idle.eq(idle),
            control.corrupt.eq(core.corrupt),
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
            core.resume.eq(resume),
            registers.status.eq(control.status),
            registers.begins.eq(control.begins),
            registers.tagged.eq(core.tagged),
            registers.tag.eq(core.tag),
            registers.fault.eq(control.report),
            registers.finished.eq(control.finished),
            registers.faulted.eq(control.faulted),
            registers.forget.eq(control.forget),
            registers.counted.eq(counters.value),
            counters.word.eq(registers.counter),
            counters.start.eq(control.begins),
            counters.busy.eq(control.busy),
            counters.draining.eq(control.draining),
            counters.activity.eq(core.activity),
        ]
        if config.links:
            self._links(m, core, control, registers)
        return m

    def _links(
        self, m: Module, core: Core, control: MachineControl, registers: ControlRegisters
    ) -> None:
        """Connect the links, the faults that they raise, and the signals of the pod."""
        pod = self.pod
        watchdog = m.submodules.link_watchdog = LinkWatchdog()
        for name in neighbour_ports(self._config):
            connect(m, getattr(core, name), flipped(getattr(self, name)))
        m.d.comb += [
            core.cores.eq(self.cores),
            core.clear_links.eq(pod.clear_links),
            watchdog.limit.eq(registers.bus_timeout),
            watchdog.waits.eq(core.waits),
            watchdog.alive.eq(pod.alive),
            pod.status.eq(control.status),
            pod.cause.eq(control.report.cause),
        ]
        m.d.sync += pod.moved.eq(core.moved)
        # If a beat of the wrong kind has come, LINK_KIND is reported. A neighbour may have ended
        # with another fault, which is not reported then.
        waits_in_vain = pod.stop & pod.in_vain & core.waits.any()
        m.d.comb += control.broken.eq(core.mismatched.any() | watchdog.expired | pod.stop)
        with m.If(core.mismatched.any()):
            m.d.comb += [
                control.break_cause.eq(Fault.LINK_KIND),
                control.break_address.eq(core.mismatched << exact_log2(LinkPart.RECEIVE_LEFT)),
            ]
        with m.Elif(watchdog.expired):
            m.d.comb += [
                control.break_cause.eq(Fault.LINK_TIMEOUT),
                control.break_address.eq(watchdog.parts),
            ]
        with m.Elif(waits_in_vain):
            m.d.comb += [
                control.break_cause.eq(Fault.LINK_TIMEOUT),
                control.break_address.eq(core.waits),
            ]
        with m.Else():
            m.d.comb += control.break_cause.eq(Fault.POD_STOPPED)
