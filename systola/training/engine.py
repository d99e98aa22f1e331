# SPDX-License-Identifier: Apache-2.0
"""Runs the programs of a network on a machine: feeds samples, and reads losses and logits."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from systola.arch.image import Image
from systola.runtime.pod.linked import Linked
from systola.training.branches.numbers import KEPT_LINES, bits_of, kept_codes
from systola.training.decay import decay_entry
from systola.training.errors import TrainingError
from systola.training.fit import fitted, some_words
from systola.training.layout import TOLD_LINES, Layout
from systola.training.lines import (
    blocked,
    load_classes,
    load_wide,
    sequences,
    store,
    store_classes,
    store_wide,
)
from systola.training.loss import BINARY, LOSS_BITS, WEIGHT_BITS
from systola.training.moment_steps import Looked, moment_steps
from systola.training.moments import LEAST_TOLD, Moments, MomentStep, halving
from systola.training.moments import SURVEY_STEPS as MOMENT_SURVEY_STEPS
from systola.training.normalization import Measured, moved, resting
from systola.training.numbers import FULL_BITS, LOGIT_BITS, velocity_bits
from systola.training.passes import bits_without_dropout
from systola.training.programs import (
    StepProgram,
    decay_program,
    evaluate_program,
    predict_program,
    rescale_program,
    survey_program,
    train_program,
)
from systola.training.stages import Stage
from systola.training.state import State
from systola.training.task import Task
from systola.training.update import TOLD_BITS
from systola.training.writer import Entry

Codes = NDArray[np.integer[Any]]
"""Array of whole numbers, such as int8 codes of samples, or words."""
Weights = NDArray[np.float64]
"""Array of the weights of samples, of shape (samples,)."""
SURVEY_STEPS = 16
"""Number of steps between two surveys of the magnitudes of the weights. The first surveys come
after 1, 2, 4 and 8 steps."""
MOST_HOST_BYTES = 1 << 32
"""Largest size of the host memory of a core, in bytes."""


def survey_is_due(steps: int) -> bool:
    """Return whether the magnitudes of the weights are surveyed after `steps` steps."""
    early = steps < SURVEY_STEPS and steps & (steps - 1) == 0
    return early or steps % SURVEY_STEPS == 0


def weight_codes(task: Task, weights: Weights) -> NDArray[np.int16]:
    """Return the weights of samples as int16 codes with WEIGHT_BITS fraction bits, (samples, 1).

    A code is a weight divided by the largest weight of all samples.
    """
    return np.rint(weights / task.largest_weight * 2**WEIGHT_BITS).astype(np.int16)[:, np.newaxis]


def square_sum(codes: NDArray[np.int16]) -> int:
    """Return the sum of the squares of codes, without rounding."""
    wide = codes.astype(np.int64).reshape(-1)
    return int(wide @ wide)


def total_loss(task: Task, losses: Codes, weights: Weights | None) -> float:
    """Return the sum of the losses of a batch, each times the weight of its sample.

    `losses`: int16 codes with LOSS_BITS fraction bits, (samples,).
    """
    sign = 1 if task.loss in ("mse", BINARY) else -1
    numbers = losses.astype(np.int64)
    total = numbers.sum() if weights is None else numbers @ weights
    return sign * float(total) / 2**LOSS_BITS


@dataclass(frozen=True)
class Batch:
    """The results of a batch: its loss and the outputs of the network."""

    loss: float
    """Sum of the losses of all samples of the batch."""
    outputs: NDArray[np.float64]
    """Outputs of the network, (samples, units): logits, or results of a softmax or sigmoid at the
    end."""


class Engine:
    """An engine that runs a network on the cores of a machine, with batches of one size.

    The engine has the programs and the host memory of each core. Each core has all weights and its
    share of a batch, see Task.share.
    """

    def __init__(self, machine: Linked, task: Task, batch: int) -> None:
        config = machine.config
        self._machine = machine
        self.batch = batch
        self.task = replace(task, cores=machine.cores)
        self.task, self.layout = fitted(config, self.task, batch)
        if self.layout.window > MOST_HOST_BYTES:
            raise TrainingError(f"{self.layout.window:,} bytes of host memory are too many")
        self.hosts = [np.zeros(self.layout.window, np.uint8) for _ in range(machine.cores)]
        """Host memory of each core, as arrays of bytes."""
        self._programs: dict[tuple[str, Task], StepProgram] = {}
        self._moments: Moments | None = None
        self._statistics: tuple[NDArray[np.float32], ...] = ()
        self._least_bits: list[int] = []
        """Least fraction bits of the units of each stage in the present epoch."""
        self.cycles: int | None = None
        """Number of cycles of the last batch; None on a machine without a clock."""
        self.step_cycles: int | None = None
        """Number of cycles of the last step with a whole batch; None on a machine without a
        clock."""
        # The programs are made at once, so that an error comes before anything runs.
        self._owned = [program.owned for program in self._programs_of("train", batch)]
        """Rows of the masters for which each core keeps velocities or moments, see
        StepProgram.owned."""

    def load(self, state: State) -> None:
        """Put masters (int16 weights), and velocities or moments, into the host memory of each
        core.
        """
        layout = self.layout
        state = state.for_optimizer(self.task.momentum, self.task.decays)
        whole = np.zeros(layout.state_bytes, np.uint8)
        for places, tensors in zip(
            (layout.masters, *layout.beside), (state.masters, *state.beside), strict=True
        ):
            self._put(whole, places, tensors)
        beside = min((place for places in layout.beside for place in places), default=len(whole))
        for core, host in enumerate(self.hosts):
            host[:beside] = whole[:beside]
            host[beside : layout.state_bytes] = 0
            for own in self._own_bytes(core):
                host[own] = whole[own]
        # The engine keeps the scales of the moments in Python, and the codes of the moments in host
        # memory.
        self._moments = state.moments
        self._statistics = state.statistics
        self.task = replace(self.task, master_bits=state.bits, unit_bits=state.unit_bits)

    def state(self) -> State:
        """Return all learnt numbers, in the form that `load` takes.

        Masters are read from core 0, as all cores have the same. Velocities or moments are read
        from the core that keeps them.
        """
        layout, task = self.layout, self.task
        masters = self._get(self.hosts[0], layout.masters)
        whole = self._gathered()
        *others, last = ((), *(self._get(whole, places) for places in layout.beside))
        found = State(masters, (), task.master_bits, task.unit_bits, statistics=self._statistics)
        if self._moments:
            first = others[-1] if self._moments.first else ()
            return replace(found, moments=replace(self._moments, first=first, roots=last))
        more = velocity_bits(task.momentum) if last else 0
        return replace(found, velocities=last, velocity_bits=more)

    def _own_bytes(self, core: int) -> Iterator[slice]:
        """Yield the ranges of bytes of host memory in which a core keeps velocities or moments."""
        pitch = self.layout.pitch
        for tensor, lines in self._owned[core]:
            for places in self.layout.beside:
                first = places[tensor] + 2 * lines.start * pitch
                yield slice(first, first + 2 * len(lines) * pitch)

    def _put(
        self,
        host: NDArray[np.uint8],
        places: Sequence[int],
        tensors: Sequence[NDArray[np.int16]],
    ) -> None:
        layout = self.layout
        for shape, place, values in zip(layout.shapes, places, tensors, strict=True):
            rows = np.zeros((shape.lines, shape.units * layout.size), np.int16)
            rows[np.ix_(shape.places, shape.columns)] = values[: len(shape.places)]
            if shape.biased:
                rows[shape.bias, shape.columns] = values[-1]
            store_wide(host, place, layout, blocked(rows, layout.size))

    def _gathered(self) -> NDArray[np.uint8]:
        """Return the bytes of the masters, together with the velocities or moments of all cores."""
        whole = self.hosts[0][: self.layout.state_bytes].copy()
        for core, host in enumerate(self.hosts[1:], 1):
            for own in self._own_bytes(core):
                whole[own] = host[own]
        return whole

    def _get(self, host: NDArray[np.uint8], places: Sequence[int]) -> tuple[NDArray[np.int16], ...]:
        layout = self.layout
        result: list[NDArray[np.int16]] = []
        for shape, place in zip(layout.shapes, places, strict=False):
            flat = load_wide(host, place, layout, shape.units * shape.lines)
            whole = flat.reshape(shape.units, shape.lines, layout.size).transpose(1, 0, 2)
            whole = whole.reshape(shape.lines, shape.units * layout.size)[:, shape.columns]
            bias = whole[shape.bias : shape.bias + 1]
            result.append(np.concatenate((whole[shape.places], bias)))
        return tuple(result)

    def train(
        self, x: Codes, y: NDArray[np.int16], step: int, weights: Weights | None = None
    ) -> Batch:
        """Take a training step with a batch; `weights`: weights of the samples, if any."""
        if self._moments:
            batch = self._adapt(self._moments, x, y, step, weights)
        else:
            batch = self._feed("train", x, y, step, weights)
        if len(x) == self.batch:
            self.step_cycles = self.cycles
        self._note_unit_bits()
        self._note_statistics()
        self._decay(step + 1)
        if survey_is_due(step + 1):
            self._survey()
        if self._moments and self._moments.updates % MOMENT_SURVEY_STEPS == 0:
            self._moments = self._surveyed(self._moments)
        return batch

    def _adapt(
        self,
        before: Moments,
        x: Codes,
        y: NDArray[np.int16],
        step: int,
        weights: Weights | None,
    ) -> Batch:
        """Take a training step with an optimiser that has moments."""

        looks: list[int] = []

        def look(numbers: Sequence[MomentStep]) -> Looked:
            hosts = [host.copy() for host in self.hosts]
            squares: list[int] = []
            if self.task.clip:
                self._clear_first_moments()
            self._feed("train", x, y, step, weights, numbers)
            if self.task.clip:
                looks.append(self.cycles or 0)
                first = self._get(self._gathered(), self.layout.beside[0])
                squares = [square_sum(codes) for codes in first]
            told = self._told()
            self.hosts = hosts
            return Looked(told, squares)

        numbers = moment_steps(replace(self.task, count=len(x)), before, look)
        self._halve(numbers, before.updates + 1)
        batch = self._feed("train", x, y, step, weights, numbers)
        if self.cycles is not None:
            self.cycles += sum(looks)
        told = zip(numbers, self._told(), strict=True)
        scales = tuple(each.after(bits) for each, bits in told)
        self._moments = replace(before, scales=scales, updates=before.updates + 1)
        return batch

    def _clear_first_moments(self) -> None:
        layout = self.layout
        for shape, place in zip(layout.shapes, layout.beside[0], strict=True):
            size = 2 * shape.units * shape.lines * layout.pitch
            for host in self.hosts:
                host[place : place + size] = 0

    def _told(self) -> list[int]:
        """Return the number of bits of each tensor's largest gradient, from the reports of the last
        step.
        """
        layout, count = self.layout, len(self.layout.shapes)
        lines = TOLD_LINES // 2 * count
        found = [load_wide(host, layout.told, layout, lines)[:, 0] for host in self.hosts]
        told = [
            [sum(TOLD_BITS - int(code).bit_length() for code in tensor) for tensor in each]
            for each in (codes.reshape(count, -1).tolist() for codes in found)
        ]
        return [LEAST_TOLD + max(of_cores) for of_cores in zip(*told, strict=True)]

    def _halve(self, numbers: Sequence[MomentStep], number: int) -> None:
        """Halve or double codes of the moments before update `number`.

        `numbers` has, for each tensor, how many times to halve. A negative count doubles.
        """
        layout = self.layout
        memories: list[tuple[int, int, Entry]] = []
        for tensor, each in enumerate(numbers):
            # RMSprop has roots of second moments, but no first moments, so only the last count is
            # used.
            times = (each.first_halved, each.root_halved)[-len(layout.beside) :]
            memories += [
                (tensor, places[tensor], halving(count, number))
                for places, count in zip(layout.beside, times, strict=True)
                if count
            ]
        if memories:
            self._run_everywhere(rescale_program(self._machine.config, layout, memories))

    def learn_at(self, rate: float) -> None:
        """Set the learning rate of the next steps."""
        if rate != self.task.learning_rate:
            self.task = replace(self.task, learning_rate=rate)
            if not self.task.decays:
                self._programs.clear()

    def end_epoch(self) -> None:
        """End an epoch: predictions use the least fraction bits that units had in the steps of this
        epoch.
        """
        if self._least_bits:
            self.task = replace(self.task, unit_bits=tuple(self._least_bits))
        self._least_bits = []

    def _note_unit_bits(self) -> None:
        hidden = self.task.stages[:-1]
        found = load_wide(self.hosts[0], self.layout.unit_bits, self.layout, len(hidden))[:, 0]
        bits = [
            bits_without_dropout(stage, code)
            for stage, code in zip(hidden, found.tolist(), strict=True)
        ]
        self._least_bits = [min(pair) for pair in zip(bits, self._least_bits or bits, strict=True)]

    def _note_statistics(self) -> None:
        """Update the moving means and variances with the means and variances of the last step."""
        layout, host, found = self.layout, self.hosts[0], list[Measured]()
        for number, stage in self._normalizing():
            if stage.normalized and stage.normalized.frozen:
                continue
            blocks = layout.shapes[number].units
            lines = load_wide(host, layout.measured[number], layout, 2 * (blocks + KEPT_LINES))
            mean, variance = lines[: 2 * blocks].reshape(2, -1)[:, : stage.units]
            bits = lines[2 * blocks :, 0].reshape(2, KEPT_LINES).tolist()
            found.append(Measured(mean, variance, *map(bits_of, bits)))
        self._statistics = moved(self.task.stages, self._statistics, found)

    def _store_statistics(self) -> None:
        """Write the moving means and variances, as roots and offsets, into the host memory of each
        core.
        """
        layout = self.layout
        for (number, stage), statistics in zip(self._normalizing(), self._statistics, strict=True):
            codes, blocks = resting(stage, statistics), layout.shapes[number].units
            lines = np.zeros((2, blocks * layout.size), np.int16)
            lines[:, : stage.units] = codes.root, codes.offset
            bits = kept_codes(codes.root_bits) + kept_codes(codes.offset_bits)
            kept = np.repeat(np.array(bits, np.int16), layout.size)
            values = np.concatenate((lines.reshape(-1), kept))
            for host in self.hosts:
                store_wide(host, layout.resting[number], layout, values)

    def _normalizing(self) -> list[tuple[int, Stage]]:
        """Return each stage that normalises, with its number."""
        found = enumerate(self.task.stages)
        return [(number, stage) for number, stage in found if stage.normalized]

    def evaluate(self, x: Codes, y: NDArray[np.int16], weights: Weights | None = None) -> Batch:
        """Compute loss and logits of a batch; nothing is learnt."""
        return self._feed("evaluate", x, y, 0, weights)

    def predict(self, x: Codes) -> NDArray[np.float64]:
        """Return the outputs of the network for a batch, (samples, units)."""
        y = np.zeros((len(x), self.task.stages[-1].units), np.int16)
        return self._feed("predict", x, y, 0).outputs

    def _feed(
        self,
        kind: str,
        x: Codes,
        y: NDArray[np.int16],
        step: int,
        weights: Weights | None = None,
        numbers: Sequence[MomentStep] = (),
    ) -> Batch:
        units, shares = self.task.stages[-1].units, self._shares(len(x))
        self._store_statistics()
        for host, layout, share in shares:
            own = slice(share.start, share.stop)
            if not self.task.reads_words:
                store(host, layout.x, layout, self._samples(x[own]))
            store_classes(host, layout.labels, layout, y[own])
            store_classes(host, layout.valid, layout, np.ones((len(share), units), np.int16))
            if weights is not None and self.task.largest_weight:
                codes = weight_codes(self.task, weights[own])
                store_classes(host, layout.weights, layout, np.repeat(codes, units, axis=1))
        self.cycles = self._run(self._programs_of(kind, len(x), x), step, numbers)
        bits, last = LOGIT_BITS, self.task.stages[-1]
        if kind == "predict" and (last.softmax or last.sigmoid):
            bits = 15
        outputs: list[NDArray[np.float64]] = []
        losses: list[NDArray[np.int16]] = []
        for host, layout, share in self._shares(len(x)):
            count = len(share)
            outputs.append(load_classes(host, layout.logits, layout)[:count, :units] / 2.0**bits)
            found = load_wide(host, layout.losses, layout, layout.groups)
            losses.append(found.reshape(-1)[:count])
        total = total_loss(self.task, np.concatenate(losses), weights)
        return Batch(total, np.concatenate(outputs))

    def _shares(self, count: int) -> list[tuple[NDArray[np.uint8], Layout, range]]:
        """Return host memory, layout and range of samples for each turn of each core."""
        return [
            (host, self.layout.of_turn(turn), replace(task, turn=turn).share(self.layout.size))
            for host, task in zip(self.hosts, self._tasks(count), strict=True)
            for turn in range(task.turns)
        ]

    def _tasks(self, count: int) -> list[Task]:
        cores, task = range(self._machine.cores), replace(self.task, count=count)
        if task.decays:  # the host writes the rate, so programs do not depend on the rate
            task = replace(task, learning_rate=0.0)
        return [replace(task, core=core) for core in cores]

    def _samples(self, x: Codes) -> NDArray[np.int8]:
        """Return samples as the int8 lines that the first stage takes.

        The lines are maps, the steps of an LSTM, or rows with a one for the bias.
        """
        layout, shape, stage = self.layout, self.layout.shapes[0], self.task.stages[0]
        if stage.lstm:
            return sequences(x, stage.lstm, layout)
        if stage.window:
            maps = np.zeros((layout.samples, x.shape[1]), np.int8)
            maps[: len(x)] = x
            return blocked(maps.reshape(-1, stage.channels), layout.size)
        rows = np.zeros((layout.samples, shape.lines), np.int8)
        rows[: len(x), shape.places] = x
        rows[:, shape.bias] = (1 << self.task.input_bits) * stage.use_bias
        return blocked(rows, layout.size)

    def _programs_of(self, kind: str, count: int, x: Codes | None = None) -> list[StepProgram]:
        """Return the program of each core for a batch of `count` samples.

        `x`: the samples. A program that reads the embedding of each word depends on the words in
        `x`.
        """
        make: dict[str, Callable[..., StepProgram]] = {
            "train": train_program,
            "evaluate": evaluate_program,
            "predict": predict_program,
        }
        tasks, config = self._tasks(count), self._machine.config
        if x is not None and self.task.reads_words:
            words = x.astype(np.intp)
            return [make[kind](config, self.layout, task, words) for task in tasks]
        for task in tasks:
            if (kind, task) not in self._programs:
                self._programs[kind, task] = make[kind](config, self.layout, task, some_words(task))
        return [self._programs[kind, task] for task in tasks]

    def _decay(self, steps: int) -> None:
        """Subtract the weight decay from the int16 weights, if it is due after `steps` steps."""
        entry = decay_entry(self.task.weight_decay, self.task.learning_rate, steps)
        if entry:
            stages = self.task.stages
            program = decay_program(self._machine.config, self.layout, stages, entry)
            self._run([program] * self._machine.cores)

    def _survey(self) -> None:
        """Measure the masters (int16 weights). Halve each tensor with codes that have used up the
        bit for growth.
        """
        config, layout = self._machine.config, self.layout
        found = self._survey_of([layout.masters])
        full = [number for number, bits in enumerate(found) if bits >= FULL_BITS]
        if full:
            tensors = [layout.masters, *(layout.beside if self.task.momentum else ())]
            memories = [(number, places[number], Entry()) for number in full for places in tensors]
            self._run_everywhere(rescale_program(config, layout, memories))
            bits = list(self.task.master_bits)
            for number in full:
                bits[number] -= 1
            self.task = replace(self.task, master_bits=tuple(bits))
            self._programs.clear()

    def _surveyed(self, moments: Moments) -> Moments:
        """Measure the codes of the moments, and return the moments with new bounds of the largest
        codes.
        """
        count = len(self.layout.shapes)
        found = self._survey_of(self.layout.beside)
        scales = tuple(
            replace(
                each,
                first=each.first.surveyed(first) if moments.first else each.first,
                root=each.root.surveyed(root),
            )
            for each, first, root in zip(moments.scales, found[:count], found[-count:], strict=True)
        )
        return replace(moments, scales=scales)

    def _survey_of(self, memories: Sequence[Sequence[int]]) -> list[int]:
        """Return the number of bits of the largest code of each tensor, at least 8.

        `memories`: for each kind of tensor, such as masters or velocities, the byte offsets of all
        tensors in host memory. The results have the order of `memories`.
        """
        layout = self.layout
        self._run_everywhere(survey_program(self._machine.config, layout, memories))
        count = len(memories) * len(layout.shapes)
        hosts = [load_wide(host, layout.survey, layout, count)[:, 0] for host in self.hosts]
        # For a largest code of b bits the survey program leaves 2^(21 - b). So the least result of
        # all cores stands for the most bits.
        return [8 + 14 - int(code).bit_length() for code in np.min(hosts, axis=0).tolist()]

    def _run_everywhere(self, program: StepProgram) -> None:
        self._run([program] * self._machine.cores)

    def _run(
        self,
        programs: Sequence[StepProgram],
        step: int = 0,
        numbers: Sequence[MomentStep] = (),
    ) -> int | None:
        """Run one program on each core; return the number of cycles, None on a machine without a
        clock.
        """
        images: list[Image] = []
        for program, host in zip(programs, self.hosts, strict=True):
            code = program.place(self.layout, host, step, numbers)
            images.append(Image(code, host, self.layout.program, np.zeros(0, np.uint8)))
        result = self._machine.run(images)
        self.hosts = result.hosts
        return result.cycles
