# SPDX-License-Identifier: Apache-2.0
"""The errors that synthesis raises."""


class SynthesisUsageError(Exception):
    """A mistake by the user, such as an unknown unit or a missing tool, in one line."""


class SynthesisError(Exception):
    """An error of a tool that gave up, or of a design that breaks a rule, in one line."""
