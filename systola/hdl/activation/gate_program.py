# SPDX-License-Identifier: Apache-2.0
"""The microprograms of the functions SIGMOID, TANH and EXP, and of reciprocals.

Source of the arithmetic: gemmlowp, fixedpoint/fixedpoint.h, `logistic`, `tanh` and
`exp_on_negative_values` of a FixedPoint<int16_t, n>. The product of two int16 is
(a * b + 2^14) >> 15 there. It would saturate for two factors of -32768, which do not occur. A sum
may be 32768, but is never further outside of int16.

A row of a program multiplies and then adds. The next row uses its sum. The adder never shifts:
products with powers of two take the place of shifts, and round as the formula asks for.

EXP with RECIPROCAL or INVERSE_ROOT in `table` is 1/x or 1/sqrt(x). Both come from one program, with
Newton's iteration y + y (1 - x y^2) / 2.
"""

from typing import Any

from systola.hdl.activation.gate_lane import (
    ALWAYS,
    FACTORS,
    HIGHEST,
    POSITIVE,
    ZERO,
    Addend,
    First,
    ProductTerm,
    Second,
)

QUARTER, HALF = 1 << 13, 1 << 14
"""Factors 1/4 and 1/2 with 15 fractional bits; a product with one of them is rounded half up."""
ALMOST_ONE = HIGHEST
"""A factor just below one: its rounded product with a number from 0 to 2^14 is this number."""
MINUS_ONE = -1 << 15
"""Minus one with 15 fractional bits: a factor that negates."""
EXP_OF_EIGHTH = 28918
"""exp(-1/8) with 15 fractional bits."""
ONE_THIRD = 10923
EXPONENTIALS = (25520, 19875, 12055, 4435, 600, 11, 0)
"""exp(-2^e) for e = -2 .. 4, with 15 fractional bits."""
START_OFFSET = 23130
"""48/17 with 13 fractional bits. The first guess of 1/d for 1/2 <= d <= 1 is 48/17 - 32/17 * d."""
START_SLOPE = -15420
"""-32/17 with 13 fractional bits."""
ITERATIONS = 3
"""Iterations of the Newton-Raphson method for 1/d."""
ROOT_SLOPE = 15500
"""A slope with 14 fractional bits. The first guess of 1/sqrt(x) for 1/4 < x <= 1 is 2 - slope *
x.
"""
ROOT_ITERATIONS = 3
_QUARTER_BITS = (0, 1)
"""Numbers of two conditions: bit 0 and bit 1 of the number of whole quarters in the argument."""
ONE = 1 << 13
"""1 with 13 fractional bits."""

Row = dict[str, Any]
"""A row of a program: the fields of GateControl that are not zero, by name.

A row takes several steps, and each field is used in one of these steps.
"""


def _add(*, condition: int = ALWAYS, **fields: Any) -> Row:
    """Return a row that adds, but does not multiply."""
    return {"update": 1, "condition": condition, **fields}


def _product(*, term: ProductTerm = ProductTerm.ROUNDED, **fields: Any) -> Row:
    """Return a row that multiplies, and adds a number to the product."""
    return _add(multiply=1, product=term, **fields)


def _double(**fields: Any) -> Row:
    """Return a row that doubles the value of a vector."""
    return _add(addend=Addend.VALUE, doubles=1, **fields)


def _exponential() -> list[Row]:
    """Return the rows that compute exp(argument); the result is wrong for the argument 0."""
    # exp(x - 1/8) = c + c * (x + ((x^4 / 4 + x^3) / 3 + x^2) / 2), -1/8 <= x < 1/8.
    rows = [
        _product(first=First.ARGUMENT, second=Second.ARGUMENT, save=1),  # x^2
        _product(second=Second.SAVED),  # x^4
        _product(constant=QUARTER),
        _product(first=First.ARGUMENT, second=Second.SAVED, addend=Addend.VALUE),  # x^3
        _product(constant=ONE_THIRD, addend=Addend.SAVED),
        _product(constant=HALF, addend=Addend.ARGUMENT),
        _product(constant=EXP_OF_EIGHTH, offset=EXP_OF_EIGHTH),
    ]
    # The argument is x - 1/8 less a sum of powers 2^e. Multiply by exp(-2^e) for each of these
    # powers.
    factors = [_product(constant=EXPONENTIALS[n], condition=n) for n in range(FACTORS)]
    return rows + factors


def microprogram(*, tanh: bool) -> list[Row]:
    """Return the rows of SIGMOID or TANH."""
    # With the exponential e: d = (1 + e) / 2, rounded down, and then 1 / d.
    rows = [
        *_exponential(),
        _product(constant=-HALF, term=ProductTerm.NEGATED, offset=HALF, keep=1),
        _product(constant=START_SLOPE, offset=START_OFFSET, save=1),
    ]
    for _ in range(ITERATIONS):
        rows += [
            _product(second=Second.SPARE, term=ProductTerm.NEGATED, offset=ONE),  # 1 - d * y
            # y + y * (1 - d * y)
            _product(second=Second.SAVED, term=ProductTerm.QUADRUPLE, addend=Addend.SAVED, save=1),
        ]
    # For the absolute value of the argument, SIGMOID is 1/d / 2 = 1 / (1 + e), and TANH is
    # 1/d - 1 = (1 - e) / (1 + e), now with 15 fractional bits.
    if tanh:
        rows.append(_product(constant=ALMOST_ONE, term=ProductTerm.QUADRUPLE, offset=MINUS_ONE))
    else:
        rows.append(_double())
    # tanh(-x) = -tanh(x), sigmoid(-x) = 1 - sigmoid(x). The first row makes the result of a
    # negative argument. For a positive argument the second row goes back: so the value 2^15 also
    # passes a product, which turns it into 2^15 - 1. For the argument 0 the last row sets the
    # result.
    opposite, middle = (0, 0) if tanh else (HIGHEST, HALF)
    return [
        *rows,
        _product(constant=MINUS_ONE, offset=opposite),
        _product(constant=MINUS_ONE, offset=opposite, condition=POSITIVE),
        _add(offset=middle, condition=ZERO),
    ]


def inverse_program() -> tuple[list[Row], int]:
    """Return the program of 1/x, and the number of its row that squares 1/sqrt(x) to get 1/x."""
    # Let c be the argument modulo 1/4, less 1/8. The first rows make half of -x - c. It is -3, -5
    # or -7 times 2^11 for 1, 2 or 3 whole quarters in the argument. For 0 quarters, and for 4 (the
    # argument 0), the last rows set the results.
    rows = [
        _add(offset=3 << 11),
        _add(offset=-5 << 11, condition=_QUARTER_BITS[1]),
        _product(constant=HALF, offset=-9 << 10, condition=_QUARTER_BITS[0]),
        _product(constant=HALF, term=ProductTerm.QUADRUPLE, addend=Addend.ARGUMENT, keep=1),  # -x
        _product(constant=ROOT_SLOPE, offset=HIGHEST, save=1),  # y
    ]
    for _ in range(ROOT_ITERATIONS):
        rows += [
            _product(second=Second.SAVED),
            _product(second=Second.SPARE, offset=ONE),  # e = 1 - x y^2
            _double(),
            _product(second=Second.SAVED, addend=Addend.SAVED, save=1),
        ]
    square = len(rows)
    rows += [
        _product(second=Second.SAVED, save=1),
        _add(offset=HIGHEST),
        *(_add(addend=Addend.SAVED, condition=condition) for condition in _QUARTER_BITS),
        _add(offset=HIGHEST, condition=ZERO),
    ]
    return rows, square


PROGRAMS = {name: microprogram(tanh=name == "tanh") for name in ("sigmoid", "tanh")}
INVERSE, SQUARE_ROW = inverse_program()
"""The program of 1/x, and the number of its row that squares 1/sqrt(x). The function 1/sqrt(x)
skips this row.

The program is no longer than PROGRAMS.
"""
ROWS = len(PROGRAMS["tanh"])
"""Number of rows in the programs of SIGMOID and TANH."""
EXP_ROWS = len(_exponential())
"""Number of rows of EXP. SIGMOID and TANH begin with the same rows.

For the argument 0, the last row of SIGMOID or TANH sets the result of EXP, too."""
LAST_PRODUCT = max(
    number
    for rows in (*PROGRAMS.values(), INVERSE)
    for number, row in enumerate(rows)
    if row.get("multiply")
)
"""Number of the last row, over all programs, that multiplies."""
