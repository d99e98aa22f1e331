# SPDX-License-Identifier: Apache-2.0
"""The registers of a pod; arch/registers.py has offsets and bits."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out, connect, flipped
from amaranth.utils import bits_for, ceil_log2

from systola.arch.isa import Fault
from systola.arch.registers import (
    POD_IDENTITY,
    POD_REGISTER_TEXT,
    REGISTER_SPACE_BITS,
    VERSION,
    Control,
    PodInterrupt,
    PodRegister,
    Status,
)
from systola.hdl.host.register_bank import RegisterBank, name_of
from systola.hdl.transfers.axi import LiteSignature

CAUSE_BITS = 8
"""Width in bits of the cause in FIRST_FAULT; the bits above it are the number of the core."""


class PodRegisters(wiring.Component):
    """A bank that has the registers of a pod for the host.

    | port         | meaning |
    |---|---|
    | `bus`        | accesses of the host |
    | `irq`        | an enabled bit of IRQ_STATUS is set |
    | `start`      | a start is written, without a soft reset |
    | `soft_reset` | a soft reset is written |
    | `resume`     | a resume is written |
    | `status`     | word of the register STATUS |
    | `first`      | the first core with a fault |
    | `cause`      | the cause of its fault |
    | `finished`   | sets DONE of IRQ_STATUS |
    | `faulted`    | sets FAULT of IRQ_STATUS |
    | `forget`     | clears both bits |
    | `cores_irq`  | the interrupt of a core is high |

    RegisterBank has the timing of the accesses. `start`, `soft_reset` and `resume` are high in the
    cycle in which their write is taken.
    """

    def __init__(self, *, cores: int):
        self._cores = cores
        super().__init__(
            {
                "bus": In(LiteSignature(address_bits=REGISTER_SPACE_BITS)),
                "irq": Out(1),
                "start": Out(1),
                "soft_reset": Out(1),
                "resume": Out(1),
                "status": In(len(Status)),
                "first": In(bits_for(cores - 1)),
                "cause": In(ceil_log2(len(Fault))),
                "finished": In(1),
                "faulted": In(1),
                "forget": In(1),
                "cores_irq": In(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.bank = bank = RegisterBank(registers=POD_REGISTER_TEXT)
        connect(m, flipped(self.bus), bank.bus)
        new_word, written = self.bus.wdata, bank.written

        controls = written.control
        starts, resets, resumes = (
            (new_word & bit).any() for bit in (Control.START, Control.SOFT_RESET, Control.RESUME)
        )
        enable = Signal(len(PodInterrupt))
        pending = Signal(2)
        shown = Cat(pending, self.cores_irq)
        raised = Cat(self.finished, self.faulted)
        cleared = Mux(written.irq_status, new_word[: len(pending)], 0)
        m.d.comb += [
            self.start.eq(controls & starts & ~resets),
            self.soft_reset.eq(controls & resets),
            self.resume.eq(controls & resumes),
            self.irq.eq((shown & enable).any()),
        ]
        m.d.sync += pending.eq(Mux(self.forget, 0, (pending & ~cleared) | raised))
        with m.If(written.irq_enable):
            m.d.sync += enable.eq(new_word)

        values: dict[PodRegister, Value] = {
            PodRegister.ID: Const(POD_IDENTITY, 32),
            PodRegister.VERSION: Const(VERSION, 32),
            PodRegister.STATUS: self.status,
            PodRegister.IRQ_ENABLE: enable,
            PodRegister.IRQ_STATUS: shown,
            PodRegister.CORES: Const(self._cores, 32),
            PodRegister.FIRST_FAULT: self.cause | (self.first << CAUSE_BITS),
        }
        m.d.comb += [bank.values[name_of(each)].eq(value) for each, value in values.items()]
        return m
