# SPDX-License-Identifier: Apache-2.0
"""What one unit promises another."""

from amaranth.hdl import Assert, Module, ResetSignal, Value


def promised(m: Module, platform: object, condition: Value, message: str) -> None:
    """Asserts at each clock edge but those of a reset what a unit has been promised by those that
    use it: its docstring says what. Simulations and proofs check it, whose platforms have
    `promises`; in hardware it is not there."""
    if getattr(platform, "promises", False):
        m.d.sync += Assert(ResetSignal(allow_reset_less=True) | condition, f"{message}\n")
