# SPDX-License-Identifier: Apache-2.0
"""Tests that `make xprop` finds unknown values that leave a unit, and reports no others."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from amaranth.hdl import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from systola.verif.xprop.__main__ import UNITS, main
from systola.verif.xprop.unit import check_unit


class Register(wiring.Component):
    """A unit with a register and a handshake; parameters can leave out its reset and enable."""

    def __init__(self, *, reset: bool, loads: bool):
        self._reset, self._loads = reset, loads
        super().__init__(
            {
                "load": In(1),
                "value": In(4),
                "output": Out(wiring.Signature({"valid": Out(1), "payload": Out(4)})),
                "held": Out(4),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        valid = Signal(reset_less=not self._reset)
        value = Signal(4, reset_less=True)
        m.d.sync += valid.eq(valid | self.load)
        with m.If(self.load if self._loads else self.value[0]):
            m.d.sync += value.eq(self.value)
        m.d.comb += [
            self.output.valid.eq(valid),
            self.output.payload.eq(value),
            self.held.eq(value),
        ]
        return m


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("reset", "loads", "unknown"),
    [
        (True, True, ()),
        (False, True, ("output__valid",)),
        (True, False, ("output__payload",)),
    ],
)
def test_planted(reset: bool, loads: bool, unknown: tuple[str, ...], tmp_path: Path) -> None:
    """Check that each of two planted faults makes an output unknown, and that others are known.

    The faults are a `valid` without a reset, and a payload that leaves before it was ever loaded.
    """
    found = check_unit(Register(reset=reset, loads=loads), tmp_path)
    assert found.unknown == unknown
    assert found.free == ("held",)
    assert set(found.known) == {"output__valid", "output__payload"} - set(unknown)


@pytest.mark.thorough
def test_a_unit(tmp_path: Path) -> None:
    """Check that the unit skid_buffer has no unknown output."""
    found = UNITS["skid_buffer"].check(tmp_path)
    assert set(found.known) == {"input__ready", "output__valid", "output__payload"}
    assert not found.unknown and not found.free


@pytest.mark.thorough
def test_legal_inputs(tmp_path: Path) -> None:
    """Check that a command queue has unknown outputs only with illegal inputs.

    An example is a command that is taken from an empty queue.
    """
    queue = UNITS["command_queue"]
    assert not queue.check(tmp_path / "legal").unknown
    assert replace(queue, legal=()).check(tmp_path / "any").unknown


def test_mistake(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["nix"]) == 2
    out, err = capsys.readouterr()
    assert not out and err.startswith("xprop: unknown unit 'nix'") and err.count("\n") == 1
