# SPDX-License-Identifier: Apache-2.0
"""The scalar unit: index registers and loops."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from systola.arch.isa import (
    INSTRUCTION_BYTES,
    INSTRUCTIONS,
    LOOP_DEPTH,
    OPCODE_BITS,
    REGISTERS,
    Opcode,
)
from systola.hdl.commands import PC_BITS, InstructionLayout
from systola.hdl.control.fetch import FetchedInstruction
from systola.hdl.control.indexed_operands import ADDERS, REGISTER_BITS, operands_of, sums_at

OPCODES = tuple(entry.opcode for entry in INSTRUCTIONS)


class Coming(data.StructLayout):
    """An instruction before index registers are added to its operands."""

    def __init__(self) -> None:
        super().__init__({"word": 8 * INSTRUCTION_BYTES, "kind": len(OPCODES)})


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


class _Kept(data.StructLayout):
    """What an instruction takes along from stage to stage."""

    def __init__(self) -> None:
        super().__init__(
            {
                "word": 8 * INSTRUCTION_BYTES,
                "kind": len(OPCODES),
                "error": 1,
                "pc": PC_BITS,
            }
        )


class ScalarUnit(wiring.Component):
    """Between fetch and decoder: adds index registers to operands, and runs loops.

    In the word each operand that has an index register is replaced by its sum with that register,
    modulo 2^width; all other bits stay as they are, those that name the register too. Set_Register,
    Loop and End_Loop are done here and handed on like all others. Their reserved bits and minima
    are the decoder's to check; index register 0 stays zero in any case.

    Two stages: operands and registers, their sums. Latency LATENCY cycles, one instruction every
    two cycles; but the one behind a Set_Register comes a cycle later, unless it is an End_Loop, and
    a Loop stays a cycle longer. An End_Loop is taken in the second cycle in which the first stage
    is free and all Loops before it are done.

    `coming` shows an instruction, but for a Loop, in the cycle before it is offered first, in which
    the last stage is `vacant`. None comes into the last stage with `hold`.

    `jump` with `jump_to`, in the cycle in which an End_Loop is taken: its loop has iterations left,
    and the first instruction of its body is next. Neither an instruction with `loop_fault`, nor one
    with `error`, whose word means nothing, changes the state or jumps. `idle`: there is no
    instruction inside.
    """

    LATENCY = 2

    def __init__(self) -> None:
        super().__init__(
            {
                "fetched": In(stream.Signature(FetchedInstruction())),
                "coming": Out(Coming()),
                "vacant": Out(1),
                "hold": In(1),
                "instruction": Out(stream.Signature(EffectiveInstruction())),
                "jump": Out(1),
                "jump_to": Out(PC_BITS),
                "idle": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        fetched = self.fetched.payload
        first = Signal(_Kept(), reset_less=True)
        last = Signal(_Kept(), reset_less=True)
        first_valid = Signal()
        last_valid = Signal()
        # The same again for all the bits that a stage without an instruction takes.
        first_open = Signal(init=1, attrs={"keep": 1})
        last_open = Signal(init=1, attrs={"keep": 1})
        offered = Signal()  # what is in the last stage is complete
        sets = Signal()  # a Set_Register came into the last stage a cycle ago,
        opens = Signal()  # or a Loop
        ended = Signal()  # the End_Loop that is fetched is done
        taken = Signal()
        moves = Signal()  # the last stage takes what is in the first, if anything
        leaves = Signal()
        registers = Signal(data.ArrayLayout(REGISTER_BITS, REGISTERS))

        # A stage takes something when it is empty, so that it does not matter here what the stage
        # behind it does in this cycle, and so on up to the sequencer.
        m.d.comb += [
            self.fetched.ready.eq(~first_valid & Mux(fetched.known.ends, ended, ~sets)),
            taken.eq(self.fetched.valid & self.fetched.ready),
            moves.eq(~last_valid & ~self.hold),
            leaves.eq(offered & self.instruction.ready),
            self.instruction.valid.eq(offered),
            self.idle.eq(~(first_valid | last_valid)),
            self.vacant.eq(last_open),
            self.coming.word.eq(first.word),
            self.coming.kind.eq(first.kind),
        ]
        is_loop = is_one_of(first.kind, Opcode.LOOP)
        m.d.sync += [
            sets.eq(moves & first_valid & is_one_of(first.kind, Opcode.SET_REGISTER)),
            opens.eq(moves & first_valid & is_loop),
        ]
        with m.If(~first_valid):
            m.d.sync += [first_valid.eq(taken), first_open.eq(~taken)]
        with m.Elif(moves):
            m.d.sync += [first_valid.eq(0), first_open.eq(1)]
        with m.If(moves):
            m.d.sync += [
                last_valid.eq(first_valid),
                last_open.eq(~first_valid),
                offered.eq(first_valid & ~is_loop),
            ]
        with m.Elif(leaves):
            m.d.sync += [last_valid.eq(0), last_open.eq(1), offered.eq(0)]
        with m.Elif(opens):
            m.d.sync += offered.eq(1)

        # Operands and registers, then their sums. An empty stage takes whatever there is.
        sums = [Signal(REGISTER_BITS, name=f"sum_{i}", reset_less=True) for i in range(ADDERS)]
        added = Signal(REGISTER_BITS, reset_less=True)  # a second register
        chosen = [Signal(REGISTER_BITS, name=f"chosen_{i}", reset_less=True) for i in range(ADDERS)]
        with m.If(first_open):
            m.d.sync += [
                first.word.eq(fetched.word),
                first.kind.eq(Cat(fetched.word[:OPCODE_BITS] == member for member in OPCODES)),
                first.error.eq(fetched.error),
                first.pc.eq(fetched.pc),
            ]
        with m.If(last_open):
            m.d.sync += [last.eq(first), added.eq(chosen[1])]
        for i, operand in enumerate(operands_of(fetched.word, fetched.known.places)):
            kept = Signal(REGISTER_BITS, name=f"operand_{i}", reset_less=True)
            with m.If(first_open):
                m.d.sync += [
                    kept.eq(operand),
                    chosen[i].eq(registers[fetched.known.selectors[i]]),
                ]
            with m.If(last_open):
                m.d.sync += sums[i].eq(kept + chosen[i])

        # The last stage: what comes out.
        effective = self.instruction.payload
        flags: dict[tuple[int, int, frozenset[Opcode]], Signal] = {}
        for bit, sources in enumerate(sums_at()):
            terms: list[Value] = []
            own: Value = Const(1)
            for adder, start, opcodes in sources:
                key = adder, start, opcodes
                if key not in flags:
                    name = f"sum_{adder}_at_{start}"
                    flags[key] = here = Signal(name=name, reset_less=True)
                    with m.If(last_open):
                        m.d.sync += here.eq(is_one_of(first.kind, *opcodes))
                terms.append(flags[key] & sums[adder][bit - start])
                own &= ~flags[key]
            m.d.comb += effective.word[bit].eq(Cat(last.word[bit] & own, *terms).any())

        # Every cycle that a Set_Register is in the last stage writes the same.
        target = data.View(InstructionLayout(Opcode.SET_REGISTER), last.word).register
        writes = last_valid & is_one_of(last.kind, Opcode.SET_REGISTER) & ~last.error
        for register in range(1, REGISTERS):
            with m.If(writes & (target == register)):
                m.d.sync += registers[register].eq(sums[0] + added)

        # Loops: opened in the last stage, closed before the first. What changes the stack is
        # decided a cycle before it does.
        loops = Signal(range(LOOP_DEPTH + 1))
        stack = Signal(data.ArrayLayout(_Loop(), LOOP_DEPTH))  # the innermost loop first
        shown = Signal.like(loops)  # those before the Loop in the last stage
        unopened = Signal()  # the End_Loop in the first stage closes a loop too many
        faulty = Signal()  # so does what is in the last stage, or it opens one
        never = Signal()  # the Loop in the last stage has no iteration,
        once = Signal()  # or one
        # What is left of the innermost loop behind the present iteration; it is there for longer.
        fewer = Signal(REGISTER_BITS, reset_less=True)
        is_second = Signal(reset_less=True)
        m.d.sync += [fewer.eq(stack[0].left - 1), is_second.eq(stack[0].left == 2)]
        opening = Signal()
        pushes = Signal()
        pops = Signal()
        closes = Signal()
        executed = Signal()
        m.d.comb += [
            effective.kind.eq(last.kind),
            effective.error.eq(last.error),
            effective.pc.eq(last.pc),
            effective.loop_fault.eq(
                ~last.error & (faulty | (is_one_of(last.kind, Opcode.LOOP) & never))
            ),
            effective.loops.eq(shown),
            closes.eq(
                self.fetched.valid
                & fetched.known.ends
                & ~(ended | first_valid | opens | opening | pushes)
            ),
            executed.eq(closes & ~fetched.error & (loops != 0)),
        ]
        m.d.sync += [
            ended.eq(closes),
            self.jump.eq(executed & ~stack[0].last),
            self.jump_to.eq(stack[0].start),
            pops.eq(executed & stack[0].last),
            opening.eq(opens),
            pushes.eq(opening & ~last.error & ~faulty & ~never),
            never.eq(sums[0] == 0),
            once.eq(sums[0] == 1),
        ]
        with m.If(~first_valid):
            m.d.sync += unopened.eq(ended & ~fetched.error & (loops == 0))
        with m.If(~last_valid):
            m.d.sync += [faulty.eq(unopened), shown.eq(0)]
        with m.Elif(opens):
            m.d.sync += [faulty.eq(loops == LOOP_DEPTH), shown.eq(loops)]
        with m.If(pushes):
            m.d.sync += [
                loops.eq(loops + 1),
                stack[0].start.eq(last.pc + 1),
                stack[0].left.eq(sums[0]),
                stack[0].last.eq(once),
            ]
            m.d.sync += [stack[i].eq(stack[i - 1]) for i in range(1, LOOP_DEPTH)]
        with m.Elif(self.jump):
            m.d.sync += [stack[0].left.eq(fewer), stack[0].last.eq(is_second)]
        with m.Elif(pops):
            m.d.sync += loops.eq(loops - 1)
            m.d.sync += [stack[i].eq(stack[i + 1]) for i in range(LOOP_DEPTH - 1)]
        return m
