"""Who pays what."""


def split(total: int, people: int) -> list[int]:
    """Split `total` cents between people: the shares add up to the total and differ by one cent at most."""
    if people < 1:
        raise ValueError("a bill needs at least one person")
    share = round(total / people)
    return [share] * people
