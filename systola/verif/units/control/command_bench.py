# SPDX-License-Identifier: Apache-2.0
"""A unit for tests with the sequenced decoder and all command memories, beside the decoder.

A setting is a Set_Config_Window or Set_Config_Scale. Settings have numbers, by which a command
names the window and the scale that it uses.
"""

from itertools import pairwise

from amaranth.hdl import Cat, Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from systola.arch.config import Config
from systola.arch.isa import BY_OPCODE, OPCODE_BITS, Executor, Opcode, instructions_of
from systola.hdl.commands import PC_BITS
from systola.hdl.control.command_assembly import ActivateAssembly, MatrixAssembly
from systola.hdl.control.command_memory import CommandMemory
from systola.hdl.control.command_words import FIXED
from systola.hdl.control.sequenced_decoder import LATENCY, SequencedDecoder
from systola.hdl.control.setting_numbers import SettingNumbers
from systola.hdl.control.transfer_assembly import LAYOUTS, TransferAssembly
from systola.verif.units.control.given_word import WORD, give
from systola.verif.units.control.instruction_reader import WINDOWED
from systola.verif.units.control.staged_decoder import Staged

UNITS = {
    "matrix": Executor.MATRIX_UNIT,
    "activate": Executor.ACTIVATION_UNIT,
    "host_reads": Executor.HOST_READER,
    "host_read": Executor.HOST_READER,
    "host_writes": Executor.HOST_WRITER,
    "weights": Executor.WEIGHT_FETCH,
}
"""The unit that takes the commands of each queue."""
ASSEMBLIES = {"matrix": MatrixAssembly, "activate": ActivateAssembly}
_MULTIPLY = BY_OPCODE[Opcode.MATRIX_MULTIPLY]
HEAD_BITS = 32
"""The number of low bits of an instruction that hold its opcode and all its flags."""
SETTINGS = {"window": Opcode.SET_CONFIG_WINDOW, "scale": Opcode.SET_CONFIG_SCALE}


def opcodes_of(config: Config, queue: str) -> list[Opcode]:
    """Return the opcodes that go into a queue.

    A MatrixMultiply with weights from the buffer is in two queues, but is counted for only one of
    them.
    """
    known = instructions_of(links=config.links)
    return [entry.opcode for entry in known if entry.executor is UNITS[queue]]


def fetches(bits: int) -> bool:
    """Return whether an instruction is a MatrixMultiply with weights from the buffer.

    Such an instruction is in the queue of the weight fetch, too. `bits` may be a Value.
    """
    from_buffer = bits >> _MULTIPLY.offset("from_buffer") & 1
    return (bits & 0xFF == Opcode.MATRIX_MULTIPLY) & (from_buffer == 1)


class CommandBench(wiring.Component):
    """A unit that turns instructions into the commands of all queues.

    | port          | meaning |
    |---|---|
    | `given`       | instructions for the sequenced decoder; each waits until no command is ready,
                      and no memory full |
    | `instruction` | the same instructions for the other decoder, as in Staged |
    | `waits`       | a setting waits, because a command still names the number it needs |
    | `writes`      | the sequenced decoder writes the word `written` |
    | `*_push`      | issues a command of the queue, if one is ready |
    | `*_command`   | words of the oldest command of the queue |
    | `*_made`      | the command that is made from these words |
    | `*_pop`       | drops the oldest command, if there is one |
    | `*_popped`    | a command is dropped |

    The program counter of an instruction is its number, from 0 on.
    """

    def __init__(self, *, config: Config):
        self._config = config
        self._sequenced = SequencedDecoder(config=config)
        self._memories = {name: CommandMemory(config=config, queue=name) for name in UNITS}
        self._assemblies = {name: each(config=config) for name, each in ASSEMBLIES.items()}
        self._assemblies |= {name: TransferAssembly(config=config, queue=name) for name in LAYOUTS}
        self._staged = Staged(config=config)
        outputs = self._sequenced.signature.members
        members = {name: outputs[name] for name in ("writes", "written", "judges")}
        staged = self._staged.signature.members
        shown = ("frees", "decoded__valid", "decoded__payload")
        members |= {name: staged[name] for name in ("instruction", *shown)}
        members |= {name: staged[name] for name in ("host_limit", "weight_tiles")}
        members |= {"given": In(stream.Signature(WORD)), "waits": Out(1)}
        for name, memory in self._memories.items():
            members |= {f"{name}_push": In(1), f"{name}_pop": In(1), f"{name}_popped": Out(1)}
            members |= {f"{name}_command": Out(memory.command.shape())}
            members |= {f"{name}_made": Out(self._assemblies[name].command.shape())}
        super().__init__(members)

    def elaborate(self, platform):
        m = Module()
        sequenced = m.submodules.sequenced = self._sequenced
        give(m, sequenced, self.given.payload)
        staged = m.submodules.staged = self._staged
        m.d.comb += [
            staged.instruction.valid.eq(self.instruction.valid),
            staged.instruction.payload.eq(self.instruction.payload),
            self.instruction.ready.eq(staged.instruction.ready),
            staged.frees.eq(self.frees),
            *(
                getattr(decoder, name).eq(getattr(self, name))
                for decoder in (staged, sequenced)
                for name in ("host_limit", "weight_tiles")
            ),
            self.decoded__valid.eq(staged.decoded__valid),
            self.decoded__payload.eq(staged.decoded__payload),
        ]
        begun, room, holds, follows = Signal(), Signal(), Signal(), Signal()
        head = self.given.payload.word[:HEAD_BITS]
        opcode = head[:OPCODE_BITS]
        # Opcode and flags of an instruction are kept from its last row in the ROM of steps to the
        # end of its checks.
        later = [head] + [Signal(HEAD_BITS, name=f"head_{i}") for i in range(1, LATENCY)]
        for before, after in pairwise(later):
            m.d.sync += after.eq(before)
        there = Signal(LATENCY)
        m.d.comb += there[0].eq(self.given.valid & self.given.ready)
        m.d.sync += there[1:].eq(there[:-1])
        judged = later[-1][:OPCODE_BITS]
        ready = self._connect(m, later[-1])
        for name, setting in SETTINGS.items():
            numbers = m.submodules[name] = SettingNumbers(fixed=FIXED * (name == "window"))
            flies = Cat(
                there[i] & (later[i][:OPCODE_BITS] == setting) for i in range(1, LATENCY)
            ).any()
            held = Cat(getattr(each, f"holds_{name}") for each in self._memories.values()).any()
            m.d.comb += [
                numbers.judges.eq(sequenced.judges),
                numbers.ends.eq(sequenced.judges & (judged == setting)),
            ]
            with m.If(opcode == setting):
                m.d.comb += [holds.eq(held), follows.eq(flies)]
            for memory in self._memories.values():
                m.d.comb += [
                    getattr(memory, name).eq(numbers.present),
                    getattr(memory, f"next_{name}").eq(numbers.following),
                ]
        m.d.comb += [
            room.eq(~Cat(each.full for each in self._memories.values()).any() & ~ready),
            sequenced.instruction.valid.eq(self.given.valid & (begun | (room & ~holds & ~follows))),
            self.given.ready.eq(sequenced.instruction.ready),
            self.waits.eq(self.given.valid & holds & ~follows & ~begun),
            *(
                getattr(self, name).eq(getattr(sequenced, name))
                for name in ("writes", "written", "judges")
            ),
        ]
        m.d.sync += begun.eq(sequenced.instruction.valid & ~sequenced.instruction.ready)
        return m

    def _connect(self, m, head):
        """Connect the command memories; return whether some command is ready to be issued."""
        sequenced, judged = self._sequenced, head[:OPCODE_BITS]
        readies = []
        pc = Signal(PC_BITS)
        m.d.sync += pc.eq(pc + sequenced.judges)
        for name, memory in self._memories.items():
            m.submodules[name] = memory
            assembly = m.submodules[f"{name}_assembly"] = self._assemblies[name]
            mine = Cat(judged == each for each in opcodes_of(self._config, name)).any()
            if name == "weights" and self._config.training:
                mine = mine | fetches(head)
            ready = Signal(range(2 * self._config.queue_depth), name=f"{name}_ready")
            readies.append(ready.any())
            m.d.sync += ready.eq(ready + memory.takes - memory.push)
            m.d.comb += [
                memory.writes.eq(sequenced.writes),
                memory.written.eq(sequenced.written),
                memory.ends.eq(sequenced.judges),
                memory.takes.eq(sequenced.judges & mine),
                memory.pc.eq(pc),
                memory.windowed.eq(Cat(judged == each for each in WINDOWED).any()),
                memory.push.eq(getattr(self, f"{name}_push") & ready.any() & ~memory.full),
                memory.pop.eq(getattr(self, f"{name}_pop") & memory.valid),
                getattr(self, f"{name}_popped").eq(memory.pop),
                getattr(self, f"{name}_command").eq(memory.command),
                assembly.words.eq(memory.command),
                getattr(self, f"{name}_made").eq(assembly.command),
            ]
        return Cat(readies).any()
