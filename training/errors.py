# SPDX-License-Identifier: Apache-2.0
"""What the user of training did wrong."""


class TrainingError(ValueError):
    """A model, data or option that cannot be trained with, in one line."""
