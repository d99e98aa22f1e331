# SPDX-License-Identifier: Apache-2.0
"""Parts that units of several folders are built from."""
