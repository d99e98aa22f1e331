# SPDX-License-Identifier: Apache-2.0
"""The size from which on an array is a grid of tiles."""

TILE_LIMIT = 32
"""Longest side of a tile in rows or columns. A larger array is a grid of instances of one tile
module. Otherwise Amaranth would emit each copy anew. Simulators compile the one module once."""
