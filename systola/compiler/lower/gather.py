# SPDX-License-Identifier: Apache-2.0
"""The copy of one sample's values into a map for a whole batch of samples."""

from __future__ import annotations

from dataclasses import dataclass

from systola.arch.config import Config
from systola.arch.isa import Opcode, Operation
from systola.compiler.lower.emitter import Emitter
from systola.compiler.lower.entries import common_entry
from systola.compiler.lower.feature_map import FeatureMap, new_map
from systola.compiler.lower.step import MapStep
from systola.compiler.operations import identity


@dataclass(frozen=True, kw_only=True, eq=False)
class GatherStep(MapStep):
    """A step that copies a map, row by row, to the place of its sample in a map of many samples.

    An index register has the place, see Emitter.sample_place. The place is counted in pixels:
    `width` pixels for each earlier sample of the batch.
    """

    def emit(self, emitter: Emitter) -> None:
        height, width = self.source.height, self.source.width
        emitter.scale()
        parameter = emitter.parameters(self.output_entries)
        place = emitter.sample_place(width)
        if height == 1:
            self._copy_row(emitter, parameter, 0, place)
            return
        row, target = emitter.take_register(), emitter.take_register()
        emitter.emit(Opcode.SET_REGISTER, register=row)
        emitter.emit(Opcode.SET_REGISTER, register=target, first=place)
        emitter.loop(height)
        self._copy_row(emitter, parameter, row, target)
        step = self.target.width
        emitter.emit(Opcode.SET_REGISTER, register=row, first=row, value=width)
        emitter.emit(Opcode.SET_REGISTER, register=target, first=target, value=step)
        emitter.end_loop()
        emitter.free_register(target)
        emitter.free_register(row)

    def _copy_row(self, emitter: Emitter, parameter: int, source: int, target: int) -> None:
        for block in range(self.source.channels.blocks):
            emitter.emit(
                Opcode.VECTOR,
                operation=Operation.COPY,
                buffer=emitter.line(self.source.lines, self.source.block(block)),
                buffer_register=source,
                destination=emitter.line(self.target.lines, self.target.block(block)),
                destination_register=target,
                rows=self.source.width,
                parameter=parameter,
                rounding=identity().rounding,
            )


def gather_step(config: Config, operator: str, source: FeatureMap, samples: int) -> GatherStep:
    """Return the step that copies a value of one sample into a new map for `samples` samples."""
    name = f"{source.lines.name} of {samples} samples"
    return GatherStep(
        operator=operator,
        source=source,
        target=new_map(name, source.height, samples * source.width, source.channels),
        output_entries=common_entry(config, identity()),
    )
