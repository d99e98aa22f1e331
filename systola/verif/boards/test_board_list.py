# SPDX-License-Identifier: Apache-2.0
"""Tests that each board has a clock, a baud rate and a build script, without running its tools."""

from __future__ import annotations

import pytest
from amaranth.hdl import Module, Signal

from systola.arch.config import preset
from systola.boards.bitstream import platform_of
from systola.boards.board_design import uart_divisor
from systola.boards.board_list import BOARDS
from systola.boards.board_top import check_board
from systola.boards.clock import add_clock, gatemate_pll, gowin_pll, pll_settings
from systola.runtime.serial_port import DEFAULT_BAUD


@pytest.mark.parametrize("name", BOARDS)
def test_clock(name: str) -> None:
    """Check that a board can make its clock and baud rate, and has a valid memory size."""
    board = BOARDS[name]
    clock = pll_settings(platform_of(board), board.mhz * 1e6)
    assert clock.hz == pytest.approx(board.mhz * 1e6, rel=0.01)
    uart_divisor(clock, DEFAULT_BAUD)
    check_board(preset(board.preset), board.memory_bytes)


@pytest.mark.parametrize("mhz", [27, 50, 81, 100])
def test_gowin_clock(mhz: int) -> None:
    """Check that a Gowin PLL stays within its limits: phase detector, oscillator and output."""
    settings = gowin_pll(27e6, mhz * 1e6)
    assert settings.hz == 27e6 * settings.feedback / settings.reference
    assert settings.hz == pytest.approx(mhz * 1e6, rel=0.02)
    assert 27e6 / settings.reference >= 3e6
    assert 500e6 <= settings.hz * settings.divider <= 1250e6


@pytest.mark.parametrize("mhz", [20, 25, 50, 100])
def test_gatemate_clock(mhz: int) -> None:
    """Check that a GateMate PLL has an oscillator within the limits of its mode."""
    settings = gatemate_pll(10e6, mhz * 1e6)
    assert settings.hz == 10e6 * settings.feedback / settings.divider
    assert settings.hz == pytest.approx(mhz * 1e6, rel=0.02)
    assert 1e9 < 2 * 10e6 * settings.feedback <= 2e9
    assert settings.divider % 4 == 0


@pytest.mark.parametrize("name", BOARDS)
def test_build_script(name: str) -> None:
    """Check that a build script runs the board's tools only, and writes the board's bitstream."""
    board = BOARDS[name]
    platform = platform_of(board)
    m = Module()
    add_clock(m, platform, pll_settings(platform, board.mhz * 1e6))
    count = Signal(3)
    m.d.sync += count.eq(count + 1)
    plan = platform.prepare(m, "design", verbose=True, nextpnr_opts="--seed 7 --freq 50")
    script = plan.files["build_design.sh"]
    script = script if isinstance(script, str) else script.decode()
    used = {line.split(":=")[0][4:] for line in script.splitlines() if ":=" in line}
    # Amaranth's script names openFPGALoader, but does not run it.
    assert used - {"OPENFPGALOADER"} == set(board.tools)
    assert "--seed 7 --freq 50" in script
    assert f"design.{board.product}" in script
