# SPDX-License-Identifier: Apache-2.0
"""Measures the figures in README.md and docs/results.md: cycles, and v1's simulator."""
