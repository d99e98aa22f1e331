# SPDX-License-Identifier: Apache-2.0
"""What can go wrong on the way to a report."""


class SynthesisUsageError(Exception):
    """A mistake by the user, such as an unknown unit or a tool that is missing, in one line."""


class SynthesisError(Exception):
    """A tool gave up, or the design breaks a rule, in one line."""
