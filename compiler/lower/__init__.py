# SPDX-License-Identifier: Apache-2.0
"""From operations to a program: steps on feature maps, places for them, instructions."""
