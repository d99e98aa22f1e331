# SPDX-License-Identifier: Apache-2.0
"""The clock of the machine, which the PLL of the FPGA makes from the board's clock."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from amaranth.hdl import ClockDomain, ClockSignal, Const, Instance, Module, Signal
from amaranth.lib import io
from amaranth.lib.cdc import ResetSynchronizer
from amaranth.vendor import GowinPlatform, LatticeECP5Platform

from systola.arch.config import ConfigError
from systola.hdl.parts.fabric import Fabric, fabric_of


@dataclass(frozen=True)
class PllSettings:
    """A setting of a PLL: output = input * feedback / reference.

    The oscillator runs `divider` times as fast as the output.
    """

    hz: float
    reference: int
    feedback: int
    divider: int


def ecp5_pll(input_hz: float, wanted_hz: float) -> PllSettings:
    """Return the settings of the EHXPLLL that come nearest to a frequency, in hertz.

    Source: Lattice FPGA-DS-02012, "sysCLOCK PLL Timing".
    """
    found = [
        PllSettings(hz, reference, feedback, divider)
        for reference in range(1, 129)
        if input_hz / reference >= 3.125e6
        for feedback in range(1, 81)
        for divider in range(1, 129)
        if 10e6 <= (hz := input_hz * feedback / reference) <= 400e6
        and 400e6 <= hz * divider <= 800e6
    ]
    return _nearest(found, wanted_hz)


def ice40_pll(input_hz: float, wanted_hz: float) -> PllSettings:
    """Return the settings of the SB_PLL40_PAD that come nearest to a frequency, in hertz.

    Dividers are powers of two. Source: Lattice FPGA-TN-02052, "iCE40 sysCLOCK PLL Design and User
    Guide".
    """
    found = [
        PllSettings(input_hz * feedback / reference / divider, reference, feedback, divider)
        for reference in range(1, 17)
        if 10e6 <= input_hz / reference <= 133e6
        for feedback in range(1, 129)
        if 533e6 <= input_hz * feedback / reference <= 1066e6
        for divider in (2, 4, 8, 16, 32, 64)
    ]
    return _nearest(found, wanted_hz)


def gowin_pll(input_hz: float, wanted_hz: float) -> PllSettings:
    """Return the settings of the rPLL of a GW2A that come nearest to a frequency, in hertz.

    Sources: Gowin UG286, "Gowin Clock User Guide"; DS102, "GW2A series of FPGA Products", speed C8.
    """
    found = [
        PllSettings(hz, reference, feedback, divider)
        for reference in range(1, 65)
        if input_hz / reference >= 3e6
        for feedback in range(1, 65)
        for divider in (2, 4, 8, *range(16, 129, 16))
        if 3.90625e6 <= (hz := input_hz * feedback / reference) <= 625e6
        and 500e6 <= hz * divider <= 1250e6
    ]
    return _nearest(found, wanted_hz)


def gatemate_pll(input_hz: float, wanted_hz: float) -> PllSettings:
    """Return the settings of the CC_PLL that come nearest to a frequency, in hertz.

    The block takes frequencies, for which nextpnr chooses the dividers, within these limits of the
    mode ECONOMY. Source: Cologne Chip UG1001, "Primitives Library".
    """
    found = [
        PllSettings(input_hz * feedback / divider, 1, feedback, divider)
        for feedback in range(1, 201)
        if 1e9 < 2 * input_hz * feedback <= 2e9
        for divider in range(4, 257, 4)
    ]
    return _nearest(found, wanted_hz)


def _nearest(found: list[PllSettings], wanted_hz: float) -> PllSettings:
    best = min(found, key=lambda settings: abs(settings.hz - wanted_hz))
    if abs(best.hz - wanted_hz) > 0.02 * wanted_hz:
        raise ConfigError(
            f"the board's PLL makes no {wanted_hz / 1e6:g} MHz, the nearest is "
            f"{best.hz / 1e6:g} MHz"
        )
    return best


def pll_settings(platform: Any, wanted_hz: float) -> PllSettings:
    """Return the settings for the FPGA of an Amaranth platform."""
    make = ice40_pll
    if isinstance(platform, LatticeECP5Platform):
        make = ecp5_pll
    elif isinstance(platform, GowinPlatform):
        make = gowin_pll
    elif fabric_of(platform) is Fabric.GATEMATE:
        make = gatemate_pll
    return make(platform.default_clk_frequency, wanted_hz)


def add_clock(m: Module, platform: Any, settings: PllSettings) -> None:
    """Add the domain `sync` with the clock of the PLL, in reset until the clock is stable."""
    m.domains.sync = domain = ClockDomain()
    platform.add_clock_constraint(domain.clk, settings.hz)
    locked = Signal()
    pin = platform.request(platform.default_clk, dir="-")
    if isinstance(platform, LatticeECP5Platform):
        m.submodules.clock_pin = pin = io.Buffer("i", pin)
        m.submodules.pll = Instance(
            "EHXPLLL",
            p_CLKI_DIV=settings.reference,
            p_CLKFB_DIV=settings.feedback,
            p_CLKOP_DIV=settings.divider,
            p_CLKOP_CPHASE=settings.divider - 1,
            p_CLKOP_ENABLE="ENABLED",
            p_FEEDBK_PATH="CLKOP",
            i_CLKI=pin.i,
            i_CLKFB=ClockSignal(),
            i_RST=Const(0),
            i_STDBY=Const(0),
            i_ENCLKOP=Const(0),
            o_CLKOP=ClockSignal(),
            o_LOCK=locked,
        )
    elif isinstance(platform, GowinPlatform):
        m.submodules.clock_pin = pin = io.Buffer("i", pin)
        m.submodules.pll = Instance(
            "rPLL",
            p_FCLKIN=f"{platform.default_clk_frequency / 1e6:g}",
            p_IDIV_SEL=settings.reference - 1,
            p_FBDIV_SEL=settings.feedback - 1,
            p_ODIV_SEL=settings.divider,
            p_CLKFB_SEL="internal",
            **{f"p_DYN_{which}_SEL": "false" for which in ("IDIV", "FBDIV", "ODIV")},
            p_DEVICE="GW2A-18C",
            i_CLKIN=pin.i,
            i_CLKFB=Const(0),
            i_RESET=Const(0),
            i_RESET_P=Const(0),
            **{f"i_{which}": Const(0, 6) for which in ("FBDSEL", "IDSEL", "ODSEL")},
            **{f"i_{which}": Const(0, 4) for which in ("PSDA", "DUTYDA", "FDLY")},
            o_CLKOUT=ClockSignal(),
            o_LOCK=locked,
        )
    elif fabric_of(platform) is Fabric.GATEMATE:
        m.submodules.clock_pin = pin = io.Buffer("i", pin)
        m.submodules.pll = Instance(
            "CC_PLL",
            p_REF_CLK=str(platform.default_clk_frequency / 1e6),
            p_OUT_CLK=str(settings.hz / 1e6),
            p_PERF_MD="ECONOMY",
            i_CLK_REF=pin.i,
            i_USR_CLK_REF=Const(0),
            i_CLK_FEEDBACK=Const(0),
            i_USR_LOCKED_STDY_RST=Const(0),
            o_USR_PLL_LOCKED=locked,
            o_CLK0=ClockSignal(),
        )
    else:
        m.submodules.pll = Instance(
            "SB_PLL40_PAD",
            p_FEEDBACK_PATH="SIMPLE",
            p_DIVR=settings.reference - 1,
            p_DIVF=settings.feedback - 1,
            p_DIVQ=settings.divider.bit_length() - 1,
            p_FILTER_RANGE=1,
            i_PACKAGEPIN=pin.io,
            i_RESETB=Const(1),
            i_BYPASS=Const(0),
            o_PLLOUTGLOBAL=ClockSignal(),
            o_LOCK=locked,
        )
    m.submodules.reset = ResetSynchronizer(~locked)
