# SPDX-License-Identifier: Apache-2.0
"""Steps that calculate each element of a map from the elements in its place in one or two maps."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from systola.arch.config import Config
from systola.arch.isa import Function, Opcode, Operation
from systola.compiler.errors import CompileError
from systola.compiler.lower.emitter import Emitter
from systola.compiler.lower.entries import Entries, common_entry
from systola.compiler.lower.feature_map import FeatureMap, Lines, new_map, runs
from systola.compiler.lower.step import MapStep, Step
from systola.compiler.operations import Binary, Curve, Requantisation, Scale, Unary, identity

HALF = 1 << 30, 0
"""Multiplier and shift of the scale 1/2, the commonest one. The machine adds faster if operand a
has this scale.
"""


@dataclass(frozen=True, kw_only=True, eq=False)
class VectorStep(Step):
    """A step that makes a map, element by element, from one or two maps of the same size."""

    operation: Operation
    a: FeatureMap
    b: FeatureMap | None
    target: FeatureMap
    output: Requantisation
    output_entries: Entries
    scale: dict[str, int] = field(default_factory=dict[str, int])
    """Operands of the instruction Set_Config_Scale; the key is the operand's name."""
    wide: bool = False
    """True if elements are int16: each vector has two lines, low bytes and then high bytes. False
    if elements are int8.
    """

    @property
    def reads(self) -> tuple[Lines, ...]:
        return tuple(each.lines for each in (self.a, self.b) if each)

    @property
    def writes(self) -> tuple[Lines, ...]:
        return (self.target.lines,)

    @property
    def entries(self) -> tuple[Entries, ...]:
        return (self.output_entries,)

    @property
    def tables(self) -> tuple[bytes, ...]:
        return () if self.output.table is None else (self.output.table,)

    def emit(self, emitter: Emitter) -> None:
        second = self.b or self.a
        output = self.output
        parameter = emitter.parameters(self.output_entries)
        table = 0 if output.table is None else emitter.table(output.table)
        emitter.scale(**self.scale, ceiling=output.ceiling)
        for (a, b, target), _, rows in runs(self.a, second, self.target):
            emitter.emit(
                Opcode.VECTOR,
                operation=self.operation,
                buffer=emitter.line(self.a.lines, a),
                operand=emitter.line(second.lines, b) if self.b else 0,
                destination=emitter.line(self.target.lines, target),
                rows=rows // 2 if self.wide else rows,
                parameter=parameter,
                function=output.function,
                rounding=output.rounding,
                zero_point=output.zero_point,
                table=table,
                wide_operands=int(self.wide),
                wide=int(self.wide),
            )


@dataclass(frozen=True, kw_only=True, eq=False)
class RepeatStep(MapStep):
    """A step that fills a map with copies of a smaller map.

    It copies the smaller map once. Then it copies the filled part, which doubles each time, until
    the target is full.
    """

    def emit(self, emitter: Emitter) -> None:
        source, target = self.source, self.target
        parameter = emitter.parameters(self.output_entries)
        emitter.scale()
        for block in range(source.channels.blocks):
            first = emitter.line(target.lines, target.block(block))
            origin, done = emitter.line(source.lines, source.block(block)), 0
            while done < target.pixels:
                rows = min(max(done, source.pixels), target.pixels - done)
                emitter.emit(
                    Opcode.VECTOR,
                    operation=Operation.COPY,
                    buffer=origin,
                    destination=first + done,
                    rows=rows,
                    parameter=parameter,
                    rounding=identity().rounding,
                )
                origin, done = first, done + rows


def copy_step(config: Config, operator: str, source: FeatureMap, target: FeatureMap) -> VectorStep:
    """Return the step that copies the map `source` to the map `target`."""
    unit = identity()
    return VectorStep(
        operator=operator,
        operation=Operation.COPY,
        a=source,
        b=None,
        target=target,
        output=unit,
        output_entries=common_entry(config, unit),
    )


def unary_step(config: Config, node: Unary, source: FeatureMap, target: FeatureMap) -> VectorStep:
    """Return the step for an operation on each element of one map.

    Raises CompileError if `node` needs a table and the machine has none.
    """
    output = node.output
    if node.table is not None:
        if config.tables == 0:
            raise CompileError(f"the machine '{config.name}' has no tables")
        output = replace(output, function=Function.TABLE, table=node.table)
    return VectorStep(
        operator=node.operator,
        operation=Operation.COPY,
        a=source,
        b=None,
        target=target,
        output=output,
        output_entries=common_entry(config, output),
        scale={"zero_a": node.zero_point},
    )


def curve_step(config: Config, node: Curve, source: FeatureMap, target: FeatureMap) -> VectorStep:
    """Return the step for a Curve, a function of each element of int16.

    Raises CompileError if the machine has no 16-bit modes or no curves.
    """
    check_wide(config)
    if not config.attention:
        raise CompileError(f"the machine '{config.name}' has no curves of int16")
    output = replace(identity(), function=Function.TABLE, table=node.tables)
    return VectorStep(
        operator=node.operator,
        operation=Operation.COPY,
        a=source,
        b=None,
        target=target,
        output=output,
        output_entries=common_entry(config, output),
        wide=True,
    )


def binary_steps(
    config: Config,
    node: Binary,
    operands: tuple[FeatureMap, FeatureMap],
    target: FeatureMap,
    samples: int,
) -> list[Step]:
    """Return the steps for an operation on two operands, which are maps of `samples` samples.

    If an operand has one pixel for each sample, and the target more, this pixel is first copied to
    all pixels of its sample. Raises CompileError if such copies are needed in a batch that has
    several pixels of a sample in a row. It is also raised if the machine lacks 16-bit modes that
    the node needs.
    """
    if node.wide:
        check_wide(config)
    steps: list[Step] = []
    maps: list[FeatureMap] = []
    for operand in operands:
        wide = operand
        if operand.pixels == samples < target.pixels:
            if samples > 1 and target.width > samples:
                raise CompileError("the pixels that it is to be repeated for lie apart in a batch")
            name = f"{operand.lines.name} for {node.operator}"
            wide = new_map(name, target.height, target.width, target.channels)
            steps.append(
                RepeatStep(
                    operator=node.operator,
                    source=operand,
                    target=wide,
                    output_entries=common_entry(config, identity()),
                )
            )
        maps.append(wide)
    a, b = node.scale_a, node.scale_b
    if node.operation == Operation.ADD and (b.multiplier, b.shift) == HALF:
        # The machine adds faster if operand a has the scale HALF, so the operands change places.
        a, b, maps = b, a, maps[::-1]
    steps.append(
        VectorStep(
            operator=node.operator,
            operation=node.operation,
            a=maps[0],
            b=maps[1],
            target=target,
            output=node.output,
            output_entries=common_entry(config, node.output),
            scale=scale_operands(a, b),
            wide=node.wide,
        )
    )
    return steps


def check_wide(config: Config) -> None:
    """Raise CompileError if the machine has no 16-bit modes."""
    if not config.wide:
        raise CompileError(f"the machine '{config.name}' has no 16-bit modes")


def scale_operands(a: Scale, b: Scale) -> dict[str, int]:
    """Return the operands of Set_Config_Scale for the scales of operands a and b; the key is the
    operand's name.
    """
    return {
        "multiplier_a": a.multiplier,
        "shift_a": a.shift,
        "zero_a": a.zero_point,
        "multiplier_b": b.multiplier,
        "shift_b": b.shift,
        "zero_b": b.zero_point,
    }


def constant_map(name: str, values: NDArray[np.int8], like: FeatureMap, samples: int) -> FeatureMap:
    """Return a map of constants with the size of the map `like`, which holds `samples` samples.

    `values` has a constant for each element of a sample. All samples have the same constants.
    """
    channels = like.channels
    result = new_map(name, like.height, like.width, channels)
    content = np.zeros((result.pixels, channels.blocks * channels.block), np.int8)
    rows = values.reshape(like.height, 1, like.width // samples, channels.count)
    content[:, channels.slots] = rows.repeat(samples, axis=1).reshape(-1, channels.count)
    blocks = content.reshape(result.pixels, channels.blocks, channels.block).transpose(1, 0, 2)
    result.lines.content = blocks.reshape(-1, channels.block)
    return result
