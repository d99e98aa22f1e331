# SPDX-License-Identifier: Apache-2.0
"""The option of `tpu run` that quantises a float network first."""

from __future__ import annotations

import argparse

from systola.cli.file_names import InputName
from systola.cli.inputs import load_samples
from systola.cli.model import in_file
from systola.cli.output import read_file
from systola.runtime.quantiser.quantize import quantize_float, read_float


def add_calibrate(parser: argparse.ArgumentParser) -> None:
    """Add the option --calibrate, samples with which a float network is quantised."""
    parser.add_argument(
        "--calibrate",
        type=InputName,
        metavar="X.npz",
        help="the model is float: quantise it first, as 'tpu quantize' does, on these samples",
    )


def read_network(arguments: argparse.Namespace) -> bytes:
    """Return the content of the file of a network or program, quantised with --calibrate."""
    path: str = arguments.model
    content = read_file(path)
    if not arguments.calibrate:
        return content
    with in_file(path):
        model = read_float(content)
    x, _ = load_samples(arguments.calibrate, arguments.key, model.inputs, None)
    with in_file(path):
        return quantize_float(model, x).content
