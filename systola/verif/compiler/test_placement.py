# SPDX-License-Identifier: Apache-2.0
"""Tests of where the compiler places channels in lines, and lines in the unified buffer."""

from __future__ import annotations

import numpy as np
import pytest

from systola.compiler.errors import CompileError
from systola.compiler.lower.channels import Channels, channel_layouts
from systola.compiler.lower.feature_map import Lines
from systola.compiler.lower.placement import Life, place
from systola.compiler.operations import Operations, Slice, Unary, Value
from systola.verif.kit.seeds import random_seed


def test_slots() -> None:
    layout = Channels((5, 3, 4), 4)
    assert layout.slots.tolist() == [0, 1, 2, 3, 4, 8, 9, 10, 12, 13, 14, 15]
    assert (layout.count, layout.blocks) == (12, 4)
    assert layout.cut(5, 3) == (2, Channels((3,), 4))
    assert layout.cut(5, 7) == (2, Channels((3, 4), 4))
    assert layout.cut(0, 4) == (0, Channels((4,), 4))
    for start, count in ((1, 4), (6, 2), (3, 2)):
        with pytest.raises(CompileError, match="not whole blocks"):
            layout.cut(start, count)


def test_cuts_spread() -> None:
    """Check that a Slice cuts the channels of its operand, and of all values that operations
    connect.
    """
    source, middle, part, last, inner = (
        Value(name, (1, count))
        for name, count in (("a", 10), ("b", 10), ("c", 4), ("d", 4), ("e", 2))
    )
    nodes = (
        Unary(operator="", source=source, result=middle),
        Slice(operator="", source=middle, result=part, axis=1, start=3),
        Unary(operator="", source=part, result=last),
        Slice(operator="", source=source, result=inner, axis=1, start=4),
    )
    layouts = channel_layouts(Operations((source,), (last,), nodes), 4)
    assert layouts[source].parts == layouts[middle].parts == (3, 1, 2, 1, 3)
    assert layouts[part].parts == layouts[last].parts == (1, 2, 1)


def test_places_never_overlap() -> None:
    rng = np.random.default_rng(random_seed())
    refused = hopeless = 0
    for _ in range(300):
        lives: list[Life] = []
        for number in range(int(rng.integers(1, 20))):
            first = int(rng.integers(0, 12))
            last = first + int(rng.integers(0, 5))
            lines = Lines(f"{number}", int(rng.integers(1, 30)))
            lives.append(Life(lines, first, last, f"operator {number}"))
        size = int(rng.integers(40, 200))
        try:
            places = place(lives, size)
        except CompileError:
            refused += 1
            most = max(
                sum(life.lines.count for life in lives if life.first <= step <= life.last)
                for step in range(20)
            )
            # A refusal is hopeless if the lines in use at one step exceed the buffer. Otherwise
            # only holes between placed lines are in the way.
            hopeless += most > size
            continue
        taken = np.zeros((20, size), np.int64)
        for life in lives:
            at = places[life.lines]
            assert at >= 0 and at + life.lines.count <= size
            taken[life.first : life.last + 1, at : at + life.lines.count] += 1
        assert taken.max() == 1
    # Each of the 300 cases is refused with the same probability. With 20 seeds 54 to 76 were
    # refused, 66 on average. So the bounds 10 and 250 are over seven standard deviations away. 97 %
    # of the refusals are hopeless.
    assert 10 < refused < 250
    assert hopeless > 0.7 * refused
