# SPDX-License-Identifier: Apache-2.0
"""Tests of regressions: programs of all kinds pass, and a planted error is found.

Garbage is a program with meaningless instruction words. A program that finds an error is made
short."""

import json

import numpy as np
import pytest

from systola.arch.config import preset
from systola.arch.isa import Opcode, encode
from systola.golden.machine import Machine
from systola.runtime.engine import run_here
from systola.sim.library import Simulator
from systola.sim.verilator import BuildError
from systola.verif.kit.blame import Writer, last_writer
from systola.verif.kit.images import make_image, random_memory
from systola.verif.kit.seeds import random_seed
from systola.verif.plan.selection import thorough
from systola.verif.regress import check
from systola.verif.regress.__main__ import main
from systola.verif.regress.cases import KINDS, Case
from systola.verif.regress.check import Pair
from systola.verif.regress.disturbances import DISTURBANCES, Expected, error_on
from systola.verif.regress.job import Job, Report, jobs, run_job
from systola.verif.regress.shrink import fewest, with_words, words_of

GARBAGE = 200
ALL_GARBAGE = 100_000
"""Number of garbage programs with --exhaustive; they take about ten minutes."""
DAMAGED, MANY_DAMAGED = 45, 3_000
MOST_BEATS = 400
DISTURBED = 30
MANY_DISTURBED = 5_000


class Broken(Machine):
    """A golden model with a wrong bit in some results of Pool."""

    def pool(self, **operands):
        super().pool(**operands)
        self.buffer[operands["buffer"], 0] ^= 4


@pytest.mark.parametrize("name", ["tiny", thorough("small")])
@pytest.mark.parametrize(
    "count",
    [
        pytest.param(GARBAGE, id="some"),
        pytest.param(ALL_GARBAGE, id="many", marks=pytest.mark.exhaustive),
    ],
)
def test_garbage(name, count):
    """Check that programs with meaningless instruction words never hang.

    They must have the same result or fault on the machine as on the golden model.
    """
    totals = regression("garbage", name, count)
    assert totals.programs + totals.abandoned == count
    assert totals.faults > count // 2


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["tiny", "small"])
@pytest.mark.parametrize(
    "count",
    [
        pytest.param(DAMAGED, id="some"),
        pytest.param(MANY_DAMAGED, id="many", marks=pytest.mark.exhaustive),
    ],
)
def test_damage_comes_late(name, count):
    """Check programs with one wrong field near their end, after hundreds of right instructions."""
    totals = regression("damaged", name, count)
    assert totals.programs + totals.abandoned == count
    assert totals.faults > count // 5
    assert totals.words > 200 * totals.programs


def regression(kind, name, count):
    """Run programs of a kind, and return the totals; all must agree with the golden model."""
    total = Report()
    for report in run_here(jobs(kind, [name], random_seed(), 0, count), 1, run_job):
        assert not report.failures, "\n".join(report.failures)
        total.add(report)
    return total.totals


@pytest.mark.parametrize("name", ["tiny", thorough("small")])
@pytest.mark.parametrize("kind", DISTURBANCES)
@pytest.mark.parametrize(
    "count",
    [
        pytest.param(DISTURBED, id="some"),
        pytest.param(MANY_DISTURBED, id="many", marks=pytest.mark.exhaustive),
    ],
)
def test_disturbances(kind, name, count):
    """Check programs that are disturbed in a random cycle by one of the DISTURBANCES.

    Examples are bus errors, resets and register writes.
    """
    totals = regression(kind, name, count)
    assert totals.programs >= count
    if kind != "writes":
        assert totals.cut_short > count // 2


@pytest.mark.parametrize("name", ["tiny", thorough("small")])
def test_an_error_on_each_beat(name):
    """Check a bus error on each bus beat in turn that reads instructions, data or weights.

    The beats on which a program writes its data are in the test, too.
    """
    config = preset(name)
    image = Case("errors", name, random_seed(), 0).image()
    expected = Expected.of(config, image)
    touched = expected.touched
    first = image.program_offset // config.host_bus_bytes
    program = range(first, first + len(image.program) // config.host_bus_bytes)
    host = set(program).union(*touched.read.values(), *touched.written.values())
    with Simulator(config, latency=3, stall=0.1, seed=random_seed()) as machine:
        pair = Pair(machine)
        for on_host, beats in ((True, host), (False, touched.used)):
            for beat in sorted(beats)[:MOST_BEATS]:
                assert not error_on(pair, image, expected, on_host, beat)
        assert pair.totals.cut_short > pair.totals.programs // 2 > 10


def test_an_error_that_nobody_reports(monkeypatch):
    """Check that the regression finds a machine that reports no bus error.

    For this, the memories answer with OKAY in place of the expected error.
    """
    run = Simulator.run
    monkeypatch.setattr(
        Simulator, "run", lambda self, image, *, limit, **_: run(self, image, limit=limit)
    )
    (text,) = run_job(Job("errors", "tiny", seed=3, first=0, count=20)).failures
    assert "not one of" in text


def test_a_stray_write():
    """Check that `stray` finds a changed byte of the host window that no instruction writes."""
    image = Case("resets", "tiny", 1, 0).image()
    expected = Expected.of(preset("tiny"), image)
    assert expected.stray(image, expected.host) is None
    assert (expected.host != image.host).any()
    quiet = image.host.size - 1
    touched = expected.host.copy()
    touched[quiet] ^= 1
    assert expected.stray(image, touched) == quiet


def test_a_planted_error(monkeypatch):
    monkeypatch.setattr(check, "Machine", Broken)
    report = run_job(Job("programs", "tiny", seed=5, first=0, count=50))
    (text,) = report.failures
    assert "make regress KIND=programs PRESET=tiny SEED=5" in text
    program = [line.strip() for line in text.splitlines() if line.startswith("    ")]
    assert len(program) <= 6
    assert any(line.startswith("pool ") for line in program)
    (blamed,) = [line for line in program if "<-" in line]
    assert blamed.startswith("write_host_memory")


def test_processes_share_the_work():
    work = jobs("programs", ["tiny"], 3, 0, 20)
    assert [job.count for job in work] == [15, 5]
    totals = []
    for processes in (1, 2):
        total = Report()
        for report in run_here(work, processes, run_job):
            total.add(report)
        totals.append(total)
    assert totals[0] == totals[1]
    assert totals[0].totals.programs == 20


@pytest.mark.parametrize("kind", KINDS)
def test_cases_repeat(kind):
    first, again = (Case(kind, "tiny", 1, 4).image() for _ in range(2))
    assert first.program == again.program
    assert first.program != Case(kind, "tiny", 1, 5).image().program
    assert first.program != Case(kind, "tiny", 2, 4).image().program


def test_fewest():
    assert fewest(range(100), lambda kept: {3, 50, 51} <= set(kept)) == [3, 50, 51]
    assert len(fewest(range(9), lambda kept: len(kept) >= 4)) == 4
    assert fewest([1], lambda kept: True) == [1]


def test_last_writer():
    config = preset("tiny")
    copy = {"rows": 1, "stride": config.output_pitch, "blocks": 1, "tail": config.cols}
    program = [
        encode(Opcode.WRITE_HOST_MEMORY, host=0x1000, buffer=0, **copy),
        encode(Opcode.WRITE_HOST_MEMORY, host=0x1000, buffer=1, **copy),
        encode(Opcode.WRITE_HOST_MEMORY, host=0x1010, buffer=2, **copy),
        encode(Opcode.HALT),
    ]
    image = make_image(program, host=random_memory(np.random.default_rng(0), 2))
    found = [last_writer(config, image, place) for place in (0x1003, 0x1010, 0x1800)]
    assert found == [Writer(1, 0, 3), Writer(2, 0, 0), None]
    shorter = with_words(image, words_of(image)[:1])
    assert last_writer(config, shorter, 0x1000) == Writer(0, 0, 0)
    assert last_writer(config, shorter, 0x1010) is None


def test_command(tmp_path, capsys):
    file = tmp_path / "figures.json"
    arguments = ["--preset", "tiny", "--programs", "3", "--seed", "7", "--jobs", "1"]
    assert main([*arguments, "--json", str(file)]) == 0
    assert "3 programs" in capsys.readouterr().out
    assert json.loads(file.read_text())["totals"]["programs"] == 3
    assert main(["--preset", "large"]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_what_is_left_out_is_told(monkeypatch, capsys):
    """Check the messages about programs that were not run.

    A job stops at its first failure, and all jobs stop if a build of the simulator fails.
    """
    monkeypatch.setattr(check, "Machine", Broken)
    arguments = ["--preset", "tiny", "--programs", "20", "--seed", "5", "--jobs", "1"]
    assert main(arguments) == 1
    printed = capsys.readouterr().out
    assert "1 failures" in printed or "2 failures" in printed
    ran = int(printed.rpartition(" programs, ")[0].split()[-1])
    assert f"{20 - ran} programs were not run: a job stops at its first failure" in printed

    def fails(*_, **__):
        raise BuildError("no compiler")

    monkeypatch.setattr("systola.verif.regress.job.Simulator", fails)
    assert main(arguments) == 2
    error = capsys.readouterr().err
    assert error == "regress: stopped after 0 of 2 jobs: no compiler\n"


def test_a_cluster_without_dask(monkeypatch, capsys):
    monkeypatch.setattr("systola.verif.regress.__main__.has_dask", lambda: False)
    assert main(["--scheduler", "tcp://localhost:1"]) == 2
    assert capsys.readouterr().err.count("\n") == 1
