# SPDX-License-Identifier: Apache-2.0
"""The scalar unit: index registers and loops."""

from amaranth.hdl import Module, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from systola.arch.isa import (
    INSTRUCTION_BYTES,
    INSTRUCTIONS,
    LOOP_DEPTH,
    OPCODE_BITS,
    REGISTERS,
    Instruction,
    Opcode,
)
from systola.hdl.commands import PC_BITS, InstructionLayout
from systola.hdl.fetch import FetchedInstruction

REGISTER_BITS = 32


class EffectiveInstruction(data.StructLayout):
    """A fetched instruction with the index registers added to its operands. `loop_fault`: check
    LOOP fails, `loops` being open before the instruction."""

    def __init__(self) -> None:
        super().__init__(
            {
                "word": 8 * INSTRUCTION_BYTES,
                "error": 1,
                "pc": PC_BITS,
                "loop_fault": 1,
                "loops": range(LOOP_DEPTH + 1),
            }
        )


class _Loop(data.StructLayout):
    """An open loop: number of the first instruction of its body, iterations left, this one too."""

    def __init__(self) -> None:
        super().__init__({"start": PC_BITS, "left": REGISTER_BITS})


def _indexed(entry: Instruction) -> list[tuple[str, str]]:
    """Operands of an instruction, each with the field that names its index register."""
    return [(field.indexes, field.name) for field in entry.fields if field.indexes is not None]


class ScalarUnit(wiring.Component):
    """Between fetch and decoder: instructions pass in the same cycle, and change the unit's state
    when they are taken, so that the next one sees it.

    In the word each operand that has an index register is replaced by its sum with that register,
    modulo 2^width; all other bits stay as they are, those that name the register too. Set_Register,
    Loop and End_Loop are done here and handed on like all others. Their reserved bits and minima
    are the decoder's to check; index register 0 stays zero in any case.
    `jump` with `jump_to`, in the cycle in which an End_Loop is taken: its loop has iterations left,
    and the first instruction of its body is next. Neither an instruction with `loop_fault`, nor one
    with `error`, whose word means nothing, changes the state or jumps.
    """

    def __init__(self) -> None:
        super().__init__(
            {
                "fetched": In(stream.Signature(FetchedInstruction())),
                "instruction": Out(stream.Signature(EffectiveInstruction())),
                "jump": Out(1),
                "jump_to": Out(PC_BITS),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        fetched = self.fetched.payload
        word = fetched.word
        opcode = word[:OPCODE_BITS]
        effective = self.instruction.payload
        registers = Signal(data.ArrayLayout(REGISTER_BITS, REGISTERS))

        # The first, second, ... indexed operand of any instruction share an adder.
        adders = max(len(_indexed(entry)) for entry in INSTRUCTIONS)
        operands = [Signal(REGISTER_BITS, name=f"operand_{i}") for i in range(adders)]
        selectors = [Signal(range(REGISTERS), name=f"selector_{i}") for i in range(adders)]
        chosen = [Signal(REGISTER_BITS, name=f"chosen_{i}") for i in range(adders)]
        sums = [Signal(REGISTER_BITS, name=f"sum_{i}") for i in range(adders)]
        for i in range(adders):
            m.d.comb += [
                chosen[i].eq(registers[selectors[i]]),
                sums[i].eq(operands[i] + chosen[i]),
            ]
        m.d.comb += effective.word.eq(word)
        with m.Switch(opcode):
            for entry in INSTRUCTIONS:
                fields = data.View(InstructionLayout(entry.opcode), word)
                if indexed := _indexed(entry):
                    with m.Case(entry.opcode):
                        results = data.View(InstructionLayout(entry.opcode), effective.word)
                        for i, (operand, selector) in enumerate(indexed):
                            m.d.comb += [
                                operands[i].eq(fields[operand]),
                                selectors[i].eq(fields[selector]),
                                results[operand].eq(sums[i]),
                            ]
                elif entry.opcode == Opcode.SET_REGISTER:
                    with m.Case(entry.opcode):
                        m.d.comb += [
                            operands[0].eq(fields.value),
                            selectors[0].eq(fields.first),
                            selectors[1].eq(fields.second),
                        ]

        loops = Signal(range(LOOP_DEPTH + 1))
        stack = Signal(data.ArrayLayout(_Loop(), LOOP_DEPTH))  # the innermost loop first
        fault = Signal()
        m.d.comb += [
            self.instruction.valid.eq(self.fetched.valid),
            self.fetched.ready.eq(self.instruction.ready),
            effective.error.eq(fetched.error),
            effective.pc.eq(fetched.pc),
            effective.loop_fault.eq(fault & ~fetched.error),
            effective.loops.eq(loops),
            self.jump_to.eq(stack[0].start),
        ]
        executed = Signal()
        m.d.comb += executed.eq(
            self.fetched.valid & self.instruction.ready & ~fetched.error & ~fault
        )
        with m.Switch(opcode):
            with m.Case(Opcode.SET_REGISTER):
                target = data.View(InstructionLayout(Opcode.SET_REGISTER), word).register
                for register in range(1, REGISTERS):
                    with m.If(executed & (target == register)):
                        m.d.sync += registers[register].eq(sums[0] + chosen[1])
            with m.Case(Opcode.LOOP):
                count = sums[0]
                m.d.comb += fault.eq((loops == LOOP_DEPTH) | (count == 0))
                with m.If(executed):
                    m.d.sync += [
                        loops.eq(loops + 1),
                        stack[0].start.eq(fetched.pc + 1),
                        stack[0].left.eq(count),
                    ]
                    m.d.sync += [stack[i].eq(stack[i - 1]) for i in range(1, LOOP_DEPTH)]
            with m.Case(Opcode.END_LOOP):
                last = stack[0].left == 1
                m.d.comb += [fault.eq(loops == 0), self.jump.eq(executed & ~last)]
                with m.If(self.jump):
                    m.d.sync += stack[0].left.eq(stack[0].left - 1)
                with m.Elif(executed):
                    m.d.sync += loops.eq(loops - 1)
                    m.d.sync += [stack[i].eq(stack[i + 1]) for i in range(LOOP_DEPTH - 1)]
        return m
