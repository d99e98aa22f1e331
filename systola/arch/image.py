# SPDX-License-Identifier: Apache-2.0
"""An image: a program with the contents of the memories around it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from systola.arch.config import HOST_PAGE_BYTES, Config
from systola.arch.isa import INSTRUCTION_BYTES
from systola.arch.registers import PROGRAM_ALIGNMENT


@dataclass(frozen=True, eq=False)
class Image:
    """An image that has all the data that a machine needs to run one program.

    Two images are equal only if they are the same object.
    """

    program: bytes
    """Encoded instructions of 16 bytes each."""
    host: NDArray[np.uint8]
    """Content of the host window, 1-D, whole pages of 4096 bytes. It already has `program` at
    `program_offset`."""
    program_offset: int
    """Byte offset of the program in the host window, a multiple of 128."""
    weights: NDArray[np.uint8]
    """Content of the weight window, 1-D, whole tiles of `config.tile_bytes`; may be empty."""


def check_image(config: Config, image: Image) -> None:
    """Raise ValueError, with the reason in one line, unless `image` is valid for `config`."""
    for name, memory, unit, what in (
        ("host memory", image.host, HOST_PAGE_BYTES, "pages"),
        ("weight memory", image.weights, config.tile_bytes, f"tiles of '{config.name}'"),
    ):
        if memory.ndim != 1 or memory.dtype != np.uint8:
            raise ValueError(f"{name} is a row of uint8, not {memory.dtype} {memory.shape}")
        if memory.size % unit:
            raise ValueError(f"{name} has {memory.size} bytes, not whole {what} of {unit} bytes")
    start, size = image.program_offset, len(image.program)
    if not size or size % INSTRUCTION_BYTES:
        raise ValueError(f"a program of {size} bytes is not one of whole instructions")
    if start % PROGRAM_ALIGNMENT or not 0 <= start <= image.host.size - size:
        raise ValueError(
            f"the program is {size} bytes at offset {start} of {image.host.size} bytes of host "
            f"memory: it must be inside, and its offset a multiple of {PROGRAM_ALIGNMENT}"
        )
    if image.host[start : start + size].tobytes() != image.program:
        raise ValueError(f"the program is not in host memory at offset {start}")
