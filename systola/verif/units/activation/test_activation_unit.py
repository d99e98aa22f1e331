# SPDX-License-Identifier: Apache-2.0
"""The test of the activation unit through its ports, against the golden model.

It compares results, the reports about them, and the cycles that they take, for Activate, Depthwise,
Pool and Vector.
"""

import itertools

import cocotb
import pytest

from systola.arch.isa import LONG_TABLES, RECIPROCAL, Function, Opcode, Operation, Reduction
from systola.hdl.activation.activation_lane import ActivationLane
from systola.hdl.activation.activation_unit import FRONT_LATENCY as HARDWARE_FRONT_LATENCY
from systola.hdl.activation.activation_unit import ActivationUnit
from systola.hdl.activation.lane_group import LaneGroup, group_size
from systola.hdl.activation.result_lanes import lanes_are_instances
from systola.hdl.activation.spacings import (
    ADDEND_SPACING,
    DRAIN_SPACING,
    LONG_SPACING,
    TAP_SPACING,
)
from systola.hdl.activation.spacings import ANNOUNCED as HARDWARE_ANNOUNCED
from systola.hdl.activation.spacings import SCALED_LATENCY as HARDWARE_SCALED_LATENCY
from systola.hdl.activation.spacings import SUM_LATENCY as HARDWARE_SUM_LATENCY
from systola.verif.units.activation.activation_bench import (
    AFRESH,
    ANNOUNCED,
    FRONT_LATENCY,
    LATENCY,
    SCALED_LATENCY,
    SUM_LATENCY,
    Surroundings,
    Unit,
)
from systola.verif.units.activation.activation_jobs import READERS, Jobs
from systola.verif.units.unit import (
    chosen_variant,
    convert,
    long_variants,
    rng,
    run_unit,
    small_config,
)

SUMS = Operation.ADD, Operation.SUBTRACT
SIZES = {"buffer_lines": 256, "parameter_entries": 16}
CONFIGS = {
    "3": small_config(rows=5, cols=3, columns_per_stage=3, **SIZES),
    "no wide": small_config(rows=5, cols=3, columns_per_stage=3, wide=False, tables=1, **SIZES),
    "two in a lane": small_config(wide=False, tables=1, columns_per_lane=2, **SIZES),
    "two in a wide one": small_config(columns_per_lane=2, **SIZES),
    "only wide": small_config(depthwise=False, tables=0, **SIZES),
    "training": small_config(training=True, **SIZES),
    "attention": small_config(attention=True, tables=7, **SIZES),
    "training with attention": small_config(training=True, attention=True, tables=7, **SIZES),
    "40 lanes placed": small_config(
        rows=2, cols=40, columns_per_stage=4, host_bus_bytes=64, weight_bus_bytes=64, **SIZES
    ),
}
RARE = ("two in a wide one", "only wide", "training with attention", "40 lanes placed")
COUNT = 60
WINDOW = {
    "height": 4,
    "width": 5,
    "pitch": 6,
    "kernel_height": 2,
    "kernel_width": 3,
    "stride_y": 1,
    "stride_x": 2,
    "dilation_y": 1,
    "dilation_x": 1,
    "top": -1,
    "left": -1,
    "out_height": 4,
    "out_width": 3,
}


def unit(variant=None):
    return Unit(config=CONFIGS[variant or chosen_variant()])


async def started(dut, name, **rates):
    """Return the unit's bench with parameters and tables loaded, and a source of instructions for
    it.
    """
    config = CONFIGS[chosen_variant()]
    random = rng("activation_unit", name, chosen_variant())
    bench = Surroundings(dut, config, random, **rates)
    await bench.start()
    await bench.load()
    return bench, Jobs(random, config)


def left_out(cycles, turns):
    """Return the number of empty steps after a step, for a pause of at least `cycles` cycles.

    The pause is given for steps of one cycle. For steps of `turns` cycles it is longer by
    2 (`turns` - 1) cycles.
    """
    return cycles and -(-(cycles + 1 + 2 * (turns - 1)) // turns) - 1


GATES_APART = {1: 31, 2: 31}
"""The least number of steps from one vector with a gate function to the next such vector.

Gate functions are SIGMOID, TANH and EXP. The keys are the number of cycles of a step.
"""
GATES_TAKE_TURNS = {1: 3, 2: 2}
"""A period in steps: vectors with gate functions start GATES_APART and n periods apart, n >= 0.

The keys are the number of cycles of a step. Any larger distance is allowed when the older vector
has left the lanes.
"""
GATES_ALONE = {1: 88, 2: 62}
"""Steps from the last vector with a gate function to a step of an instruction of another kind.

The keys are the number of cycles of a step.
"""


class Gates:
    """A model of the steps in which a vector may follow the last vector with a gate function."""

    def __init__(self, turns):
        self._turns = turns
        self._issued, self._job = None, None

    def after(self, job, step, *, issues):
        """Return the first step, not before `step`, that the gates allow an instruction to take.

        With `issues` the instruction issues a vector in this step.
        """
        if self._job is None:
            return step
        turns, lines = self._turns, self._job.opcode in READERS
        end = self._issued + GATES_ALONE[turns]
        end += lines and left_out(LONG_SPACING, turns) + 1
        alike = job.is_gate and lines == (job.opcode in READERS)
        if not alike or self._is_alone(job) or self._is_alone(self._job):
            return max(step, end)
        while (
            issues
            and step < end
            and (step - self._issued - GATES_APART[turns]) % (GATES_TAKE_TURNS[turns])
        ):
            step += 1
        return step

    def _is_alone(self, job):
        """Return whether no other instruction may use the gates together with this instruction.

        The gates are its own if the instruction scales elements, or calculates 1/x.
        """
        return job.is_scaled or (
            job.fields["function"] == Function.EXP and job.fields["table"] >= RECIPROCAL
        )

    def issue(self, job, step):
        """Note that a vector of the instruction is issued in this step."""
        if job.is_gate:
            assert self._job is None or step - self._issued >= GATES_APART[self._turns], job
            assert step == self.after(job, step, issues=True), job
            self._issued, self._job = step, job


PARTITION = 74
"""The steps from the last step of a partition, besides one for each lane, to the next issue."""


def spacing(job, ends, config):
    """Return the least and the largest number of cycles without a step after a vector of a job."""
    if ends and job.is_curve:
        cycles = AFTER_SCALED_CURVE if job.is_scaled else LONG_SPACING
        return cycles, cycles
    if job.is_scaled and (ends or job.accumulates):
        return LONG_SPACING, LONG_SPACING
    if ends and job.opcode in READERS:
        return DRAIN_SPACING, DRAIN_SPACING
    if job.accumulates:
        steps = job.steps(config)[0] - job.is_relative
        late = config.training and steps >= ADDEND_SPACING + 2 - job.paired(config)
        cycles = ADDEND_SPACING * (not late) if job.opcode in READERS else int(ends)
        return cycles, cycles
    if job.wide:
        # Two lines are written. If two lines are read meanwhile, no cycle need be lost.
        return int(job.opcode == Opcode.ACTIVATE), 1
    return 0, 0


CURVE = 4
"""The number of cycles by which a result from a curve is written later than other results."""
GATHER = 20
"""The number of steps from a vector with function TABLE until an instruction may look up int32."""
AFTER_SCALED_CURVE = 28
"""The number of cycles without a step after an instruction that sums scaled elements on a curve."""
SLOT = 9
"""Cycles from the last step of a scaled sum to a step in which no element may be scaled.

An element that was scaled then would meet the sum in the requantisers.
"""


def waits(run, step, before, now, bench):
    """Return the number of empty steps between two steps, without those that were forbidden.

    A step is forbidden if it needs the requantisers in the same cycle as the sum of an older
    vector.
    """
    job, turns = run.job, bench.turns
    halves = 1 + (job.fields.get("wide_operands", 0) and not job.paired(bench.config))
    free = list(range(before + 1, now))
    operand = "ab"[step // halves] if job.is_scaled and step < 2 * halves else None
    if operand and step % halves == halves - 1 and not job.is_halved(operand):
        meets = [slot for slot in range(2 * SLOT) if abs(slot * turns - SLOT) < turns]
        taken = {steps[-1] + slot for steps in run.steps for slot in meets}
        assert now not in taken, job
        free = [cycle for cycle in free if cycle not in taken]
    return len(free)


def check_cycles(bench, runs):
    """Check that each step and each line written came in the cycle in which it had to."""
    before, before_that, least, most = None, None, 0, 0
    turns = bench.turns
    gates = Gates(turns)
    looked_up = None  # last step of a vector with function TABLE
    held = 0  # first step in which a vector may be issued after the last partition
    start = runs[0].steps[0][0]
    for run in runs:
        job = run.job
        issued = [steps[-1] for steps in run.steps]
        assert not any((step - start) % turns for steps in run.steps for step in steps)
        run.steps = [[(step - start) // turns for step in steps] for steps in run.steps]
        # There is at least one cycle between two walks.
        least, most = max(least, 1), max(most, 1)
        if before_that is not None:
            most = max(most, before_that + -(-AFRESH // turns) - before - 1)
        before_that = before
        for vector, steps in enumerate(run.steps):
            if not run.hindered:
                issue = steps[-1]
                if len(steps) > 1 and (job.is_gate or held > steps[-2] + 1):
                    soonest = max(steps[-2] + 1, held)
                    assert issue == gates.after(job, soonest, issues=True), (job, vector)
                    steps[-1] = steps[-2] + 1
                gaps = [
                    waits(run, step + 1, a, b, bench)
                    for step, (a, b) in enumerate(itertools.pairwise(steps))
                ]
                loads = len(steps) - job.taps
                if loads > 0 and job.opcode == Opcode.DEPTHWISE and job.taps <= TAP_SPACING:
                    assert gaps.pop(loads - 1) == left_out(TAP_SPACING, turns), (job, vector)
                assert not any(gaps), (job, vector)
                if before is not None:
                    assert least <= steps[0] - before - 1, (job, vector)
                    alone = len(steps) == 1
                    soonest = max(before + 1 + least, held * alone)
                    soonest = gates.after(job, soonest, issues=alone)
                    latest = max(before + 1 + most, held * alone)
                    latest = gates.after(job, latest, issues=alone)
                    late = waits(run, 0, before, steps[0], bench)
                    if job.gathers and looked_up is not None:
                        soonest = max(soonest, looked_up + 1 + GATHER)
                        latest = max(latest, looked_up + 1 + GATHER)
                    assert soonest <= steps[0], (job, vector)
                    assert late <= latest - before - 1, (job, vector)
                steps[-1] = issue
            before = steps[-1]
            gates.issue(job, before)
            if job.looks_up:
                looked_up = before
            if job.is_partition:
                held = before + PARTITION + bench.config.cols
            if job.is_gate:
                least = most = GATES_APART[turns] - GATES_TAKE_TURNS[turns]
            else:
                pauses = spacing(job, vector + 1 == len(run.steps), bench.config)
                least, most = (left_out(cycles, turns) for cycles in pauses)
        lines = bench.written[run.first : run.first + len(job.writes())]
        late = 3 * (turns - 1)  # a read may come in any cycle of a step, a write comes in the last
        delay = LATENCY + late + (SUM_LATENCY if job.opcode in READERS else 0)
        if job.is_scaled:
            delay = LATENCY + late + SCALED_LATENCY
        delay += CURVE * job.is_curve
        if not job.is_gate and not job.is_partition:
            assert lines[:: 1 + job.wide] == [now + delay for now in issued], job
        if job.wide:
            assert lines[1::2] == [now + turns for now in lines[::2]], job


@cocotb.test
async def full_rate(dut):
    """Check that random instructions have a step in every cycle except for documented pauses."""
    bench, jobs = await started(dut, "rate")
    done = [jobs.some() for _ in range(COUNT)]
    runs = await bench.perform(done)
    await bench.finish(done)
    first = runs[0].steps[0][0] - runs[0].offered
    assert FRONT_LATENCY <= first < FRONT_LATENCY + bench.turns
    check_cycles(bench, runs)


@cocotb.test
async def random_waits(dut):
    """Check random instructions while addresses are in use and memories busy at random."""
    bench, jobs = await started(dut, "waits", blocked=0.3, busy=0.3)
    done = [jobs.some() for _ in range(2 * COUNT)]
    await bench.perform(done, idle=(0, 0, 1, 20))
    await bench.finish(done)


def scaled_by(job, scale):
    """Return the job with `scale` in place of the scales of its operands."""
    return job._replace(scale={**job.scale, **scale})


@cocotb.test
async def durations(dut):
    """Check how many cycles chosen instructions take from their first step to the last one."""
    bench, jobs = await started(dut, "durations")
    config = bench.config
    # If two columns share a lane, sums and scaled elements meet in the requantisers. So from the
    # third vector on, two vectors take eight steps.
    in_turn = 3 * 8 + 2 if bench.turns > 1 else 7 * 2
    taps_pause = left_out(TAP_SPACING, bench.turns)
    narrow = {"rows": 7, "wide": 0, "function": Function.NONE}
    bytes_only = {**narrow, "wide_operands": 0}
    operations = {Operation.COPY: 1, Operation.ADD: 2, Operation.SUBTRACT: 2, Operation.MULTIPLY: 2}
    half = {"multiplier_a": 1 << 30, "shift_a": 0}
    third = {f"{name}_b": value for name, value in (("multiplier", 1431655765), ("shift", 1))}
    third_of_a = {name.replace("_b", "_a"): value for name, value in third.items()}
    small = {**WINDOW, "kernel_height": 1, "kernel_width": 1}
    cases = [
        (jobs.of(Opcode.ACTIVATE, **{**narrow, "n_tiles": 3}), 3 * 7),
        *(
            (
                scaled_by(jobs.of(Opcode.VECTOR, **bytes_only, operation=operation), half | third),
                in_turn if operation in SUMS else 7 * lines,
            )
            for operation, lines in operations.items()
        ),
        # From the sixth vector on, a vector takes four steps: its two elements and a sum of an
        # older vector use the requantisers one after the other.
        *(
            (
                scaled_by(
                    jobs.of(Opcode.VECTOR, **bytes_only, operation=operation), third_of_a | third
                ),
                in_turn if bench.turns > 1 else 5 * 2 + 2 * 4,
            )
            for operation in SUMS
        ),
        (jobs.of(Opcode.POOL, window=WINDOW, blocks=2), 2 * 12 * 6),
        (jobs.of(Opcode.POOL, window=small, blocks=2), 2 * 12),
    ]
    if config.depthwise:
        cases += [
            (jobs.of(Opcode.DEPTHWISE, window=WINDOW, blocks=2), 2 * (6 + 12 * 6)),
            (jobs.of(Opcode.DEPTHWISE, window=small, blocks=3), 3 * (1 + taps_pause + 12)),
        ]
    if config.wide:
        wide = {**narrow, "wide": 1, "accumulate": 0}
        halves = {**narrow, "wide_operands": 1}
        both = {**bytes_only, "wide": 1}
        # Both lines of an int16 vector are read in one step only if the first line is even.
        copy = jobs.of(Opcode.VECTOR, **halves, operation=Operation.COPY)
        addition = jobs.of(Opcode.VECTOR, **halves, operation=Operation.ADD)
        adds_up = jobs.of(Opcode.VECTOR, **both, accumulate=1, operation=Operation.ADD)
        tanh = jobs.of(
            Opcode.VECTOR,
            **{**halves, "wide": 1, "accumulate": 0, "function": Function.TANH},
            operation=Operation.COPY,
        )
        copy_adds = jobs.of(Opcode.VECTOR, **both, accumulate=1, operation=Operation.COPY)
        if addition.paired(config):
            of_addition = 5 * 2 + 2 * 4
        else:
            of_addition = 7 * 4 if bench.turns == 1 else 4 + 6 * 6
        cases += [
            (jobs.of(Opcode.ACTIVATE, **{**wide, "n_tiles": 2}), 2 * 7 * 2 - 1),
            (jobs.of(Opcode.VECTOR, **both, accumulate=0, operation=Operation.COPY), 7 * 2 - 1),
            (copy, sum(copy.steps(config))),
            (addition, of_addition),
            (
                jobs.of(Opcode.ACTIVATE, **{**wide, "function": Function.SIGMOID, "n_tiles": 1}),
                6 * GATES_APART[bench.turns] + 1,
            ),
            (tanh, 6 * GATES_APART[bench.turns] + tanh.steps(config)[0]),
            (adds_up, sum(adds_up.steps(config)) + 6 * left_out(LONG_SPACING, bench.turns)),
            (copy_adds, sum(copy_adds.steps(config)) + 6 * left_out(ADDEND_SPACING, bench.turns)),
        ]
    for job, cycles in cases:
        (run,) = await bench.perform([job])
        assert run.steps[-1][-1] - run.steps[0][0] == (cycles - 1) * bench.turns, job
        for _ in range(100):
            await bench.step()
    await bench.finish([job for job, _ in cases])


@cocotb.test
async def tables(dut):
    """Check looks into several tables, while loads of one or more of them are under way."""
    bench, jobs = await started(dut, "tables", blocked=1, blocking=("loading",))
    if not bench.config.attention:
        return
    used = {"function": int(Function.QUOTIENT), "wide": 0, "wide_operands": 0}
    last = bench.config.tables - LONG_TABLES
    done = [
        jobs.of(Opcode.VECTOR, operation=int(operation), table=table, **used)
        for _ in range(8)
        for operation in (Operation.COPY, Operation.ADD)
        for table in range(last + 1)
    ]
    await bench.perform(done)
    await bench.finish(done)


@cocotb.test
async def partitions(dut):
    """Check partitions one after the other, and instructions that use their entries at once."""
    bench, jobs = await started(dut, "partitions")
    if not bench.config.attention:
        return
    number = bench.config.parameter_entries
    looks_up = {"function": int(Function.QUOTIENT), "wide_operands": 0}
    done = []
    for _ in range(20):
        entry = jobs.random.randrange(number)
        # The numbers of table 0 are small, so the entry of their sum leaves something of a result.
        table = jobs.random.choice((0, 0, 0, bench.config.tables - LONG_TABLES))
        rows = jobs.random.choice((1, 2, 40, 80))
        at = {"operation": int(Operation.ADD), "rows": rows, "table": table, "parameter": entry}
        done.append(jobs.of(Opcode.VECTOR, **looks_up, **at, accumulate=1, wide=0))
        large = {"table": bench.config.tables - LONG_TABLES, "operation": int(Operation.COPY)}
        uses = {**looks_up, **large, "wide": 1, "accumulate": 0, "rows": 5}
        for _ in range(jobs.random.choice((0, 1, 2))):
            entry = jobs.random.choice((entry, entry, jobs.random.randrange(number)))
            done.append(jobs.of(Opcode.VECTOR, **uses, parameter=entry))
    # Each entry is used at last, so that a write into a wrong entry shows.
    done += [jobs.of(Opcode.VECTOR, **uses, parameter=entry) for entry in range(number)]
    runs = await bench.perform(done)
    await bench.finish(done)
    check_cycles(bench, runs)


@cocotb.test
async def corners(dut):
    """Check windows wholly outside the map, the largest kernel of Depthwise, every kind of sum."""
    bench, jobs = await started(dut, "corners")
    away = [
        {**WINDOW, "top": -9, "out_height": 2},
        {**WINDOW, "left": 5, "out_width": 2},
        {**WINDOW, "top": -2, "left": -3, "dilation_y": 2, "dilation_x": 4},
    ]
    # These parameters have short shifts, so that the value of a window without a pixel shows.
    shown = {"zero_point": 0, "floor": -128, "ceiling": 127}
    done = [
        jobs.of(Opcode.POOL, window=window, reduction=reduction, parameter=4 * entry, **shown)
        for entry, window in enumerate(away)
        for reduction in map(int, Reduction)
    ]
    if bench.config.depthwise:
        full = {**WINDOW, "kernel_height": 8, "kernel_width": 8}
        done += [jobs.of(Opcode.DEPTHWISE, window=window) for window in (*away, full)]
        done.append(jobs.of(Opcode.DEPTHWISE, window={**full, "kernel_height": 1}, blocks=2))
    for operation in Operation:
        for function in (Function.NONE, Function.RELU, Function.RELU6):
            fields = {"operation": int(operation), "function": function, "wide": 0}
            done += [jobs.of(Opcode.VECTOR, **fields) for _ in range(3)]
    await bench.perform(done)
    await bench.finish(done)


@pytest.mark.parametrize(("simulator", "variant"), long_variants(*CONFIGS, rare=RARE))
def test_activation_unit(simulator, variant):
    assert ActivationUnit.latency() == LATENCY
    assert HARDWARE_SUM_LATENCY == SUM_LATENCY
    assert HARDWARE_SCALED_LATENCY == SCALED_LATENCY
    assert HARDWARE_ANNOUNCED == ANNOUNCED
    assert HARDWARE_FRONT_LATENCY == FRONT_LATENCY
    config = CONFIGS[variant]
    assert lanes_are_instances(config) == ("placed" in variant)
    text = ""
    if lanes_are_instances(config):
        assert group_size(config) == 5
        text = convert(LaneGroup(config=config), "lane_group")
        text += convert(ActivationLane(config=config), "activation_lane")
    run_unit("test_activation_unit", simulator, unit(variant), variant=variant, modules=text)
