# SPDX-License-Identifier: Apache-2.0
"""Arithmetic against its formula, by the hundred million."""
