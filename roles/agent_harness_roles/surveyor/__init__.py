"""The surveyor: plans from what it read, and cites it."""
