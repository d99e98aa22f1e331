# SPDX-License-Identifier: Apache-2.0
"""A builder for programs of one's own: numpy arrays in host and weight memory, and their program.

Each array in memory has the operands by which instructions name it, as assembly text.
docs/first-program.md has an example, examples/ more.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from systola.arch.assembler import assemble_program
from systola.arch.built_for import require_machine
from systola.arch.config import DEFAULT_PRESET, HOST_PAGE_BYTES, Config
from systola.arch.config import preset as named_preset
from systola.arch.image import Image
from systola.arch.isa import TABLE_BYTES
from systola.arch.registers import PROGRAM_ALIGNMENT
from systola.compiler.layout import HostMatrix, entry_bytes, pack_entries, pack_tiles
from systola.compiler.quantise import quantise_multiplier


@dataclass(frozen=True)
class WeightTiles:
    """A matrix in weight memory, as tiles."""

    tile: int
    """Number of the first tile."""
    k_tiles: int
    """Tiles along the rows of the matrix."""
    n_tiles: int
    """Tiles along the columns of the matrix."""

    @property
    def operands(self) -> str:
        """Return the operands of Read_Weights for this matrix."""
        return f"tile={self.tile}, count={self.k_tiles * self.n_tiles}"

    @property
    def sizes(self) -> str:
        """Return the operands of MatrixMultiply with the numbers of tiles."""
        return f"k_tiles={self.k_tiles}, n_tiles={self.n_tiles}"


@dataclass(frozen=True)
class Entries:
    """A run of parameter entries in host memory."""

    offset: int
    """Byte offset in the host window."""
    count: int

    @property
    def operands(self) -> str:
        """Return the operands of Load_Parameters for these entries."""
        return f"host={self.offset}, count={self.count}"


class ImageBuilder:
    """A builder that collects data for one program on a machine of `preset`, a name or a Config.

    All its methods raise ValueError for arrays of a type or shape that they do not accept.
    """

    def __init__(self, preset: str | Config = DEFAULT_PRESET) -> None:
        self.config = preset if isinstance(preset, Config) else named_preset(preset)
        self._host = bytearray()
        self._weights = bytearray()

    def matrix(self, x: ArrayLike) -> HostMatrix:
        """Put an operand, int8 [rows, columns], into host memory, for Read_Host_Memory."""
        array = _int8(x, 2)
        return self._place(array, self.config.rows, self.config.input_pitch)

    def room(self, rows: int, columns: int) -> HostMatrix:
        """Reserve room in host memory for a result, int8 [rows, columns], for Write_Host_Memory.

        The room holds zeros before the program runs; HostMatrix.load reads it from Result.host.
        """
        if rows < 1 or columns < 1:
            raise ValueError(f"a result has rows and columns, not {rows} x {columns}")
        zeros = np.zeros((rows, columns), np.int8)
        return self._place(zeros, self.config.cols, self.config.output_pitch)

    def weights(self, w: ArrayLike) -> WeightTiles:
        """Put weights, int8 [K, N], into weight memory, for Read_Weights."""
        config = self.config
        packed = pack_tiles(config, _int8(w, 2), config.rows, config.cols)
        n_tiles, k_tiles, _ = packed.shape
        first = len(self._weights) // config.tile_bytes
        self._weights += packed.tobytes()
        return WeightTiles(first, k_tiles, n_tiles)

    def parameters(self, scale: ArrayLike, bias: ArrayLike) -> Entries:
        """Put parameter entries into host memory, for Load_Parameters.

        With these entries a result is (sum + `bias`) * `scale`, rounded. `bias` is int32 [N];
        `scale` is [N], or one number for all, 0 <= scale < 128.
        """
        biases = np.asarray(bias)
        limits = np.iinfo(np.int32)
        if (
            biases.ndim != 1
            or not biases.size
            or not np.issubdtype(biases.dtype, np.integer)
            or not limits.min <= int(biases.min()) <= int(biases.max()) <= limits.max
        ):
            raise ValueError(f"a bias is a row of int32, not {biases.dtype} {biases.shape}")
        scales = np.broadcast_to(np.asarray(scale, np.float64), biases.shape)
        if not bool(((scales >= 0) & (scales < 128)).all()):
            raise ValueError("a scale is at least 0 and below 128")
        pairs = np.array([quantise_multiplier(float(each)) for each in scales], np.int32)
        multiplier, shift = pairs[:, 0], pairs[:, 1]
        packed = pack_entries(
            self.config, biases.astype(np.int32), multiplier, shift, self.config.cols
        )
        return Entries(self._put(packed), packed.size // entry_bytes(self.config))

    def table(self, values: ArrayLike) -> int:
        """Put a table, int8 [256], into host memory, for Load_Table, and return its byte offset.

        Entry i is the result for the number with bit pattern i.
        """
        array = _int8(values, 1)
        if array.size != TABLE_BYTES:
            raise ValueError(f"a table has {TABLE_BYTES} entries, not {array.size}")
        return self._put(array)

    def build(self, program: str | Iterable[bytes]) -> Image:
        """Make the image of a program: assembly text, or words from systola.arch.isa.encode.

        Require_Machine is put before the program, because the layout of the data suits this machine
        alone. So the first instruction of `program` is number 1. Several programs can be built on
        the same data. Raises AssemblyError for a mistake in the text.
        """
        if isinstance(program, str):
            code = assemble_program(program, self.config)
        else:
            code = b"".join(program)
        code = require_machine(self.config) + code
        memory = bytes(self._host) + code
        memory += bytes(-len(memory) % HOST_PAGE_BYTES)
        return Image(
            program=code,
            host=np.frombuffer(memory, np.uint8),
            program_offset=len(self._host),
            weights=np.frombuffer(bytes(self._weights), np.uint8),
        )

    def _place(self, matrix: NDArray[np.int8], block: int, pitch: int) -> HostMatrix:
        rows, columns = matrix.shape
        place = HostMatrix(offset=0, rows=rows, columns=columns, block=block, pitch=pitch)
        content = np.zeros(place.size, np.uint8)
        place.store(content, matrix)
        return replace(place, offset=self._put(content))

    def _put(self, content: NDArray[Any]) -> int:
        """Append data to host memory, and return their byte offset, aligned for every bus and
        programs.
        """
        offset = len(self._host)
        data = content.tobytes()
        self._host += data + bytes(-len(data) % PROGRAM_ALIGNMENT)
        return offset


def _int8(x: ArrayLike, dimensions: int) -> NDArray[np.int8]:
    array = np.asarray(x)
    if array.dtype != np.int8 or array.ndim != dimensions or not array.size:
        what = "matrix" if dimensions == 2 else "row"
        raise ValueError(f"this takes a {what} of int8, not {array.dtype} {array.shape}")
    return array
