# SPDX-License-Identifier: Apache-2.0
"""The part of the compiler that turns neutral operations into a program.

It makes steps on feature maps, gives them places in the buffer, and emits instructions.
"""
