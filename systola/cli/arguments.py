# SPDX-License-Identifier: Apache-2.0
"""The options that several commands share, and the converters for their values."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from pathlib import PurePath
from typing import Any, NoReturn, TypeVar

from tqdm import tqdm

from systola.arch.config import DEFAULT_PRESET, Config, ConfigError, preset
from systola.cli.file_names import OutputName, output_name
from systola.compiler.printable import printable
from systola.hdl.parts.fabric import Fabric
from systola.runtime.make_backend import MAX_LATENCY
from systola.sim.notices import is_quiet

MAX_CYCLES = 1 << 40

T = TypeVar("T")


class OneLineParser(argparse.ArgumentParser):
    """A parser that reports a mistake in one line, without the usage."""

    def error(self, message: str) -> NoReturn:
        line = printable(" ".join(message.split()))
        self.exit(2, f"{self.prog.split()[0]}: error: {line}\n")


def whole_number(low: int, high: int | None = None) -> Callable[[str], int]:
    """Make a converter for argparse: an integer from `low` to `high`."""

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
    """Convert, for argparse, a number in [0, 1)."""
    try:
        value = float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"'{text}' is not a number") from None
    if not 0 <= value < 1:
        raise argparse.ArgumentTypeError(f"must be at least 0 and below 1, not {text}")
    return value


def positive(text: str) -> float:
    """Convert, for argparse, a finite number above 0."""
    try:
        value = float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"'{text}' is not a number") from None
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"must be above 0, not {text}")
    return value


def one_of(kind: str, known: Mapping[str, T]) -> Callable[[str], T]:
    """Make a converter for argparse: from a name to the object in `known`.

    `kind` is the noun for such an object in the message about an unknown name.
    """

    def convert(text: str) -> T:
        if text not in known:
            names = ", ".join(known)
            raise argparse.ArgumentTypeError(f"unknown {kind} '{text}' (known: {names})")
        return known[text]

    return convert


def svg_file(text: str) -> OutputName:
    """Convert, for argparse, the name of an output that is a picture in SVG."""
    if PurePath(text).suffix.lower() not in ("", ".svg"):
        raise argparse.ArgumentTypeError(f"the picture is SVG: call it .svg, not {text}")
    return output_name(text)


def html_file(text: str) -> OutputName:
    """Convert, for argparse, the name of an output that is a page in HTML."""
    if PurePath(text).suffix.lower() not in ("", ".html", ".htm"):
        raise argparse.ArgumentTypeError(f"the page is HTML: call it .html, not {text}")
    return output_name(text)


def cycle_window(text: str) -> tuple[int, int]:
    """Convert, for argparse, a text FROM:TO to two numbers of cycles."""
    first, found, last = text.partition(":")
    if not (found and first.isdecimal() and last.isdecimal() and int(first) < int(last)):
        raise argparse.ArgumentTypeError(
            f"'{text}' is not FROM:TO, the first cycle and the one after the last"
        )
    if int(last) > MAX_CYCLES:
        raise argparse.ArgumentTypeError(f"no run has {int(last)} cycles")
    return int(first), int(last)


def configuration(text: str) -> Config:
    """Convert, for argparse, the name of a preset to its configuration."""
    try:
        return preset(text)
    except ConfigError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def add_preset(parser: argparse.ArgumentParser) -> None:
    """Add --preset; the value is a Config."""
    parser.add_argument(
        "--preset",
        type=configuration,
        default=DEFAULT_PRESET,
        metavar="P",
        help=f"tiny, small, base, v1 or ROWSxCOLS (default: {DEFAULT_PRESET})",
    )


def add_fabric(parser: argparse.ArgumentParser) -> None:
    """Add --fabric; the value is the name of a Fabric."""
    parser.add_argument(
        "--fabric",
        choices=[fabric.value for fabric in Fabric],
        default=Fabric.GENERIC.value,
        help="FPGA family of the multipliers and memories in the Verilog, or chip: every memory is "
        "an instance of sram_1r1w (default: generic, plain Verilog)",
    )


def add_memory(parser: argparse.ArgumentParser) -> None:
    """Add --latency, --stall and --seed for the memories of the simulated RTL."""
    parser.add_argument(
        "--latency",
        type=whole_number(0, MAX_LATENCY),
        default=0,
        metavar="CYCLES",
        help="latency of both memories (default: 0)",
    )
    parser.add_argument(
        "--stall",
        type=probability,
        default=0.0,
        metavar="PROB",
        help="fraction of the cycles in which a memory channel stalls (default: 0)",
    )
    parser.add_argument(
        "--seed",
        type=whole_number(0, (1 << 59) - 1),
        default=0,
        metavar="S",
        help="seed of all random numbers (default: 0)",
    )


def memory_of(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the values of the options that add_memory adds: latency, stall and seed, by name."""
    return {name: getattr(arguments, name) for name in ("latency", "stall", "seed")}


def add_json(parser: argparse.ArgumentParser) -> None:
    """Add --json FILE."""
    parser.add_argument(
        "--json",
        type=output_name,
        metavar="FILE",
        help="write the figures to this file, '-' for standard output",
    )


@contextmanager
def progress_bar(
    total: int | None, unit: str, *, stays: bool = False
) -> Generator[Callable[[int], None]]:
    """Show a progress bar on stderr, or a count if no total is known.

    The bar shows on a terminal only, and disappears at the end, unless it `stays`. Yields a
    function that takes the amount of work done so far.
    """
    with tqdm(
        total=total,
        unit=unit,
        unit_scale=total is None,
        leave=stays,
        disable=is_quiet() or (False if stays else None),
    ) as bar:

        def advance(done: int) -> None:
            bar.update(done - bar.n)

        yield advance
