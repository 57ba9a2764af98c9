"""Figures: speed against the limit and against a rival, and memory in a small cgroup. Each command prints one JSON."""
