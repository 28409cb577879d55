"""The assessor: finds what of a plan is done, and cites it."""
