# SPDX-License-Identifier: Apache-2.0
"""The scalar unit, which has the index registers and runs the loops."""

from amaranth.hdl import Cat, Module, Mux, Signal, Value, signed
from amaranth.lib import data, stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from systola.arch.isa import (
    INSTRUCTION_BYTES,
    LOOP_DEPTH,
    OPCODE_BITS,
    REGISTERS,
    Opcode,
    instructions_of,
)
from systola.hdl.commands import PC_BITS, InstructionLayout
from systola.hdl.control.fetch import FetchedInstruction
from systola.hdl.control.indexed_operands import (
    ADDERS,
    REGISTER_BITS,
    SELECTOR_BITS,
    operands_of,
    selectors_of,
)
from systola.hdl.parts.selecting_adder import SelectingAdder

OPCODES = tuple(entry.opcode for entry in instructions_of(links=False))
LINKED_OPCODES = tuple(entry.opcode for entry in instructions_of(links=True))
"""Opcodes of a core with links: OPCODES, and after them the opcodes of the links."""


def kind_bits(*, links: bool) -> int:
    """Return the number of bits of a `kind`: one for each opcode of a core.

    The bits are in the order of LINKED_OPCODES.
    """
    return len(LINKED_OPCODES if links else OPCODES)


class Coming(data.StructLayout):
    """An instruction before index registers are added to its operands, with its `kind`
    (`kind_bits`).
    """

    def __init__(self, *, links: bool = False) -> None:
        super().__init__({"word": 8 * INSTRUCTION_BYTES, "kind": kind_bits(links=links)})


def is_one_of(kind: Value, *opcodes: Opcode) -> Value:
    """Return whether an instruction of this kind has one of these opcodes."""
    return Cat(kind[LINKED_OPCODES.index(opcode)] for opcode in opcodes).any()


def fields_of(word: Value) -> dict[Opcode, data.View]:
    """Return views of the fields of `word`, by opcode, each as if the word had this opcode."""
    return {opcode: data.View(InstructionLayout(opcode), word) for opcode in LINKED_OPCODES}


class EffectiveInstruction(data.StructLayout):
    """An instruction with the values that index registers give to its operands.

    | field        | meaning |
    |---|---|
    | `word`       | the instruction word |
    | `sums`       | operand plus index register, modulo 2^width, for each operand with such a
                     register, in the order of the operands |
    | `kind`       | a bit for each opcode, see `kind_bits` |
    | `error`      | the fetch failed, and the word is meaningless |
    | `pc`         | number of the instruction in the program |
    | `loop_fault` | check LOOP fails |
    | `loops`      | with `loop_fault`: number of loops open before the instruction |
    """

    def __init__(self, *, links: bool = False) -> None:
        super().__init__(
            {
                "word": 8 * INSTRUCTION_BYTES,
                "sums": data.ArrayLayout(REGISTER_BITS, ADDERS),
                "kind": kind_bits(links=links),
                "error": 1,
                "pc": PC_BITS,
                "loop_fault": 1,
                "loops": range(LOOP_DEPTH + 1),
            }
        )


class _Loop(data.StructLayout):
    """A layout that describes an open loop.

    | field   | meaning |
    |---|---|
    | `start` | number of the first instruction of its body |
    | `more`  | iterations that remain after the next iteration; negative in the last iteration |
    """

    def __init__(self) -> None:
        super().__init__({"start": PC_BITS, "more": signed(REGISTER_BITS + 1)})


class _Kept(data.StructLayout):
    """A layout of the data that move with an instruction from stage to stage."""

    def __init__(self, *, links: bool) -> None:
        super().__init__(
            {
                "word": 8 * INSTRUCTION_BYTES,
                "kind": kind_bits(links=links),
                "error": 1,
                "pc": PC_BITS,
            }
        )


class ScalarUnit(wiring.Component):
    """A unit between fetch and decoder that adds index registers to operands, and runs loops.

    | port          | meaning |
    |---|---|
    | `fetched`     | the next instruction from the fetch |
    | `opcode`      | its opcode, combinational |
    | `coming`      | the instruction in the first stage; with `ready` the next one may come in the
                      next cycle |
    | `moves`       | `coming` also goes to the last stage |
    | `instruction` | the instruction in the last stage, until the next one moves there |
    | `jump`        | an End_Loop is taken, and its loop has iterations left |
    | `jump_to`     | with `jump`: number of the first instruction of the body, which is next |

    Set_Register, Loop and End_Loop are done here, and also handed on like all others. The decoder
    checks their reserved bits and minima. Index register 0 stays zero in any case.

    - Latency: `moves` comes in the third cycle of an instruction in the first stage, or later.
      `loop_fault` and `loops` are valid from the second cycle of an `instruction` on.
    - Throughput: at most one instruction every three cycles. An End_Loop is taken in the second
      cycle in which the first stage is empty and all Loops before it are done.
    - Back-pressure: the decoder moves both stages.

    An instruction with `loop_fault` or `error` changes no state and does not jump.
    """

    def __init__(self, *, links: bool = False) -> None:
        self._links = links
        super().__init__(
            {
                "fetched": In(stream.Signature(FetchedInstruction())),
                "opcode": Out(OPCODE_BITS),
                "coming": Out(stream.Signature(Coming(links=links))),
                "moves": In(1),
                "instruction": Out(EffectiveInstruction(links=links)),
                "jump": Out(1),
                "jump_to": Out(PC_BITS),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        fetched = self.fetched.payload
        opcodes = LINKED_OPCODES if self._links else OPCODES
        first_stage = Signal(_Kept(links=self._links), reset_less=True)
        last_stage = Signal(_Kept(links=self._links))
        first_valid = Signal()
        loop_opens = Signal()  # a Loop has come into the last stage in the cycle before
        loop_ended = Signal()  # the fetched End_Loop has been carried out
        first_leaves = Signal()
        first_takes = Signal()  # the first stage takes an instruction
        m.d.comb += [
            first_leaves.eq(first_valid & self.coming.ready),
            self.fetched.ready.eq(
                (~first_valid & (~fetched.ends | loop_ended)) | (first_leaves & ~fetched.ends)
            ),
            first_takes.eq(self.fetched.valid & self.fetched.ready),
            self.opcode.eq(fetched.word[:OPCODE_BITS]),
            self.coming.valid.eq(first_valid),
            self.coming.payload.word.eq(first_stage.word),
            self.coming.payload.kind.eq(first_stage.kind),
        ]
        m.d.sync += [
            loop_opens.eq(self.moves & is_one_of(first_stage.kind, Opcode.LOOP)),
            first_valid.eq(first_takes | (first_valid & ~first_leaves)),
        ]

        with m.If(first_takes):
            m.d.sync += [
                first_stage.word.eq(fetched.word),
                first_stage.kind.eq(
                    Cat(fetched.word[:OPCODE_BITS] == member for member in opcodes)
                ),
                first_stage.error.eq(fetched.error),
                first_stage.pc.eq(fetched.pc),
            ]
        with m.If(self.moves):
            m.d.sync += last_stage.eq(first_stage)

        registers = m.submodules.registers = Memory(shape=REGISTER_BITS, depth=REGISTERS, init=[])
        registers_written = Signal(REGISTERS)
        register_sums = self._add_registers(m, first_stage.word, registers, registers_written)

        # The last stage drives the outputs.
        effective = self.instruction
        # A Set_Register writes in each cycle in which it is in the last stage, always the same
        # value.
        target = data.View(InstructionLayout(Opcode.SET_REGISTER), last_stage.word).register
        write = registers.write_port()
        m.d.comb += [
            write.en.eq(is_one_of(last_stage.kind, Opcode.SET_REGISTER) & ~last_stage.error),
            write.addr.eq(target),
            write.data.eq(register_sums[0] + register_sums[1]),
        ]
        with m.If(write.en & (target != 0)):
            m.d.sync += registers_written.bit_select(target, 1).eq(1)

        # A Loop opens in the last stage, and an End_Loop closes a loop before the first stage. Each
        # change of the open loops is decided one cycle before it happens.
        loops_open = Signal(range(LOOP_DEPTH + 1))
        # number of open loops, without a Loop in the last stage
        loops_shown = Signal.like(loops_open)
        loop_unopened = Signal()  # the End_Loop in the first stage closes a loop that is not open
        # The instruction in the last stage closes a loop that is not open, or opens too many.
        loop_faulty = Signal()
        loop_empty = Signal()  # the Loop in the last stage has zero iterations
        loop_opening = Signal()
        loop_pushes = Signal()
        loop_pops = Signal()
        inner_loop = Signal(_Loop())  # the innermost loop
        loop_closes = Signal()
        end_executed = Signal()
        m.d.comb += [
            effective.word.eq(last_stage.word),
            effective.sums.eq(Cat(register_sums)),
            effective.kind.eq(last_stage.kind),
            effective.error.eq(last_stage.error),
            effective.pc.eq(last_stage.pc),
            effective.loop_fault.eq(
                ~last_stage.error
                & (loop_faulty | (is_one_of(last_stage.kind, Opcode.LOOP) & loop_empty))
            ),
            effective.loops.eq(loops_shown),
            loop_closes.eq(
                self.fetched.valid
                & fetched.ends
                & ~(loop_ended | first_valid | loop_opens | loop_opening | loop_pushes)
            ),
            end_executed.eq(loop_closes & ~fetched.error & (loops_open != 0)),
        ]
        m.d.sync += [
            loop_ended.eq(loop_closes),
            self.jump.eq(end_executed & (inner_loop.more >= 0)),
            self.jump_to.eq(inner_loop.start),
            loop_pops.eq(end_executed & (inner_loop.more < 0)),
            loop_opening.eq(loop_opens),
            loop_pushes.eq(loop_opening & ~last_stage.error & ~loop_faulty & ~loop_empty),
            loop_empty.eq(register_sums[0] == 0),
        ]
        with m.If(first_takes):
            m.d.sync += loop_unopened.eq(loop_ended & ~fetched.error & (loops_open == 0))
        with m.If(self.moves):
            m.d.sync += [loop_faulty.eq(loop_unopened), loops_shown.eq(0)]
        with m.Elif(loop_opens):
            m.d.sync += [loop_faulty.eq(loops_open == LOOP_DEPTH), loops_shown.eq(loops_open)]
        with m.If(loop_pushes):
            m.d.sync += loops_open.eq(loops_open + 1)
        with m.Elif(loop_pops):
            m.d.sync += loops_open.eq(loops_open - 1)

        self._keep_loops(
            m,
            inner_loop,
            loop_pushes=loop_pushes,
            depth=loops_open,
            first=last_stage.pc + 1,
            count=register_sums[0],
        )
        return m

    def _add_registers(
        self, m: Module, word: Value, registers: Memory, registers_written: Signal
    ) -> list[Signal]:
        """Return the sums of operands and index registers, for the instruction in the last stage.

        The pipeline has three stages: numbers of registers, contents of registers, sums. A register
        that was never written reads as zero, and so does register 0.
        """
        register_numbers = Signal(data.ArrayLayout(SELECTOR_BITS, ADDERS), reset_less=True)
        register_sums = [
            Signal(REGISTER_BITS, name=f"sum_{i}", reset_less=True) for i in range(ADDERS)
        ]
        m.d.sync += register_numbers.eq(selectors_of(word, links=self._links))
        for i, (choose, one, zero) in enumerate(operands_of(word, links=self._links)):
            read = registers.read_port(domain="comb")
            register_read = Signal(REGISTER_BITS, name=f"register_read_{i}", reset_less=True)
            adder = m.submodules[f"adder_{i}"] = SelectingAdder(width=REGISTER_BITS)
            m.d.comb += [
                read.addr.eq(register_numbers[i]),
                adder.a.eq(register_read),
                adder.b.eq(one),
                adder.c.eq(zero),
                adder.choose_b.eq(choose.replicate(REGISTER_BITS)),
            ]
            m.d.sync += register_read.eq(
                Mux(registers_written.bit_select(register_numbers[i], 1), read.data, 0)
            )
            with m.If(self.moves):
                m.d.sync += register_sums[i].eq(adder.total)
        return register_sums

    def _keep_loops(
        self,
        m: Module,
        inner_loop: data.View,
        *,
        loop_pushes: Signal,
        depth: Signal,
        first: Value,
        count: Value,
    ) -> None:
        """Keep the open loops in small memories, and show the innermost one.

        Only the iterations of the innermost loop change. With `loop_pushes` a loop is opened. It
        begins at instruction number `first` and has `count` iterations.
        """
        inner_place = Signal(range(LOOP_DEPTH))
        counter = m.submodules.counter = SelectingAdder(width=len(inner_loop.more))
        m.d.comb += [
            inner_place.eq(depth - 1),
            counter.a.eq(-2),
            counter.b.eq(inner_loop.more),
            counter.c.eq(count),
            counter.choose_b.eq(self.jump.replicate(len(inner_loop.more))),
            counter.carry.eq(self.jump),
        ]
        for name, changes, value in (
            ("start", loop_pushes, first),
            ("more", loop_pushes | self.jump, counter.total),
        ):
            memory = m.submodules[name] = Memory(
                shape=inner_loop.shape()[name].shape, depth=LOOP_DEPTH, init=[]
            )
            write = memory.write_port()
            read = memory.read_port(domain="comb")
            m.d.comb += [
                write.en.eq(changes),
                write.addr.eq(Mux(loop_pushes, depth, inner_place)),
                write.data.eq(value),
                read.addr.eq(inner_place),
                inner_loop[name].eq(read.data),
            ]
