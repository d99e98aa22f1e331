# SPDX-License-Identifier: Apache-2.0
"""Mutation tests: Yosys plants single faults in the machine, which the regression should find."""
