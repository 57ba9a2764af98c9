"""3. encode: columns of raw values become numbers, by the user's `Dataset.batch_encode`."""
