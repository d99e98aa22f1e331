# SPDX-License-Identifier: Apache-2.0
"""Model files with random damage, each repeatable from a seed and a number."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from random import Random

import numpy as np

from systola.verif.compiler.mutations import mutated_bytes
from systola.verif.compiler.onnx_mutations import mutated_onnx
from systola.verif.compiler.random_maps import KINDS as MAP_KINDS
from systola.verif.compiler.random_maps import RandomMaps
from systola.verif.compiler.random_onnx import KINDS as ONNX_KINDS
from systola.verif.compiler.random_onnx import RandomOnnx
from systola.verif.compiler.tflite_mutations import mutated_tflite

FORMATS = (".onnx", ".tflite")
LARGE = 100_000
"""Size in bytes from which a stored model counts as large, as tests of it take long."""
STRUCTURED = 0.7
"""Share of the damaged files that still are well-formed files."""


RANDOM = 0.4
"""Share of the damaged files that are made of random networks instead of stored models.

Random networks have operators that stored models lack.
"""


@dataclass(frozen=True)
class Mutant:
    """A damaged model file."""

    name: str
    """Name of the model that was damaged, and a description of the damage."""
    content: bytes


@cache
def model_files(*, large: bool) -> tuple[str, ...]:
    """Return the names of all stored models; without `large` only the names of small models."""
    folder = files("systola.models")
    names = sorted(each.name for each in folder.iterdir() if each.name.endswith(FORMATS))
    return tuple(name for name in names if large or len(model_file(name)) < LARGE)


@cache
def model_file(name: str) -> bytes:
    """Return the content of the stored model with this name."""
    return (files("systola.models") / name).read_bytes()


def make_mutant(names: Sequence[str], seed: int, number: int) -> Mutant:
    """Return a damaged file, made of one of the stored models `names` or of a random network."""
    rng = Random(f"{seed} {number}")
    name, other = rng.choice(names), rng.choice(names)
    content = model_file(name)
    if rng.random() < RANDOM:
        name, content = _random_model(rng)
    if rng.random() < STRUCTURED:
        mutated = mutated_onnx if name.endswith(".onnx") else mutated_tflite
        content, done = mutated(rng, content)
    else:
        content, done = mutated_bytes(rng, content, model_file(other))
    return Mutant(f"SEED={seed} mutant {number} of {name}: {done}", content)


def _random_model(rng: Random) -> tuple[str, bytes]:
    """Return a name for a random network of one to four operators, and the content of its file."""
    generator = np.random.default_rng(rng.randrange(1 << 32))
    operators = rng.randint(1, 4)
    if rng.random() < 0.5:
        return "random maps.tflite", RandomMaps(generator, MAP_KINDS, operators).content
    return "random maps.onnx", RandomOnnx(generator, ONNX_KINDS, operators).content
