# SPDX-License-Identifier: Apache-2.0
"""Comparisons of the arithmetic with its formula, with hundred million random cases."""
