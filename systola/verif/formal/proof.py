# SPDX-License-Identifier: Apache-2.0
"""Formal proofs: SymbiYosys and a solver prove a harness, or find faults planted in its unit."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import CodeType, FunctionType

from amaranth.back import rtlil

from systola.hdl import module_of
from systola.verif.formal.harness import Harness

TOOLS = ("sby", "yosys", "yosys-smtbmc", "yosys-witness")
SOLVER = "yices"
SCRIPT = """\
[options]
mode {mode}
depth {depth}
[engines]
smtbmc {solver}
[script]
read_rtlil top.il
prep -top top
[files]
top.il
"""
_FAILED = re.compile(r"Assert failed in \S+: (?:.*/)?(\w+\.py):(\d+)")


@dataclass(frozen=True, kw_only=True)
class Fault:
    """A planted fault: in hdl/, the file `unit`.py has `new` where `old` is right.

    Each planted fault is a mistake that a person could make.
    """

    unit: str
    old: str
    new: str


@dataclass(frozen=True, kw_only=True)
class Proof:
    """A claim about a unit in hdl/, with the harness that proves it.

    With `bounded` the claim is proven for the first `depth` cycles, for any inputs. Otherwise it is
    proven for all time, by induction over `depth` cycles. `faults` are planted faults that must be
    found within `fault_depth` cycles. A proof that is not `quick` stays out of the regression.
    """

    unit: str
    claim: str
    harness: type[Harness]
    depth: int
    bounded: bool = False
    faults: tuple[Fault, ...]
    fault_depth: int
    quick: bool = True

    @property
    def method(self) -> str:
        return f"first {self.depth} cycles" if self.bounded else f"induction, k = {self.depth}"


@dataclass(frozen=True)
class Verdict:
    """A verdict on a proof: whether its claim `holds`, or whether there is a `counterexample`.

    `what` summarises the tool's output in a few words, with the place of a failed assertion.
    """

    holds: bool
    counterexample: bool
    what: str
    seconds: float


class ToolsMissing(Exception):
    """An error that is raised if a program that proofs need is not installed.

    The message names the program and how to install it.
    """


@cache
def tool(name: str) -> str:
    """Return the path of a program in the folder of this Python, or else on PATH."""
    beside = Path(sys.executable).with_name(name)
    path = str(beside) if beside.exists() else shutil.which(name)
    if path is None:
        raise ToolsMissing(f"{name} is missing: 'make formal' installs it")
    return path


def check(proof: Proof, folder: Path, fault: Fault | None = None) -> Verdict:
    """Run a proof in `folder`, with a fault planted in the hardware or none; return a verdict."""
    started = time.monotonic()
    bounded = proof.bounded or fault is not None
    with planted(fault):
        text = rtlil.convert(proof.harness(inductive=not bounded), name="top")
    depth = proof.fault_depth if fault else proof.depth
    done = run_sby(text, folder, "bmc" if bounded else "prove", depth)
    return Verdict(
        holds=done.returncode == 0,
        counterexample=done.returncode == 2,
        what=_what(done.returncode, done.stdout),
        seconds=time.monotonic() - started,
    )


def run_sby(text: str, folder: Path, mode: str, depth: int) -> subprocess.CompletedProcess[str]:
    """Run SymbiYosys in `folder` on the RTLIL in `text`; keep its output in the file "log", too."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "top.il").write_text(text)
    (folder / "proof.sby").write_text(SCRIPT.format(mode=mode, depth=depth, solver=SOLVER))
    sby, yosys, smtbmc, witness = (tool(f"yowasp-{name}") for name in TOOLS)
    # SymbiYosys looks for the solver on PATH, which may lack the environment's programs.
    path = os.pathsep.join((str(Path(tool("yices-smt2")).parent), os.environ["PATH"]))
    programs = ["--yosys", yosys, "--smtbmc", smtbmc, "--witness", witness]
    done = subprocess.run(
        [sby, *programs, "-f", "proof.sby"],
        cwd=folder,
        env={**os.environ, "PATH": path},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    )
    (folder / "log").write_text(done.stdout)
    return done


def _what(status: int, log: str) -> str:
    if status == 0:
        return "proven"
    failed = _FAILED.search(log)
    place = f"{failed[1]}:{failed[2]}" if failed else "?"
    if status == 2:
        return f"counterexample, {place}"
    if status == 4:
        return f"no induction, {place}"
    errors = [line for line in log.splitlines() if "ERROR" in line]
    return f"sby stopped: {errors[0] if errors else f'status {status}'}"


@contextmanager
def planted(fault: Fault | None) -> Iterator[None]:
    """Replace the code of the unit's functions by faulty code while the context lasts."""
    if fault is None:
        yield
        return
    module = module_of(fault.unit)
    assert module.__file__ is not None
    source = Path(module.__file__).read_text()
    if source.count(fault.old) != 1:
        raise LookupError(f"{fault.unit}.py has {source.count(fault.old)} x {fault.old!r}")
    faulty: dict[str, object] = {"__name__": module.__name__}
    exec(compile(source.replace(fault.old, fault.new), module.__file__, "exec"), faulty)
    kept: list[tuple[FunctionType, CodeType]] = []
    for function, other in zip(functions(vars(module)), functions(faulty), strict=True):
        kept.append((function, function.__code__))
        function.__code__ = other.__code__
    try:
        yield
    finally:
        for function, code in kept:
            function.__code__ = code


def functions(namespace: dict[str, object]) -> list[FunctionType]:
    """Return the functions and methods that a module defines, in order."""
    found: list[FunctionType] = []
    for value in namespace.values():
        if getattr(value, "__module__", None) != namespace["__name__"]:
            continue
        members = vars(value).values() if isinstance(value, type) else [value]
        found += [item for item in members if isinstance(item, FunctionType)]
    return found
