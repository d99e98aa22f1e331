# SPDX-License-Identifier: Apache-2.0
"""Steps with batches that have no room in the buffer: some samples in each turn, layer by layer."""
