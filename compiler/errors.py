# SPDX-License-Identifier: Apache-2.0
"""What a compilation can fail with."""


class CompileError(ValueError):
    """Work that does not fit the machine, with the reason in one line."""


class ModelError(ValueError):
    """A model file that cannot be read or is not supported, with the reason in one line."""
