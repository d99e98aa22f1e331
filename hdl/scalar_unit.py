# SPDX-License-Identifier: Apache-2.0
"""The scalar unit: index registers and loops."""

from amaranth.hdl import Cat, Module, Signal, Value
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
    """Between fetch and decoder: adds index registers to operands, and runs loops.

    In the word each operand that has an index register is replaced by its sum with that register,
    modulo 2^width; all other bits stay as they are, those that name the register too. Set_Register,
    Loop and End_Loop are done here, when they leave, and handed on like all others. Their reserved
    bits and minima are the decoder's to check; index register 0 stays zero in any case.

    Three stages: the word, its operands and registers, their sums. Latency LATENCY cycles, one
    instruction a cycle; but the one behind a Set_Register is taken with it in the last stage gone,
    and none is taken behind an End_Loop before it has left, and a cycle later, with `jump`, it is
    known what follows.

    `jump` with `jump_to`, in the cycle behind that in which an End_Loop left: its loop has
    iterations left, and the first instruction of its body is next. Neither an instruction with
    `loop_fault`, nor one with `error`, whose word means nothing, changes the state or jumps.
    `idle`: there is no instruction inside.
    """

    LATENCY = 3

    def __init__(self) -> None:
        super().__init__(
            {
                "fetched": In(stream.Signature(FetchedInstruction())),
                "instruction": Out(stream.Signature(EffectiveInstruction())),
                "jump": Out(1),
                "jump_to": Out(PC_BITS),
                "idle": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        stages = [
            Signal(FetchedInstruction(), name=f"stage_{i}", reset_less=True) for i in range(3)
        ]
        valid = [Signal(name=f"valid_{i}") for i in range(3)]
        registers = Signal(data.ArrayLayout(REGISTER_BITS, REGISTERS))
        moves = [Signal(name=f"moves_{i}") for i in range(3)]  # into a stage from the one before

        def holds(stage: int, opcode: Opcode) -> Value:
            return valid[stage] & (stages[stage].word[:OPCODE_BITS] == opcode)

        # What a Set_Register or an End_Loop holds up.
        sets = Signal(2)
        ends = Signal(3)
        resolved = Signal()  # the cycle of a jump
        left = Signal()
        m.d.comb += [
            sets.eq(Cat(holds(stage, Opcode.SET_REGISTER) for stage in (1, 2))),
            ends.eq(Cat(holds(stage, Opcode.END_LOOP) for stage in range(3))),
            left.eq(self.instruction.valid & self.instruction.ready),
            moves[2].eq(~valid[2] | self.instruction.ready),
            moves[1].eq((~valid[1] | moves[2]) & ~sets.any()),
            moves[0].eq(~valid[0] | moves[1]),
            self.fetched.ready.eq(moves[0] & ~ends.any() & ~resolved),
            self.instruction.valid.eq(valid[2]),
            self.idle.eq(~Cat(valid).any()),
        ]
        m.d.sync += resolved.eq(left & ends[2])
        with m.If(moves[0]):
            m.d.sync += [
                stages[0].eq(self.fetched.payload),
                valid[0].eq(self.fetched.valid & self.fetched.ready),
            ]
        with m.If(moves[2]):
            m.d.sync += [stages[2].eq(stages[1]), valid[2].eq(valid[1])]
        with m.If(moves[1]):
            m.d.sync += [stages[1].eq(stages[0]), valid[1].eq(valid[0])]
        with m.Elif(moves[2]):
            m.d.sync += valid[1].eq(0)

        # The first, second, ... indexed operand of any instruction share an adder.
        adders = max(len(_indexed(entry)) for entry in INSTRUCTIONS)
        operands = [Signal(REGISTER_BITS, name=f"operand_{i}") for i in range(adders)]
        selectors = [Signal(range(REGISTERS), name=f"selector_{i}") for i in range(adders)]
        chosen = [Signal(REGISTER_BITS, name=f"chosen_{i}") for i in range(adders)]
        sums = [Signal(REGISTER_BITS, name=f"sum_{i}") for i in range(adders)]
        added = Signal(REGISTER_BITS)  # a second register
        word = stages[0].word
        with m.Switch(word[:OPCODE_BITS]):
            for entry in INSTRUCTIONS:
                fields = data.View(InstructionLayout(entry.opcode), word)
                if indexed := _indexed(entry):
                    with m.Case(entry.opcode):
                        for i, (operand, selector) in enumerate(indexed):
                            m.d.comb += [
                                operands[i].eq(fields[operand]),
                                selectors[i].eq(fields[selector]),
                            ]
                elif entry.opcode == Opcode.SET_REGISTER:
                    with m.Case(entry.opcode):
                        m.d.comb += [
                            operands[0].eq(fields.value),
                            selectors[0].eq(fields.first),
                            selectors[1].eq(fields.second),
                        ]
        for i in range(adders):
            operand = Signal.like(operands[i], name=f"kept_operand_{i}", reset_less=True)
            with m.If(moves[1]):
                m.d.sync += [operand.eq(operands[i]), chosen[i].eq(registers[selectors[i]])]
            with m.If(moves[2]):
                m.d.sync += sums[i].eq(operand + chosen[i])
        with m.If(moves[2]):
            m.d.sync += added.eq(chosen[1])

        # The last stage: what comes out, and what changes when it leaves.
        last = stages[2]
        opcode = last.word[:OPCODE_BITS]
        effective = self.instruction.payload
        m.d.comb += effective.word.eq(last.word)
        with m.Switch(opcode):
            for entry in INSTRUCTIONS:
                if indexed := _indexed(entry):
                    with m.Case(entry.opcode):
                        results = data.View(InstructionLayout(entry.opcode), effective.word)
                        for i, (operand, _) in enumerate(indexed):
                            m.d.comb += results[operand].eq(sums[i])
        loops = Signal(range(LOOP_DEPTH + 1))
        stack = Signal(data.ArrayLayout(_Loop(), LOOP_DEPTH))  # the innermost loop first
        fault = Signal()
        executed = Signal()
        jumps = Signal()
        m.d.comb += [
            effective.error.eq(last.error),
            effective.pc.eq(last.pc),
            effective.loop_fault.eq(fault & ~last.error),
            effective.loops.eq(loops),
            executed.eq(left & ~last.error & ~fault),
        ]
        m.d.sync += [self.jump.eq(jumps), self.jump_to.eq(stack[0].start)]
        with m.Switch(opcode):
            with m.Case(Opcode.SET_REGISTER):
                target = data.View(InstructionLayout(Opcode.SET_REGISTER), last.word).register
                for register in range(1, REGISTERS):
                    with m.If(executed & (target == register)):
                        m.d.sync += registers[register].eq(sums[0] + added)
            with m.Case(Opcode.LOOP):
                count = sums[0]
                m.d.comb += fault.eq((loops == LOOP_DEPTH) | (count == 0))
                with m.If(executed):
                    m.d.sync += [
                        loops.eq(loops + 1),
                        stack[0].start.eq(last.pc + 1),
                        stack[0].left.eq(count),
                    ]
                    m.d.sync += [stack[i].eq(stack[i - 1]) for i in range(1, LOOP_DEPTH)]
            with m.Case(Opcode.END_LOOP):
                is_last = stack[0].left == 1
                m.d.comb += [fault.eq(loops == 0), jumps.eq(executed & ~is_last)]
                with m.If(jumps):
                    m.d.sync += stack[0].left.eq(stack[0].left - 1)
                with m.Elif(executed):
                    m.d.sync += loops.eq(loops - 1)
                    m.d.sync += [stack[i].eq(stack[i + 1]) for i in range(LOOP_DEPTH - 1)]
        return m
