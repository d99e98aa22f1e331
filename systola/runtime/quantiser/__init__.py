# SPDX-License-Identifier: Apache-2.0
"""Float networks made int8 by the quantisers of their formats; no numerics of our own."""
