# SPDX-License-Identifier: Apache-2.0
"""Regressions: many random programs on the simulated machine, with reports about failures."""
