# SPDX-License-Identifier: Apache-2.0
"""The choice of values that go to host memory if the unified buffer is too small for a network.

A value in host memory is spilled: operations that make or take it work in bands of rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from weakref import WeakKeyDictionary

from systola.arch.config import PRESETS, Config
from systola.compiler.errors import CompileError
from systola.compiler.lower.attempts import Attempts
from systola.compiler.lower.batching import Batch
from systola.compiler.lower.feature_map import Lines
from systola.compiler.lower.host_view import LoadStep
from systola.compiler.lower.lowering import Lowering
from systola.compiler.lower.parts import Spill
from systola.compiler.lower.placement import Life, Misfit, most_at_once, place
from systola.compiler.operations import Operations, Value

SHARE = 8
"""Number of equal parts of the buffer. A band of rows takes at most one part, unless a single row
takes more.
"""

MOST_STEPS = 200_000
"""Largest number of steps, added up over all attempts to fit a network into the buffer. Large
networks take ten thousand.
"""


_found: WeakKeyDictionary[Operations, dict[tuple[Config, Batch], Spill]] = WeakKeyDictionary()
"""Choices of spilled values with which earlier compilations have fitted operations to a machine.

The first key is the operations. The second key is a pair of the machine and the batch. An entry is
dropped when its operations are no longer in use. A choice suits any number of samples.
"""


def is_hopeless(config: Config, operations: Operations, batch: Batch) -> bool:
    """Return whether `batch`, without spilling, needs more lines at once than the buffer has.

    A larger batch of the same operations needs even more lines.
    """
    spill = Spill(overlap=False)
    try:
        lives = _lives(Lowering(config, operations, batch.size, batch, spill), spill)
    except CompileError:
        return False  # This batch cannot be lowered, but one of another size may be.
    return most_at_once(lives) > config.buffer_lines


def fitted(
    config: Config, operations: Operations, samples: int, batch: Batch, *, spilling: bool
) -> tuple[Lowering, dict[Lines, int], Spill]:
    """Return three results: the lowered program, the first buffer line of each Lines object, and
    the choice of values in host memory.

    As few values as possible are in host memory. If some lines find no place, the next attempt
    lowers operations without interleaving. Each further attempt relieves the buffer of the largest
    content that is needed at the same time as these lines. It does so in one of three ways. A value
    goes to host memory, operations on a spilled value get more bands of rows, or constants are
    loaded at each use. Raises CompileError if nothing can relieve the buffer any more. Without
    `spilling`, the attempt without interleaving is the last.
    """
    known = _found.setdefault(operations, {})
    spill = known.get((config, batch), Spill())
    attempts = Attempts()
    steps, tried, last = 0, 0, CompileError("")
    while True:
        tried += 1
        lowering = Lowering(config, operations, samples, batch, spill, attempts)
        steps += len(lowering.steps)
        if steps > MOST_STEPS:
            raise CompileError(
                f"the network needs too many pieces for the {config.buffer_lines} lines of the "
                f"unified buffer: {last}{_larger_preset(config)}",
                last.refused,
            )
        lives = _lives(lowering, spill)
        try:
            places = place(lives, config.buffer_lines)
            break
        except Misfit as misfit:
            if spill.overlap:
                spill = replace(spill, overlap=False)
                continue
            if not spilling:
                raise
            last = misfit
            spill = _relieved(config, operations, lowering, spill, lives, misfit)
    known[config, batch] = spill
    if tried == 1:
        return lowering, places, spill
    # Offsets in host memory come from the first attempt that needed a place there. So the steps are
    # made once more, without earlier attempts. The new lines take the places of the old ones, as
    # they hold values in the same steps.
    final = Lowering(config, operations, samples, batch, spill)
    pairs = zip(lives, _lives(final, spill), strict=True)
    same = {before.lines: life.lines for before, life in pairs}
    return final, {same[lines]: at for lines, at in places.items()}, spill


def _lives(lowering: Lowering, spill: Spill) -> list[Life]:
    """Return a Life for each Lines object of the program: the span of steps in which the lines hold
    a value.

    Variables in the buffer live during the whole program. So do constants, if `spill` does not load
    them before each use.
    """
    steps = lowering.steps
    lives = {
        each.lines: Life(each.lines, -1, len(steps), f"variable {value.name}")
        for value, each in lowering.kept.items()
    }
    for number, step in enumerate(steps):
        for lines in (*step.writes, *step.reads):
            if lines.content is not None and not spill.constants:
                lives[lines] = Life(lines, -1, len(steps), f"{step.operator}: its constant")
            if (life := lives.get(lines)) is None:
                what = f"{step.operator}: {lines.name}"
                # A load should run during the step before it, and not wait for its end. So the
                # lines of the load count as used from this earlier step on.
                ahead = spill.overlap and number > 0 and isinstance(step, LoadStep)
                life = lives[lines] = Life(lines, number - ahead, number, what)
            life.last = max(life.last, number)
    for life in lives.values():
        # These lines are written for each sample, in a loop, and read later for the whole batch. In
        # the next turn of the loop they still hold earlier samples. So no other lines may have
        # their place from the program's beginning on.
        if life.first < lowering.batch_begins <= life.last:
            life.first = -1
    return list(lives.values())


def _relieved(
    config: Config,
    operations: Operations,
    lowering: Lowering,
    spill: Spill,
    lives: Sequence[Life],
    misfit: Misfit,
) -> Spill:
    rivals = [
        life.lines
        for life in lives
        if life.first <= misfit.life.last and misfit.life.first <= life.last
    ]
    options: list[tuple[int, Spill]] = []
    if not spill.constants:
        constants = sum(lines.count for lines in rivals if lines.content is not None)
        options.append((constants, replace(spill, constants=True)))
    for lines in rivals:
        if lines in lowering.values:
            options.append((lines.count, _without(config, operations, spill, lines, lowering)))
        elif lines in lowering.bands:
            value, rows = lowering.bands[lines]
            bands = spill.bands.get(value, 1)
            if bands < rows:
                finer = {**spill.bands, value: min(2 * bands, rows)}
                options.append((lines.count, replace(spill, bands=finer)))
    size, best = max(options, key=lambda option: option[0], default=(0, spill))
    if size == 0:
        raise CompileError(f"{misfit}{_larger_preset(config)}", misfit.refused) from None
    return best


def _larger_preset(config: Config) -> str:
    """Return the end of an error message: the preset with the next larger buffer.

    The text is empty if no preset has a larger buffer.
    """
    larger = [each for each in PRESETS.values() if each.buffer_lines > config.buffer_lines]
    if not larger:
        return ""
    best = min(larger, key=lambda each: each.buffer_lines)
    return f"; the preset '{best.name}' has {best.buffer_lines} lines"


def _without(
    config: Config, operations: Operations, spill: Spill, lines: Lines, lowering: Lowering
) -> Spill:
    """Return a copy of `spill` that also keeps the value in `lines` in host memory.

    In the copy, operations that make or take this value work in bands of rows.
    """
    value = lowering.values[lines]
    bands = dict(spill.bands)
    touching: list[Value] = [
        value,
        *(node.result for node in operations.nodes if value in node.sources),
    ]
    count = -(-lines.count * SHARE // config.buffer_lines)
    for each in touching:
        bands[each] = max(count, bands.get(each, 1))
    return replace(spill, values=spill.values | {value}, bands=bands)
