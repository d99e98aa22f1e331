# SPDX-License-Identifier: Apache-2.0
"""The scalar unit: index registers and loops."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from systola.arch.isa import (
    INSTRUCTION_BYTES,
    LOOP_DEPTH,
    OPCODE_BITS,
    REGISTERS,
    Opcode,
)
from systola.hdl.commands import PC_BITS, InstructionLayout
from systola.hdl.fetch import FetchedInstruction
from systola.hdl.indexed_operands import ADDERS, REGISTER_BITS, operands_of, sums_at

OPCODES = tuple(Opcode)


def is_one_of(kind: Value, *opcodes: Opcode) -> Value:
    """Whether an instruction of this kind is one of these."""
    return Cat(kind[OPCODES.index(opcode)] for opcode in opcodes).any()


class EffectiveInstruction(data.StructLayout):
    """A fetched instruction with the index registers added to its operands. `kind` has a bit for
    each of OPCODES. `loop_fault`: check LOOP fails; then `loops` were open before the instruction.
    """

    def __init__(self) -> None:
        super().__init__(
            {
                "word": 8 * INSTRUCTION_BYTES,
                "kind": len(OPCODES),
                "error": 1,
                "pc": PC_BITS,
                "loop_fault": 1,
                "loops": range(LOOP_DEPTH + 1),
            }
        )


class _Loop(data.StructLayout):
    """An open loop: number of the first instruction of its body, iterations left, this one too, and
    whether it is the last."""

    def __init__(self) -> None:
        super().__init__({"start": PC_BITS, "left": REGISTER_BITS, "last": 1})


class ScalarUnit(wiring.Component):
    """Between fetch and decoder: adds index registers to operands, and runs loops.

    In the word each operand that has an index register is replaced by its sum with that register,
    modulo 2^width; all other bits stay as they are, those that name the register too. Set_Register,
    Loop and End_Loop are done here and handed on like all others. Their reserved bits and minima
    are the decoder's to check; index register 0 stays zero in any case.

    Three stages: the word, its operands and registers, their sums. Latency LATENCY cycles, one
    instruction every two cycles; but the one behind a Set_Register comes a cycle later, unless it
    is an End_Loop, a Loop stays a cycle longer, and an End_Loop stays in the first stage for two,
    and until all Loops before it are done.

    `jump` with `jump_to`, in the second cycle of an End_Loop: its loop has iterations left, and the
    first instruction of its body is next. Neither an instruction with `loop_fault`, nor one with
    `error`, whose word means nothing, changes the state or jumps. `idle`: there is no instruction
    inside.
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

        # Instructions that are done here, in the stages that tell.
        known = stages[0].known
        is_set = [known.sets, *(Signal(name=f"is_set_{i}") for i in (1, 2))]
        is_loop = [known.opens, *(Signal(name=f"is_loop_{i}") for i in (1, 2))]
        ends = Signal()  # an End_Loop is in the first stage,
        ended = Signal()  # and done
        is_new = Signal()  # it is the first cycle of what is in the last stage
        opens = Signal()  # a Loop is in the last stage, and was checked
        leaves = Signal()  # what is in the last stage is taken
        m.d.comb += [
            ends.eq(valid[0] & known.ends),
            # A stage takes something when it is empty, so that it does not matter here what the
            # stage behind it does in this cycle, and so on up to the sequencer.
            moves[2].eq(~valid[2]),
            moves[1].eq(~valid[1] & Mux(ends, ended, ~(is_set[2] & is_new))),
            moves[0].eq(~valid[0]),
            leaves.eq(self.instruction.valid & self.instruction.ready),
            self.fetched.ready.eq(moves[0]),
            self.instruction.valid.eq(valid[2] & ~(is_loop[2] & ~opens)),
            self.idle.eq(~Cat(valid).any()),
        ]
        m.d.sync += is_new.eq(moves[2])
        with m.If(moves[0]):
            m.d.sync += [
                stages[0].eq(self.fetched.payload),
                valid[0].eq(self.fetched.valid),
            ]
        with m.Elif(moves[1]):
            m.d.sync += valid[0].eq(0)
        with m.If(moves[2]):
            m.d.sync += [
                stages[2].eq(stages[1]),
                valid[2].eq(valid[1]),
                is_set[2].eq(is_set[1]),
                is_loop[2].eq(is_loop[1]),
            ]
        with m.Elif(leaves):
            m.d.sync += [valid[2].eq(0), is_set[2].eq(0), is_loop[2].eq(0)]
        with m.If(moves[1]):
            m.d.sync += [
                stages[1].eq(stages[0]),
                valid[1].eq(valid[0]),
                is_set[1].eq(valid[0] & is_set[0]),
                is_loop[1].eq(valid[0] & is_loop[0]),
            ]
        with m.Elif(moves[2]):
            m.d.sync += [valid[1].eq(0), is_set[1].eq(0), is_loop[1].eq(0)]

        # Operands and registers, then their sums.
        sums = [Signal(REGISTER_BITS, name=f"sum_{i}") for i in range(ADDERS)]
        added = Signal(REGISTER_BITS)  # a second register
        chosen = [Signal(REGISTER_BITS, name=f"chosen_{i}") for i in range(ADDERS)]
        for i, operand in enumerate(operands_of(stages[0].word)):
            kept = Signal(REGISTER_BITS, name=f"operand_{i}", reset_less=True)
            with m.If(moves[1]):
                m.d.sync += [
                    kept.eq(operand),
                    chosen[i].eq(registers[stages[0].known.selectors[i]]),
                ]
            with m.If(moves[2]):
                m.d.sync += sums[i].eq(kept + chosen[i])
        with m.If(moves[2]):
            m.d.sync += added.eq(chosen[1])

        # The last stage: what comes out.
        last = stages[2]
        effective = self.instruction.payload
        kind = Signal(len(OPCODES), reset_less=True)
        m.d.comb += effective.kind.eq(kind)
        with m.If(moves[2]):
            m.d.sync += kind.eq(Cat(stages[1].word[:OPCODE_BITS] == member for member in OPCODES))
        flags: dict[tuple[int, int, frozenset[Opcode]], Signal] = {}
        for bit, sources in enumerate(sums_at()):
            terms: list[Value] = []
            own: Value = Const(1)
            for adder, start, opcodes in sources:
                key = adder, start, opcodes
                if key not in flags:
                    flags[key] = here = Signal(name=f"sum_{adder}_at_{start}", reset_less=True)
                    code = stages[1].word[:OPCODE_BITS]
                    with m.If(moves[2]):
                        m.d.sync += here.eq(Cat(code == opcode for opcode in opcodes).any())
                terms.append(flags[key] & sums[adder][bit - start])
                own &= ~flags[key]
            m.d.comb += effective.word[bit].eq(Cat(last.word[bit] & own, *terms).any())

        # Every cycle that a Set_Register is in the last stage writes the same.
        target = data.View(InstructionLayout(Opcode.SET_REGISTER), last.word).register
        for register in range(1, REGISTERS):
            with m.If(is_set[2] & ~last.error & (target == register)):
                m.d.sync += registers[register].eq(sums[0] + added)

        # Loops: opened in the last stage, closed in the first.
        loops = Signal(range(LOOP_DEPTH + 1))
        stack = Signal(data.ArrayLayout(_Loop(), LOOP_DEPTH))  # the innermost loop first
        faults = [Signal(name=f"fault_{i}") for i in range(3)]
        shown = [Signal.like(loops, name=f"loops_{i}", reset_less=True) for i in range(3)]
        once = Signal()  # the Loop in the last stage has one iteration
        pushes = Signal()
        closes = Signal()
        executed = Signal()
        jumps = Signal()
        awaited = is_loop[1] | (is_loop[2] & (pushes | ~opens))
        m.d.comb += [
            effective.error.eq(last.error),
            effective.pc.eq(last.pc),
            effective.loop_fault.eq(faults[2]),
            effective.loops.eq(shown[2]),
            closes.eq(ends & ~ended & ~awaited),
            executed.eq(closes & ~stages[0].error & (loops != 0)),
            jumps.eq(executed & ~stack[0].last),
        ]
        m.d.sync += [
            self.jump.eq(jumps),
            self.jump_to.eq(stack[0].start),
            opens.eq(is_loop[2] & ~leaves),
            pushes.eq(is_loop[2] & ~opens),
        ]
        with m.If(closes):
            m.d.sync += [
                ended.eq(1),
                faults[0].eq(~stages[0].error & (loops == 0)),
                shown[0].eq(loops),
            ]
        with m.Elif(moves[1]):
            m.d.sync += ended.eq(0)
        with m.If(moves[1]):
            m.d.sync += [faults[1].eq(ended & faults[0]), shown[1].eq(shown[0])]
        with m.If(moves[2]):
            m.d.sync += [faults[2].eq(faults[1]), shown[2].eq(shown[1])]
        with m.Elif(is_loop[2] & ~opens):
            m.d.sync += [
                faults[2].eq(~last.error & ((loops == LOOP_DEPTH) | (sums[0] == 0))),
                shown[2].eq(loops),
                once.eq(sums[0] == 1),
            ]
        with m.If(pushes & ~last.error & ~faults[2]):
            m.d.sync += [
                loops.eq(loops + 1),
                stack[0].start.eq(last.pc + 1),
                stack[0].left.eq(sums[0]),
                stack[0].last.eq(once),
            ]
            m.d.sync += [stack[i].eq(stack[i - 1]) for i in range(1, LOOP_DEPTH)]
        with m.If(jumps):
            m.d.sync += [
                stack[0].left.eq(stack[0].left - 1),
                stack[0].last.eq(stack[0].left == 2),
            ]
        with m.Elif(executed):
            m.d.sync += loops.eq(loops - 1)
            m.d.sync += [stack[i].eq(stack[i + 1]) for i in range(LOOP_DEPTH - 1)]
        return m
