# SPDX-License-Identifier: Apache-2.0
"""Options that several commands share, and what may be given for them."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Generator
from contextlib import contextmanager

from tqdm import tqdm

from systola.arch.config import DEFAULT_PRESET, Config, ConfigError, preset
from systola.runtime.backend import Backend

MAX_LATENCY = 1_000_000


def whole_number(low: int, high: int | None = None) -> Callable[[str], int]:
    """A converter for argparse: an integer from `low` to `high`."""

    def convert(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"'{text}' is not a whole number") from None
        if value < low:
            raise argparse.ArgumentTypeError(f"must be at least {low}, not {value}")
        if high is not None and value > high:
            raise argparse.ArgumentTypeError(f"must be at most {high}, not {value}")
        return value

    return convert


def probability(text: str) -> float:
    """A converter for argparse: a number in [0, 1)."""
    try:
        value = float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"'{text}' is not a number") from None
    if not 0 <= value < 1:
        raise argparse.ArgumentTypeError(f"must be at least 0 and below 1, not {text}")
    return value


def configuration(text: str) -> Config:
    """A converter for argparse: the configuration of a preset."""
    try:
        return preset(text)
    except ConfigError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def add_preset(parser: argparse.ArgumentParser) -> None:
    """Adds --preset; the value is a Config."""
    parser.add_argument(
        "--preset",
        type=configuration,
        default=DEFAULT_PRESET,
        metavar="P",
        help=f"tiny, small, base, v1 or ROWSxCOLS (default: {DEFAULT_PRESET})",
    )


def add_machine(parser: argparse.ArgumentParser) -> None:
    """Adds --preset and --backend."""
    add_preset(parser)
    parser.add_argument(
        "--backend",
        choices=("rtl", "iss"),
        default="rtl",
        help="simulated RTL, or the golden model, which has no clock (default: rtl)",
    )


def add_json(parser: argparse.ArgumentParser) -> None:
    """Adds --json FILE."""
    parser.add_argument(
        "--json", metavar="FILE", help="write the figures to this file, '-' for standard output"
    )


def make_backend(
    name: str, config: Config, *, latency: int = 0, stall: float = 0.0, seed: int = 0
) -> Backend:
    """The back end called `name`."""
    if name == "iss":
        from systola.runtime.iss import GoldenBackend

        return GoldenBackend(config)
    from systola.runtime.rtl import RtlBackend

    return RtlBackend(config, latency=latency, stall=stall, seed=seed)


@contextmanager
def progress_bar(
    total: int | None, unit: str, *, stays: bool = False
) -> Generator[Callable[[int], None]]:
    """A progress bar on stderr, or a count where no total is known.

    It shows on a terminal only, and goes away at the end, unless it `stays`. Yields a function
    that takes how much is done by now.
    """
    with tqdm(
        total=total,
        unit=unit,
        unit_scale=total is None,
        leave=stays,
        disable=False if stays else None,
    ) as bar:

        def advance(done: int) -> None:
            bar.update(done - bar.n)

        yield advance
