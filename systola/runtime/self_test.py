# SPDX-License-Identifier: Apache-2.0
"""The checks that a person runs first on a new board, from its serial line to a network."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

import numpy as np
from numpy.typing import NDArray

from systola.arch.config import Config
from systola.arch.registers import IDENTITY, VERSION, Register
from systola.arch.serial_protocol import IDENTITY as BOARD_IDENTITY
from systola.arch.serial_protocol import MAX_WORDS, WORD_BYTES, BoardWord, configuration_word
from systola.runtime.backend import BackendError, fault_text
from systola.runtime.compile_content import compile_content
from systola.runtime.serial_backend import RoomError, SerialBackend
from systola.runtime.serial_link import Line, SerialLink
from systola.synth.trial_program import trial_program

_MODEL = "mlp_odd_relu6_tanh_sigmoid"
_PATTERNS = (0x5555_5555, 0xAAAA_AAAA, *(1 << bit for bit in range(32)))
_SLOWER = "a slower clock may do: tpu bitstream --mhz"
_BUILD_AGAIN = "build the bitstream again with this version of Systola, and load it"


@dataclass(frozen=True)
class Check:
    """A check with its outcome: `problem` is empty if all is well, and `advice` is a remedy.

    `detail` has the finding in a few words. A check that has no room on the board is `skipped`.
    """

    name: str
    detail: str
    problem: str = ""
    advice: str = ""
    skipped: bool = False


class _FailedError(Exception):
    """An error for a check that fails: a problem, and advice."""

    def __init__(self, problem: str, advice: str) -> None:
        super().__init__(problem)
        self.problem, self.advice = problem, advice


def self_test(config: Config, line: Line) -> Iterator[Check]:
    """Check the board with machine `config` at the other end of `line`, from the line upwards.

    Each check relies on the checks before it, so the first that fails is the last.
    """
    link = SerialLink(line)

    @cache
    def backend() -> SerialBackend:
        # The back end is made after the check of the memory, because it remembers the contents of
        # the board.
        return SerialBackend(config, line)

    checks: tuple[tuple[str, str, Callable[[], str]], ...] = (
        (
            "line",
            "is the bitstream loaded, is the port the board's, and --baud that of the bitstream?",
            lambda: _line(link),
        ),
        ("registers", _SLOWER, lambda: _registers(link)),
        ("machine", _BUILD_AGAIN, lambda: _machine(link, config)),
        ("memory", _SLOWER, lambda: _memory(link)),
        ("product", _SLOWER, lambda: _product(backend())),
        ("network", _SLOWER, lambda: _network(backend())),
    )
    for name, advice, run in checks:
        try:
            yield Check(name, run())
        except RoomError as error:
            yield Check(name, str(error), skipped=True)
        except _FailedError as error:
            yield Check(name, "", error.problem, error.advice)
            return
        except BackendError as error:
            yield Check(name, "", str(error), advice)
            return


def _line(link: SerialLink) -> str:
    if (found := link.read_board(BoardWord.IDENTITY)) != BOARD_IDENTITY:
        raise _FailedError(
            f"what answers is no board: 0x{found:08x}", "is the port that of the board?"
        )
    hz = link.read_board(BoardWord.CLOCK_HZ)
    return f"a board with a clock of {hz / 1e6:g} MHz answers"


def _registers(link: SerialLink) -> str:
    """Check the identity and version, and each bit of a register that takes all values."""
    identity, version = link.read_registers(Register.ID, 2)
    if identity != IDENTITY:
        raise _FailedError(f"ID is 0x{identity:08x}, not 0x{IDENTITY:08x}", _SLOWER)
    if version != VERSION:
        raise _FailedError(f"VERSION is {version}, not {VERSION}", _BUILD_AGAIN)
    for value in (*_PATTERNS, 0):
        link.write_register(Register.BUS_TIMEOUT, value)
        if (found := link.read_registers(Register.BUS_TIMEOUT, 1)[0]) != value:
            raise _FailedError(
                f"BUS_TIMEOUT is 0x{found:08x} after 0x{value:08x} was written", _SLOWER
            )
    return f"version {version}; {len(_PATTERNS)} patterns are kept"


def _machine(link: SerialLink, config: Config) -> str:
    geometry = link.read_registers(Register.GEOMETRY, 1)[0]
    size = f"an array of {geometry & 0xFFFF}x{geometry >> 16}"
    if link.read_board(BoardWord.CONFIGURATION) != configuration_word(config):
        raise _FailedError(
            f"{size}, which is not the machine '{config.name}' as this version builds it",
            "give --preset as for tpu bitstream, or build the bitstream again",
        )
    return f"'{config.name}', {size}"


def _memory(link: SerialLink) -> str:
    """Write to each word of the memory a number that no other word has, and read all of it.

    A block then gets all patterns of the registers, and their inverses.
    """
    size = link.read_board(BoardWord.MEMORY_BYTES)
    numbers = np.arange(size // WORD_BYTES, dtype=np.uint32) * np.uint32(0x9E37_79B1)
    patterns = np.array([*_PATTERNS, *(~each & 0xFFFF_FFFF for each in _PATTERNS)], np.uint32)
    for words in (numbers, np.resize(patterns, MAX_WORDS)):
        content = words.astype("<u4").tobytes()
        link.write_memory(0, content)
        found = np.frombuffer(link.read_memory(0, len(content)), "<u4")
        if (wrong := np.flatnonzero(found != words)).size:
            first = int(wrong[0])
            raise _FailedError(
                f"{wrong.size:,} of {len(words):,} words are wrong, the first at address "
                f"0x{WORD_BYTES * first:x}: 0x{found[first]:08x}, not 0x{words[first]:08x}",
                _SLOWER,
            )
    return f"{size:,} bytes, each word with its own number"


def _product(backend: SerialBackend) -> str:
    """Run a product that needs two tiles each way, and compare all of the host window."""
    image, expected = trial_program(backend.config)
    result = backend.run(image)
    if result.fault:
        raise _FailedError(fault_text(result.fault), _SLOWER)
    _compare(result.host, expected, "numpy's")
    return "two tiles each way, numpy's bytes"


def _network(backend: SerialBackend) -> str:
    """Run a sample through a network from its file, and compare with LiteRT's stored result."""
    folder = files("systola.models")
    with np.load(io.BytesIO((folder / f"{_MODEL}.npz").read_bytes())) as stored:
        x, expected = stored["x"][:1], stored["y_ref"][:1]
    model = compile_content(backend.config, (folder / f"{_MODEL}.tflite").read_bytes(), None, 1)
    result = model.run(x, backend=backend)
    _compare(result.y, expected, "LiteRT's")
    return f"{_MODEL}.tflite, LiteRT's bytes"


def _compare(found: NDArray[Any], expected: NDArray[Any], whose: str) -> None:
    if wrong := int(np.count_nonzero(found != expected)):
        raise _FailedError(
            f"{wrong} of {expected.size} bytes are not {whose}",
            f"{_SLOWER}; then report it, with the board and the bitstream's commit",
        )
