"""The implementer: changes the workspace until the task is done."""
