# SPDX-License-Identifier: Apache-2.0
"""Tests that damaged and forged checkpoints are refused in one line, before much is allocated."""

from __future__ import annotations

import copy
import io
import json
import re
import resource
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from systola.compiler.errors import ModelError
from systola.compiler.read_model import read_model
from systola.training import (
    LSTM,
    SGD,
    Conv2D,
    Dense,
    Dropout,
    Embedding,
    Flatten,
    Input,
    MaxPooling2D,
    Sequential,
    TrainingError,
    load,
)
from systola.training.checkpoint import VERSION

Arrays = dict[str, NDArray[Any]]
Case = tuple[str, Any, Arrays]
"""A checkpoint: the kind of its damage, its JSON description, and its arrays."""

RNG = np.random.default_rng(1)
NETWORKS: dict[str, tuple[list[Any], tuple[int, ...], bool]] = {
    "dense": ([Input((6,)), Dense(4, "relu"), Dropout(0.25), Dense(3)], (8, 6), True),
    "convolution": (
        [Input((4, 4, 1)), Conv2D(2, 3), MaxPooling2D(2), Flatten(), Dense(3, "softmax")],
        (8, 4, 4, 1),
        False,
    ),
    "words": ([Input((3,)), Embedding(5, 2), LSTM(4), Dense(3)], (8, 3), False),
}
"""Networks by name: layers, the shape of samples, and whether the network is trained."""
HUGE = 10**9
MOST_BYTES = 64 << 20
"""Largest number of bytes of memory that all damaged checkpoints of a network may take together."""


@pytest.fixture(scope="module", params=NETWORKS)
def saved(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Case:
    """Make a checkpoint without damage."""
    layers, shape, trained = NETWORKS[request.param]
    path = tmp_path_factory.mktemp("checkpoint") / "m.tpu"
    model = Sequential(layers)
    model.compile(SGD(0.1, 0.5), metrics=["accuracy"], preset="8x8-training", backend="iss")
    if trained:
        model.fit(RNG.uniform(size=shape), RNG.integers(0, 3, shape[0]), verbose=0)
    model.save(path)
    with np.load(path) as archive:
        arrays = {name: archive[name] for name in archive.files}
    return "nothing", json.loads(str(arrays.pop("about"))), arrays


def content_of(about: Any, arrays: Arrays) -> bytes:
    """Return the bytes of a checkpoint with a description `about` and with arrays."""
    content = io.BytesIO()
    text = about if isinstance(about, np.ndarray) else np.array(json.dumps(about))
    np.savez(content, about=text, **arrays)
    return content.getvalue()


def places(node: Any, where: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the keys that lead to each field of a description, and to each item of its lists."""
    items = enumerate(node) if isinstance(node, list) else node.items()
    for key, value in items:
        yield (*where, key)
        if isinstance(value, (list, dict)):
            yield from places(value, (*where, key))


def changed(about: Any, where: tuple[Any, ...], change: Callable[[Any, Any], None]) -> Any:
    """Return a copy of a description in which `change` has changed the field at `where`.

    `change` gets the parent of the field, and the field's key.
    """
    result = node = copy.deepcopy(about)
    for key in where[:-1]:
        node = node[key]
    change(node, where[-1])
    return result


def wrong_values(where: tuple[Any, ...], value: Any) -> list[Any]:
    """Return wrong values for a field of a description, of a wrong type or out of range."""
    if where[-1] == "clipvalue":
        return [True, 0.0, -1.5, [], {}, "nonsense", 1e9]
    if where[-1] == "name":
        return [True, 1.5, [], {}, "", "\x1b[31m", HUGE]
    none = [] if where[-1] in ("input_bits", "activation", "batch_size", "strides") else [None]
    match value:
        # None stands for no activation, or for fraction bits of samples that were never seen
        case None:
            return [True, 1.5, [], {}, "nonsense", HUGE]
        case bool():
            return [None, 0, "yes", [], {}]
        case int():
            return [*none, True, 1.5, "1", [1], {}, -HUGE, 10**30]
        case float():
            return [None, True, "1", [], float("nan"), float("inf"), -1.0, 1e9, 10**400]
        case str():
            return [*none, True, 1, [value], {}, "nonsense", value + "\x1b[31m\n"]
        case list():
            return [*none, 0, "a", {}, [[]], [None]]
        case dict():
            return [None, 1, "a", [], {}]
    raise AssertionError(value)


def damaged_descriptions(about: Any, arrays: Arrays) -> Iterator[Case]:
    """Yield checkpoints with damage to their descriptions.

    Each field is missing in turn, or has a wrong type or a value out of range. Or there are fields
    too many.
    """

    def remove(node: Any, key: Any) -> None:
        del node[key]

    for where in places(about):
        node = about
        for key in where:
            node = node[key]
        if isinstance(where[-1], str):
            yield f"no {where}", changed(about, where, remove), arrays
        for wrong in wrong_values(where, node):

            def replace(parent: Any, key: Any, wrong: Any = wrong) -> None:
                parent[key] = wrong

            yield f"{where} is {wrong!r:.40}", changed(about, where, replace), arrays
        if isinstance(node, dict):
            for name in ("more", "class"):

                def extend(parent: Any, key: Any, name: str = name) -> None:
                    parent[key] |= {name: 1}

                yield f"{name} in {where}", changed(about, where, extend), arrays
    dense = {"kind": "Dense", "units": 3, "activation": None}
    yield "a layer too many", about | {"layers": [*about["layers"], dense]}, arrays
    yield "a layer too few", about | {"layers": about["layers"][:-1]}, arrays
    yield "no Input", about | {"layers": about["layers"][1:]}, arrays
    for name in ("bits", "unit_bits"):
        yield f"one of {name} too many", about | {name: [*about[name], 6, 6]}, arrays
    yield "no bits", about | {"bits": about["bits"][:-1]}, arrays
    for bits in (200, -200, 33):
        yield f"bits {bits}", about | {"bits": [bits, *about["bits"][1:]]}, arrays
    for bits in (7, -1):
        yield f"input_bits {bits}", about | {"input_bits": bits}, arrays
    for rate in (1.0, -0.1):
        layers = [*about["layers"], {"kind": "Dropout", "rate": rate}]
        yield f"a rate of {rate}", about | {"layers": layers}, arrays
    for text in (np.array(b"{}"), np.array(1), np.array(["{}"]), np.array("{"), np.array("[]")):
        yield f"description {text!r}", text, arrays
    yield "nested", np.array("[" * 100_000), arrays
    yield "digits", np.array("9" * 10_000), arrays
    yield "a long description", about | {"layers": ["x" * (1 << 20)]}, arrays


def damaged_arrays(about: Any, arrays: Arrays) -> Iterator[Case]:
    """Yield checkpoints with damage to their arrays.

    Each array is missing in turn, or has another type or another shape. Or there are arrays too
    many.
    """
    for name, values in arrays.items():
        others = {other: each for other, each in arrays.items() if other != name}
        yield f"no {name}", about, others
        for kind in ("int8", "uint16", "int32", "int64", "float32", "float64", "bool", ">i2"):
            yield f"{name} is {kind}", about, arrays | {name: values.astype(kind)}
        texts = np.full(values.shape, "a")
        yield f"{name} is text", about, arrays | {name: texts}
        yield f"{name} is objects", about, arrays | {name: texts.astype(object)}
        for shaped in (
            *(values[1:], values[:, 1:], values.reshape(-1), values[np.newaxis]),
            *(values[0, 0], values[:0], np.concatenate((values, values[:1]))),
        ):
            yield f"{name} has shape {shaped.shape}", about, arrays | {name: shaped}
    one = arrays["master0"]
    for name in ("master9", "velocity9", "master", "more", "master00", "master-1", ""):
        yield f"array {name!r} too many", about, arrays | {name: one}
    yield "masters beyond 16 bits", about, arrays | {"master0": one.astype(np.int64) + 40_000}


def huge_networks(about: Any, arrays: Arrays) -> Iterator[Case]:
    """Yield checkpoints of networks that would take all memory, or hours."""
    for number, layer in enumerate(about["layers"]):
        for field in ("units", "filters", "input_dim", "output_dim", "shape"):
            if field not in layer:
                continue
            value = layer[field]
            for size in (HUGE, 1 << 24, 10**18):
                more = [size, *value[1:]] if field == "shape" else size
                layers = copy.deepcopy(about["layers"])
                layers[number][field] = more
                yield f"{field} of layer {number} is {more}", about | {"layers": layers}, arrays
    yield "many layers", about | {"layers": [*about["layers"][:1]] * 10_000}, arrays


def refusal(error: type[Exception], function: Callable[[Any], Any], argument: Any) -> str:
    """Return the line with which a function refuses its argument, or an empty text."""
    try:
        function(argument)
    except error as caught:
        line = str(caught)
    else:
        return ""
    assert re.fullmatch("[ -~]+", line)
    return line


@pytest.mark.parametrize("make", [damaged_descriptions, damaged_arrays, huge_networks])
def test_damaged(
    make: Callable[[Any, Arrays], Iterator[Case]], saved: Case, tmp_path: Path
) -> None:
    _, about, arrays = saved
    path = tmp_path / "m.tpu"
    path.write_bytes(content_of(about, arrays))
    load(path)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    count = 0
    for what, damaged, others in make(about, arrays):
        content = content_of(damaged, others)
        path.write_bytes(content)
        assert refusal(TrainingError, load, path).startswith(f"{path}: it "), what
        # The preset in a checkpoint is only for training: to compile the network, it is not read.
        assert "'preset'" in what or refusal(ModelError, read_model, content), what
        count += 1
    assert count >= 10
    used = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) << 10
    assert used < MOST_BYTES


def test_a_later_version_says_so(saved: Case, tmp_path: Path) -> None:
    _, about, arrays = saved
    path = tmp_path / "m.tpu"
    later = f"systola training {VERSION + 1}"
    path.write_bytes(content_of(about | {"format": later, "more": 1}, arrays))
    with pytest.raises(TrainingError, match=f"of version {VERSION + 1} .* for version {VERSION}"):
        load(path)
    path.write_bytes(content_of(about | {"format": "systola trainings"}, arrays))
    with pytest.raises(TrainingError, match="another name"):
        load(path)


def test_the_claims_of_an_array_are_not_believed(saved: Case, tmp_path: Path) -> None:
    """Check that an array is refused if its header claims more numbers than the file has."""
    _, about, arrays = saved
    header = io.BytesIO()
    shape = arrays["master0"].shape
    claim = {"descr": "<i2", "fortran_order": False, "shape": (shape[0] << 40, *shape[1:])}
    np.lib.format.write_array_header_1_0(header, claim)
    content = content_of(about, arrays)
    path = tmp_path / "m.tpu"
    with (
        zipfile.ZipFile(io.BytesIO(content)) as old,
        zipfile.ZipFile(path, "w") as new,
    ):
        for name in old.namelist():
            new.writestr(name, header.getvalue() if name == "master0.npy" else old.read(name))
    with pytest.raises(TrainingError, match="master0: it has 0 bytes of numbers, not"):
        load(path)
