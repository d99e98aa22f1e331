# SPDX-License-Identifier: Apache-2.0
"""Writes the backward pass of a network with branches. If several layers take a result, the
gradients from all of them are added.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from systola.arch.isa import Operation, Rounding, Source
from systola.training.backward import Backward
from systola.training.branches.adding import LEAST, add_all
from systola.training.branches.forward import STATES, BranchedForward
from systola.training.branches.joins import MADE
from systola.training.branches.numbers import alone
from systola.training.exchange import agree
from systola.training.gru_backward import recurrent_backward
from systola.training.moves import unflattened
from systola.training.passes import PLAIN, gradient_scale
from systola.training.stages import takes
from systola.training.task import GRADIENT, INPUTS, SHIFT, STATE, Exponent, Task
from systola.training.update import begin_telling, tell, update_shift
from systola.training.writer import NARROWING, Entry, Writer


@dataclass(frozen=True)
class _Part:
    """A gradient of a result of the network, in some or all lines of a region of the buffer.

    Several gradients may lie in one region.
    """

    key: object
    """Key of the gradient's fraction bits in the store `Kept`."""
    lines: range
    region: range


class BranchedBackward(Backward):
    """A writer of the backward pass of a network with branches."""

    def __init__(self, writer: Writer, task: Task, forward: BranchedForward) -> None:
        super().__init__(writer, task, forward.left)
        self._kept = forward.kept
        self._inputs = forward.maps
        self._normalizing = forward.normalizing
        self._parts: dict[int, list[_Part]] = {}
        self._regions: list[range] = []
        """Regions of the buffer with gradients that wait to be added. A region is listed once for
        each gradient in it."""

    def write(self, gradient: range) -> None:
        """Write the backward pass, from the int8 gradient of the last stage's sums, [block of
        units][sample].
        """
        writer, stages = self._writer, self._task.stages
        for number in reversed(range(len(stages))):
            lstm = stages[number].lstm
            if lstm and lstm.sequences:
                gradient = range(0)  # the gradients of all states of this LSTM are in host memory
            elif number < len(stages) - 1:
                gradient = self._through(number, self._gathered(number))
            if stages[number].join:
                begin_telling(writer, self._task, number)
                tell(writer, self._task, number)
                if stages[number].normalized:
                    gradient = self._normalized(number, gradient)
                self._split(number, gradient)
                continue
            (at,) = takes(stages, number)
            self._kept.bring(at, INPUTS)
            if lstm:
                self._lstm(number, gradient, sequences=lstm.sequences)
                continue
            # Exponent registers: INPUTS for the inputs of this stage, MADE for the inputs of the
            # next stage. The gradient of a Conv2D's inputs overwrites MADE.
            inputs = [Exponent(INPUTS, 0)] * (number + 1) + [Exponent(MADE, 0)]
            self._left.inputs[:] = inputs
            bits = self._task.master_bits[number]
            entry = update_shift(writer, self._task, number, bits, inputs[number])
            if at:
                scale = gradient_scale(stages[at - 1]) if alone(stages, at) else PLAIN
                below = self._below(number, gradient, source=at - 1, scale=scale)
                self._add(at, below, below, (number, at))
            begin_telling(writer, self._task, number)
            if stages[number].window:
                if not stages[number].frozen:
                    self._update_maps(number, gradient, entry)
                taken = any(at in takes(stages, n) and stages[n].window for n in range(number))
                if not (taken or (at and stages[at - 1].normalized)):
                    writer.free(self._inputs.pop(at))
            else:
                self._update(number, gradient, entry, iter(()))
                writer.free(self._left.transposed[number])
            tell(writer, self._task, number)
            writer.free(gradient)

    def _normalized(self, number: int, gradient: range) -> range:
        """Return the gradient of the inputs of a stage that normalises, from the gradient of the
        stage's results.
        """
        codes = self._inputs.pop(number + 1)
        below = self._normalizing[number].back(gradient, codes)
        self._writer.free(gradient, codes)
        return below

    def _lstm(self, number: int, gradient: range, *, sequences: bool) -> None:
        if sequences:
            self._kept.bring(number + 1, MADE)
        else:
            self._kept.bring(STATES, LEAST)
            self._writer.measure(STATE, first=LEAST)
        recurrent_backward(self._writer, self._task, number).write(gradient)

    def _add(self, at: int, lines: range, region: range, key: object) -> None:
        """Keep a gradient of result number `at`: its lines, and the fraction bits in exponent
        register GRADIENT.

        `region`: the region of the buffer that has the lines. `key`: a key for the fraction bits.
        """
        self._kept.keep(key, GRADIENT)
        self._parts.setdefault(at, []).append(_Part(key, lines, region))
        self._regions.append(region)

    def _done(self, part: _Part) -> None:
        """Drop the stored fraction bits of a gradient. Free the gradient's region of the buffer if
        no other gradient lies there.
        """
        self._kept.free(part.key)
        self._regions.remove(part.region)
        if part.region not in self._regions:
            self._writer.free(part.region)

    def _gathered(self, number: int) -> range:
        """Return the gradient of a stage's result: the sum of the gradients from all stages that
        take the result.

        Exponent register GRADIENT gets the fraction bits of the sum.
        """
        writer, task = self._writer, self._task
        parts = self._parts.pop(number + 1)
        if alone(task.stages, number + 1):
            (part,) = parts
            self._kept.bring(part.key, GRADIENT)
            self._kept.free(part.key)
            self._regions.remove(part.region)
            return part.lines
        q, lost = gradient_scale(task.stages[number])
        each = [(part.key, part.lines) for part in parts]
        total = add_all(writer, self._kept, each, GRADIENT)
        for part in parts:
            self._done(part)
        rows = len(total) // 2
        at = {"buffer": total.start, "rows": rows, "bits": 8}
        writer.measure(SHIFT, value=-8)
        writer.measure(SHIFT, Source.LINES, **at, first=SHIFT)
        agree(writer, task, MADE)
        writer.measure(GRADIENT, first=GRADIENT, third=SHIFT, value=-lost)
        result = writer.allocate(rows)
        place = (total.start, 0, result.start, rows, Entry(q), NARROWING)
        writer.vector(Operation.COPY, *place, rounding=Rounding.DOUBLE, exponent=SHIFT)
        writer.free(total)
        return result

    def _through(self, number: int, gradient: range) -> range:
        """Return the gradient of a stage's sums, from the gradient of the stage's units."""
        if self._task.stages[number].maps:
            return self._through_maps(number, gradient)
        deque(self._mask(number, gradient), maxlen=0)
        return gradient

    def _split(self, number: int, gradient: range) -> None:
        """Keep gradients of the inputs of an Add or Concatenate, from the gradient of the layer's
        units.

        Each input of an Add gets the whole gradient, and each input of a Concatenate a part of the
        lines.
        """
        writer, layout, stage = self._writer, self._layout, self._task.stages[number]
        first = 0
        waiting = 0
        for place, at in enumerate(stage.sources):
            lines = gradient
            source = self._task.stages[at - 1] if at else None
            if stage.join == "concatenate":
                lines = gradient[first : first + layout.result_lines(self._task.stages, at)]
                first += len(lines)
            if source is None:
                continue
            region = gradient
            if source.maps and not stage.maps:
                region = writer.allocate(len(lines))
                shape = layout.shapes[at - 1]
                unflattened(writer, lines.start, region, shape.units, shape.left)
                lines = region
            waiting += region == gradient
            self._add(at, lines, region, (number, place))
        if not waiting:
            writer.free(gradient)
