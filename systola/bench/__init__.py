# SPDX-License-Identifier: Apache-2.0
"""The measurements of the figures in README.md and docs/results.md: cycles, and v1's simulator."""
