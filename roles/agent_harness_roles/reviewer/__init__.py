"""The reviewer: judges a candidate it cannot change."""
