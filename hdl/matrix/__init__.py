# SPDX-License-Identifier: Apache-2.0
"""The matrix unit: the MXU, and what feeds it."""
