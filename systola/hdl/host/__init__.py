# SPDX-License-Identifier: Apache-2.0
"""The part of the machine that the host sees: registers, start and stop, counters."""
