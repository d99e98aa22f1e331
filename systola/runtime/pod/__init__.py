# SPDX-License-Identifier: Apache-2.0
"""Pods: several cores, each with memories of its own, that share the samples or the model."""
