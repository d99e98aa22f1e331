# SPDX-License-Identifier: Apache-2.0
"""Programs for batches that have no room in the buffer: a core takes some samples in each turn, and
all turns go through one layer before the next layer.
"""
