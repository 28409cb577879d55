"""The answerer: answers a question from what it read, and cites it."""
