# SPDX-License-Identifier: Apache-2.0
"""Promises of one unit to another, checked in simulations and proofs."""

from amaranth.hdl import Assert, Cat, Module, ResetSignal, Signal, Value, ValueLike
from amaranth.lib import data


def promised(m: Module, platform: object, condition: Value, message: str) -> None:
    """Assert that `condition`, a promise to this unit, holds at each clock edge outside reset.

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


def promised_offer(
    m: Module,
    platform: object,
    valid: ValueLike,
    ready: ValueLike,
    payload: ValueLike,
    message: str,
) -> None:
    """Assert that an offer that is not taken stays in the next cycle, with its payload."""
    if _checks(platform):
        valid, now = Value.cast(valid), Value.cast(payload)
        waits = Signal()
        offered = Signal(len(now), reset_less=True)
        m.d.sync += [waits.eq(valid & ~Value.cast(ready)), offered.eq(now)]
        promised(m, platform, ~waits | (valid & (now == offered)), message)


def promised_next(
    m: Module, platform: object, foretold: Value, value: Value, message: str, *, init: int = 0
) -> None:
    """Assert that `value` equals `foretold` of the cycle before, or `init` in the first cycle."""
    if _checks(platform):
        expected = Signal(len(foretold), init=init)
        m.d.sync += expected.eq(foretold)
        promised(m, platform, value == expected, message)


def promised_apart(
    m: Module, platform: object, earlier: Value, later: Value, cycles: int, message: str
) -> None:
    """Assert that `later` is low `cycles` cycles, one or more, after each cycle with `earlier`."""
    if _checks(platform):
        passed = Signal(cycles)
        m.d.sync += passed.eq(Cat(earlier, passed))
        promised(m, platform, ~(passed[-1] & later), message)


def at_most_one(bits: Value) -> Value:
    """Return whether at most one of some bits is set."""
    return (bits & (bits - 1)[: len(bits)]) == 0


def _checks(platform: object) -> bool:
    return getattr(platform, "promises", False)
