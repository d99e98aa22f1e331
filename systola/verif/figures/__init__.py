# SPDX-License-Identifier: Apache-2.0
"""The figures that say how far the machine can be believed, and the page that shows them."""
