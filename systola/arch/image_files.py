# SPDX-License-Identifier: Apache-2.0
"""An image as files for memories outside of this project, and as macros for a C driver."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from systola.arch.c_header import define
from systola.arch.config import HOST_PAGE_BYTES, Config
from systola.arch.image import Image


def memory_hex(content: NDArray[np.uint8], word_bytes: int) -> str:
    """Return a memory's content as a text for $readmemh, with a word of `word_bytes` in each line.

    In a word, the byte with the lowest address stands last. The content is filled up with zeros to
    whole words, and to at least one word.
    """
    padded = content.tobytes() or bytes(1)
    padded += bytes(-len(padded) % word_bytes)
    words = (padded[at : at + word_bytes] for at in range(0, len(padded), word_bytes))
    return "".join(f"{word[::-1].hex()}\n" for word in words)


def image_macros(config: Config, image: Image, prefix: str = "IMAGE") -> list[str]:
    """Return C macros SYSTOLA_`prefix`_... for the numbers that a driver needs to run `image`."""
    return [
        define(f"{prefix}_GEOMETRY", config.rows | config.cols << 16, "value of GEOMETRY"),
        define(f"{prefix}_HOST_BYTES", image.host.size, "of the host window: host.hex, host.bin"),
        define(f"{prefix}_HOST_PAGES", image.host.size // HOST_PAGE_BYTES, "for HOST_PAGES"),
        define(f"{prefix}_WEIGHT_BYTES", image.weights.size, "weight.hex, weight.bin"),
        define(
            f"{prefix}_WEIGHT_TILES", image.weights.size // config.tile_bytes, "for WEIGHT_TILES"
        ),
        define(f"{prefix}_PROGRAM", image.program_offset, "for PROGRAM"),
        define(f"{prefix}_PROGRAM_BYTES", len(image.program), "of the program"),
    ]
