# SPDX-License-Identifier: Apache-2.0
"""What moves data between memories outside and the chip."""
