# SPDX-License-Identifier: Apache-2.0
"""Pooling."""

from __future__ import annotations

from dataclasses import dataclass

from systola.arch.config import Config
from systola.arch.isa import Opcode, Reduction, Rounding
from systola.compiler.errors import CompileError
from systola.compiler.lower.emitter import Emitter
from systola.compiler.lower.entries import common_entry, joined
from systola.compiler.lower.feature_map import FeatureMap
from systola.compiler.lower.step import MapStep
from systola.compiler.operations import (
    Pooling,
    Requantisation,
    Window,
    scalar_requantisation,
)


@dataclass(frozen=True, kw_only=True, eq=False)
class PoolingStep(MapStep):
    """Each window of a map reduced to a pixel."""

    reduction: Reduction
    window: Window
    floor: int
    ceiling: int
    output: Requantisation

    def emit(self, emitter: Emitter) -> None:
        source, target = self.source, self.target
        blocks = source.channels.blocks
        whole = source.plane == source.pixels and target.plane == target.pixels
        at_once = blocks if whole else 1
        parameter = emitter.parameters(self.output_entries)
        emitter.window(source, self.window)
        for block in range(0, blocks, at_once):
            emitter.emit(
                Opcode.POOL,
                buffer=emitter.line(source.lines, source.block(block)),
                destination=emitter.line(target.lines, target.block(block)),
                blocks=at_once,
                parameter=parameter,
                reduction=self.reduction,
                rounding=self.output.rounding,
                zero_point=self.output.zero_point,
                floor=self.floor,
                ceiling=self.ceiling,
            )


def pooling_step(
    config: Config, node: Pooling, source: FeatureMap, target: FeatureMap
) -> PoolingStep:
    """The step for `node`; raises CompileError for maps that do not lie alike."""
    reduction, output = node.reduction, node.output
    entries = common_entry(config, output)
    if reduction == Reduction.AVERAGE:
        count = node.window.kernel[0] * node.window.kernel[1]
        output = node.averages[-1] if node.averages else reciprocal(count)
        if node.window.counts_differ(source.height, source.width):
            if count > config.parameter_entries:
                raise CompileError(
                    f"windows of {count} taps that reach over the edge need as many parameter "
                    f"entries, the machine has {config.parameter_entries}"
                )
            averages = node.averages or tuple(reciprocal(taps) for taps in range(1, count + 1))
            entries = joined(*(common_entry(config, each) for each in averages))
        else:
            reduction, entries = Reduction.SUM, common_entry(config, output)
    return PoolingStep(
        operator=node.operator,
        source=source,
        target=target,
        reduction=reduction,
        window=node.window,
        floor=node.floor,
        ceiling=node.ceiling,
        output=output,
        output_entries=entries,
    )


def reciprocal(count: int) -> Requantisation:
    """Division of a sum of `count` int8 by `count`, half away from zero.

    The multiplier is the least one above 1 / count: SINGLE rounds half up, and so the negative
    halves lie below a half, too. It has 31 bits, and stays too near to 1 / count to carry any other
    quotient over a half: that takes 2 * 128 * count^2, or 40 bits, for the largest window.
    """
    shift = 1 - count.bit_length()
    multiplier = (1 << (31 - shift)) // count + 1
    if multiplier >= 1 << 31:
        shift += 1
        multiplier = (1 << (31 - shift)) // count + 1
    return scalar_requantisation(multiplier, shift, rounding=Rounding.SINGLE)
