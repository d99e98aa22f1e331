# SPDX-License-Identifier: Apache-2.0
"""The top level of a pod: its cores, the links between them, and their registers."""

from amaranth.hdl import Cat, ClockSignal, Instance, Module, ResetSignal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from systola.arch.config import Config
from systola.arch.registers import pod_space_bits
from systola.arch.shared_memory import SharedMemory
from systola.hdl.pod.link_wire import SLOWEST, LinkWire
from systola.hdl.pod.memory_mux import MemoryMux, memory_ports
from systola.hdl.pod.page_router import PageRouter
from systola.hdl.pod.pod_control import PodControl
from systola.hdl.pod.pod_registers import PodRegisters
from systola.hdl.port_names import port_name
from systola.hdl.tpu import TPU
from systola.hdl.transfers.axi import LiteSignature, master_ports

LINK_STAGES = 2
"""Number of registers on a link between two cores, in each direction."""
_CORE_STAGES = 8
"""Number of cycles after which a core that is no longer busy certainly sends no more credits."""


class Pod(wiring.Component):
    """A pod that has `cores` machines in a ring. Each is an instance of the module `tpu`.

    | port                                     | meaning |
    |---|---|
    | `control`                                | AXI4-Lite slave: a page of registers for the pod,
                                                 then one for each core |
    | `host_read`, `host_write`, `weight_read` | AXI4 masters, one of each for each core; not with
                                                 `shared` |
    | `memory_read`, `memory_write`            | the AXI4 master of a MemoryMux; only with
                                                 `shared` |
    | `irq`                                    | a pending interrupt of the pod is enabled |

    The module `tpu` is converted separately. `stages`: number of registers between two cores, in
    each direction. `uneven`: all wires are uneven, as LinkWire describes it.
    """

    def __init__(
        self,
        *,
        config: Config,
        cores: int,
        stages: int = LINK_STAGES,
        shared: SharedMemory | None = None,
        uneven: bool = False,
    ):
        self._config, self._cores, self._stages, self._shared = config, cores, stages, shared
        self._uneven = uneven
        if shared:
            masters = memory_ports(config, cores, shared)
        else:
            masters = {name: port.array(cores) for name, port in master_ports(config).items()}
        super().__init__(
            {
                "control": In(LiteSignature(address_bits=pod_space_bits(cores))),
                **masters,
                "irq": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        count = self._cores
        router = m.submodules.page_router = PageRouter(cores=count)
        registers = m.submodules.registers = PodRegisters(cores=count)
        kept = self._config.link_beats * SLOWEST if self._uneven else 0
        control = m.submodules.pod_control = PodControl(
            cores=count, settle=self._stages + _CORE_STAGES + kept
        )
        connect(m, flipped(self.control), router.bus)
        connect(m, router.pages[0], registers.bus)
        mux = None
        if self._shared:
            mux = MemoryMux(config=self._config, cores=count, shared=self._shared)
            m.submodules.memory_mux = mux
            connect(m, mux.memory_read, flipped(self.memory_read))
            connect(m, mux.memory_write, flipped(self.memory_write))
            m.d.comb += mux.together.eq(control.core_start)
        cores = [self._core(m, number) for number in range(count)]
        for number, core in enumerate(cores):
            pod = core.pod
            connect(m, router.pages[number + 1], core.control)
            for name in master_ports(self._config):
                memory = getattr(mux, name)[number] if mux else flipped(getattr(self, name)[number])
                connect(m, getattr(core, name), memory)
            m.d.comb += [
                core.cores.eq(count),
                pod.start.eq(control.core_start),
                pod.soft_reset.eq(registers.soft_reset),
                pod.resume.eq(registers.resume),
                pod.clear_links.eq(control.clear_links),
                pod.alive.eq(control.alive),
                pod.stop.eq(control.stop),
                pod.in_vain.eq(control.in_vain),
                control.statuses[number].eq(pod.status),
                control.causes[number].eq(pod.cause),
                control.moved[number].eq(pod.moved),
            ]
            right = cores[(number + 1) % count]
            for name, sender, receiver in (
                ("right", core.to_right, right.from_left),
                ("left", right.to_left, core.from_right),
            ):
                drawn = 1 + 2 * number + (name == "left") if self._uneven else 0
                wire = LinkWire(config=self._config, stages=self._stages, uneven=drawn)
                m.submodules[f"wire_{name}_{number}"] = wire
                connect(m, sender, wire.sender)
                connect(m, wire.receiver, receiver)
        m.d.comb += [
            registers.status.eq(control.status),
            registers.first.eq(control.first),
            registers.cause.eq(control.cause),
            registers.finished.eq(control.finished),
            registers.faulted.eq(control.faulted),
            registers.forget.eq(control.forget),
            registers.cores_irq.eq(Cat(core.irq for core in cores).any()),
            control.start.eq(registers.start),
            control.soft_reset.eq(registers.soft_reset),
            self.irq.eq(registers.irq),
        ]
        return m

    def _core(self, m: Module, number: int) -> wiring.PureInterface:
        """Place a core, and return its wires."""
        signature = TPU.signature_of(self._config)
        wires = signature.create(path=(f"core_{number}",))
        ports: dict[str, Value] = {"i_clk": ClockSignal(), "i_rst": ResetSignal()}
        for path, member, value in signature.flatten(wires):
            way = "i" if member.flow is In else "o"
            ports[f"{way}_{port_name(path)}"] = Value.cast(value)
        m.submodules[f"core_{number}"] = Instance("tpu", **ports)
        return wires
