# SPDX-License-Identifier: Apache-2.0
"""The size from which on an array is a grid of tiles."""

TILE_LIMIT = 32
"""Longest side of a tile in rows or columns. A larger array is a grid of instances of one tile
module, which simulators compile once. Without instances Amaranth would emit each tile anew."""
