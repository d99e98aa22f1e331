# SPDX-License-Identifier: Apache-2.0
"""Tests of the script for Vivado in a plain Tcl shell, which only notes Vivado's commands."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from systola.synth.axi_wrapper import INTERFACES
from systola.verif.kit.checkout import ROOT

tkinter = pytest.importorskip("tkinter", reason="this Python has no Tcl")

SCRIPT = ROOT / "integration" / "vivado" / "build.tcl"
STUBS = """
proc exit {status} { error "exit $status" }
set calls {}
proc unknown {args} {
    lappend ::calls $args
    if {[lindex $args 0] eq "get_property"} {
        return [dict get {PROGRESS 100% SLACK 0.5} [lindex $args 1]]
    }
    return [lindex $args end]
}
"""


def interpreted(*arguments: str) -> list[tuple[str, ...]]:
    """Run the script with these arguments, and return the commands of Vivado that it calls."""
    tcl: Any = tkinter.Tcl()
    tcl.eval(STUBS)
    tcl.eval("proc puts {args} {}")
    tcl.call("set", "argv", arguments)
    tcl.call("set", "argc", len(arguments))
    tcl.call("source", str(SCRIPT))
    return [tcl.splitlist(call) for call in tcl.splitlist(tcl.eval("set calls"))]


@pytest.mark.parametrize(
    ("board", "part"),
    [
        ("pynq-z2", "xc7z020clg400-1"),
        ("zybo-z7-20", "xc7z020clg400-1"),
        ("kv260", "xck26-sfvc784-2LV-c"),
    ],
)
def test_everything_is_connected(board: str, part: str, tmp_path: Path) -> None:
    """Check that the script connects each port once, and builds for the board's part and clock."""
    (tmp_path / "tpu_axi.v").write_text("module tpu_axi; endmodule\n")
    calls = interpreted(str(tmp_path), board, "40")
    assert ("create_project", "-force", "-part", part, "systola", f"vivado_{board}") in calls
    ends = [
        name
        for call in calls
        if call[0].startswith("connect_bd")
        for name in call[1:]
        if name.startswith("tpu/")
    ]
    interfaces = [name for name in INTERFACES if name != "m_axi_memory"]
    assert sorted(ends) == sorted(f"tpu/{name}" for name in [*interfaces, "aclk", "aresetn", "irq"])
    assert any("40" in call[-2].split() for call in calls if call[0] == "set_property")
    assert calls[-1][0] == "write_hw_platform"


@pytest.mark.parametrize("arguments", [(), ("folder",), ("folder", "arty"), ("folder", "kv260")])
def test_mistakes(arguments: tuple[str, ...]) -> None:
    """Check status 2 for a missing argument, an unknown board, or a folder without a machine."""
    with pytest.raises(tkinter.TclError, match="exit 2"):
        interpreted(*arguments)
