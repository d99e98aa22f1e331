# SPDX-License-Identifier: Apache-2.0
"""The stored networks on the RTL, with a memory latency of 30 cycles."""

from __future__ import annotations

import json
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np

from systola.arch.config import preset
from systola.bench.moment import stored_line
from systola.bench.workloads import PRESET
from systola.runtime.api import compile
from systola.runtime.rtl import RtlBackend

RESULTS = Path(__file__).with_name("networks.json")
LATENCY = 30
BATCHES = (1, 16)
"""Numbers of inferences in one program that are measured."""


@dataclass(frozen=True)
class StoredNetwork:
    """A network in models/, and the utilisation (0 to 1) that it must reach.

    `bar` is this utilisation with `batch` inferences at a time. If it is None, the utilisation is
    only reported.
    """

    title: str
    file: str
    bar: float | None = None
    batch: int = 1


NETWORKS = (
    StoredNetwork("ResNet-8, 32x32x3", "std_resnet8_cifar.tflite", 0.60, 1),
    StoredNetwork("FC autoencoder 640", "std_fc_autoencoder_ad.tflite", 0.90, 16),
    StoredNetwork("DS-CNN, 49x10", "ds_cnn_kws.tflite"),
    StoredNetwork("MobileNetV1 0.25, 96x96x3", "mobilenet_v1_025_96.tflite"),
    StoredNetwork("MobileNetV2 0.35, 96x96x3", "mobilenet_v2_035_96.tflite"),
    StoredNetwork("LeNet-5, 32x32", "lenet5.tflite"),
    StoredNetwork("tutorial MLP 64-512-10", "mlp_tutorial_pc_softmax.tflite", 0.80, 16),
    StoredNetwork("LSTM 100 cells, text of 80 words", "lstm_text_100.tflite"),
    StoredNetwork("Conv1D, 128 samples of 6 signals", "conv1d_movements.tflite"),
)


def measure(network: StoredNetwork, batch: int) -> dict[str, Any]:
    """Run one program of `batch` inferences: cycles, utilisation, and whether bytes are right."""
    folder = files("systola.models")
    config = preset(PRESET)
    model = compile((folder / network.file).read_bytes(), preset=config, batch=batch)
    with np.load(str(folder / f"{Path(network.file).stem}.npz")) as stored:
        x, expected = (
            np.resize(stored[key], (batch, *stored[key].shape[1:])) for key in ("x", "y_ref")
        )
    run = model.run(x, backend=RtlBackend(config, latency=LATENCY))
    return {
        "network": network.title,
        "batch": batch,
        "macs": model.macs,
        "cycles": run.cycles,
        "utilization": run.utilization,
        "bit_exact": bool(np.array_equal(run.y, expected)),
    }


def stored_networks() -> list[dict[str, Any]]:
    """Return the results of the last `make bench`."""
    return json.loads(RESULTS.read_text())


def find(results: list[dict[str, Any]], network: StoredNetwork, batch: int) -> dict[str, Any]:
    """Return the result of one network with one batch."""
    return next(r for r in results if (r["network"], r["batch"]) == (network.title, batch))


def table(results: list[dict[str, Any]]) -> str:
    """Write the results as the Markdown table of the README."""
    heads = [f"{batch} at a time" for batch in BATCHES]
    lines = [
        f"| Network | MACs | {' | '.join(heads)} |",
        "|---|---|" + "---|" * len(BATCHES),
    ]
    for network in NETWORKS:
        here = [find(results, network, batch) for batch in BATCHES]
        cells = [
            f"{result['cycles'] / result['batch']:,.0f} cycles, {100 * result['utilization']:.1f} %"
            for result in here
        ]
        lines.append(f"| {network.title} | {here[0]['macs']:,} | {' | '.join(cells)} |")
    return "\n".join([*lines, "", stored_line()])
