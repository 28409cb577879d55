"""The role runner, and one folder per role."""
