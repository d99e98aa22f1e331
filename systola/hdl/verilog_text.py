# SPDX-License-Identifier: Apache-2.0
"""The Verilog of a design: text that all tools read alike.

Combinational logic is `assign` only. An `always @*` has no value before one of its inputs changes,
and it depends on the version whether an initial value is a change. Outputs of Icarus were unknown
with -g2012 and known with -g2005. An assertion ends every simulation: it is `$fatal`, since Icarus
only prints that an `assert` has failed. No name is a keyword of any Verilog.
"""

from __future__ import annotations

import os
import re

# amaranth.back.verilog imports this private function, too
from amaranth._toolchain.yosys import find_yosys

from systola.hdl.verilog_names import readable

_REMOVED = ("generator", "top", "full_case", "amaranth.hierarchy", "amaranth.decoding")
"""Attributes that mean nothing to tools that read the Verilog."""
_ATTRIBUTES = " ".join(f"-remove {name}" for name in _REMOVED)
STEPS = (
    "proc -norom",
    "memory_collect",
    f"attrmap {_ATTRIBUTES}",
    f"attrmap -modattr {_ATTRIBUTES}",
    "write_verilog -norename",
)
"""Commands of Yosys that write a design of Amaranth as it is, with all of its names."""

_ANALOG_KEYWORDS = """
above abs absdelay absdelta ac_stim access acos acosh aliasparam analog analysis asin asinh atan
atan2 atanh branch ceil connect connectmodule connectrules continuous cos cosh ddt ddt_nature ddx
discipline discrete domain driver_update endconnectmodule endconnectrules enddiscipline endnature
endparamset exclude exp final_step flicker_noise floor flow from ground hypot idt idt_nature idtmod
inf initial_step laplace_nd laplace_np laplace_zd laplace_zp last_crossing limexp ln log max merged
min nature net_resolution noise_table noise_table_log paramset potential pow resolveto sin sinh slew
split sqrt tan tanh timer transition units white_noise wreal zi_nd zi_np zi_zd zi_zp
"""
"""Keywords that only Verilog-AMS has (Accellera, version 2.4, annex B). Yosys knows all others."""
_ANALOG = re.compile(rf"(?<=\\)({'|'.join(_ANALOG_KEYWORDS.split())})(?=[ \n])")
"""A pattern for one of these keywords as a name in Yosys' own language."""
_KEYWORD = re.compile(r"\\([a-z]\w*)(?= )")
"""A pattern for a keyword that Yosys writes with a backslash, so that it is a name."""
_INDEXED = re.compile(r"\\\S*\[\S*")
"""A pattern for the name of a wire that stands for an element of another wire."""
_FUNCTION = re.compile(r"\\\$procmux\$(\d+) ")
"""A pattern for the name of a function that chooses one of several values."""
_ASSERTION = re.compile(r"^( *)assert (\(.*\));$", re.MULTILINE)
_ZEROS = re.compile(r"^  initial begin\n(?:    \S+\[\d+\] = \d+'[dh]0+;\n)+  end\n", re.MULTILINE)
"""A pattern for statements that fill a memory with zeros."""


def verilog_text(design: str, *steps: str) -> str:
    """Return the Verilog that Yosys writes of a design in its own language.

    `steps` are commands of Yosys. The last one writes the Verilog.
    """
    # This is the Yosys that Amaranth installs. A Yosys on PATH may be too old for the conversion.
    os.environ.setdefault("AMARANTH_USE_YOSYS", "builtin")
    yosys = find_yosys(lambda version: version >= (0, 40))
    design = _ANALOG.sub(r"\1_", readable(design))
    script = (f"read_rtlil <<rtlil\n{design}\nrtlil", *steps)
    # Yosys warns of processes that Verilog may not be able to express. After "proc" there are none.
    text = yosys.run(["-q", "-"], "\n".join(script), ignore_warnings=True)
    # Icarus takes a name that begins with `$` for a function of the simulator.
    text = _FUNCTION.sub(r"choice_\1 ", text)
    text = _ASSERTION.sub(r"\1if (!\2) $fatal;", text)
    # With ABC9 Yosys 0.70 takes `words[2]` for the bit of `words` with this number.
    text = _INDEXED.sub(lambda name: name[0].replace("[", ".").replace("]", ""), text)
    return without_keywords(_without_contents(text))


def without_keywords(text: str) -> str:
    r"""Return Verilog of Yosys in which a name such as `\table ` has become `table_`."""
    return _KEYWORD.sub(r"\1_", text)


def _without_contents(text: str) -> str:
    """Return Verilog of Yosys with memories that have no contents until they are written.

    Amaranth fills a memory with zeros if its contents are not given. No unit may rely on them: a
    simulator then exposes a unit that does. A memory of a chip, or a large one of an FPGA, has no
    contents to begin with.
    """
    return _ZEROS.sub("", text)
