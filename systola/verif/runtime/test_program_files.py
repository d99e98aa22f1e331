# SPDX-License-Identifier: Apache-2.0
"""Tests of files with compiled models: a file is loaded as the same model, or is refused."""

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
NAME = "mlp_odd_relu6_tanh_sigmoid"
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
    """Return the model in a file, or None if the file is refused with a message of one line."""
    try:
        return load(content)
    except ProgramFileError as error:
        if "\n" in str(error):
            raise
        return None


def members_of(content: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def archive_of(
    members: dict[str, bytes],
    compression: int = zipfile.ZIP_STORED,
    comment: bytes | None = None,
) -> bytes:
    """Return a zip archive of `members`. Its comment is `comment`, or by default the checksum."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", compression) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
        archive.comment = program_file._checksum(members) if comment is None else comment
    return content.getvalue()


def test_mutated_bytes() -> None:
    """Check 1000 files with bytes changed, left out, doubled or inserted at random places.

    Each file is refused, or gives the same model.
    """
    content = compiled(NAME).to_bytes()
    rng = random.Random(random_seed())
    for _ in range(1000):
        mutant = bytearray(content)
        for _ in range(rng.choice((1, 1, 3))):
            at, size = rng.randrange(len(content)), rng.choice((1, 4, 100))
            piece = rng.choice((b"", rng.randbytes(size), bytes(mutant[at : at + size]) * 2))
            mutant[at : at + size] = piece
        if rng.random() < 0.1:
            del mutant[rng.randrange(len(mutant)) :]
        # If a file still loads, only headers of the archive differ, and the model is the same.
        back = loaded(bytes(mutant))
        assert back is None or back.to_bytes() == content


def test_members_of_another_file() -> None:
    """Check that a mix of members from two valid files is refused."""
    first, second = (compile_file(MODELS / f"{NAME}.tflite", batch=n).to_bytes() for n in (4, 5))
    members, other = members_of(first), members_of(second)
    different = [name for name in members if members[name] != other.get(name)]
    assert len(different) > 2
    with zipfile.ZipFile(io.BytesIO(first)) as archive:
        comment = archive.comment
    assert load(archive_of(members, comment=comment)).to_bytes() == first
    for name in different:
        if name in other:
            with pytest.raises(ProgramFileError, match="damaged or cut short"):
                load(archive_of({**members, name: other[name]}, comment=comment))


@pytest.mark.parametrize(
    ("members", "says"),
    [
        ({}, "not a compiled program"),
        ({"program.json": b"{"}, "not a compiled program, or damaged"),
        ({"program.json": b"[" * 100_000}, "not a compiled program, or damaged"),
        ({"program.json": b"[1]"}, "its description is no object"),
        ({"program.json": b"{}"}, "not a compiled program"),
        ({"program.json": b'{"format": "systola program", "version": 9}'}, "has version 9"),
        (
            {"program.json": b'{"format": "systola program", "version": 6}'},
            "has other parts than it should",
        ),
    ],
)
def test_other_archives(members: dict[str, bytes], says: str) -> None:
    with pytest.raises(ProgramFileError, match=says):
        load(archive_of(members))


def test_nothing_is_compressed() -> None:
    """Check that a compressed archive is refused, since it could unpack to any amount of memory."""
    members = members_of(compiled(NAME).to_bytes())
    with pytest.raises(ProgramFileError, match="it is compressed"):
        load(archive_of(members, zipfile.ZIP_DEFLATED))


def first_of(node: Any, name: str) -> dict[str, Any] | None:
    """Return the first object with "class": `name` in a JSON value, at any depth, or None."""
    if isinstance(node, dict) and node.get("class") == name:
        return node
    children = list(node.values()) if isinstance(node, dict) else node
    if not isinstance(children, list):
        return None
    return next((hit for child in children if (hit := first_of(child, name))), None)


@pytest.mark.parametrize(
    ("name", "field", "value", "says"),
    [
        ("CompiledModel", "macs", -1, "multiply-accumulates is wrong"),
        ("CompiledModel", "macs", 1.5, "macs is no int"),
        ("CompiledModel", "rest_singly", True, "rest_singly is no int"),
        ("CompiledModel", "single", None, "its program for one sample is missing"),
        ("CompiledModel", "semantics", "torch", "semantics is no Semantics"),
        ("CompiledModel", "inputs", [], "more or fewer inputs"),
        ("CompiledModel", "inputs", [99], "inputs is not there"),
        ("CompiledModel", "extra", 1, "has not the fields of CompiledModel"),
        ("Config", "rows", 1, "rows must be 2 to 256, not 1"),
        ("Config", "rows", 17, "not whole tiles of"),
        ("Config", "weight_throttle", [1], "weight_throttle has 1 items, not 2"),
        ("Config", "weight_throttle", [1, 2**70], "numbers up to 1024"),
        ("CompiledNetwork", "samples", 0, "compiled for no samples"),
        ("CompiledNetwork", "samples", 5, "no place in host memory"),
        ("CompiledNetwork", "stages", [], "its outputs are not calculated"),
        ("CompiledNetwork", "results", [0], "do not fit each other"),
        ("DeviceStage", "sources", [], "not as many inputs or outputs"),
        ("DeviceStage", "sources", [1], "its stages are not in order"),
        ("DeviceStage", "results", [0], "its stages are not in order"),
        ("Image", "program_offset", 64, "its offset a multiple of 128"),
        ("Image", "program_offset", 1 << 40, "it must be inside"),
        ("Image", "weights", 0, "not whole tiles of"),
        ("HostMap", "rows", 0, "an input or output has no size"),
        ("HostMap", "columns", 0, "columns is uint8, not int64"),
        ("HostMatrix", "offset", 1 << 20, "no place in host memory"),
        ("HostMatrix", "offset", -4096, "no place in host memory"),
        ("HostMatrix", "columns", 3, "no place in host memory"),
        ("HostMatrix", "rows", 3, "no place in host memory"),
        ("HostMatrix", "pitch", 1, "no place in host memory"),
        ("LayerWork", "macs", -1, "a layer has no size"),
        ("LayerWork", "shape", [0], "a layer has no size"),
        ("Program", "layers", [], "marks a layer that is not there"),
        ("Program", "spilled", [], "spilled is no list of names"),
        ("Value", "dtype", "object", "is object of shape"),
        ("Value", "shape", [1, -61], "of shape"),
        ("Value", "name", 5, "name is no str"),
    ],
)
def test_wrong_fields(name: str, field: str, value: object, says: str) -> None:
    members = members_of(compiled(NAME).to_bytes())
    description = json.loads(members["program.json"])
    found = first_of([description["program"], *description["values"]], name)
    assert found is not None
    found[field] = value
    members["program.json"] = json.dumps(description).encode()
    with pytest.raises(ProgramFileError, match=says) as refusal:
        load(archive_of(members))
    assert "\n" not in str(refusal.value)


JUNK: tuple[object, ...] = (None, True, -1, 0, 1, 2**70, 0.5, "", "View", [], [1], {}, {"class": 1})


def mutate(rng: random.Random, node: Any) -> Any:
    """Return a copy of a JSON value with one random change."""
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


@pytest.mark.parametrize("name", ["mlp_floatio", "cnn_residual_dw_pool"])
def test_hostile_descriptions(name: str) -> None:
    """Check models with a random change in their JSON description, and with a right checksum.

    Each model is refused, or runs, or ends with one of the project's own errors.
    """
    members = members_of(compiled(name).to_bytes())
    rng = random.Random(random_seed())
    x = np.zeros((2, *compiled(name).inputs[0].shape), compiled(name).inputs[0].dtype)
    description = json.loads(members["program.json"])
    ran = 0
    for _ in range(500):
        mutant = json.dumps(mutate(rng, description)).encode()
        model = loaded(archive_of({**members, "program.json": mutant}))
        if model is not None:
            ran += 1
            with suppress(ModelError, HostError, BackendError):
                model.run(x, backend="iss").report(mhz=1)
    assert 0 < ran < 400
