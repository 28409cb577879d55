"""Sandboxes: the container profile, the exec server inside it, and the suite that any sandbox must pass."""
