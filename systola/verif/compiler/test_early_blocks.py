# SPDX-License-Identifier: Apache-2.0
"""Tests of convolutions that begin with the first blocks of channels of an incomplete source.

Most tests have a depthwise convolution as the source. The lanes of the activation unit make some
rows of the depthwise convolution, and the array makes the other rows.
"""

from __future__ import annotations

import pytest

from systola.compiler.lower import lowering
from systola.verif.compiler.test_few_channels import Shape, Writer, check, cycles_of
from systola.verif.plan.selection import thorough


def network(shape: Shape, channels: int) -> Writer:
    """Write a network with a depthwise convolution; lanes and array share each block."""
    writer = Writer(shape, (1, 1), (1, 1), channels)
    writer.depthwise()
    writer.pointwise(channels + 3)
    return writer


@pytest.mark.parametrize(
    ("shape", "channels"), [((25, 5, 64), 64), ((12, 12, 20), 90), ((6, 6, 40), 75)]
)
@pytest.mark.parametrize(
    ("machine", "batch"), [("base", 1), ("base", 2), thorough("6x10", 2), thorough("4x4", 1)]
)
def test_every_byte(shape: Shape, channels: int, machine: str, batch: int) -> None:
    check(network(shape, channels).content, shape, machine, batch)


def test_a_convolution_does_not_wait_for_its_last_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Check that a convolution begins before the last block of its source is complete.

    A separate Convolve takes the first two of four blocks while the lanes still work on the last
    block. Without this Convolve, the convolution would end at least 90 cycles later.
    """
    content = network((25, 5, 64), 64).content
    early = cycles_of(content)
    monkeypatch.setattr(lowering, "begin_early", lambda steps, _: steps[-1])
    assert early < cycles_of(content) - 90


def test_poolings_between_results() -> None:
    """Check a dense layer that begins while a pooling still makes its inputs block by block."""
    shape = (12, 10, 64)
    writer = Writer(shape, (1, 1), (1, 1), 64)
    writer.average()
    writer.dense(12)
    check(writer.content, shape, "base", 1)
