"""A benchmark of reviewers: seeded changes to real packages, their exact ground truth, and a scorer without a model."""
