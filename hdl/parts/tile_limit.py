# SPDX-License-Identifier: Apache-2.0
"""Where an array becomes a grid."""

TILE_LIMIT = 32
"""Longest side of one tile. Larger arrays are a grid of one tile module: Amaranth would otherwise
emit each copy anew, and simulators compile the one module once."""
