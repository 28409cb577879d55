"""agent-harness: bounded agent loops in a sandbox, judged by gates, delivered by compare-and-swap."""

__version__ = "0.1.0"
