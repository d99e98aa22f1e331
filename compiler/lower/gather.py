# SPDX-License-Identifier: Apache-2.0
"""The way of one sample into a batch."""

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
    """A map copied to the place of its sample, `emitter.sample`, in a map of many samples."""

    def emit(self, emitter: Emitter) -> None:
        pixels = self.source.pixels
        emitter.scale()
        parameter = emitter.parameters(self.output_entries)
        if pixels == 1:
            self._copy_pixel(emitter, parameter, 0, emitter.sample)
            return
        pixel, place = emitter.take_register(), emitter.take_register()
        emitter.emit(Opcode.SET_REGISTER, register=pixel)
        emitter.emit(Opcode.SET_REGISTER, register=place, first=emitter.sample)
        emitter.loop(pixels)
        self._copy_pixel(emitter, parameter, pixel, place)
        emitter.emit(Opcode.SET_REGISTER, register=pixel, first=pixel, value=1)
        emitter.emit(Opcode.SET_REGISTER, register=place, first=place, value=self.target.width)
        emitter.end_loop()
        emitter.free_register(place)
        emitter.free_register(pixel)

    def _copy_pixel(self, emitter: Emitter, parameter: int, source: int, target: int) -> None:
        for block in range(self.source.channels.blocks):
            emitter.emit(
                Opcode.VECTOR,
                operation=Operation.COPY,
                buffer=emitter.line(self.source.lines, self.source.block(block)),
                buffer_register=source,
                destination=emitter.line(self.target.lines, self.target.block(block)),
                destination_register=target,
                rows=1,
                parameter=parameter,
                rounding=identity().rounding,
            )


def gather_step(config: Config, operator: str, source: FeatureMap, samples: int) -> GatherStep:
    """The step for a value of `operator`; its target is a new map for so many samples."""
    name = f"{source.lines.name} of {samples} samples"
    return GatherStep(
        operator=operator,
        source=source,
        target=new_map(name, source.pixels, samples, source.channels),
        output_entries=common_entry(config, identity()),
    )
