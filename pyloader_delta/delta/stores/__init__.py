"""How bytes come from object stores and other filesystems: options, clients, retries, files read in ranges."""
