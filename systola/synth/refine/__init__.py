# SPDX-License-Identifier: Apache-2.0
"""The package that moves cells, which nextpnr has placed on an ECP5, until fewer paths are slow."""
