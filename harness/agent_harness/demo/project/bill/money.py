"""Amounts of money as whole cents."""


def parse_cents(text: str) -> int:
    """Read an amount such as `12.34`, `12` or `.5` as cents."""
    whole, _, fraction = text.strip().partition(".")
    return int(whole or 0) * 100 + int(fraction.ljust(2, "0")[:2])


def format_cents(cents: int) -> str:
    """Write cents as `12.34`."""
    return f"{cents // 100}.{cents % 100:02d}"
