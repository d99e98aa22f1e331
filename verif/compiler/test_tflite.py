# SPDX-License-Identifier: Apache-2.0
"""Damaged model files: one clear error, or a network, but never anything else."""

from __future__ import annotations

import numpy as np
import pytest

from systola.arch.config import preset
from systola.compiler.errors import CompileError, ModelError
from systola.compiler.network import build_network, compile_network
from systola.compiler.tflite.reader import read_tflite
from systola.verif.compiler.stored_networks import CONVOLUTIONAL, RECURRENT
from systola.verif.compiler.test_networks import MODELS, model_file
from systola.verif.kit.seeds import random_seed

NAMES = (*MODELS, *CONVOLUTIONAL, *RECURRENT)
SMALL = "mlp_odd_relu6_tanh_sigmoid.tflite"
MUTATIONS = 1400


def outcome(content: bytes) -> str:
    """'network', or the message of the error, which must be one line."""
    try:
        compile_network(preset("small"), build_network(read_tflite(content)), 1)
    except (ModelError, CompileError) as error:
        message = str(error)
        assert message
        assert "\n" not in message
        return message
    return "network"


@pytest.mark.parametrize("name", NAMES)
def test_whole_files(name: str) -> None:
    assert outcome(model_file(f"{name}.tflite")) == "network"


def test_every_truncation_is_found() -> None:
    content = model_file(SMALL)
    for length in (*range(0, len(content), 13), *range(len(content) - 100, len(content))):
        assert outcome(content[:length]) != "network", length


def test_what_is_no_model() -> None:
    for content in (b"", b"TFL3", b"PK\x03\x04" * 10, bytes(100)):
        assert outcome(content) == "not a TensorFlow Lite model"
    assert outcome(b"\0\0\0\0TFL3") != "network"
    assert "damaged" in outcome(b"\xff\xff\xff\xffTFL3" + bytes(64))


@pytest.mark.parametrize("name", NAMES)
def test_mutations(name: str) -> None:
    content = model_file(f"{name}.tflite")
    rng = np.random.default_rng(random_seed())
    for _ in range(MUTATIONS // len(NAMES)):
        mutant = bytearray(content)
        for _ in range(int(rng.integers(1, 5))):
            # Most of a file is weights: structure is at its beginning and end.
            edge = int(rng.integers(0, min(2500, len(content))))
            at = int(rng.choice([edge, len(content) - 1 - edge]))
            match int(rng.integers(3)):
                case 0:
                    mutant[at] = int(rng.integers(256))
                case 1:
                    mutant[at : at + 4] = int(rng.choice([0, 2**31 - 1, 2**32 - 1])).to_bytes(
                        4, "little"
                    )
                case _:
                    del mutant[at : at + int(rng.integers(1, 9))]
        outcome(bytes(mutant))
