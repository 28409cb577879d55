"""Stored verdicts on a real database."""

from agent_harness.store import Store
from agent_harness.store.verdicts import Verdicts


def test_verdicts_are_kept_by_key_and_given_back_newest_first(tmp_path):
    store = Store.open(f"sqlite:///{tmp_path / 'store.db'}")
    verdicts = Verdicts(store)
    assert verdicts.recall("k1") is None and verdicts.earlier("main") == []
    verdicts.remember("k1", "main", 1, {"head": "a", "n": 1})
    verdicts.remember("k2", "main", 2, {"head": "b", "n": 2})
    verdicts.remember("k3", "other", 3, {"head": "c", "n": 3})
    verdicts.remember("k1", "main", 4, {"head": "a", "n": 4})
    assert verdicts.recall("k1") == {"head": "a", "n": 4}
    assert [one["n"] for one in verdicts.earlier("main")] == [4, 2]
    store.close()
