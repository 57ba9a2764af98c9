"""Checks for authors of readers, datasets, collators and loaders: each promise that user code must keep, tried out."""

from pyloader_delta.testing.contracts import check_collator, check_dataset, check_reader
from pyloader_delta.testing.resume import EXECUTORS, check_resume

__all__ = ["EXECUTORS", "check_collator", "check_dataset", "check_reader", "check_resume"]
