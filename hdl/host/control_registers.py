# SPDX-License-Identifier: Apache-2.0
"""The host's AXI4-Lite registers; offsets and bits in arch/registers.py."""

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from systola.arch.config import HOST_PAGE_BYTES, Config
from systola.arch.registers import (
    BUS_TIMEOUT_BITS,
    IDENTITY,
    LOCKED_WHILE_BUSY,
    PROGRAM_ALIGNMENT,
    REGISTER_SPACE_BITS,
    TRACE_DEPTH,
    VERSION,
    Control,
    CycleClass,
    Feature,
    Interrupt,
    Register,
    Status,
)
from systola.hdl.commands import HOST_OFFSET_BITS, TAG_BITS, TILE_BITS
from systola.hdl.memories.sram import Sram
from systola.hdl.parts.ored import ored
from systola.hdl.ports import FaultReport
from systola.hdl.transfers.axi import LiteSignature, takes_write

PAGE_BITS = exact_log2(HOST_PAGE_BYTES)


class ControlRegisters(wiring.Component):
    """One write and one read at a time; a write is taken in the cycle after address and data are
    both there, a read is answered in the third cycle after its address. Unknown addresses read 0
    and swallow writes, as do writes of less than a whole word, and registers of LOCKED_WHILE_BUSY.

    `start` and `resume` are up in the cycle in which their write is accepted, but no `start` with a
    `soft_reset`, which is up in the next one.
    `finished`, `faulted` and `interrupt` set the bits of IRQ_STATUS, where, as in `irq`, the first
    two show at once, and the last one in the next cycle.
    `begins`: this is cycle 0 of a program; `tagged`, from cycle 2 on: `tag` enters the trace, which
    keeps its contents: only the count of tags starts anew. `counted` is word `counter` of
    the counters, in the cycle behind, to which `counter`, a register, stays.
    """

    def __init__(self, *, config: Config):
        self._config = config
        super().__init__(
            {
                "bus": In(LiteSignature(address_bits=REGISTER_SPACE_BITS)),
                "irq": Out(1),
                "start": Out(1),
                "soft_reset": Out(1),
                "resume": Out(1),
                "program": Out(32),
                "host_base": Out(config.address_bits),
                "host_limit": Out(HOST_OFFSET_BITS),
                "weight_base": Out(config.address_bits),
                "weight_tiles": Out(TILE_BITS),
                "bus_timeout": Out(BUS_TIMEOUT_BITS),
                "begins": In(1),
                "tagged": In(1),
                "tag": In(TAG_BITS),
                "status": In(len(Status)),
                "fault": In(FaultReport()),
                "finished": In(1),
                "faulted": In(1),
                "interrupt": In(1),
                "interrupt_code": In(16),
                "forget": In(1),
                "counter": Out(range(2 * len(CycleClass))),
                "counted": In(32),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        bus, config = self.bus, self._config

        write = takes_write(m, bus)

        busy = Signal()
        m.d.comb += busy.eq((self.status & Status.BUSY).any())

        def is_written(register: Register) -> Value:
            # Address and strobes stay as they are offered: they are looked at a cycle before.
            chosen = Signal(name=f"write_{register.name.lower()}")
            written = Signal(name=f"written_{register.name.lower()}")
            meant = (bus.awaddr[2:] == register >> 2) & bus.wstrb.all()
            m.d.sync += chosen.eq(meant & ~busy if register in LOCKED_WHILE_BUSY else meant)
            m.d.comb += written.eq(write & chosen)
            return written

        # Read-write registers: offset, the signal, its lowest bit in the word.
        program = Signal(32 - exact_log2(PROGRAM_ALIGNMENT))
        host_page = Signal(config.address_bits - PAGE_BITS)
        host_pages = Signal(HOST_OFFSET_BITS - PAGE_BITS)
        weight_page = Signal(config.address_bits - PAGE_BITS)
        enable = Signal(len(Interrupt))
        low_page = 32 - PAGE_BITS
        fields = [
            (Register.IRQ_ENABLE, enable, 0),
            (Register.PROGRAM, program, exact_log2(PROGRAM_ALIGNMENT)),
            (Register.HOST_BASE_LO, host_page[:low_page], PAGE_BITS),
            (Register.HOST_BASE_HI, host_page[low_page:], 0),
            (Register.HOST_PAGES, host_pages, 0),
            (Register.WEIGHT_BASE_LO, weight_page[:low_page], PAGE_BITS),
            (Register.WEIGHT_BASE_HI, weight_page[low_page:], 0),
            (Register.WEIGHT_TILES, self.weight_tiles, 0),
            (Register.BUS_TIMEOUT, self.bus_timeout, 0),
        ]
        for register, field, lowest in fields:
            with m.If(is_written(register)):
                m.d.sync += field.eq(bus.wdata[lowest:])
        m.d.comb += [
            self.program.eq(program << exact_log2(PROGRAM_ALIGNMENT)),
            self.host_base.eq(host_page << PAGE_BITS),
            self.host_limit.eq(host_pages << PAGE_BITS),
            self.weight_base.eq(weight_page << PAGE_BITS),
        ]

        controls = is_written(Register.CONTROL)
        starts, resets, resumes = (
            (bus.wdata & bit).any() for bit in (Control.START, Control.SOFT_RESET, Control.RESUME)
        )
        m.d.comb += [
            self.start.eq(controls & starts & ~resets),
            self.resume.eq(controls & resumes),
        ]
        m.d.sync += self.soft_reset.eq(controls & resets)

        pending = Signal(len(Interrupt))
        code = Signal(16)
        ended = Mux(self.finished, int(Interrupt.DONE), 0) | Mux(
            self.faulted, int(Interrupt.FAULT), 0
        )
        raised = ended | Mux(self.interrupt, int(Interrupt.PROGRAM), 0)
        cleared = Mux(is_written(Register.IRQ_STATUS), bus.wdata, 0)
        shown = Signal(len(Interrupt))
        m.d.comb += shown.eq(pending | ended)
        m.d.sync += pending.eq((pending & ~cleared) | raised)
        with m.If(self.interrupt):
            m.d.sync += code.eq(self.interrupt_code)
        with m.If(self.forget):
            m.d.sync += [pending.eq(0), code.eq(0)]
        m.d.comb += self.irq.eq((shown & enable).any())

        begun = Signal(init=1)  # by a program, or a reset
        cycle = Signal(32, reset_less=True)
        tags = Signal(32, reset_less=True)
        m.submodules.trace = trace = Sram(
            width=32 + TAG_BITS, depth=TRACE_DEPTH, output_register=True
        )
        m.d.comb += [
            trace.write_enable.eq(self.tagged),
            trace.write_address.eq(tags),
            trace.write_data.eq(Cat(cycle, self.tag)),
        ]
        m.d.sync += [begun.eq(self.begins), cycle.eq(cycle + 1)]
        with m.If(self.tagged):
            m.d.sync += tags.eq(tags + 1)
        with m.If(begun):
            m.d.sync += [cycle.eq(2), tags.eq(0)]

        features = (
            (Feature.TABLES, config.tables > 0),
            (Feature.DEPTHWISE, config.depthwise),
            (Feature.WIDE, config.wide),
            (Feature.PARITY, config.parity),
            (Feature.LINKS, config.links),
        )
        values = {
            Register.ID: IDENTITY,
            Register.VERSION: VERSION,
            Register.STATUS: self.status,
            Register.IRQ_STATUS: shown,
            Register.IRQ_CODE: code,
            Register.FAULT_CAUSE: self.fault.cause,
            Register.FAULT_PC: self.fault.pc,
            Register.FAULT_ADDRESS: self.fault.address,
            Register.GEOMETRY: config.rows | config.cols << 16,
            Register.BUFFER_LINES: config.buffer_lines,
            Register.ACCUMULATOR_ROWS: config.accumulator_rows,
            Register.FEATURES: sum(int(bit) for bit, present in features if present),
            Register.TAGS: tags,
        }
        values |= {register: field << lowest for register, field, lowest in fields}

        # A read: which register, then its value. The memories of the trace and of the counters lie
        # at multiples of their sizes; their words come a cycle later.
        asked = Signal()
        gathered = Signal()
        read = Signal()
        from_trace = Signal(reset_less=True)
        second_word = Signal(reset_less=True)
        answer = Signal(32, reset_less=True)
        trace_size = exact_log2(8 * TRACE_DEPTH)
        m.d.comb += [
            bus.arready.eq(~asked & ~gathered & ~bus.rvalid),
            read.eq(bus.arvalid & bus.arready),
            trace.read_enable.eq(read),
            trace.read_address.eq(bus.araddr[3:]),
            bus.rdata.eq(answer),
        ]
        m.d.sync += [asked.eq(read), gathered.eq(asked)]
        word = Signal.like(self.counter)
        of_counter = Signal(reset_less=True)
        m.d.comb += self.counter.eq(word)
        with m.If(read):
            m.d.sync += [
                from_trace.eq(bus.araddr[trace_size:] == Register.TRACE >> trace_size),
                second_word.eq(bus.araddr[2]),
                word.eq(bus.araddr[2:]),
                of_counter.eq(bus.araddr[2 + len(word) :] == Register.COUNTERS >> 2 + len(word)),
            ]
        found: list[Value] = []
        for offset, value in values.items():
            chosen = Signal(name=f"chosen_{offset:x}", reset_less=True)
            m.d.sync += chosen.eq(bus.araddr[2:] == offset >> 2)
            found.append(Mux(chosen, value, 0))
        with m.If(asked):
            m.d.sync += answer.eq(ored(found))
        with m.If(gathered):
            m.d.sync += bus.rvalid.eq(1)
            with m.If(from_trace):
                m.d.sync += answer.eq(trace.read_data.word_select(second_word, 32))
            with m.Elif(of_counter):
                m.d.sync += answer.eq(self.counted)
        with m.Elif(bus.rready):
            m.d.sync += bus.rvalid.eq(0)
        return m
