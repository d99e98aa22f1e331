# SPDX-License-Identifier: Apache-2.0
"""Tests of save files for viewers of waveforms, which show values by their names in hdl/.

The tests interpret commands as the viewer Surfer does.
"""

import re
from pathlib import Path

import pytest
from amaranth.hdl import Module, Signal
from amaranth.lib import data, enum, wiring
from amaranth.lib.wiring import In, Out

from systola.arch.assembler import assemble
from systola.arch.config import preset
from systola.arch.isa import Fault
from systola.hdl.activation.steps import Pause, Phase
from systola.hdl.parts.fabric import Fabric
from systola.hdl.transfers.axi import Response
from systola.hdl.verilog import convert
from systola.sim.design import verilog_of
from systola.sim.shown import Group, Names, Shown, fields_named, groups
from systola.sim.waves import save_files

COMMANDS = {
    "variable_add": r"[\w.]+",
    "item_focus": r"[a-p]+_",
    "item_unfocus": "",
    "item_set_format": r"\w+",
    "group_marked": r"\w+",
    "group_fold_all": "",
    "group_unfold_recursive": "",
    "marker_set": r"[^\s#;]+ \d+",
    "cursor_set": r"\d+",
}
"""Commands of the viewer Surfer 0.7, each with a pattern of its arguments.

The source is Surfer's libsurfer/src/command_parser.rs: get_parser, and separate_at_space for a
marker's name. fzcmd.rs in the same folder splits words. batch_commands.rs there takes # for a
comment and ; for the next command.
"""


class Weather(enum.Enum, shape=2):
    SUN = 0
    RAIN = 2


WEATHER = Names("Weather", 2, {0: "SUN", 2: "RAIN"})


class Small(wiring.Component):
    """A unit with a port that is an enumeration, and a register with a field that is one."""

    now: In(Weather)
    later: Out(2)

    def elaborate(self, platform: Fabric) -> Module:
        m = Module()
        held = Signal(data.StructLayout({"sky": Weather, "cold": 1}))
        m.d.sync += [held.sky.eq(self.now), held.cold.eq(~held.cold)]
        m.d.comb += self.later.eq(held.sky)
        return m


@pytest.fixture(scope="module")
def small() -> str:
    return convert(Small(), "sky")


def test_names_come_from_the_hardware(small: str):
    (group,) = groups(small, "sky", b"")
    assert group.name == "sky"
    assert {each.path: each for each in group.signals if each.width == 2} == {
        "sky.now": Shown("sky.now", 2, WEATHER),
        "sky.later": Shown("sky.later", 2),
        "sky.held__sky": Shown("sky.held__sky", 2, WEATHER),
    }


def test_fields_have_no_dots(small: str):
    """Check that fields with dots in their names are renamed, but no names of modules."""
    assert r"\held.sky " in small
    assert r"\held.sky " not in fields_named(small)
    text = "module \\a.b (x);\n  wire \\x.y ;\n  \\a.b  inner (\n"
    assert fields_named(text) == text.replace(r"\x.y ", r"\x__y ")


def replayed(commands: str) -> list[tuple[str, str, str]]:
    """Return group, signal and format of all rows that Surfer shows after the commands.

    The commands that close groups are left out. A new signal comes after the focused row, in its
    group, and gets the focus. Without a focus, the signal becomes the last row. A new group takes
    the place of the focused row, contains this row, and gets the focus.
    """
    rows: list[list[str]] = []
    focus: int | None = None
    for line in commands.splitlines():
        command, _, words = line.partition(" ")
        assert re.fullmatch(COMMANDS[command], words), line
        if command == "group_fold_all":
            break
        if command == "variable_add":
            place = len(rows) if focus is None else focus + 1
            rows.insert(place, ["" if focus is None else rows[focus][0], words, ""])
            focus = None if focus is None else place
        elif command == "item_focus":
            focus = int("".join(f"{ord(each) - ord('a'):x}" for each in words[:-1]), 16)
            assert focus < len(rows)
        elif command == "item_unfocus":
            focus = None
        elif command == "item_set_format":
            assert focus is not None
            rows[focus][2] = words
        elif command == "group_marked":
            assert focus is not None
            rows[focus][0] = f"{rows[focus][0]}/{words}".lstrip("/")
            rows.insert(focus, [rows[focus][0], "", ""])
    return [(group, signal, named) for group, signal, named in rows if signal]


def test_both_show_the_same(tmp_path: Path):
    """Check that Surfer's commands show groups in order, values by name, and a marker."""
    program = assemble("nop\nhalt")
    text = convert(Small(), "tpu")
    save_files(tmp_path / "my w.fst", text, "tpu", cycle=2, scope="t.", marker=70, program=program)
    commands = (tmp_path / "my w.sucl").read_text()
    shown = [
        (group.name, f"t.{each.path}", f"my_w_{each.names.name}" if each.names else "")
        for group in groups(text, "tpu", program)
        for each in group.signals
    ]
    assert replayed(commands) == shown
    assert ("tpu", "t.tpu.now", "my_w_Weather") in shown
    assert [group for group, _, _ in shown] == ["instructions"] * 3 + ["tpu"] * (len(shown) - 3)
    # The last commands close all groups but the first, and set the marker.
    assert commands.splitlines()[-6:] == [
        *("group_fold_all", "item_focus a_", "group_unfold_recursive", "item_unfocus"),
        *("marker_set look_here 70", "cursor_set 70"),
    ]
    mapping = (tmp_path / ".surfer/mappings/my_w_program.txt").read_text()
    assert mapping == "Name = my_w_program\nBits = 28\n0x0 nop\n0x1 halt\n"
    mapping = (tmp_path / ".surfer/mappings/my_w_Weather.txt").read_text()
    assert mapping == "Name = my_w_Weather\nBits = 2\n0x0 SUN\n0x2 RAIN\n"
    gtkwave = (tmp_path / "my w.gtkw").read_text()
    assert f"@2022\n^1 {tmp_path / 'my w.Weather.txt'}\nt.tpu.now[1:0]\n" in gtkwave
    assert (tmp_path / "my w.Weather.txt").read_text() == "0 SUN\n2 RAIN\n"


@pytest.mark.thorough
def test_states_of_the_machine():
    """Check that all states of the machine have names, the same for each kind of state.

    All states are enumerations. So there is no state machine of Amaranth's own kind, which would
    have a register fsm_state.
    """
    verilog = verilog_of(preset("tiny"), promises=True)
    assert "fsm_state" not in verilog
    shown: list[Group] = list(groups(verilog, "tpu", b""))
    named = {each.path: each.names for group in shown for each in group.signals if each.names}
    kinds = {names.name: names for names in named.values()}
    assert all(kinds[names.name] == names for names in named.values())
    for kind in (Fault, Response, Pause, Phase):
        assert kinds[kind.__name__].texts == {each.value: each.name for each in kind}
    assert set(re.findall(r'enum_base_type = "(\w+)"', verilog)) < set(kinds)
    planner = "tpu.core.activation_unit.planner"
    assert named[f"{planner}.step_pause"].name == "Pause"
    assert named[f"{planner}.steps__payload__phase"].name == "Phase"
    assert named["tpu.core.error__cause"].name == "Fault"
