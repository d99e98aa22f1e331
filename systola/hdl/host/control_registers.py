# SPDX-License-Identifier: Apache-2.0
"""The host's AXI4-Lite registers; arch/registers.py has offsets and bits."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out, connect, flipped
from amaranth.utils import exact_log2

from systola.arch.config import HOST_PAGE_BYTES, Config
from systola.arch.registers import (
    BUS_TIMEOUT_BITS,
    IDENTITY,
    PROGRAM_ALIGNMENT,
    REGISTER_SPACE_BITS,
    REGISTER_TEXT,
    TRACE_DEPTH,
    VERSION,
    Control,
    CycleClass,
    Feature,
    Interrupt,
    Register,
    Status,
)
from systola.hdl.commands import HOST_OFFSET_BITS, TAG_BITS
from systola.hdl.host.register_bank import RegisterBank, name_of
from systola.hdl.memories.sram import Sram
from systola.hdl.ports import FaultReport, ProgramStatusSignature, WindowsSignature
from systola.hdl.transfers.axi import LiteSignature

PAGE_BITS = exact_log2(HOST_PAGE_BYTES)
_MEMORIES = (Register.COUNTERS, Register.TRACE)
"""Register offsets of the memories. Their words are read one cycle later than registers."""


class ControlRegisters(wiring.Component):
    """A bank that has the registers of a machine for the host.

    | port             | meaning |
    |---|---|
    | `bus`            | accesses of the host |
    | `irq`            | an enabled bit of IRQ_STATUS is set |
    | `start`          | a program is started: the write of CONTROL is accepted, without a soft
                         reset |
    | `soft_reset`     | a soft reset was written in the cycle before |
    | `resume`         | a resume is written: the write of CONTROL is accepted |
    | `windows`        | the program, and the windows of host and weight memory |
    | `bus_timeout`    | cycles for the watchdog of the buses |
    | `begins`         | this is cycle 0 of a program |
    | `tagged`         | `tag` enters the trace; in cycle 2 of a program or later |
    | `tag`            | the tag of a Debug_Tag |
    | `status`         | word of the register STATUS |
    | `fault`          | cause, program counter and address of the fault |
    | `finished`       | sets DONE of IRQ_STATUS, which can be read in the same cycle, as in `irq` |
    | `faulted`        | sets FAULT of IRQ_STATUS, which can be read in the same cycle, as in
                         `irq` |
    | `program_status` | `interrupt` sets PROGRAM of IRQ_STATUS, which can be read in the next
                         cycle, as in `irq`; then `code` is the word of IRQ_CODE |
    | `forget`         | clears IRQ_STATUS and IRQ_CODE |
    | `counter`        | number of the word that is read from the counters; a register that stays
                         for the next cycle |
    | `counted`        | the word with this number, a cycle after the number |

    RegisterBank has the timing of the accesses. While a program runs, writes of registers
    with the access RWL have no effect.

    The trace keeps its contents when a program begins: only the count of tags starts anew.
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
                "windows": Out(WindowsSignature(config=config)),
                "bus_timeout": Out(BUS_TIMEOUT_BITS),
                "begins": In(1),
                "tagged": In(1),
                "tag": In(TAG_BITS),
                "status": In(len(Status)),
                "fault": In(FaultReport()),
                "finished": In(1),
                "faulted": In(1),
                "program_status": In(ProgramStatusSignature()),
                "forget": In(1),
                "counter": Out(range(2 * len(CycleClass))),
                "counted": In(32),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self._config
        texts = {each: text for each, text in REGISTER_TEXT.items() if each not in _MEMORIES}
        m.submodules.bank = bank = RegisterBank(registers=texts)
        connect(m, flipped(self.bus), bank.bus)
        m.d.comb += bank.locked.eq((self.status & Status.BUSY).any())

        # Read-write registers: the offset, the signal with the value, the lowest bit of the value
        # in the word.
        program_place = Signal(32 - exact_log2(PROGRAM_ALIGNMENT))
        host_page = Signal(config.address_bits - PAGE_BITS)
        host_pages = Signal(HOST_OFFSET_BITS - PAGE_BITS)
        weight_page = Signal(config.address_bits - PAGE_BITS)
        interrupts_enabled = Signal(len(Interrupt))
        low_page = 32 - PAGE_BITS
        fields = [
            (Register.IRQ_ENABLE, interrupts_enabled, 0),
            (Register.PROGRAM, program_place, exact_log2(PROGRAM_ALIGNMENT)),
            (Register.HOST_BASE_LO, host_page[:low_page], PAGE_BITS),
            (Register.HOST_BASE_HI, host_page[low_page:], 0),
            (Register.HOST_PAGES, host_pages, 0),
            (Register.WEIGHT_BASE_LO, weight_page[:low_page], PAGE_BITS),
            (Register.WEIGHT_BASE_HI, weight_page[low_page:], 0),
            (Register.WEIGHT_TILES, self.windows.weight_tiles, 0),
            (Register.BUS_TIMEOUT, self.bus_timeout, 0),
        ]
        new_word, written = self.bus.wdata, bank.written
        for register, field, lowest in fields:
            with m.If(written[name_of(register)]):
                m.d.sync += field.eq(new_word[lowest:])
        m.d.comb += [
            self.windows.program.eq(program_place << exact_log2(PROGRAM_ALIGNMENT)),
            self.windows.host_base.eq(host_page << PAGE_BITS),
            self.windows.host_limit.eq(host_pages << PAGE_BITS),
            self.windows.weight_base.eq(weight_page << PAGE_BITS),
        ]

        controls = written.control
        starts, resets, resumes = (
            (new_word & bit).any() for bit in (Control.START, Control.SOFT_RESET, Control.RESUME)
        )
        m.d.comb += [
            self.start.eq(controls & starts & ~resets),
            self.resume.eq(controls & resumes),
        ]
        m.d.sync += self.soft_reset.eq(controls & resets)

        interrupts_pending = Signal(len(Interrupt))
        kept_code = Signal(16)
        ended = Mux(self.finished, int(Interrupt.DONE), 0) | Mux(
            self.faulted, int(Interrupt.FAULT), 0
        )
        raised = ended | Mux(self.program_status.interrupt, int(Interrupt.PROGRAM), 0)
        cleared = Mux(written.irq_status, new_word, 0)
        interrupts_shown = Signal(len(Interrupt))
        m.d.comb += interrupts_shown.eq(interrupts_pending | ended)
        m.d.sync += interrupts_pending.eq((interrupts_pending & ~cleared) | raised)
        with m.If(self.program_status.interrupt):
            m.d.sync += kept_code.eq(self.program_status.code)
        with m.If(self.forget):
            m.d.sync += [interrupts_pending.eq(0), kept_code.eq(0)]
        m.d.comb += self.irq.eq((interrupts_shown & interrupts_enabled).any())

        trace, tags = self._trace(m)

        features = (
            (Feature.TABLES, config.tables > 0),
            (Feature.DEPTHWISE, config.depthwise),
            (Feature.WIDE, config.wide),
            (Feature.PARITY, config.parity),
            (Feature.LINKS, config.links),
            (Feature.ATTENTION, config.attention),
        )
        values = {
            Register.ID: IDENTITY,
            Register.VERSION: VERSION,
            Register.STATUS: self.status,
            Register.IRQ_STATUS: interrupts_shown,
            Register.IRQ_CODE: kept_code,
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

        m.d.comb += [bank.values[name_of(each)].eq(value) for each, value in values.items()]
        self._read_memories(m, bank, trace)
        return m

    def _read_memories(self, m: Module, bank: RegisterBank, trace: Sram) -> None:
        """Read words of the trace and of the counters. They come one cycle later than registers."""
        address = self.bus.araddr
        from_trace = Signal(reset_less=True)
        second_word = Signal(reset_less=True)
        of_counter = Signal(reset_less=True)
        counter_word = Signal.like(self.counter)
        trace_size = exact_log2(8 * TRACE_DEPTH)
        counters_size = 2 + len(counter_word)
        with m.If(bank.taken):
            m.d.sync += [
                from_trace.eq(address[trace_size:] == Register.TRACE >> trace_size),
                second_word.eq(address[2]),
                counter_word.eq(address[2:]),
                of_counter.eq(address[counters_size:] == Register.COUNTERS >> counters_size),
            ]
        m.d.comb += [
            trace.read_enable.eq(bank.taken),
            trace.read_address.eq(address[3:]),
            self.counter.eq(counter_word),
            bank.replace.eq(from_trace | of_counter),
            bank.word.eq(
                Mux(from_trace, trace.read_data.word_select(second_word, 32), self.counted)
            ),
        ]

    def _trace(self, m: Module) -> tuple[Sram, Signal]:
        """Record tags in the trace; return its memory, and the number of tags in this program."""
        program_begun = Signal(init=1)  # a program or a reset began in the cycle before
        cycle_number = Signal(32, reset_less=True)
        tag_count = Signal(32, reset_less=True)
        m.submodules.trace = trace = Sram(
            width=32 + TAG_BITS, depth=TRACE_DEPTH, output_register=True
        )
        m.d.comb += [
            trace.write_enable.eq(self.tagged),
            trace.write_address.eq(tag_count),
            trace.write_data.eq(Cat(cycle_number, self.tag)),
        ]
        m.d.sync += [program_begun.eq(self.begins), cycle_number.eq(cycle_number + 1)]
        with m.If(self.tagged):
            m.d.sync += tag_count.eq(tag_count + 1)
        with m.If(program_begun):
            m.d.sync += [cycle_number.eq(2), tag_count.eq(0)]
        return trace, tag_count
