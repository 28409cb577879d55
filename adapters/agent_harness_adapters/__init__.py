"""One vendor, one file: each module implements a port of the core with one outside library."""
