# SPDX-License-Identifier: Apache-2.0
"""The activation unit: lanes, requantisers, gates."""
