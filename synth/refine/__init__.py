# SPDX-License-Identifier: Apache-2.0
"""Moves what nextpnr has placed on an ECP5 until fewer paths are slow."""
