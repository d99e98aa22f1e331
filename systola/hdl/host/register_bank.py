# SPDX-License-Identifier: Apache-2.0
"""The AXI4-Lite side of a bank of registers, which takes writes and answers reads."""

from collections.abc import Mapping
from enum import IntEnum

from amaranth.hdl import Module, Mux, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from systola.arch.registers import REGISTER_SPACE_BITS, PodRegister, Register, RegisterText
from systola.hdl.parts.ored import ored
from systola.hdl.transfers.axi import LiteSignature


class RegisterBank(wiring.Component):
    """A unit that decodes the host's accesses to the registers of a machine or of a pod.

    The access of each register in `registers` decides whether it is read, written, or locked.

    | port      | meaning |
    |---|---|
    | `bus`     | accesses of the host |
    | `locked`  | writes of registers with the access RWL have no effect |
    | `written` | for each register that may be written: `bus.wdata` is its new word |
    | `values`  | for each register that may be read: its word |
    | `taken`   | the address of a read is taken |
    | `replace` | two cycles after `taken`: `word` is the answer in place of a register |
    | `word`    | a word from a memory |

    One write and one read run at a time. A write is taken in the cycle after address and data are
    both there; `written` is high in this cycle. A read is answered in the third cycle after its
    address. Unknown addresses read as 0. A write is swallowed if its address is unknown, or if it
    is less than a whole word.
    """

    def __init__(
        self,
        *,
        registers: Mapping[Register, RegisterText] | Mapping[PodRegister, RegisterText],
    ):
        access = {register: text.access for register, text in registers.items()}
        self._read = {name_of(each): each for each in access if access[each] != "WO"}
        self._written = {name_of(each): each for each in access if access[each] != "RO"}
        self._lockable = [each for each in access if access[each] == "RWL"]
        super().__init__(
            {
                "bus": In(LiteSignature(address_bits=REGISTER_SPACE_BITS)),
                "locked": In(1),
                "written": Out(data.StructLayout(dict.fromkeys(self._written, 1))),
                "values": In(data.StructLayout(dict.fromkeys(self._read, 32))),
                "taken": Out(1),
                "replace": In(1),
                "word": In(32),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        self._take_writes(m)
        self._answer_reads(m)
        return m

    def _take_writes(self, m: Module) -> None:
        bus = self.bus
        write = Signal()
        m.d.sync += write.eq(bus.awvalid & bus.wvalid & ~bus.bvalid & ~write)
        m.d.comb += [bus.awready.eq(write), bus.wready.eq(write)]
        with m.If(bus.bready):
            m.d.sync += bus.bvalid.eq(0)
        with m.If(write):
            m.d.sync += bus.bvalid.eq(1)
        for name, register in self._written.items():
            # Address and strobes do not change until the write is taken, so they are compared one
            # cycle earlier.
            chosen = Signal(name=f"write_{name}")
            meant = (bus.awaddr[2:] == register >> 2) & bus.wstrb.all()
            m.d.sync += chosen.eq(meant & ~self.locked if register in self._lockable else meant)
            m.d.comb += self.written[name].eq(write & chosen)

    def _answer_reads(self, m: Module) -> None:
        """Select the register of a read in one cycle, and its word in the next."""
        bus = self.bus
        read_asked = Signal()
        read_gathered = Signal()
        read_answer = Signal(32, reset_less=True)
        m.d.comb += [
            bus.arready.eq(~read_asked & ~read_gathered & ~bus.rvalid),
            self.taken.eq(bus.arvalid & bus.arready),
            bus.rdata.eq(read_answer),
        ]
        m.d.sync += [read_asked.eq(self.taken), read_gathered.eq(read_asked)]
        found: list[Value] = []
        for name, register in self._read.items():
            chosen = Signal(name=f"read_{name}", reset_less=True)
            m.d.sync += chosen.eq(bus.araddr[2:] == register >> 2)
            found.append(Mux(chosen, self.values[name], 0))
        with m.If(read_asked):
            m.d.sync += read_answer.eq(ored(found))
        with m.If(read_gathered):
            m.d.sync += bus.rvalid.eq(1)
            with m.If(self.replace):
                m.d.sync += read_answer.eq(self.word)
        with m.Elif(bus.rready):
            m.d.sync += bus.rvalid.eq(0)


def name_of(register: IntEnum) -> str:
    """Return the name of a register's fields in the ports of a RegisterBank."""
    return register.name.lower()
