# SPDX-License-Identifier: Apache-2.0
"""The test of the pipelined requantiser against the scalar formula of gemmlowp and LiteRT."""

import itertools
import os

import cocotb
import pytest

from systola.arch.isa import Rounding
from systola.hdl.activation.requantiser import Requantiser
from systola.verif.golden.scalar import (
    clamped,
    double,
    rdbpot,
    saturate32,
    single,
    srdhm,
    wrap32,
)
from systola.verif.units.unit import Bench, chosen_variant, rng, run_unit, variants

BITS = {"int16": 16, "int8": 8, "lends": 16, "dithers": 16}
LATENCY, MULTIPLIER_STAGE, ROUNDING_STAGE, OFFSET_STAGE, CLAMP_STAGE = 10, 2, 6, 8, 9
SHIFT_STAGE, DITHER_STAGE = 5, 7
LENT_LATENCY = 2
NUMBER_LATENCY = 8
RANDOM = 4000
HALF = 8
"""The random number that has no effect on the rounding."""
LOWEST, HIGHEST = -(1 << 31), (1 << 31) - 1
STAGES = {
    0: ("accumulator", "sum", "use_sum", "scales", "element", "bias", "shift_left"),
    MULTIPLIER_STAGE: ("multiplier",),
    SHIFT_STAGE: ("shift_right",),
    ROUNDING_STAGE: ("rounding",),
    DITHER_STAGE: ("dither",),
    OFFSET_STAGE: ("offset",),
    CLAMP_STAGE: ("low", "high"),
}
"""Names of the requantiser's inputs, by the number of cycles by which they come after the value."""


def unit(variant=None):
    chosen = variant or chosen_variant()
    dithers = chosen == "dithers"
    return Requantiser(bits=BITS[chosen], lends=chosen == "lends" or dithers, dithers=dithers)


def ends():
    """Return the least and the greatest result of the present variant."""
    half = 1 << (BITS[chosen_variant()] - 1)
    return -half, half - 1


def dithered():
    """Return whether the present variant of the unit takes random numbers for its rounding."""
    return chosen_variant() == "dithers"


def expected(value):
    """Return the expected result for one dict of inputs, calculated in plain numbers."""
    taken = value["sum"] if value["use_sum"] else value["accumulator"]
    x = saturate32(wrap32(taken + value["bias"]) << value["shift_left"])
    right = value["shift_right"]
    if dithered() and value["dither"] != HALF:
        y = (x * value["multiplier"] + (value["dither"] << 27 + right)) >> 31 + right
    elif value["rounding"] == Rounding.SINGLE:
        y = single(x, value["multiplier"], -right)
    else:
        y = rdbpot(srdhm(x, value["multiplier"]), right)
        if value["shift_left"] == 0:
            assert y == double(x, value["multiplier"], -right)
    return clamped(y + value["offset"], value["low"], value["high"])


def make(
    accumulator, bias, multiplier, left, right, rounding, offset=0, low=None, high=None, dither=HALF
):
    """Return a dict of inputs of the requantiser; bounds that are not given are the ends of the
    range.
    """
    lowest, highest = ends()
    # The value comes in through one of two ports, and the other port has another value.
    use_sum, other = accumulator & 1, ~accumulator
    return {
        "accumulator": other if use_sum else accumulator,
        "sum": accumulator if use_sum else other,
        "use_sum": use_sum,
        "scales": 0,
        "element": 0,
        "bias": bias,
        "multiplier": multiplier,
        "shift_left": left,
        "shift_right": right,
        "rounding": rounding,
        **({"dither": dither} if dithered() else {}),
        "offset": offset,
        "low": lowest if low is None else low,
        "high": highest if high is None else high,
    }


def corners():
    """Return inputs at ends of all ranges, ties of both signs, sums that wrap, shifts that
    saturate.
    """
    values = []
    sums = ((LOWEST, 0), (HIGHEST, 0), (HIGHEST, 1), (LOWEST, -1), (0, 0), (-1, 0), (1, 0))
    factors = (0, 1, 1 << 30, (1 << 31) - 1)
    shifts = ((0, 0), (0, 1), (0, 31), (1, 0), (7, 0), (7, 31))
    for (a, b), q, (left, right), mode in itertools.product(sums, factors, shifts, Rounding):
        values.append(make(a, b, q, left, right, mode))
    for a, right, mode in itertools.product(range(-12, 13), (0, 1, 2), Rounding):
        values.append(make(a, 0, 1 << 30, 0, right, mode))
    if dithered():
        # Test each sixteenth of a fraction with each random number. Bits below a sixteenth, all 0
        # or all 1 here, must make no difference.
        for t, a, right in itertools.product(range(16), range(-16, 16), (3, 4, 9)):
            for rest in (0, (1 << right - 3) - 1):
                value = (a << right - 3) + rest
                values.append(make(value, 0, 1 << 30, 0, right, Rounding.SINGLE, dither=t))
        for t, a in itertools.product(range(16), range(-8, 8)):
            values.append(make(a, 0, 1 << 28, 0, 0, Rounding.SINGLE, dither=t))
    lowest, highest = ends()
    for a, offset, (low, high) in itertools.product(
        (LOWEST, -1, 0, 1, HIGHEST),
        (lowest, 0, highest),
        ((lowest, highest), (3, 5), (-3, -3), (lowest, lowest), (highest, highest)),
    ):
        values.append(make(a, 0, (1 << 31) - 1, 0, 0, Rounding.DOUBLE, offset, low, high))
    return values


def some(random):
    """Return random inputs of the requantiser; most of the results are within the bounds."""
    lowest, highest = ends()
    kept = BITS[chosen_variant()]
    bits = random.randint(1, 31)
    right = max(0, bits - random.randint(kept - 3, kept + 1))
    if random.random() < 0.3:
        right = random.randint(0, 31)
    bounds = sorted((random.randint(lowest, highest), random.randint(lowest, highest)))
    if random.random() < 0.6:
        bounds = lowest, highest
    rounding = random.choice(list(Rounding))
    dither = random.choice((HALF, random.randrange(16))) if rounding == Rounding.SINGLE else HALF
    return make(
        random.randint(-(1 << bits), (1 << bits) - 1),
        random.randint(-(1 << bits), (1 << bits) - 1) if bits < 31 else random.choice((LOWEST, 1)),
        random.randint(1 << 30, (1 << 31) - 1) if random.random() < 0.7 else random.getrandbits(31),
        random.choice((0, 0, 0, 1, 7)),
        right,
        rounding,
        random.randint(lowest, highest),
        *bounds,
        dither,
    )


def an_element(random):
    """Return inputs for an element that is scaled, as in the lanes.

    An int8 is shifted further than an int16.
    """
    kept = BITS[chosen_variant()]
    wide = kept == 16 and random.getrandbits(1)
    most = (1 << (16 if wide else 8)) - 1
    value = some(random) | {"scales": 1, "shift_left": 0 if wide else 5}
    value |= {"dither": HALF} if dithered() else {}
    return value | {
        "element": random.choice((0, 1, -1, most, -most, random.randint(-most, most))),
        "multiplier": random.choice((0, 1 << 30, (1 << 31) - 1, random.getrandbits(31))),
        "shift_right": random.choice((0, 0, 1, 31, random.randint(0, 31))),
        "rounding": int(Rounding.DOUBLE),
    }


def scaled(value):
    """Return the scaled element, by the function f in the text of instruction Vector."""
    k = 11 if value["shift_left"] else 16
    h, r = (value["element"] * value["multiplier"] + (1 << (k - 1))) >> k, value["shift_right"]
    return wrap32(h if r == 0 else (h + (1 << (r - 1)) - (h < 0)) >> r)


async def stream(bench, values):
    """Give the unit one value a cycle, and check each result exactly LATENCY cycles later."""
    for cycle in range(len(values) + LATENCY):
        now = {}
        for stage, names in STAGES.items():
            if 0 <= cycle - stage < len(values):
                value = values[cycle - stage]
                now |= {name: value[name] for name in names if name in value}
        await bench.cycle(**now)
        if cycle >= LATENCY:
            value = values[cycle - LATENCY]
            assert value["scales"] or bench.get("result") == expected(value), f"{value}"
        if 0 <= cycle - NUMBER_LATENCY < len(values):
            value = values[cycle - NUMBER_LATENCY]
            if value["scales"]:
                number = wrap32(bench.get("number") + bench.get("carry"))
                assert number == scaled(value), f"{value}"


@cocotb.test
async def corner_values(dut):
    bench = Bench(dut, unit())
    await bench.start()
    await stream(bench, corners())


@cocotb.test
async def random_values(dut):
    bench = Bench(dut, unit())
    await bench.start()
    random = rng("requantiser")
    await stream(bench, [some(random) for _ in range(RANDOM)])


@cocotb.test
async def scaled_elements(dut):
    """Check elements that are scaled, in any order among values that are requantised."""
    bench = Bench(dut, unit())
    await bench.start()
    random = rng("requantiser", "scaled")
    await stream(bench, [random.choice((some, an_element))(random) for _ in range(RANDOM)])


@cocotb.test(skip=os.environ.get("TPU_UNIT_VARIANT") not in ("lends", "dithers"))
async def borrowed_multiplier(dut):
    """Check that products for other users are right, and do not change the unit's own values.

    Other users get products in cycles in which the unit has no products of its own.
    """
    bench = Bench(dut, unit())
    await bench.start()
    random = rng("requantiser", "borrowed")
    values, products = {}, {}
    for cycle in range(RANDOM):
        now = {"borrow": random.random() < 0.5 and cycle - MULTIPLIER_STAGE not in values}
        if now["borrow"]:
            now |= {
                name: random.choice((-32768, 32767, random.randint(-32768, 32767)))
                for name in ("first", "second")
            }
            products[cycle + LENT_LATENCY] = now["first"] * now["second"]
        if random.random() < 0.5:
            values[cycle] = some(random)
        for stage, names in STAGES.items():
            if value := values.get(cycle - stage):
                now |= {name: value[name] for name in names if name in value}
        await bench.cycle(**now)
        if value := values.get(cycle - LATENCY):
            bench.expect("result", expected(value), f"{value}")
        if cycle in products:
            bench.expect("lent", products[cycle])
    assert len(products) > RANDOM // 8


@pytest.mark.parametrize(("simulator", "variant"), variants(*BITS))
def test_requantiser(simulator, variant):
    assert (Requantiser.LATENCY, Requantiser.MULTIPLIER_STAGE) == (LATENCY, MULTIPLIER_STAGE)
    assert Requantiser.SHIFT_STAGE == SHIFT_STAGE
    assert (Requantiser.ROUNDING_STAGE, Requantiser.OFFSET_STAGE) == (ROUNDING_STAGE, OFFSET_STAGE)
    assert (Requantiser.DITHER_STAGE, Requantiser.CLAMP_STAGE) == (DITHER_STAGE, CLAMP_STAGE)
    assert Requantiser.LENT_LATENCY == LENT_LATENCY
    assert Requantiser.NUMBER_LATENCY == NUMBER_LATENCY
    run_unit("test_requantiser", simulator, unit(variant), variant=variant)
