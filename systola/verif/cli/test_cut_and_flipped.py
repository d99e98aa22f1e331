# SPDX-License-Identifier: Apache-2.0
"""Tests of commands with damaged input files: cut short, or with a flipped bit, at many places.

For a damaged file, a command prints one line, gives status 2 and writes nothing. If the file is
still valid, the command uses it. The command takes neither long nor much memory. A file with a
checksum is refused wherever a bit of its content is flipped.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import resource
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path

import numpy as np
import pytest

from systola.arch.assembler import assemble_program
from systola.arch.config import preset
from systola.cli import main
from systola.runtime import api
from systola.training import SGD, Dense, Input, Sequential
from systola.verif.compiler.isolation import Isolation

STEP = 97
"""Number of bytes from one damaged place of a file to the next."""
SAMPLES = 12
"""Number of places of a file that the quick test damages."""
MOST_BYTES = 2 << 30
"""Bytes of address space that a command may take besides the process's space at the start."""
MODEL = "mlp_floatio.tflite"
ASSEMBLY = "# a comment\nset_register register=1, value=5\nloop count=3\nnop\nend_loop\nhalt\n"


@dataclass(frozen=True)
class Kind:
    """A kind of input file: a function that makes one, and a command that reads it."""

    make: Callable[[], bytes]
    command: str
    """Command line that reads the file `m` and writes the file `out`."""
    sealed: bool
    """True if a checksum covers the file's content, so that no damaged file is valid.
    """


def model(name: str) -> bytes:
    return (files("systola.models") / name).read_bytes()


def onnx() -> bytes:
    """Return the content of the smallest stored ONNX model."""
    folder = files("systola.models")
    found = [each.read_bytes() for each in folder.iterdir() if each.name.endswith(".onnx")]
    return min(found, key=len)


def program() -> bytes:
    compiled = api.compile(model(MODEL), preset="tiny", batch=2)
    return compiled.to_bytes()


def checkpoint() -> bytes:
    network = Sequential([Input((64,)), Dense(5, "relu"), Dense(3)])
    network.compile(SGD(0.1, 0.5), preset="8x8-training", backend="iss")
    rng = np.random.default_rng(1)
    network.fit(rng.uniform(size=(8, 64)), rng.integers(0, 3, 8), verbose=0)
    with tempfile.TemporaryDirectory() as folder:
        network.save(Path(folder) / "m")
        return (Path(folder) / "m").read_bytes()


def samples(*, labels: bool) -> bytes:
    content = io.BytesIO()
    rng = np.random.default_rng(1)
    y = {"y": np.zeros(3, int)} if labels else {}
    np.savez(content, x=rng.integers(0, 2, (3, 1, 64)).astype(np.float32), **y)
    return content.getvalue()


def compressed() -> bytes:
    content = io.BytesIO()
    rng = np.random.default_rng(1)
    np.savez_compressed(content, x=rng.integers(0, 99, (8, 64)), y=np.zeros(8, int))
    return content.getvalue()


RUN = "--backend iss --input x.npz --output out"
TRAIN = "--backend iss --preset 8x8-training -q"
KINDS = {
    "tflite": Kind(lambda: model(MODEL), "compile m -o out --preset tiny --batch 2", False),
    "tflite that is run": Kind(lambda: model(MODEL), f"run m --preset tiny {RUN}", False),
    "onnx": Kind(onnx, "compile m -o out --preset small --batch 2", False),
    "program": Kind(program, f"run m {RUN}", True),
    "checkpoint": Kind(checkpoint, "compile m -o out --preset small", True),
    "checkpoint that is run": Kind(checkpoint, f"run m --preset small {RUN}", True),
    "checkpoint that goes on": Kind(checkpoint, f"train m --data x.npz {TRAIN} --json out", True),
    "samples": Kind(
        lambda: samples(labels=False), f"run t --preset tiny {RUN.replace('x.npz', 'm')}", True
    ),
    "data": Kind(compressed, f"train 3 --data m {TRAIN} --json out", True),
    "assembly": Kind(ASSEMBLY.encode, "asm m -o out", False),
    "program of instructions": Kind(
        lambda: assemble_program(ASSEMBLY, preset("base")), "disasm m", False
    ),
}


@cache
def content_of(name: str) -> bytes:
    return KINDS[name].make()


def run_all(kind: str, content: bytes, places: list[int]) -> Iterator[tuple[str, str]]:
    """Run the command of a kind on the whole file, and on the file cut and flipped at `places`.

    Yields each change with the command's exit status, or with a description of its wrong behaviour.
    This function must run in a process of its own.
    """
    now = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (now + MOST_BYTES, resource.RLIM_INFINITY))
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        Path("x.npz").write_bytes(samples(labels=True))
        Path("t").write_bytes(model(MODEL))
        Path("m").write_bytes(content)
        yield "whole", _wrong(KINDS[kind].command, valid=True)
        for place in places:
            Path("m").write_bytes(content[:place])
            yield f"cut at {place}", _wrong(KINDS[kind].command, valid=None)
            flipped = bytearray(content)
            flipped[place] ^= 1 << place % 8
            Path("m").write_bytes(flipped)
            yield f"bit {place % 8} flipped at {place}", _wrong(KINDS[kind].command, valid=None)
        os.chdir("/")


def _wrong(command: str, *, valid: bool | None) -> str:
    """Run a command, and return its exit status, or a description of its wrong behaviour.

    `valid` is True or False for a good or a bad input file, None if the file may be either.
    """
    out, err = io.TextIOWrapper(io.BytesIO()), io.TextIOWrapper(io.BytesIO())
    before = sorted(os.listdir())
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            status = main.main(command.split())
        except BaseException as error:
            return f"{type(error).__name__}: {error}"
        out.flush()
        err.flush()
    written, line = out.buffer.getvalue(), err.buffer.getvalue()
    Path("out").unlink(missing_ok=True) if status == 0 else None
    if sorted(os.listdir()) != before:
        return f"status {status}, but files {sorted(os.listdir())}"
    if status == 2 and not written and re.fullmatch(rb"tpu: error: [^\n]+\n", line) and not valid:
        return "2"
    return "0" if status == 0 else f"status {status}, {written!r:.200}, {line!r:.400}"


@pytest.fixture(scope="module")
def isolation() -> Iterator[Isolation]:
    with Isolation(run_all) as found:
        yield found


def check(isolation: Isolation, name: str, places: list[int]) -> None:
    found, status = isolation.call(name, content_of(name), places)
    assert len(found) == 1 + 2 * len(places), f"after {found[-1:]} ended with status {status}"
    wrong = [each for each in found if each[1] not in ("0", "2")]
    assert not wrong, wrong[:5]
    assert found[0] == ("whole", "0")
    if KINDS[name].sealed:
        believed = [
            what
            for what, result in found[1:]
            if result == "0" and ("cut" in what or _is_content(name, int(what.split()[-1])))
        ]
        assert not believed, believed


def _is_content(name: str, place: int) -> bool:
    """Return whether the byte at `place` of an archive is content of a member.

    Bytes in the archive's directory and in headers of members are no content: they hold times and
    attributes that do not matter.
    """
    content = content_of(name)
    if place >= content.find(b"PK\x01\x02"):
        return False
    header, following = content.rfind(b"PK\x03\x04", 0, place + 1), content.find(b"PK", place + 1)
    # The last compressed byte has bits that do not matter.
    return place - header > 100 and following - place > 1


@pytest.mark.parametrize("name", KINDS)
def test_some_places(isolation: Isolation, name: str) -> None:
    """Check files damaged at the first place, the last, and some places between."""
    size = len(content_of(name))
    check(
        isolation, name, sorted({number * (size - 1) // (SAMPLES - 1) for number in range(SAMPLES)})
    )


@pytest.mark.thorough
@pytest.mark.exhaustive
@pytest.mark.parametrize("name", KINDS)
def test_every_97th_byte(isolation: Isolation, name: str) -> None:
    size = len(content_of(name))
    places = list(range(0, size, STEP))
    for first in range(0, len(places), 100):
        check(isolation, name, places[first : first + 100])
