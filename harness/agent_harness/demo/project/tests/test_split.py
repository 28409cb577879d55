import pytest

from bill import split


def test_splits_evenly():
    assert split(900, 3) == [300, 300, 300]


@pytest.mark.parametrize(("total", "people"), [(1000, 3), (101, 2), (5, 7), (0, 4)])
def test_no_cent_is_lost(total, people):
    assert sum(split(total, people)) == total


def test_shares_differ_by_one_cent_at_most():
    shares = split(1000, 3)
    assert max(shares) - min(shares) <= 1


def test_needs_somebody():
    with pytest.raises(ValueError):
        split(100, 0)
