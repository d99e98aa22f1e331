# SPDX-License-Identifier: Apache-2.0
"""Assembler and disassembler, both driven by the instruction table.

Each line has one instruction: `mnemonic operand=value, operand=value`. Operands may come in any
order, and an operand with a default may be left out. A value is a number, decimal or 0x
hexadecimal, or a name if the field has names (`function=relu`). A signed field may be negative.
`buffer=100+r3` adds an index register: it stands for `buffer=100, buffer_register=3`. `buffer=r3`
is short for `buffer=0+r3`. `#` starts a comment. `.word` with a number of 128 bits stands for any
instruction word, legal or not.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from difflib import get_close_matches

from systola.arch.built_for import machine_operands
from systola.arch.config import Config
from systola.arch.features import unavailable
from systola.arch.isa import (
    BY_MNEMONIC,
    INSTRUCTION_BYTES,
    REGISTERS,
    EncodingError,
    Field,
    Instruction,
    Opcode,
    decode,
    encode,
)
from systola.arch.program_check import ProgramError, check_program

WORD_DIRECTIVE = ".word"
# These patterns accept more digits than any number of an instruction has. So a text with even more
# digits is refused without being converted.
_NUMBER = re.compile(r"-?(?:0[xX][0-9a-fA-F]{1,40}|[0-9]{1,40})")
_INDEXED = re.compile(r"(?:(?P<value>.+)\+)?\s*[rR](?P<register>[0-9]{1,40})", re.DOTALL)


class AssemblyError(ValueError):
    """A mistake in assembly text: the message begins with `line N: `, N counted from 1."""

    def __init__(self, line: int, reason: str) -> None:
        super().__init__(f"line {line}: {reason}")
        self.line = line


def assemble(text: str, config: Config | None = None) -> bytes:
    """Return the instructions that `text` describes, INSTRUCTION_BYTES bytes for each.

    With a `config`, two more things are mistakes: an instruction that needs hardware which the
    configuration leaves out, and a Require_Machine of another machine. The words after `.word` are
    not checked. Raises AssemblyError for the first mistake.
    """
    return b"".join(word for _, word in _words(text, config))


def assemble_program(text: str, config: Config | None = None) -> bytes:
    """Assemble a whole program; mistakes that check_program finds raise AssemblyError, too."""
    words = list(_words(text, config))
    try:
        check_program([word for _, word in words])
    except ProgramError as error:
        # A mistake after the last instruction, such as a missing Halt, is reported for the last
        # line of the text.
        lines = [line for line, _ in words] + [text.count("\n") + (not text.endswith("\n"))]
        raise AssemblyError(lines[error.position], str(error)) from None
    return b"".join(word for _, word in words)


def _words(text: str, config: Config | None) -> Iterator[tuple[int, bytes]]:
    """Yield the number of each line with an instruction, and the instruction."""
    for number, line in enumerate(text.split("\n"), start=1):
        statement = line.partition("#")[0].split(maxsplit=1)
        if not statement:
            continue
        name = statement[0]
        rest = statement[1].strip() if len(statement) > 1 else ""
        try:
            if name.lower() == WORD_DIRECTIVE:
                word = _word(rest)
            else:
                word = _instruction(name, rest, config)
        except _Mistake as mistake:
            raise AssemblyError(number, str(mistake)) from None
        yield number, word


def disassemble(program: bytes) -> str:
    """Return text that assembles to `program`, one line for each instruction word.

    All operands are written out, index registers other than 0 as in `buffer=100+r3`. A word becomes
    a `.word` line if the assembler has no instruction for it. Raises ValueError if `program` is no
    whole number of words.
    """
    if len(program) % INSTRUCTION_BYTES:
        raise ValueError(
            f"program of {len(program)} bytes is no multiple of {INSTRUCTION_BYTES} bytes"
        )
    words = (
        program[start : start + INSTRUCTION_BYTES]
        for start in range(0, len(program), INSTRUCTION_BYTES)
    )
    return "".join(_text(word) + "\n" for word in words)


class _Mistake(Exception):
    """A mistake in a line; assemble() adds the line number."""


def _instruction(name: str, rest: str, config: Config | None) -> bytes:
    entry = BY_MNEMONIC.get(name.lower())
    if entry is None:
        hint = _hint(name, [*BY_MNEMONIC, WORD_DIRECTIVE])
        raise _Mistake(f"unknown instruction '{name}'{hint}")
    operands: dict[str, int] = {}
    for part in rest.split(",") if rest else []:
        operand, equals, value = (piece.strip() for piece in part.partition("="))
        if not (operand and equals and value):
            raise _Mistake(f"expected operand=value, found '{part.strip()}'")
        field = _field(entry, operand)
        for target, number in _values(entry, field, value).items():
            if target in operands:
                raise _Mistake(f"operand '{target}' is given twice")
            operands[target] = number
    try:
        word = encode(entry.opcode, **operands)
    except EncodingError as error:
        raise _Mistake(str(error)) from None
    if config is not None:
        defaults = {field.name: field.default or 0 for field in entry.fields}
        reason = unavailable(config, entry.opcode, defaults | operands)
        if reason is not None:
            raise _Mistake(f"{entry.mnemonic}: {reason}")
        if entry.opcode == Opcode.REQUIRE_MACHINE and operands != machine_operands(config):
            own = ", ".join(f"{name}={value}" for name, value in machine_operands(config).items())
            raise _Mistake(f"{entry.mnemonic}: configuration '{config.name}' has {own}")
    return word


def _field(entry: Instruction, operand: str) -> Field:
    for field in entry.fields:
        if field.name == operand.lower():
            return field
    known = [field.name for field in entry.fields if not field.indexes]
    if not known:
        raise _Mistake(f"{entry.mnemonic} takes no operands, found '{operand}'")
    hint = _hint(operand, known) or f" (it has {', '.join(known)})"
    raise _Mistake(f"{entry.mnemonic} has no operand '{operand}'{hint}")


def _values(entry: Instruction, field: Field, text: str) -> dict[str, int]:
    """Return the value of `field`, and the number of its index register if `text` names one."""
    indexed = _INDEXED.fullmatch(text)
    if indexed is None:
        return {field.name: _value(entry, field, text)}
    selector = next((other for other in entry.fields if other.indexes == field.name), None)
    if selector is None:
        raise _Mistake(f"{entry.mnemonic}: {field.name}={text}: {field.name} takes no register")
    register = int(indexed["register"])
    if register >= REGISTERS:
        raise _Mistake(
            f"{entry.mnemonic}: {field.name}={text}: registers are r0 to r{REGISTERS - 1}"
        )
    value = 0 if indexed["value"] is None else _value(entry, field, indexed["value"].strip())
    return {field.name: value, selector.name: register}


def _value(entry: Instruction, field: Field, text: str) -> int:
    names = {member.name.lower(): int(member) for member in field.values or ()}
    if text.lower() in names:
        return names[text.lower()]
    if _NUMBER.fullmatch(text):
        return _number(text)
    where = f"{entry.mnemonic}: {field.name}={text}"
    if names:
        hint = _hint(text, names) or f" (one of {', '.join(names)})"
        raise _Mistake(f"{where} is neither a number nor a known name{hint}")
    raise _Mistake(f"{where} is not a number")


def _word(rest: str) -> bytes:
    limit = 8 * INSTRUCTION_BYTES
    if not _NUMBER.fullmatch(rest):
        raise _Mistake(f"{WORD_DIRECTIVE} needs one number, found '{rest}'")
    value = _number(rest)
    if not 0 <= value < 1 << limit:
        raise _Mistake(f"{WORD_DIRECTIVE} {rest} does not fit {limit} bits")
    return value.to_bytes(INSTRUCTION_BYTES, "little")


def _number(text: str) -> int:
    return int(text, 16 if "x" in text.lower() else 10)


def _hint(text: str, known: Iterable[str]) -> str:
    close = get_close_matches(text.lower(), list(known), n=1)
    return f", did you mean '{close[0]}'?" if close else ""


def _text(word: bytes) -> str:
    decoded = decode(word)
    if decoded is not None:
        entry, operands = decoded
        try:
            exact = encode(entry.opcode, **operands) == word
        except EncodingError:
            exact = False  # A field is below its minimum.
        if exact:
            return f"{entry.mnemonic} {', '.join(_operands(entry, operands))}".rstrip()
    return f"{WORD_DIRECTIVE} 0x{int.from_bytes(word, 'little'):032x}"


def _operands(entry: Instruction, operands: Mapping[str, int]) -> Iterable[str]:
    selected = {field.indexes: operands[field.name] for field in entry.fields if field.indexes}
    for field in entry.fields:
        if field.indexes:
            continue
        text = _shown(field, operands[field.name])
        register = selected.get(field.name, 0)
        if register:
            text = f"{text}+r{register}" if operands[field.name] else f"r{register}"
        yield f"{field.name}={text}"


def _shown(field: Field, value: int) -> str:
    for member in field.values or ():
        if member == value:
            return member.name.lower()
    return str(value)
