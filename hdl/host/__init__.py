# SPDX-License-Identifier: Apache-2.0
"""Registers, start and stop, counters: what the host sees."""
