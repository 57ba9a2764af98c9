"""Shuffling beyond what the plan does: a look at how well a loader mixes, before any training."""
