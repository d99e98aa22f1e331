# SPDX-License-Identifier: Apache-2.0
"""Tests that a Verilog statement keeps its name in coverage when lines and numbers change."""

from __future__ import annotations

import re

import pytest

from systola.verif.coverage.statements import statement_names

VERILOG = r"""
module top(clk, a);
  wire \$1 ;
  assign \$1  = a & b;
  assign \$2  = \$1  ? 4'h0 : \$procmux$7_Y ;
  assign \$procmux$7_Y  = \$procmux$8_CMP  ? count : \$3 ;
  assign \$procmux$8_CMP  = ! \state$12 ;
  always @(posedge clk)
    count <= \$2 ;
  assign \high$40  = \$1  ? x : y;
  always @(posedge clk) begin
    if (\$1 )
      words[at] <= given;
  end
endmodule
module \top.lane (s);
  function [1:0] choice_9 ;
    input [1:0] a;
    input [3:0] b;
    input [1:0] s;
    casez (s)
      2'b?1:
        choice_9  = b[1:0];
      2'b1?:
        choice_9  = b[3:2];
      default:
        choice_9  = a;
    endcase
  endfunction
  assign \$procmux$9_Y  = choice_9 (2'h0, { 2'h1, 2'h2 }, { \$procmux$11_CMP , \$procmux$10_CMP  });
  assign \$procmux$10_CMP  = code == 2'h1;
  assign \$procmux$11_CMP  = code == 2'h2;
  assign picked = \$procmux$9_Y ;
  assign \$5  = picked[0] ? 1'h1 : 1'h0;
  assign \$6  = picked[0] ? 1'h0 : 1'h1;
  assign one = \$5  & \$6 ;
endmodule
"""
NAMES = {
    r"assign \$2  =": "count: (a & b)",
    r"assign \$procmux$7_Y": "count: (! state)",
    r"assign \high$40": "high: (a & b)",
    r"if (\$1 )": "words[at]: (a & b)",
    "2'b?1:": "picked: case (code == 2'h1)",
    "2'b1?:": "picked: case (code == 2'h2)",
    "default:": "picked: none of 2 cases",
    r"assign \$5": "one: picked[0]",
    r"assign \$6": "one: picked[0] (2)",
}


CHOICE = r"""
module \top.choice (way);
  input {width}way;
  function [0:0] choice_3 ;
    casez (s)
      default:
        choice_3  = a;
    endcase
  endfunction
  assign picked = choice_3 (1'hx, {{ a, b, c, d }}, {{ \$4 , \$3 , \$2 , \$1  }});
  assign \$1  = way == 2'h3;
  assign \$2  = way == 2'h2;
  assign \$3  = way == 2'h{third};
  assign \$4  = ! way;
endmodule
"""


def named(verilog: str) -> dict[str, str]:
    """Return the names of statements, by the text of their lines without spaces at both ends."""
    lines = ["", *verilog.splitlines()]
    names = statement_names(verilog)
    assert len(names) == len(lines)
    return {line.strip(): name for line, name in zip(lines, names, strict=True) if name}


@pytest.mark.parametrize("beginning", NAMES)
def test_a_statement_is_named(beginning: str) -> None:
    (found,) = (name for line, name in named(VERILOG).items() if line.startswith(beginning))
    assert found == NAMES[beginning]


def test_nothing_else_is_named() -> None:
    assert len(named(VERILOG)) == len(NAMES)


@pytest.mark.parametrize(
    ("width", "third", "expected"),
    [
        ("[1:0] ", 1, "picked: none of all 4 cases"),
        ("[2:0] ", 1, "picked: none of 4 cases"),
        ("", 1, "picked: none of 4 cases"),
        ("[1:0] ", 2, "picked: none of 4 cases"),
    ],
)
def test_cases_of_all_values(width: str, third: int, expected: str) -> None:
    """Check the name of a default arm: it has "all" if the cases are all values of the selector."""
    names = named(CHOICE.format(width=width, third=third))
    assert names == {"default:": expected}


def test_names_stay() -> None:
    """Check that statements' names do not depend on lines above, or on numbers that Yosys gives."""
    moved = re.sub(r"\$(\d+)", lambda number: f"${int(number[1]) + 100}", VERILOG)
    moved = moved.replace("choice_9", "choice_77").replace("  wire", "  wire q;\n  wire", 1)
    before, after = named(VERILOG), named(moved)
    assert list(before.values()) == list(after.values())
    assert list(before) != list(after)
