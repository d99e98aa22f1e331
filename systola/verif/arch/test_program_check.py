# SPDX-License-Identifier: Apache-2.0
"""Tests of the check that finds a program's faults without running the program."""

from __future__ import annotations

import pytest

from systola.arch.assembler import AssemblyError, assemble, assemble_program

WINDOW = (
    "set_config_window height=1, width=1, pitch=1, kernel_height=1, kernel_width=1, stride_y=1, "
    "stride_x=1, dilation_y=1, dilation_x=1, out_height=1, out_width=1"
)
WEIGHTS = "read_weights tile=0, count=1"
CONVOLVE = "convolve buffer=0, accumulator=0, k_tiles=1, n_tiles=1, plane=1"
MULTIPLY = "matrix_multiply buffer=0, accumulator=0, rows=1, k_tiles=1, n_tiles=1"
POOL = "pool reduction=max, buffer=0, destination=8, blocks=1, parameter=0"
DEPTHWISE = "depthwise buffer=0, taps=1, destination=8, blocks=1, parameter=0"


@pytest.mark.parametrize(
    ("program", "line", "says"),
    [
        ("", 1, "the program is empty"),
        ("# nothing\n", 1, "the program is empty"),
        ("nop\nnop\n", 2, "the program has no halt"),
        ("nop\n.word 2", 2, None),
        ("loop count=2\nnop\nhalt", 1, "loop without end_loop"),
        ("loop count=2\nloop count=2\nend_loop\nhalt", 1, "loop without end_loop"),
        ("nop\nend_loop\nhalt", 2, "end_loop without loop"),
        ("loop count=0\nend_loop\nhalt", 1, "loop with no iteration"),
        ("loop count=r1\nend_loop\nhalt", 1, None),
        ("loop count=1\n" * 4 + "end_loop\n" * 4 + "halt", 1, None),
        ("loop count=1\n" * 5 + "end_loop\n" * 5 + "halt", 5, "loop inside 4 loops"),
        (f"{WEIGHTS}\n{CONVOLVE}\nhalt", 2, "convolve without set_config_window before it"),
        (f"{POOL}\nhalt", 1, "pool without set_config_window before it"),
        (f"\n\n{DEPTHWISE}\nhalt", 3, "depthwise without set_config_window before it"),
        (f"{WINDOW}\n{POOL}\nhalt", 1, None),
        (f"{WINDOW}\n{CONVOLVE}\nhalt", 2, "convolve without read_weights before it"),
        (f"{MULTIPLY}\n{WEIGHTS}\nhalt", 1, "matrix_multiply without read_weights before it"),
        (f"loop count=2\n{WEIGHTS}\n{MULTIPLY}\nend_loop\nhalt", 1, None),
        (f"halt\n{POOL}\nend_loop", 1, None),
    ],
)
def test_mistakes(program: str, line: int, says: str | None) -> None:
    if says is None:
        assert assemble_program(program) == assemble(program)
        return
    with pytest.raises(AssemblyError, match=f"line {line}: {says}"):
        assemble_program(program)
    assemble(program)
