"""The engine carries chunks through read, encode and collate in the plan's order, within bounds, and loses nothing."""
