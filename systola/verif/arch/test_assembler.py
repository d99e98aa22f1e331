# SPDX-License-Identifier: Apache-2.0
"""Tests of the assembler: text to words and back, and a message for every kind of mistake."""

from __future__ import annotations

import random

import pytest

from systola.arch.assembler import AssemblyError, assemble, disassemble
from systola.arch.config import preset
from systola.arch.isa import BY_OPCODE, Function, Opcode, Rounding, encode
from systola.verif.kit.seeds import random_seed


def test_a_program() -> None:
    text = """
    # a comment
    read_weights tile=0x10, count=2     # and one behind
    matrix_multiply n_tiles=1,k_tiles=2,rows=3,accumulator=4,buffer=5

    Activate accumulator=4, buffer=0, rows=3, n_tiles=1, parameter=7, function=RELU6, \
rounding=single, zero_point=-128, ceiling=-0x1, table = 1
    interrupt_host
    HALT
    """
    assert assemble(text) == b"".join(
        (
            encode(Opcode.READ_WEIGHTS, tile=16, count=2),
            encode(
                Opcode.MATRIX_MULTIPLY,
                buffer=5,
                accumulator=4,
                rows=3,
                k_tiles=2,
                n_tiles=1,
                accumulate=0,
            ),
            encode(
                Opcode.ACTIVATE,
                accumulator=4,
                buffer=0,
                rows=3,
                n_tiles=1,
                parameter=7,
                function=Function.RELU6,
                rounding=Rounding.SINGLE,
                zero_point=-128,
                ceiling=-1,
                table=1,
            ),
            b"\x04" + bytes(15),
            b"\x02" + bytes(15),
        )
    )


def test_index_registers() -> None:
    """Check both forms of index registers in assembly text, and their disassembled text."""
    long = """
    loop count=3, count_register=0
    loop count=0, count_register=7
    read_weights tile=16, count=2, tile_register=1
    load_parameters host=8, parameter=0, count=1, host_register=2, parameter_register=3
    load_table host=8, host_register=0, table=1
    """
    short = """
    LOOP COUNT=3
    loop count = R7
    read_weights tile=0x10+r1, count=2
    load_parameters host=8 + r2, parameter = r3, count=1
    load_table host=8+r0, table=1
    """
    assert assemble(short) == assemble(long)
    assert disassemble(assemble(long)).splitlines() == [
        "loop count=3",
        "loop count=r7",
        "read_weights tile=16+r1, count=2",
        "load_parameters host=8+r2, parameter=r3, count=1",
        "load_table host=8, table=1",
    ]


def test_hardware_that_a_configuration_leaves_out() -> None:
    tiny = preset("tiny")
    text = """
    .word 0x41
    activate accumulator=0, buffer=0, rows=1, n_tiles=1, parameter=0, function=table
    """
    assert len(assemble(text, tiny)) == 32
    depthwise = "depthwise buffer=0, taps=0, destination=0, blocks=1, parameter=0"
    for line, lacking in (
        (depthwise, "depthwise: configuration 'tiny' has no depthwise lanes"),
        (
            "matrix_multiply buffer=0, accumulator=0, rows=1, k_tiles=1, n_tiles=1, wide_vectors=1",
            "matrix_multiply: configuration 'tiny' has no 16-bit modes",
        ),
    ):
        with pytest.raises(AssemblyError) as caught:
            assemble(f"nop\n{line}\nnop", tiny)
        assert str(caught.value) == f"line 2: {lacking}"
        assert len(assemble(line, preset("base"))) == len(assemble(line)) == 16


def test_empty_text_is_an_empty_program() -> None:
    assert assemble("") == b""
    assert assemble("\n # nothing\n\t\n") == b""
    assert disassemble(b"") == ""


def test_line_ends_of_other_systems() -> None:
    assert assemble("nop\r\nhalt\r\n") == encode(Opcode.NOP) + encode(Opcode.HALT)


def test_numbers() -> None:
    for text in ("10", "0x0a", "0XA", "010", "00010"):
        assert assemble(f"interrupt_host code={text}")[1] == 10


def test_word() -> None:
    word = "0x02030405060708090a0b0c0d0e0f1011"
    assert assemble(f".word {word}") == b"\x11" + bytes(range(16, 1, -1))
    assert assemble(".word 2") == encode(Opcode.HALT)
    word = "0x02030405060708090a0b0c0d0e0f1007"  # opcode 7 does not exist
    assert disassemble(b"\x07" + bytes(range(16, 1, -1))) == f".word {word}\n"


def test_disassembly_text() -> None:
    program = encode(Opcode.HALT) + encode(
        Opcode.ACTIVATE,
        accumulator=1,
        buffer=2,
        rows=3,
        n_tiles=4,
        parameter=5,
        function=Function.TABLE,
        rounding=Rounding.SINGLE,
        zero_point=-6,
        table=7,
    )
    assert disassemble(program) == (
        "halt\n"
        "activate function=table, table=7, rounding=single, wide=0, accumulate=0, exponent=0, "
        "stochastic=0, accumulator=1, buffer=2, rows=3, parameter=5, zero_point=-6, ceiling=127, "
        "n_tiles=4\n"
    )


@pytest.mark.parametrize(
    "word",
    [
        bytes(16),
        b"\xff" * 16,
        b"\x02" + bytes(14) + b"\x80",  # a word with a reserved bit set
        b"\x20" + bytes(15),  # a Read_Weights with count=0
    ],
)
def test_illegal_words(word: bytes) -> None:
    text = disassemble(word)
    assert text.startswith(".word 0x")
    assert assemble(text) == word


def test_partial_words_are_refused() -> None:
    with pytest.raises(ValueError, match="17 bytes"):
        disassemble(bytes(17))


def test_round_trip() -> None:
    """Check that words survive disassembly and assembly: legal, with a flipped bit, or random."""
    rng = random.Random(random_seed())
    words: list[bytes] = []
    for _ in range(3000):
        entry = rng.choice(list(BY_OPCODE.values()))
        operands: dict[str, int] = {}
        for field in entry.fields:
            low, high = field.range
            operands[field.name] = rng.choice((low, high, rng.randint(low, high)))
        word = encode(entry.opcode, **operands)
        words.append(word)
        flipped = int.from_bytes(word, "little") ^ 1 << rng.randrange(128)
        words.append(flipped.to_bytes(16, "little"))
        words.append(rng.randbytes(16))
    program = b"".join(words)
    lines = disassemble(program).splitlines()
    assert len(lines) == len(words)
    assert not any(line.startswith(".word") for line in lines[::3])
    assert assemble("\n".join(lines)) == program
    for line, word in zip(lines, words, strict=True):
        if not line.startswith(".word"):
            name, _, rest = line.partition(" ")
            parts = rest.split(", ") if rest else []
            rng.shuffle(parts)
            assert assemble(f"{name.upper()}  {' ,'.join(parts)} # shuffled") == word


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("hlat", "unknown instruction 'hlat', did you mean 'halt'?"),
        ("matrixmultiply rows=1", "unknown instruction 'matrixmultiply', did you mean 'matrix_m"),
        ("xyzzy", "unknown instruction 'xyzzy'"),
        ("load_table host=0, tabel=1", "load_table has no operand 'tabel', did you mean 'table'?"),
        ("load_table host=0, zzz=1", "load_table has no operand 'zzz' (it has host, table)"),
        ("halt now=1", "halt takes no operands, found 'now'"),
        ("halt now", "expected operand=value, found 'now'"),
        ("load_table host=0, table=1,", "expected operand=value, found ''"),
        ("load_table host=0 table=1", "load_table: host=0 table=1 is not a number"),
        ("load_table host=, table=1", "expected operand=value, found 'host='"),
        ("load_table host=0, host=0, table=1", "operand 'host' is given twice"),
        ("load_table host=0", "load_table needs operand 'table'"),
        ("load_table host=0, table=16", "load_table: table=16 is not in 0 to 15"),
        ("load_table host=-4, table=0", "load_table: host=-4 is not in 0 to 4294967295"),
        ("read_weights tile=0, count=0", "read_weights: count=0 is not in 1 to 16777215"),
        ("load_table host=r8, table=0", "load_table: host=r8: registers are r0 to r7"),
        ("load_table host=0+r10, table=0", "load_table: host=0+r10: registers are r0 to r7"),
        ("load_table host=0, table=1+r1", "load_table: table=1+r1: table takes no register"),
        ("load_table host=x+r1, table=0", "load_table: host=x is not a number"),
        ("load_table host=+r1, table=0", "load_table: host=+r1 is not a number"),
        ("load_table host=r1+4, table=0", "load_table: host=r1+4 is not a number"),
        ("load_table host=4+r, table=0", "load_table: host=4+r is not a number"),
        ("load_table host=-4+r1, table=0", "load_table: host=-4 is not in 0 to 4294967295"),
        ("loop count=r1, count_register=1", "operand 'count_register' is given twice"),
        ("set_register register=0", "set_register: register=0 is not in 1 to 7"),
        (
            "depthwise buffer=0, taps=0, destination=0, blocks=1, parameter=0, function=tanh",
            "depthwise: function=5 is not in 0 to 3",
        ),
        ("load_table host=four, table=0", "load_table: host=four is not a number"),
        ("load_table host=0x, table=0", "load_table: host=0x is not a number"),
        ("load_table host=1_0, table=0", "load_table: host=1_0 is not a number"),
        ("load_table host=" + 5000 * "9" + ", table=0", "load_table: host=99"),
        ("load_table host=\u0661, table=0", "load_table: host=\u0661 is not a number"),
        (
            "activate function=rleu",
            "activate: function=rleu is neither a number nor a known name, did you mean 'relu'?",
        ),
        (
            "activate rounding=up",
            "activate: rounding=up is neither a number nor a known name (one of double, single)",
        ),
        (
            "activate accumulator=0, buffer=0, rows=1, n_tiles=1, parameter=0, zero_point=128",
            "activate: zero_point=128 is not in -128 to 127",
        ),
        (".word", ".word needs one number, found ''"),
        (".word 1 2", ".word needs one number, found '1 2'"),
        (".word -1", ".word -1 does not fit 128 bits"),
        (".word 0x1" + 32 * "0", ".word 0x1" + 32 * "0" + " does not fit 128 bits"),
    ],
)
def test_mistakes(line: str, message: str) -> None:
    with pytest.raises(AssemblyError) as caught:
        assemble(f"nop\n# comment\n\n{line}  # why not\nhalt")
    assert caught.value.line == 4
    text = str(caught.value)
    assert text.startswith(f"line 4: {message}")
    assert "\n" not in text


def test_a_machine_that_is_another_one() -> None:
    """Check that the assembler refuses text for another machine than the given one.

    Without a given machine, the text may name any machine.
    """
    text = "require_machine rows=4, columns=4, host_bus=4, weight_bus=4\nhalt\n"
    assert assemble(text) == assemble(text, preset("tiny"))
    with pytest.raises(AssemblyError) as caught:
        assemble(f"nop\n{text}", preset("6x3"))
    numbers = "rows=6, columns=3, host_bus=8, weight_bus=8"
    assert str(caught.value) == f"line 2: require_machine: configuration '6x3' has {numbers}"
