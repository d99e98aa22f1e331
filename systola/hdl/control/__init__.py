# SPDX-License-Identifier: Apache-2.0
"""From instruction words to units: fetch, scalar unit, decoder, sequencer, scoreboard, queues."""
