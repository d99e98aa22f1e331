# SPDX-License-Identifier: Apache-2.0
"""Promises of one unit to another, checked in simulations and proofs."""

from amaranth.hdl import Assert, Module, ResetSignal, Signal, Value
from amaranth.lib import data


def promised(m: Module, platform: object, condition: Value, message: str) -> None:
    """Assert at each clock edge outside reset that `condition` holds, which is promised to a unit.

    The docstring of a unit has the promises that its users make. Simulations and proofs check them:
    their platforms have `promises`. In hardware the assertion does not exist.
    """
    if _checks(platform):
        m.d.sync += Assert(ResetSignal(allow_reset_less=True) | condition, f"{message}\n")


def promised_to_stay(
    m: Module, platform: object, needed: Value, payload: data.View, message: str
) -> None:
    """Assert that a payload does not change from one cycle to the next while it is `needed`."""
    if _checks(platform):
        now = payload.as_value()
        before = Signal.like(now)
        m.d.sync += before.eq(now)
        promised(m, platform, ~needed | (now == before), message)


def _checks(platform: object) -> bool:
    return getattr(platform, "promises", False)
