# SPDX-License-Identifier: Apache-2.0
"""Views of runs: a timeline, plots, and a page."""
