# SPDX-License-Identifier: Apache-2.0
"""Compiled models in files: they come back as they were, or with one clear message not at all."""

from __future__ import annotations

import io
import json
import random
import zipfile
from contextlib import suppress
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from systola.compiler.errors import ModelError
from systola.runtime import program_file
from systola.runtime.api import compile as compile_file
from systola.runtime.api import load
from systola.runtime.backend import BackendError
from systola.runtime.compiled_model import CompiledModel
from systola.runtime.execute import HostError
from systola.runtime.program_file import ProgramFileError, is_program
from systola.verif.kit.seeds import random_seed

MODELS = Path(str(files("systola.models")))
NAMES = sorted(path.stem for path in MODELS.glob("*.tflite"))


@cache
def compiled(name: str) -> CompiledModel:
    return compile_file(MODELS / f"{name}.tflite", batch=4)


@pytest.mark.parametrize("name", NAMES)
def test_round_trip(name: str, tmp_path: Path) -> None:
    model = compiled(name)
    model.save(tmp_path / "p")
    content = (tmp_path / "p").read_bytes()
    assert is_program(content)
    for back in (load(tmp_path / "p"), load(content)):
        assert back.to_bytes() == content
        assert (back.config, back.semantics) == (model.config, model.semantics)
        assert (back.macs, back.batch) == (model.macs, 4)
    if model.macs < 1_000_000:
        with np.load(MODELS / f"{name}.npz") as stored:
            x, expected = stored["x" if "x" in stored.files else "x0"], stored["y_ref"]
        assert np.array_equal(load(content).run(x, backend="iss").y, expected)


def loaded(content: bytes) -> CompiledModel | None:
    """The model in a file; None where it is refused, with one line."""
    try:
        return load(content)
    except ProgramFileError as error:
        if "\n" in str(error):
            raise
        return None


def members_of(content: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def archive_of(members: dict[str, bytes], compression: int = zipfile.ZIP_STORED) -> bytes:
    """An archive whose checksum is right, whatever is in it."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", compression) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
        archive.comment = program_file._checksum(members)
    return content.getvalue()


def test_mutated_bytes() -> None:
    """Bytes changed, cut out, doubled and put in, anywhere."""
    content = compiled("mlp_odd_relu6_tanh_sigmoid").to_bytes()
    rng = random.Random(random_seed())
    for _ in range(3000):
        mutant = bytearray(content)
        for _ in range(rng.choice((1, 1, 3))):
            at, size = rng.randrange(len(content)), rng.choice((1, 4, 100))
            piece = rng.choice((b"", rng.randbytes(size), bytes(mutant[at : at + size]) * 2))
            mutant[at : at + size] = piece
        if rng.random() < 0.1:
            del mutant[rng.randrange(len(mutant)) :]
        # What the archive says of itself may change where nothing in it does.
        back = loaded(bytes(mutant))
        assert back is None or back.to_bytes() == content


JUNK: tuple[object, ...] = (None, True, -1, 0, 1, 2**70, 0.5, "", "View", [], [1], {}, {"class": 1})


def mutate(rng: random.Random, node: Any) -> Any:
    """JSON with one thing in it changed."""
    items = list(node.items() if isinstance(node, dict) else enumerate(node))
    if not items:
        return rng.choice(JUNK)
    key, child = rng.choice(items)
    copy = node.copy()
    if isinstance(child, (dict, list)) and rng.random() < 0.9:
        copy[key] = mutate(rng, child)
    elif rng.random() < 0.2:
        copy.pop(key)
    elif type(child) is int and rng.random() < 0.5:
        copy[key] = child + rng.choice((-1, 1, 16, 4096))
    else:
        copy[key] = rng.choice(JUNK)
    return copy


def test_hostile_descriptions() -> None:
    """Descriptions with right checksums are refused, or run without harm."""
    members = members_of(compiled("mlp_floatio").to_bytes())
    rng = random.Random(random_seed())
    x = np.zeros((2, 1, 64), np.float32)
    description = json.loads(members["program.json"])
    ran = 0
    for _ in range(2000):
        mutant = json.dumps(mutate(rng, description)).encode()
        model = loaded(archive_of({**members, "program.json": mutant}))
        if model is not None:
            ran += 1
            with suppress(ModelError, HostError, BackendError):
                model.run(x, backend="iss")
    assert 0 < ran < 1000
