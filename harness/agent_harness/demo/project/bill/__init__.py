"""Splitting bills."""

from bill.money import format_cents, parse_cents
from bill.split import split

__all__ = ["format_cents", "parse_cents", "split"]
