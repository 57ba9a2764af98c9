"""Filters: a predicate in any of three spellings is read, prunes files and row groups, and keeps the exact rows."""
