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

    They are in the order of LINKED_OPCODES.
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
    """Return the fields of `word`, read as each of the instructions."""
    return {opcode: data.View(InstructionLayout(opcode), word) for opcode in LINKED_OPCODES}


class EffectiveInstruction(data.StructLayout):
    """An instruction with the values that index registers give to its operands.

    | field        | meaning |
    |---|---|
    | `word`       | the instruction word |
    | `sums`       | operand plus index register, modulo 2^width, for each operand with such a
                     register, in their order |
    | `kind`       | a bit for each opcode, see `kind_bits` |
    | `error`      | the fetch failed, and the word means nothing |
    | `pc`         | number of the instruction in the program |
    | `loop_fault` | check LOOP fails |
    | `loops`      | with `loop_fault`: loops open before the instruction |
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
    | `more`  | iterations that remain after the next one; negative in the last iteration |
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
    | `jump`        | the End_Loop that is taken has iterations left |
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
        first = Signal(_Kept(links=self._links), reset_less=True)
        last = Signal(_Kept(links=self._links))
        first_valid = Signal()
        opens = Signal()  # a Loop came into the last stage a cycle ago
        ended = Signal()  # the End_Loop that is fetched is done
        leaves = Signal()
        takes = Signal()  # an instruction for the first stage
        m.d.comb += [
            leaves.eq(first_valid & self.coming.ready),
            self.fetched.ready.eq(
                (~first_valid & (~fetched.ends | ended)) | (leaves & ~fetched.ends)
            ),
            takes.eq(self.fetched.valid & self.fetched.ready),
            self.opcode.eq(fetched.word[:OPCODE_BITS]),
            self.coming.valid.eq(first_valid),
            self.coming.payload.word.eq(first.word),
            self.coming.payload.kind.eq(first.kind),
        ]
        m.d.sync += [
            opens.eq(self.moves & is_one_of(first.kind, Opcode.LOOP)),
            first_valid.eq(takes | (first_valid & ~leaves)),
        ]

        with m.If(takes):
            m.d.sync += [
                first.word.eq(fetched.word),
                first.kind.eq(Cat(fetched.word[:OPCODE_BITS] == member for member in opcodes)),
                first.error.eq(fetched.error),
                first.pc.eq(fetched.pc),
            ]
        with m.If(self.moves):
            m.d.sync += last.eq(first)

        registers = m.submodules.registers = Memory(shape=REGISTER_BITS, depth=REGISTERS, init=[])
        written = Signal(REGISTERS)
        sums = self._add_registers(m, first.word, registers, written)

        # The last stage makes the output.
        effective = self.instruction
        # A Set_Register writes in each cycle that it is in the last stage, always the same.
        target = data.View(InstructionLayout(Opcode.SET_REGISTER), last.word).register
        write = registers.write_port()
        m.d.comb += [
            write.en.eq(is_one_of(last.kind, Opcode.SET_REGISTER) & ~last.error),
            write.addr.eq(target),
            write.data.eq(sums[0] + sums[1]),
        ]
        with m.If(write.en & (target != 0)):
            m.d.sync += written.bit_select(target, 1).eq(1)

        # A Loop opens in the last stage, and an End_Loop closes a loop before the first stage. Each
        # change of the stack is decided one cycle before it happens.
        loops = Signal(range(LOOP_DEPTH + 1))
        shown = Signal.like(loops)  # open loops, without the Loop in the last stage
        unopened = Signal()  # the End_Loop in the first stage closes a loop too many
        # The instruction in the last stage closes a loop that is not open, or opens too many.
        faulty = Signal()
        never = Signal()  # the Loop in the last stage has no iteration
        opening = Signal()
        pushes = Signal()
        pops = Signal()
        inner = Signal(_Loop())  # the innermost loop
        closes = Signal()
        executed = Signal()
        m.d.comb += [
            effective.word.eq(last.word),
            effective.sums.eq(Cat(sums)),
            effective.kind.eq(last.kind),
            effective.error.eq(last.error),
            effective.pc.eq(last.pc),
            effective.loop_fault.eq(
                ~last.error & (faulty | (is_one_of(last.kind, Opcode.LOOP) & never))
            ),
            effective.loops.eq(shown),
            closes.eq(
                self.fetched.valid
                & fetched.ends
                & ~(ended | first_valid | opens | opening | pushes)
            ),
            executed.eq(closes & ~fetched.error & (loops != 0)),
        ]
        m.d.sync += [
            ended.eq(closes),
            self.jump.eq(executed & (inner.more >= 0)),
            self.jump_to.eq(inner.start),
            pops.eq(executed & (inner.more < 0)),
            opening.eq(opens),
            pushes.eq(opening & ~last.error & ~faulty & ~never),
            never.eq(sums[0] == 0),
        ]
        with m.If(takes):
            m.d.sync += unopened.eq(ended & ~fetched.error & (loops == 0))
        with m.If(self.moves):
            m.d.sync += [faulty.eq(unopened), shown.eq(0)]
        with m.Elif(opens):
            m.d.sync += [faulty.eq(loops == LOOP_DEPTH), shown.eq(loops)]
        with m.If(pushes):
            m.d.sync += loops.eq(loops + 1)
        with m.Elif(pops):
            m.d.sync += loops.eq(loops - 1)

        self._keep_loops(m, inner, pushes=pushes, depth=loops, first=last.pc + 1, count=sums[0])
        return m

    def _add_registers(
        self, m: Module, word: Value, registers: Memory, written: Signal
    ) -> list[Signal]:
        """Return the sums of operands and index registers, for the instruction in the last stage.

        Stage by stage: numbers of registers, contents of registers, sums. A register that was never
        written reads as zero, and so does register 0.
        """
        selectors = Signal(data.ArrayLayout(SELECTOR_BITS, ADDERS), reset_less=True)
        sums = [Signal(REGISTER_BITS, name=f"sum_{i}", reset_less=True) for i in range(ADDERS)]
        m.d.sync += selectors.eq(selectors_of(word, links=self._links))
        for i, (choose, one, zero) in enumerate(operands_of(word, links=self._links)):
            read = registers.read_port(domain="comb")
            chosen = Signal(REGISTER_BITS, name=f"chosen_{i}", reset_less=True)
            adder = m.submodules[f"adder_{i}"] = SelectingAdder(width=REGISTER_BITS)
            m.d.comb += [
                read.addr.eq(selectors[i]),
                adder.a.eq(chosen),
                adder.b.eq(one),
                adder.c.eq(zero),
                adder.choose_b.eq(choose.replicate(REGISTER_BITS)),
            ]
            m.d.sync += chosen.eq(Mux(written.bit_select(selectors[i], 1), read.data, 0))
            with m.If(self.moves):
                m.d.sync += sums[i].eq(adder.total)
        return sums

    def _keep_loops(
        self,
        m: Module,
        inner: data.View,
        *,
        pushes: Signal,
        depth: Signal,
        first: Value,
        count: Value,
    ) -> None:
        """Keep the open loops in small memories, and show the innermost one.

        The innermost loop's number of iterations changes. With `pushes` a loop is opened that
        begins at instruction number `first`, and has `count` iterations.
        """
        innermost = Signal(range(LOOP_DEPTH))
        counter = m.submodules.counter = SelectingAdder(width=len(inner.more))
        m.d.comb += [
            innermost.eq(depth - 1),
            counter.a.eq(-2),
            counter.b.eq(inner.more),
            counter.c.eq(count),
            counter.choose_b.eq(self.jump.replicate(len(inner.more))),
            counter.carry.eq(self.jump),
        ]
        for name, changes, value in (
            ("start", pushes, first),
            ("more", pushes | self.jump, counter.total),
        ):
            memory = m.submodules[name] = Memory(
                shape=inner.shape()[name].shape, depth=LOOP_DEPTH, init=[]
            )
            write, read = memory.write_port(), memory.read_port(domain="comb")
            m.d.comb += [
                write.en.eq(changes),
                write.addr.eq(Mux(pushes, depth, innermost)),
                write.data.eq(value),
                read.addr.eq(innermost),
                inner[name].eq(read.data),
            ]
