# SPDX-License-Identifier: Apache-2.0
"""The page docs/steps.md: the steps of each instruction, as the step ROM has them.

`python -m systola.hdl.control.step_page --write docs` writes the page. With `--check docs` the
program exits with status 1 if the page is missing or out of date.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from systola.arch.config import preset
from systola.arch.features import has
from systola.arch.isa import BY_OPCODE, Fault, Instruction, instructions_of
from systola.arch.pages import Pages, table, write_or_check
from systola.hdl.control.step_rom import StepRom
from systola.hdl.control.step_row import (
    IDLE,
    ROWS,
    SECOND_INDEX,
    ZERO,
    Base,
    Bits,
    Loads,
    Note,
    Row,
    RowLayout,
    Times,
    When,
)

SHOWN, LARGER, LARGEST = "tiny", "small", "small-training-links"
"""Presets on the page.

The page shows each step of the first preset. Of the other presets it only has how many steps each
instruction takes. An instruction that the first preset lacks is shown for the last preset.
"""
_INTRODUCTION = """
The sequenced decoder ([architecture.md](architecture.md#planned-one-control-path)) takes each
instruction through the rows of a ROM, a row a cycle. `hdl/control/step_programs.py` makes the rows
from the instruction set. It is not part of the machine yet: a test holds it against the decoder of
the machine word by word.

The first row of most instructions reads opcode, numbers of index registers and flags. It selects
the index registers, and sets what conditions of later rows depend on. Bits that must be zero are
checked by the row that reads the field below them, if there is one.

A row computes *base* + *x* \\* *factor*. *x* is a field of the instruction word or a cell of the
scratch memory. The factor is 1, -1, or a *kept* x of an earlier row. The base is a cell, an index
register, or the *sum* before. Where it is an index register, the result counts modulo 2^width of
the field. A row ends the program with a fault where its result is above a limit, or zero where the
field has a minimum. It may also set a flag for the conditions of later rows. The result goes into a
cell of the scratch memory, into a word of the command, or into both.
"""


def page() -> str:
    """Make the text of docs/steps.md."""
    names = (SHOWN, LARGER, LARGEST)
    roms = [StepRom(preset(name)) for name in names]
    entries = instructions_of(links=True)
    counts = table(
        ("Instruction", *(f"steps, `{name}`" for name in names), f"of these idle, `{LARGEST}`"),
        (
            (
                f"`{entry.mnemonic}`",
                *(_steps(rom, entry) for rom in roms),
                str(roms[-1].program(entry.opcode).count(IDLE)),
            )
            for entry in entries
        ),
    )
    sizes = ", ".join(f"`{name}` {len(rom.rows)}" for name, rom in zip(names, roms, strict=True))
    parts = [
        "<!-- SPDX-License-Identifier: Apache-2.0 -->\n"
        "<!-- Made by `python -m systola.hdl.control.step_page --write docs` from\n"
        "     hdl/control/step_programs.py: do not edit. -->",
        "# Steps of instructions",
        _INTRODUCTION.strip(),
        f"The ROM has {ROWS} rows of {RowLayout().size} bits. Machines use so many: {sizes}. An "
        "instruction takes a cycle more than it has steps.",
        counts,
        *(_program(entry, *_shown(entry, roms)) for entry in entries),
    ]
    return "\n\n".join(part.strip() for part in parts) + "\n"


def _shown(entry: Instruction, roms: Sequence[StepRom]) -> tuple[StepRom, str]:
    """Return the ROM to show for an instruction, and the ROM's preset: "" for the first preset."""
    lacks = entry.needs is not None and not has(preset(SHOWN), entry.needs)
    return (roms[-1], LARGEST) if lacks else (roms[0], "")


def _steps(rom: StepRom, entry: Instruction) -> str:
    if entry.opcode not in rom.lengths:
        return "-"
    shortest, all_steps = rom.shortest(entry.opcode), rom.lengths[entry.opcode]
    return str(all_steps) if shortest == all_steps else f"{shortest} or {all_steps}"


def _program(entry: Instruction, rom: StepRom, name: str) -> str:
    rows = (
        (str(number), _condition(row), _result(entry, row), _check(row), _goes(row))
        for number, row in enumerate(rom.program(entry.opcode), 1)
    )
    header = ("Step", "if", "result", "check", "goes to")
    about = f"Steps of `{name}`.\n\n" if name else ""
    return f"## {entry.title}\n\n{about}{table(header, rows)}"


def _condition(row: Row) -> str:
    if row.when in (When.ALWAYS, When.NEVER):
        return ""
    return row.when.name.lower().replace("_", " ")


def _x(entry: Instruction, bits: Bits) -> str:
    """Return the name of the field in `bits`, or of the first and the last field if several."""
    if bits == Bits(0, 8):
        return "opcode"
    ends = bits.offset, bits.offset + bits.width
    names = [
        field.name
        for field in BY_OPCODE[entry.opcode].fields
        if ends[0] <= entry.offset(field.name) < ends[1]
    ]
    if not names:
        return f"bits {ends[0]} to {ends[1] - 1}"
    if len(names) > 1:
        return f"`{names[0]}` to `{names[-1]}`"
    part = bits.width < entry.field(names[0]).width
    return f"`{names[0]}`" + (f", bits 0 to {bits.width - 1}" if part else "")


def _cell(cell: str) -> str:
    """Return the text for a cell: the number in a constant cell, else the cell's name."""
    if cell == ZERO or cell.startswith("="):
        return cell.removeprefix("=").replace(ZERO, "0")
    return f"*{cell.replace('_', ' ')}*"


def _result(entry: Instruction, row: Row) -> str:
    x = _x(entry, row.x) if isinstance(row.x, Bits) else _cell(row.x)
    if row == IDLE:
        return "nothing"
    if row.keep and row.when is When.NEVER:
        return f"keep {x}"
    if row.x == SECOND_INDEX:
        x = "register `second`"
    base = _base(row.base)
    product = f"{x} \\* kept" if row.times is Times.KEPT else x
    if row.times is Times.MINUS_ONE:
        text = f"{base} - {product}" if base else f"-{product}"
    elif row.x == ZERO:
        text = base or "0"
    else:
        text = f"{base} + {product}" if base else product
    return f"{text}, kept" if row.keep else text


def _base(base: Base | str) -> str:
    if base is Base.SUM:
        return "sum"
    if isinstance(base, Base):
        return f"register {base.value[1] + 1}"
    return "" if base == ZERO else _cell(base)


def _check(row: Row) -> str:
    found: list[str] = []
    if row.least:
        found.append(f"0: {Fault.ILLEGAL_FIELD.name}")
    if row.aligned:
        found.append(f"no multiple of the host bus: {Fault.ILLEGAL_FIELD.name}")
    if row.limit is not None and row.fault is not Fault.NONE:
        found.append(f"above {_cell(row.limit)}: {row.fault.name}")
    if row.limit is not None and row.note is not Note.NONE:
        word = "above" if row.note is Note.BEYOND else "equal to"
        found.append(f"notes if {word} {_cell(row.limit)}")
    return "; ".join(found)


def _goes(row: Row) -> str:
    found = [_cell(row.into)] if row.into else []
    if row.word:
        found.append(f"word `{row.word}`")
    if row.loads is not Loads.NONE:
        found.append("the select" if row.loads is Loads.SELECT else "the select, conditions")
    if row.ends:
        found.append("ends unless packed")
    return ", ".join(found)


PAGES: Pages = {"steps.md": page}

if __name__ == "__main__":
    sys.exit(write_or_check(PAGES, "systola.hdl.control.step_page"))
