# SPDX-License-Identifier: Apache-2.0
"""Trains without a machine: numpy computes whole batches, with the same bytes as the machine.

The programs of `systola.training` show how a machine comes to these numbers. Nothing here knows of
instructions, memories or cores, so no batch is too large. Tests compare each step with the golden
model.
"""
