"""4. collate: numbers become arrays or tensors, by the user's `DataCollator.collate_batch`."""
