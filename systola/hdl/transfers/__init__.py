# SPDX-License-Identifier: Apache-2.0
"""Units that move data between memories outside and the chip."""
