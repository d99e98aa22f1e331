# SPDX-License-Identifier: Apache-2.0
"""Training without a machine: the numerics of whole batches in numpy, byte for byte the machine's.

The programs of `systola.training` show how a machine comes to these numbers. Nothing here knows of
instructions, memories or cores, so no batch is too large. Tests hold each step to the golden model.
"""
