# SPDX-License-Identifier: Apache-2.0
"""Runs to look at: a timeline, plots, a page."""
