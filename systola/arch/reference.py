# SPDX-License-Identifier: Apache-2.0
"""The reference pages docs/isa.md and docs/registers.md, generated from the definitions.

`python -m systola.arch.reference --write docs` writes them, `--check docs` exits with status 1
where one is missing or out of date.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from enum import IntEnum, IntFlag

from systola.arch.isa import (
    BY_OPCODE,
    FAULT_TEXT,
    INSTRUCTION_BYTES,
    OPCODE_BITS,
    Fault,
    Field,
    Instruction,
)
from systola.arch.isa.fields import SIZES
from systola.arch.pages import Pages, table, write_or_check
from systola.arch.registers import (
    COUNTER_BITS,
    CYCLE_CLASS_TEXT,
    POD_REGISTER_TEXT,
    REGISTER_SPACE_BITS,
    REGISTER_TEXT,
    Control,
    Feature,
    Interrupt,
    PodInterrupt,
    Register,
    Status,
    counter_offset,
)

_NOTICE = """<!-- SPDX-License-Identifier: Apache-2.0 -->
<!-- Made by `python -m systola.arch.reference --write docs`. Edit arch/{source} instead. -->
"""

_ISA_TEXT = f"""
A program is a sequence of instruction words in the host window, starting at the offset in the
register PROGRAM. A word has {8 * INSTRUCTION_BYTES} bits and takes {INSTRUCTION_BYTES} bytes of
host memory, the least significant byte first. The opcode is in bits {OPCODE_BITS - 1}:0. The
numbers of index registers and the flags follow from bit {OPCODE_BITS} upwards, one beside the
other. Other fields begin at half bytes. Bits that belong to no field must be zero.

Instructions run one after the other, with repeated loops, up to Halt or a fault. The units of the
machine overlap instructions. But every program has the same result as if each instruction ran to
its end before the next instruction starts.

There is one exception. Instructions are fetched ahead, and kept on the chip for further iterations
of a loop. So it is undefined how a program runs that overwrites its own instructions.

On-chip memories keep their contents from one program to the next, and are undefined after power-up.
R and C are the rows and columns of the array.

If an operand has a field `..._register`, this field is the number of an index register. The operand
means the sum of its own field and the index register, modulo 2^width of its own field. Every check,
and FAULT_ADDRESS, takes the sum. Register 0 is always zero.

Each instruction has a list of its faults: their names, with the conditions that are not in the
table of [faults](#faults). Where tables, 16-bit modes, depthwise lanes, attention, training or
links are missing, the configuration leaves them out.

The last table of an instruction has the parts of memories that it reads and writes: the operand
with the first address, and a formula for the number of addresses. A comparison in a formula is 1 or
0, and a part without addresses is not used. A formula has operands, names of their values, and
these names:

{table(("Name", "Meaning"), SIZES.items())}"""

_LINK_TEXT = """## Links

Send, Receive, Reduce and Barrier are for a configuration with links, which is a core of a
[pod](pod.md). The n cores of a pod form a ring: the right neighbour of core i is core i + 1, and
the right neighbour of the last core is core 0. Without links the opcodes of these instructions are
UNAVAILABLE, before any other check.

A link carries beats as wide as the host bus. A line of the unified buffer, or an accumulator row of
4 C bytes, each value least significant byte first, is filled up to whole beats.

- A neighbour gets lines and rows in the order in which they were sent, without an address. So
  several Receives or Reduces may take the lines or rows of one Send. One Receive or Reduce may also
  take the lines or rows of several Sends.
- A line or row leaves when there is room for all of its beats. There is room for 16 beats that the
  neighbour has not taken. If two accumulator rows have more beats than 16, there is room for the
  number of their beats, rounded up to a power of two.
- When the programs of the pod have ended, lines and rows that no core has taken are dropped.

The link unit of a core has four parts: for each side, one for Send, and one for Receive and Reduce.
Each part does its instructions in order. Meanwhile later instructions of the other parts go on, and
so do instructions that are not of the links. An exception is an instruction that touches lines or
rows which an earlier instruction has not sent or received yet. So the result of a program is still
the result of its instructions one after the other.

Lines and rows that are sent are never lost. A core can only wait for them, and cannot ask whether
they have come. So the speed of each core changes neither the results of the cores nor whether they
come to an end. Only these instructions wait:

1. An instruction of a part that has `queue_depth` (of the configuration) instructions under way.
2. An instruction that touches lines or rows of a Send, Receive or Reduce before it. If it is itself
   an instruction of the links, single lines and rows wait, not the whole instruction.
3. Halt, Synchronize, the instructions that wait like it, and Barrier, for all instructions before
   them.

If a pod cannot go on, each core that waits ends with LINK_TIMEOUT. Hardware may have reason to wait
less often than these rules say. So it may run a program to its end that ends with LINK_TIMEOUT in
the golden model. A fault of one core stops the other cores at once; in the golden model they go on
as far as they can.
"""

_FAULT_INTRODUCTION = """
A fault ends the program. FAULT appears in STATUS, the cause in FAULT_CAUSE, and the number of the
instruction, counted from 0, in FAULT_PC.

For every instruction ILLEGAL_OPCODE is checked first, then ILLEGAL_FIELD, then the checks that its
section names, in that order. These faults and FETCH_WINDOW stop the program before the instruction
has any effect: all earlier instructions have completed, and no later instruction has begun.
"""

_ASSEMBLY_TEXT = """
Each line has one instruction: the mnemonic, then `operand=value` separated by commas, in any order.

- Operands that have a default may be left out.
- A value is a decimal number, or a hexadecimal number with `0x`. Both may have a `-` before them.
  Where the table of the instruction lists names, a value may be a name.
- Case does not matter.
- An index register is added as in `buffer=100+r3`, which is short for `buffer=100,
  buffer_register=3`. `buffer=r3` takes 0 for the number.
- `#` begins a comment. Empty lines have no meaning.
- `.word` with one number places that instruction word unchanged, legal or not.

```
# eight batches of 16 vectors of one block each, relu(x W + bias)
load_parameters host=0x2000, parameter=0, count=1
loop count=8
    read_weights tile=0, count=1
    read_host_memory host=0x1000+r1, buffer=0, rows=16, stride=16, blocks=1, tail=16
    matrix_multiply buffer=0, accumulator=0, rows=16, k_tiles=1, n_tiles=1
    activate accumulator=0, buffer=64, rows=16, n_tiles=1, parameter=0, function=relu
    write_host_memory host=0x3000+r1, buffer=64, rows=16, stride=16, blocks=1, tail=16
    set_register register=1, first=1, value=256
end_loop
halt
```
"""


def isa_page() -> str:
    """Return the text of docs/isa.md."""
    overview = table(
        ("Opcode", "Instruction", "Assembly", "What it does"),
        (
            (
                f"0x{entry.opcode:02x}",
                f"[{entry.title}](#{entry.title.lower()})",
                f"`{entry.mnemonic}`",
                entry.summary,
            )
            for entry in BY_OPCODE.values()
        ),
    )
    faults = table(
        ("FAULT_CAUSE", "Name", "Meaning", "FAULT_ADDRESS"),
        ((str(int(fault)), fault.name, *FAULT_TEXT[fault]) for fault in Fault),
    )
    return "\n".join(
        (
            _NOTICE.format(source="isa/"),
            "# Instruction set",
            _ISA_TEXT,
            overview,
            *map(_instruction_section, BY_OPCODE.values()),
            _LINK_TEXT,
            "## Faults",
            _FAULT_INTRODUCTION,
            faults,
            "## Assembly text",
            _ASSEMBLY_TEXT.rstrip("\n"),
            "",
        )
    )


def registers_page() -> str:
    """Return the text of docs/registers.md."""
    registers = table(
        ("Offset", "Register", "Access", "Meaning"),
        (
            (
                f"0x{register:03x}",
                register.name,
                REGISTER_TEXT[register].access,
                REGISTER_TEXT[register].doc,
            )
            for register in Register
        ),
    )
    counters = table(
        ("Low word", "High word", "Class", "The cycle is one in which"),
        (
            (
                f"0x{counter_offset(which):03x}",
                f"0x{counter_offset(which) + 4:03x}",
                which.name,
                CYCLE_CLASS_TEXT[which],
            )
            for which in sorted(CYCLE_CLASS_TEXT)
        ),
    )
    return "\n".join(
        (
            _NOTICE.format(source="registers.py"),
            "# Registers",
            "",
            f"The AXI4-Lite slave decodes {REGISTER_SPACE_BITS} address bits; all registers have",
            "32 bits. RO: read only, RW: read and write, RWL: writes are ignored while BUSY,",
            "WO: write only, W1C: writing 1 clears it.",
            "The causes of faults are listed with the [instruction set](isa.md#faults).",
            "",
            registers,
            "## Bits",
            "",
            _bits("CONTROL", Control),
            _bits("STATUS", Status),
            _bits("IRQ_STATUS and IRQ_ENABLE", Interrupt),
            _bits("FEATURES", Feature),
            "## Cycle counters",
            "",
            "Every cycle from the start of a program to its completion belongs to exactly one",
            f"class, so the counters sum to its duration. Each has {COUNTER_BITS} bits.",
            "",
            counters,
            "## Pods",
            "",
            f"A [pod](pod.md) has a page of {1 << REGISTER_SPACE_BITS} bytes for itself, the first",
            "one, and behind it one for each core, with the registers above; what lies beyond them",
            "reads 0.",
            "",
            table(
                ("Offset", "Register", "Access", "Meaning"),
                (
                    (f"0x{register:03x}", register.name, text.access, text.doc)
                    for register, text in POD_REGISTER_TEXT.items()
                ),
            ),
            "CONTROL and STATUS have the bits above.",
            "",
            _bits("IRQ_STATUS and IRQ_ENABLE of a pod", PodInterrupt).rstrip("\n"),
            "",
        )
    )


PAGES: Pages = {"isa.md": isa_page, "registers.md": registers_page}


def main(arguments: Sequence[str] | None = None) -> int:
    """Write or check the pages; return the exit status."""
    return write_or_check(PAGES, "systola.arch.reference", arguments)


def _instruction_section(entry: Instruction) -> str:
    fields: dict[int, tuple[str, ...]] = {
        0: (_span(0, OPCODE_BITS), "opcode", "", f"0x{entry.opcode:02x}", "", "")
    }
    for field in entry.fields:
        less = f"; the word has it less {field.less}" if field.less else ""
        fields[entry.offset(field.name)] = (
            _span(entry.offset(field.name), field.width),
            f"`{field.name}`",
            str(field.width),
            _values(field),
            _default(field),
            field.doc + less,
        )
    for start, end in entry.reserved:
        fields[start] = (_span(start, end - start), "reserved", "", "0", "", "")
    rows = [fields[place] for place in sorted(fields)]
    checks = ", ".join(fault.name for fault in entry.checks) or "none of its own"
    needs = [f"Needs: {entry.needs}."] if entry.needs else []
    uses = [
        (verb, str(use.memory), f"`{use.base}`", f"`{use.extent}`")
        for verb, group in (("reads", entry.reads), ("writes", entry.writes))
        for use in group
    ]
    memories = table(("Use", "Memory", "From", "How many"), uses) if uses else ""
    return "\n".join(
        (
            f"## {entry.title}",
            "",
            entry.summary,
            "",
            table(("Bits", "Field", "Width", "Values", "Default", "Meaning"), rows),
            entry.semantics,
            "",
            *((memories,) if memories else ()),
            " ".join(
                (f"Carried out by: {entry.executor}.", *needs, f"Checks, in order: {checks}.")
            ),
            "",
        )
    )


def _span(low: int, width: int) -> str:
    return f"{low + width - 1}:{low}" if width > 1 else str(low)


def _values(field: Field) -> str:
    low, high = field.range
    if field.values is None:
        return f"{low} to {high}"
    members = (member for member in field.values if low <= member <= high)
    return ", ".join(f"{int(member)} {member.name.lower()}" for member in members)


def _default(field: Field) -> str:
    if field.default is None:
        return ""
    names: Iterable[IntEnum] = field.values or ()
    return next((m.name.lower() for m in names if m == field.default), str(field.default))


def _bits(title: str, flags: type[IntFlag]) -> str:
    rows = ((str(flag.value.bit_length() - 1), str(flag.name)) for flag in flags)
    return table(("Bit", title), rows)


if __name__ == "__main__":
    sys.exit(main())
