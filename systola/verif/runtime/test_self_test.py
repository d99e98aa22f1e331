# SPDX-License-Identifier: Apache-2.0
"""Tests of the self-test of a board: a working board passes all checks.

Each fault of a board fails the check that is meant to find it."""

from __future__ import annotations

from typing import Any

import pytest

from systola.arch.config import preset
from systola.cli import selftest
from systola.runtime.self_test import self_test
from systola.verif.cli.test_errors import run
from systola.verif.runtime.pretended_board import Faults, PretendedBoard

CONFIG = preset("tiny")
NAMES = ("line", "registers", "machine", "memory", "product", "network")


def test_all_is_well() -> None:
    checks = list(self_test(CONFIG, PretendedBoard(CONFIG)))
    assert tuple(check.name for check in checks) == NAMES
    assert all(check.detail and not check.problem and not check.skipped for check in checks)


def test_a_small_memory() -> None:
    """Check a board with 12 KiB of memory: all checks pass, but the network is skipped."""
    *rest, network = self_test(CONFIG, PretendedBoard(CONFIG, memory_bytes=12 << 10))
    assert len(rest) == len(NAMES) - 1 and not any(check.skipped for check in rest)
    assert network.skipped and not network.problem
    assert network.detail.endswith("the board has 12,288")


@pytest.mark.parametrize(
    ("faults", "name", "problem", "advice"),
    [
        ({"identity": 7}, "line", "no board: 0x00000007", "that of the board"),
        ({"version": 4}, "registers", "VERSION is 4", "build the bitstream again"),
        ({"register_bits": 0xFFFF_FFFD}, "registers", "BUS_TIMEOUT is 0xaaaaaaa8", "--mhz"),
        ({"address_bits": 0x0000_EFFF}, "memory", "8,192 of 16,384 words", "--mhz"),
        ({"data_bits": 0x7FFF_FFFF}, "memory", "the first at address 0x4: 0x1e3779b1", "--mhz"),
        ({"wrong_run": 1}, "product", "4096 of 4096 bytes are not numpy's", "report it"),
        ({"wrong_run": 2}, "network", "10 of 10 bytes are not LiteRT's", "report it"),
    ],
)
def test_faults(faults: dict[str, int], name: str, problem: str, advice: str) -> None:
    *before, last = self_test(CONFIG, PretendedBoard(CONFIG, faults=Faults(**faults)))
    assert not any(check.problem for check in before)
    assert last.name == name
    assert problem in last.problem and advice in last.advice


def test_another_machine() -> None:
    *_, last = self_test(preset("4x4"), PretendedBoard(CONFIG))
    assert last.name == "machine" and "not the machine '4x4'" in last.problem
    assert "--preset" in last.advice


def test_the_command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Check that `tpu selftest` prints a line for each check, and advice after a failed check.

    The exit status is 0 if all checks pass, and 1 if a check fails.
    """
    board = PretendedBoard(CONFIG)
    made: list[Any] = []
    monkeypatch.setattr(selftest, "SerialPort", lambda *given: made.append(given) or board)
    status, out, err = run("selftest --port /dev/ttyX --baud 115200", capsys)
    assert (status, err, made) == (0, "", [("/dev/ttyX", 115200)])
    lines = out.splitlines()
    assert [line.split()[:2] for line in lines] == [[name, "ok"] for name in NAMES]
    status, out, err = run("selftest --port /dev/ttyX --preset 4x4", capsys)
    assert (status, err) == (1, "")
    *_, failed, advice = out.splitlines()
    assert failed.startswith("machine    FAILED   an array of 4x4")
    assert advice.startswith("           check    give --preset")


def test_silence(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    board = PretendedBoard(CONFIG)
    monkeypatch.setattr(board, "write", lambda _: None)
    (check,) = self_test(CONFIG, board)
    assert check.name == "line" and "no answer from the board" in check.problem
    assert "is the bitstream loaded" in check.advice
