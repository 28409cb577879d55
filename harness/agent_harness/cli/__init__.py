"""The command line: one file per noun, and the only place where errors become exit codes."""
