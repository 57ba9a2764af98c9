"""What can be converted: images by class, CSV, JSON lines, Parquet; each a stream of pieces that can be resumed."""
