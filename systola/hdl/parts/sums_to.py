# SPDX-License-Identifier: Apache-2.0
"""A check that two numbers have a given sum, without an addition."""

from amaranth.hdl import Cat, Const, Value, ValueLike


def sums_to(total: Value, a: ValueLike, b: ValueLike, carry: int) -> Value:
    """Return whether `a` + `b` + `carry` is `total`, modulo 2^bits of `total`.

    No carry passes from bit to bit, so the check is fast. If the sum is `total`, the bits of `a`,
    `b` and `total` at each place determine the carry in and the carry out. The check compares these
    carries of neighbouring places. Cortadella and Llabería, "Evaluation of A+B=K conditions without
    carry propagation", IEEE Transactions on Computers 41 (11), 1992.
    """
    width = len(total)
    a, b = (Cat(value, Const(0, width))[:width] for value in (a, b))
    goes_out = (a & b) | ((a | b) & ~total)
    return (a ^ b ^ total) == Cat(Const(carry, 1), goes_out)[:width]
