"""An external shuffle: the rows of an epoch dealt out to buckets in a scratch file, each small enough for memory."""
