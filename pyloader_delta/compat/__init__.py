"""Old names over the same engine: one module a library that programs move from."""
