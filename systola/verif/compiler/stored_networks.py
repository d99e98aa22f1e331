# SPDX-License-Identifier: Apache-2.0
"""Stored networks with their samples and reference outputs, compiled for a machine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib.resources import files

import numpy as np
from numpy.typing import NDArray

from systola.arch.config import Config
from systola.arch.image import Image
from systola.compiler.host_stage import HostStage
from systola.compiler.network import DeviceStage, Network, build_network, compile_network
from systola.compiler.semantics import Semantics
from systola.compiler.tflite.reader import read_tflite

CONVOLUTIONAL = ("cnn_s2_valid5_same3_1x1", "cnn_residual_dw_pool")
PRODUCTS = ("fc_pertensor_00", "fc_perchannel_06")
RECURRENT = ("lstm_digits_rows_k2", "lstm_digits_rows_unrolled_k3")
REFERENCES = {Semantics.LITERT_2: "y_ref", Semantics.LITERT_1_2: "y_ref12"}
"""Names of the reference outputs in models/*.npz, for each version of LiteRT's arithmetic."""


def stored_model(name: str, semantics: Semantics = Semantics.LITERT_2) -> Network:
    """Return the network in models/`name`.tflite."""
    content = (files("systola.models") / f"{name}.tflite").read_bytes()
    return build_network(read_tflite(content), semantics)


def stored_samples(
    name: str, semantics: Semantics = Semantics.LITERT_2
) -> tuple[NDArray[np.generic], NDArray[np.generic]]:
    """Return the samples and the reference outputs of a stored network that has one input."""
    with np.load(str(files("systola.models") / f"{name}.npz")) as stored:
        x = stored["x"] if "x" in stored.files else stored["x0"]
        return x, stored[REFERENCES[semantics]]


def stored_program(
    name: str, config: Config, samples: int | None = None
) -> tuple[Image, Callable[[NDArray[np.uint8]], None]]:
    """Return the program of a stored network with its samples, and a check of its results.

    `samples` is the number of samples, None for all. The check takes the host window after a run.
    It fails if the outputs differ from the reference in a single byte.
    """
    network = stored_model(name)
    x, expected = (array[:samples] for array in stored_samples(name))
    before: list[HostStage] = []
    stage, *after = compile_network(config, network, len(x)).stages
    while isinstance(stage, HostStage):
        before.append(stage)
        stage, *after = after
    program = stage.program

    def check(host: NDArray[np.uint8]) -> None:
        y = _on_host(after, program.result(host))
        assert y.dtype == expected.dtype
        assert np.array_equal(y.reshape(expected.shape), expected)

    return program.bind(_on_host(before, x)), check


def _on_host(
    stages: Sequence[HostStage | DeviceStage], x: NDArray[np.generic]
) -> NDArray[np.generic]:
    """Return the result for the samples `x` after the host's operators `stages`, one by one."""
    for stage in stages:
        assert isinstance(stage, HostStage)
        (source,) = stage.sources
        x = stage.function(x.reshape(len(x), *source.shape))
    return x
