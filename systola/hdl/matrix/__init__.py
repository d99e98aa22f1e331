# SPDX-License-Identifier: Apache-2.0
"""The matrix unit: the MXU, and the units that feed it."""
