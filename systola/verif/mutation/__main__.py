# SPDX-License-Identifier: Apache-2.0
"""The command `make mutate`: it plants single faults, which the quick regression should find.

First the machine, or pod, with each fault runs programs. Faults that are not found may be proven
harmless. The remaining faults are planted in units, for the units' own tests. The exit status is 1
if too few of the faults that could make a difference are found, or if the regression fails without
a fault. Verdicts are kept: the same command continues after it was stopped.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from tqdm import tqdm

from systola.cli.arguments import OneLineParser, whole_number
from systola.sim.build import build_root, content_key
from systola.synth.errors import SynthesisError
from systola.verif.mutation.campaign import Course
from systola.verif.mutation.design import MACHINE, POD, Design, M
from systola.verif.mutation.equivalence import dead, harmless
from systola.verif.mutation.mutants import mutants_of, mutated_library
from systola.verif.mutation.pod_trials import pod_trials
from systola.verif.mutation.record import Record
from systola.verif.mutation.trial import Differs, TrialOn
from systola.verif.mutation.trials import quick_trials
from systola.verif.mutation.unit_tests import UnitTests, UnitTestsFail

BAR = 0.95
"""Least share of mutants that must be found, among all mutants not proven harmless."""
BATCH = 125
"""Number of mutants in one simulator, which takes a minute to build.

A simulator with a thousand mutants is four times as slow as a simulator without any.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command `make mutate` and return its exit status."""
    options = _parser().parse_args(arguments)
    print(f"SEED={options.seed}")
    folder = build_root() / "mutation"
    folder.mkdir(parents=True, exist_ok=True)
    if options.pod:
        return _campaign(POD, pod_trials(POD, options.seed, options.programs), folder, options)
    trials = quick_trials(MACHINE.config, options.seed, options.programs)
    return _campaign(MACHINE, trials, folder, options)


def _campaign(
    design: Design[M], trials: Sequence[TrialOn[M]], folder: Path, options: argparse.Namespace
) -> int:
    """Run a campaign of trials on mutants of a design, and return the command's exit status."""
    try:
        mutants = mutants_of(design, options.mutants, options.seed)
        key = content_key(design.rtlil, *(str(mutant) for mutant in mutants))
        record = Record.of(folder, mutants, key)
        if not record.proofs:
            for mutant in dead(design, mutants, folder / "proofs"):
                record.add_proof(mutant, design.top)
        _run_trials(design, record, trials, options.jobs)
    except SynthesisError as error:
        print(f"mutate: {error}", file=sys.stderr)
        return 2
    except Differs as difference:
        print(f"mutate: without a fault it fails: {difference}", file=sys.stderr)
        return 1
    if options.seconds:
        unknown = [mutant for mutant in mutants if record.unproven(mutant.number)]
        print(f"{len(unknown)} to be proven harmless or not")
        harmless(
            design,
            unknown,
            folder / "proofs",
            seconds=options.seconds,
            jobs=options.jobs,
            tried=record.add_proof,
        )
    try:
        _test_units(design, record, options.seed, options.jobs)
    except UnitTestsFail as failure:
        print(f"mutate: {failure}", file=sys.stderr)
        return 1
    print(record.summary())
    (options.json or folder / f"{design.top}.json").write_text(
        json.dumps({"seed": options.seed, **record.figures()}, indent=1) + "\n"
    )
    page = folder / f"{design.top}.md"
    page.write_text(record.page(options.seed))
    print(page)
    return int(record.score() < BAR)


def _run_trials(design: Design[M], record: Record, trials: Sequence[TrialOn[M]], jobs: int) -> None:
    """Run the trials on each mutant; each simulator first runs the trials without a fault."""
    batches = [record.mutants[start:][:BATCH] for start in range(0, len(record.mutants), BATCH)]
    todo = [
        [mutant.number for mutant in batch if record.open(mutant.number, len(trials))]
        for batch in batches
    ]
    with tqdm(total=sum(map(len, todo)), unit="mutant", disable=None) as bar:
        for batch, numbers in zip(batches, todo, strict=True):
            if not numbers:
                continue
            course = Course.of(design, mutated_library(design, batch), trials)
            for verdict in course.judge_all(numbers, jobs):
                record.add(verdict, len(trials))
                bar.update()
                if verdict.how != "killed":
                    bar.write(f"{verdict.how:9} {record.mutants[verdict.number - 1].text}")


def _test_units(design: Design[M], record: Record, seed: int, jobs: int) -> None:
    """Run the units' tests on the mutants that have survived the trials of the design."""
    tests = UnitTests(design, seed)
    key = tests.key()
    todo = [mutant for mutant in record.mutants if record.untested(mutant.number, key)]
    with tqdm(total=len(todo), unit="mutant", disable=None) as bar:
        for number, verdict in tests.judge_all(todo, jobs, bar.write):
            if verdict:
                record.add(verdict, 0)
                bar.write(f"{verdict.by:24} {record.mutants[number - 1].text}")
            else:
                record.add_tested(number, key)
            bar.update()


def _parser() -> OneLineParser:
    parser = OneLineParser(prog="mutate", description=__doc__)
    parser.add_argument("--mutants", type=whole_number(1), default=1000, metavar="N")
    parser.add_argument(
        "--programs", type=whole_number(1), default=200, metavar="N", help="random ones"
    )
    parser.add_argument("--seed", type=whole_number(0), default=1, help="of mutants and programs")
    parser.add_argument("--jobs", type=whole_number(1), default=os.cpu_count(), help="processes")
    parser.add_argument(
        "--seconds",
        type=whole_number(0),
        default=60,
        help="limit of a proof that one is harmless; 0: none",
    )
    parser.add_argument(
        "--pod", action="store_true", help="in what makes several machines a pod, not in one"
    )
    parser.add_argument("--json", type=Path, metavar="FILE")
    return parser


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
