# SPDX-License-Identifier: Apache-2.0
"""What one unit promises another."""

from amaranth.hdl import Assert, Module, ResetSignal, Signal, Value
from amaranth.lib import data


def promised(m: Module, platform: object, condition: Value, message: str) -> None:
    """Asserts at each clock edge but those of a reset what a unit has been promised by those that
    use it: its docstring says what. Simulations and proofs check it, whose platforms have
    `promises`; in hardware it is not there."""
    if _checks(platform):
        m.d.sync += Assert(ResetSignal(allow_reset_less=True) | condition, f"{message}\n")


def promised_to_stay(
    m: Module, platform: object, needed: Value, payload: data.View, message: str
) -> None:
    """The same, that a payload is what it was in the cycle before while it is `needed`."""
    if _checks(platform):
        now = payload.as_value()
        before = Signal.like(now)
        m.d.sync += before.eq(now)
        promised(m, platform, ~needed | (now == before), message)


def _checks(platform: object) -> bool:
    return getattr(platform, "promises", False)
