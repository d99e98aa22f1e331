# SPDX-License-Identifier: Apache-2.0
"""Tests that a damaged model file gives a clear error, or the official interpreter's results."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence

import pytest

from systola.runtime import api
from systola.verif.compiler.isolation import Isolation
from systola.verif.compiler.judge import Verdict, verdicts
from systola.verif.compiler.mutants import make_mutant, model_file, model_files
from systola.verif.kit.seeds import random_seed
from systola.verif.plan.selection import thorough

PRESETS = ("small", "tiny", "base", "8x5")
MUTANTS, MORE_MUTANTS = 150, 500
"""Numbers of damaged files in the quick tests and in all tests; `make soak` tries other files."""
ALL_MUTANTS = 12_000
"""Number of damaged files, made of all models, with --exhaustive; they take about half an hour."""


@pytest.fixture(scope="module")
def judge() -> Iterator[Isolation]:
    with Isolation(verdicts) as isolation:
        yield isolation


def verdict_of(judge: Isolation, content: bytes, preset: str, seed: int) -> Verdict:
    """Return the verdict on a model file, also if the judge's process has crashed on it."""
    found, status = judge.call(content, preset, seed)
    return found[-1] if found else Verdict("wrong", f"the process has ended with status {status}")


def check_mutants(judge: Isolation, names: Sequence[str], count: int) -> Counter[str]:
    """Judge a number of damaged files; return how often each kind of verdict occurred.

    The test fails if a verdict is 'wrong'.
    """
    seed = random_seed()
    kinds: Counter[str] = Counter()
    wrong: list[str] = []
    for number in range(count):
        mutant = make_mutant(names, seed, number)
        preset = PRESETS[number % len(PRESETS)]
        verdict = verdict_of(judge, mutant.content, preset, number)
        kinds[verdict.kind] += 1
        if verdict.kind == "wrong":
            wrong.append(f"{mutant.name}; preset {preset}\n{verdict.text}")
    assert not wrong, f"{len(wrong)} of {count}:\n" + "\n".join(wrong[:10])
    print(f"{count} mutants: {dict(kinds)}")
    return kinds


@pytest.mark.parametrize("name", model_files(large=True))
def test_whole_files(judge: Isolation, name: str) -> None:
    assert verdict_of(judge, model_file(name), "base", random_seed()).kind == "equal"


@pytest.mark.parametrize("count", [MUTANTS, thorough(MORE_MUTANTS)])
def test_some_mutants(judge: Isolation, count: int) -> None:
    kinds = check_mutants(judge, model_files(large=False), count)
    assert kinds["refused"] > count // 4
    assert kinds["equal"]


def test_mutant_with_a_version_beyond_32_bits(judge: Isolation) -> None:
    """Check a QLinearSoftmax with the version 2^40 of its operators, which ONNX Runtime takes as 0.

    Seeds of `make soak` made this file.
    """
    mutant = make_mutant(model_files(large=False), 2121313252, 104)
    assert "opset = 1099511627776" in mutant.name
    assert verdict_of(judge, mutant.content, "small", 104).kind == "equal"


@pytest.mark.exhaustive
def test_many_mutants(judge: Isolation) -> None:
    kinds = check_mutants(judge, model_files(large=True), ALL_MUTANTS)
    assert kinds["refused"] > ALL_MUTANTS // 4
    assert kinds["equal"] > ALL_MUTANTS // 20


@pytest.mark.thorough
def test_compiling_is_deterministic() -> None:
    """Check that the order of sets and dictionaries in Python does not change programs."""
    found = [
        subprocess.run(
            [sys.executable, "-m", __name__],
            env={**os.environ, "PYTHONHASHSEED": str(seed)},
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        ).stdout
        for seed in (1, 2)
    ]
    assert found[0].count("\n") == len(model_files(large=True))
    assert found[0] == found[1]


def print_programs() -> None:
    """Print the name of each stored model and a checksum of its program."""
    for name in model_files(large=True):
        program = api.compile(model_file(name), batch=3).to_bytes()
        print(name, hashlib.sha256(program).hexdigest())


if __name__ == "__main__":
    print_programs()
