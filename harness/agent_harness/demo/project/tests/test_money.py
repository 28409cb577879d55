from bill import format_cents, parse_cents


def test_reads_amounts():
    assert parse_cents("12.34") == 1234
    assert parse_cents("12") == 1200
    assert parse_cents(".5") == 50


def test_writes_amounts():
    assert format_cents(1234) == "12.34"
    assert format_cents(5) == "0.05"
