"""2. read: a chunk becomes columns, by the user's `DataReader.read_file` or `read_chunk`."""
