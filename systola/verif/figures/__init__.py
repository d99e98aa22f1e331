# SPDX-License-Identifier: Apache-2.0
"""Figures of docs/trust.md: results of test campaigns, which show how far to trust the machine."""
