import pytest

from agent_harness.errors import ClaimLost, UsageError
from agent_harness.types import Allowance, Check, CheckKind, Deliverable, ItemState, Limits, NewItem, Settlement
from fakes.queues import SECRET, Desk, quick_folder

S = ItemState


@pytest.fixture
def folder():
    with quick_folder() as path:
        yield path


@pytest.fixture
def desk(folder):
    desk = Desk.at(folder)
    yield desk
    assert desk.audit.verify() == []
    desk.store.close()


def test_an_item_comes_back_as_it_was_queued(desk):
    new = NewItem(
        title="Größe",
        brief="a\n\0b",
        checks=(Check("pytest", CheckKind.TESTS, 5.0), Check("true", CheckKind.COMMAND)),
        limits=Limits(1, 2, 3, 4.5),
        priority=-3,
        key="k",
        base="main",
        allow=(Allowance.NEW_SKIPS,),
        allow_paths=("tests/x",),
    )
    item, added = desk.queue.add(new)
    assert added
    assert (item.title, item.brief, item.checks, item.limits) == ("Größe", "a\n\ufffdb", new.checks, new.limits)
    assert (item.priority, item.key, item.base, item.allow, item.allow_paths) == (
        -3,
        "k",
        "main",
        new.allow,
        ("tests/x",),
    )
    assert item.state is S.READY
    assert len(item.id) == 6
    assert desk.queue.get(item.id) == item
    (event,) = desk.audit.events(item=item.id)
    assert (event.kind, dict(event.data)) == ("item.queued", {"title": "Größe", "state": "ready", "key": "k"})


def test_a_key_queues_once(desk):
    first, added = desk.queue.add(NewItem("a", "", key="k"))
    again, added_again = desk.queue.add(NewItem("b", "", key="k"))
    assert (added, added_again) == (True, False)
    assert again == first
    both = desk.queue.add_all([NewItem("c", "", key="m"), NewItem("d", "", key="m")])
    assert [added for _, added in both] == [True, False]
    assert both[0][0] == both[1][0]


def test_no_two_items_share_an_id(desk):
    desk.add("a")
    with pytest.raises(UsageError, match="exists already"):
        desk.add("a")
    with pytest.raises(UsageError, match="exists already"):
        desk.queue.add_all([NewItem("x", "", id="b"), NewItem("x", "", id="b")])
    assert [item.id for item in desk.queue.items()] == ["a"]


def test_the_order_is_priority_then_due_time_then_age(desk):
    for id, priority in (("low", -1), ("old", 0), ("young", 0), ("high", 5)):
        desk.add(id, priority=priority)
    late = desk.claim(item="old")
    desk.queue.settle(late, Settlement.DEFERRED, reason="busy", not_before_ms=desk.clock.now_ms() - 1)
    assert [item.id for item in desk.queue.items()] == ["high", "young", "old", "low"]
    assert [desk.claim().item.id for _ in range(4)] == ["high", "young", "old", "low"]
    assert desk.queue.claim("w", "r") is None


def test_a_claim_is_unique_counted_and_recorded(desk):
    desk.add("a")
    claim = desk.claim(ttl_s=5)
    assert (claim.generation, claim.item.state, claim.item.generation) == (1, S.CLAIMED, 1)
    assert claim.expires_ms == desk.clock.now_ms() + 5000
    assert len(claim.token) == 32
    assert desk.queue.claim("w", "r") is None
    assert desk.queue.claim("w", "r", item="a") is None
    with pytest.raises(UsageError, match="there is no item 'b'"):
        desk.queue.claim("w", "r", item="b")
    event = desk.audit.events(kinds=["item.claimed"])[0]
    assert (event.run, dict(event.data)) == ("run-1", {"generation": 1, "worker": "elsewhere/boot/1/1/x"})


@pytest.mark.parametrize(
    ("settlement", "state"),
    [
        (Settlement.DONE, S.DONE),
        (Settlement.FAILED, S.FAILED),
        (Settlement.EXHAUSTED, S.EXHAUSTED),
        (Settlement.HELD, S.HELD),
        (Settlement.DEFERRED, S.READY),
        (Settlement.CANCELLED, S.CANCELLED),
    ],
)
def test_each_settlement_has_its_state(desk, settlement, state):
    desk.add("a")
    claim = desk.claim()
    item = desk.queue.settle(claim, settlement, reason="so", feedback="next time")
    assert (item.state, item.reason, item.feedback) == (state, "so", "next time")
    assert item.failures == (settlement is Settlement.FAILED)
    assert desk.moves("a") == [("claimed", state.value)]
    assert desk.queue.settle(claim, settlement, reason="so") == item or settlement is Settlement.HELD
    if settlement is not Settlement.HELD:
        with pytest.raises(ClaimLost):
            desk.queue.settle(claim, Settlement.DONE if state is not S.DONE else Settlement.FAILED, reason="again")


def test_failures_are_counted_up_to_the_maximum(folder):
    desk = Desk.at(folder, max_failures=2)
    desk.add("a")
    item = desk.queue.settle(desk.claim(), Settlement.FAILED, reason="1", feedback="f1")
    assert (item.state, item.failures, item.feedback) == (S.READY, 1, "f1")
    item = desk.queue.settle(desk.claim(), Settlement.DEFERRED, reason="net")
    assert (item.state, item.failures, item.feedback) == (S.READY, 1, "f1")
    desk.queue.settle(desk.claim(), Settlement.HELD, reason="who?")
    assert desk.queue.retry("a").feedback == "f1"
    item = desk.queue.settle(desk.claim(), Settlement.FAILED, reason="2", feedback="f2")
    item = desk.queue.settle(desk.claim(), Settlement.FAILED, reason="3", feedback="f2")
    assert (item.state, item.failures, item.feedback) == (S.FAILED, 2, "f2")
    desk.store.close()


def test_attempts_that_were_paid_and_judged_nothing_are_held_at_last_for_a_person(desk):
    desk.add("a")
    for losses in (1, 2):
        desk.queue.settle(desk.claim(), Settlement.DEFERRED, reason="nothing was paid")
        item = desk.queue.settle(desk.claim(), Settlement.DEFERRED, reason="503", lost=True)
        assert (item.state, item.losses, item.failures, item.reason) == (S.READY, losses, 0, "503")
    item = desk.queue.settle(desk.claim(), Settlement.DEFERRED, reason="503", not_before_ms=5, lost=True)
    assert (item.state, item.reason, item.not_before_ms) == (S.HELD, "503; that was loss 3 of 3", 0)
    item = desk.queue.retry("a")
    assert (item.state, item.losses) == (S.READY, 0)


def test_a_deferred_item_waits_for_its_time(desk):
    desk.add("a")
    desk.queue.settle(desk.claim(), Settlement.DEFERRED, reason="429", not_before_ms=desk.clock.now_ms() + 5000)
    assert desk.queue.claim("w", "r") is None
    desk.clock.advance(5)
    assert desk.claim().item.id == "a"


def test_a_retried_deferral_goes_at_once(desk):
    desk.add("a")
    desk.queue.settle(desk.claim(), Settlement.DEFERRED, reason="429", not_before_ms=desk.clock.now_ms() + 5000)
    desk.queue.retry("a")
    assert desk.claim().generation == 2


def test_a_late_worker_can_write_nothing(desk):
    desk.add("a")
    late = desk.claim(ttl_s=1)
    desk.clock.advance(2)
    assert desk.queue.recover() == ["a"]
    for act in (
        lambda: desk.queue.renew(late),
        lambda: desk.queue.delivering(late),
        lambda: desk.queue.settle(late, Settlement.DONE, reason=""),
    ):
        with pytest.raises(ClaimLost, match="generation 1"):
            act()
    owner = desk.claim()
    with pytest.raises(ClaimLost):
        desk.queue.settle(late, Settlement.DONE, reason="")
    assert owner.generation == 2
    assert desk.queue.renew(owner).expires_ms > owner.expires_ms - 1
    assert desk.queue.get("a").state is S.CLAIMED


def test_renewing_prolongs(desk):
    desk.add("a")
    claim = desk.claim(ttl_s=10)
    desk.clock.advance(9)
    claim = desk.queue.renew(claim, ttl_s=10)
    desk.clock.advance(9)
    assert desk.queue.recover() == []
    desk.clock.advance(1)
    assert desk.queue.recover() == ["a"]


def test_a_beat_after_the_own_settlement_is_late_not_lost(desk):
    desk.add("a")
    claim = desk.claim()
    desk.queue.settle(claim, Settlement.DONE, reason="ok")
    assert desk.queue.renew(claim) == claim


def test_a_holder_keeps_its_rights_until_somebody_takes_them(desk):
    desk.add("a")
    desk.add("b")
    first, second = desk.claim(), desk.claim()
    for claim in (first, second):
        desk.queue.settle(claim, Settlement.HELD, reason="which one?")
        desk.clock.advance(3600)
        assert desk.queue.renew(claim) == claim
    assert desk.queue.recover() == []
    desk.queue.delivering(first)
    assert desk.queue.recover() == []
    assert desk.queue.settle(first, Settlement.DONE, reason="answered").state is S.DONE
    desk.queue.retry("b")
    with pytest.raises(ClaimLost):
        desk.queue.delivering(second)


def test_delivering_is_said_once_and_comes_back_when_its_worker_is_lost(desk):
    desk.add("a")
    claim = desk.claim(ttl_s=1)
    desk.queue.delivering(claim)
    desk.queue.delivering(claim)
    assert desk.moves("a") == [("claimed", "delivering")]
    with pytest.raises(UsageError, match=r"it is delivering\. Next: wait for its end"):
        desk.queue.cancel("a")
    desk.clock.advance(61)
    assert desk.queue.recover() == ["a"]
    item = desk.queue.get("a")
    assert (item.state, item.losses, item.failures) == (S.READY, 1, 0)
    assert desk.queue.settle(desk.claim(), Settlement.DONE, reason="landed before").state is S.DONE


def test_a_worker_that_vanishes_every_time_is_given_up(desk):
    desk.add("a")
    for losses in (1, 2, 3):
        assert desk.claim(ttl_s=1).generation == losses
        desk.clock.advance(2)
        assert desk.queue.recover() == ["a"]
        assert desk.queue.get("a").losses == losses
    item = desk.queue.get("a")
    assert item.state is S.FAILED
    assert item.reason == "its worker did not renew the claim in time; that was loss 3 of 3"


@pytest.mark.parametrize("seconds", [40, -40])
def test_after_the_wall_clock_jumped_expiry_proves_nothing_for_a_while(desk, seconds):
    desk.add("a")
    desk.claim(ttl_s=60)
    desk.clock.advance(30)
    desk.clock.jump(seconds)
    assert desk.queue.recover() == []
    desk.clock.advance(59)
    assert desk.queue.recover() == []
    desk.clock.advance(60)
    assert desk.queue.recover() == ["a"]


def test_retry_resets_the_counters_and_keeps_what_was_learnt(desk):
    desk.add("a")
    desk.claim(ttl_s=1)
    desk.clock.advance(2)
    desk.queue.recover()
    desk.queue.settle(desk.claim(), Settlement.FAILED, reason="tests fail", feedback="look at x")
    item = desk.queue.retry("a")
    assert (item.state, item.failures, item.losses, item.not_before_ms) == (S.READY, 0, 0, 0)
    assert (item.reason, item.feedback, item.generation) == ("tests fail", "look at x", 2)
    assert desk.claim().generation == 3
    with pytest.raises(UsageError, match="it is claimed"):
        desk.queue.retry("a")


def test_done_is_the_end(desk):
    desk.add("a")
    desk.queue.settle(desk.claim(), Settlement.DONE, reason="ok")
    with pytest.raises(UsageError, match="it is done"):
        desk.queue.retry("a")
    with pytest.raises(UsageError, match="it is done"):
        desk.queue.cancel("a")


def test_cancel_fences_the_worker_at_once(desk):
    desk.add("a")
    claim = desk.claim()
    item = desk.queue.cancel("a")
    assert (item.state, item.generation) == (S.CANCELLED, 2)
    with pytest.raises(ClaimLost):
        desk.queue.renew(claim)
    with pytest.raises(ClaimLost):
        desk.queue.settle(claim, Settlement.CANCELLED, reason="")
    assert desk.queue.cancel("a") == item
    desk.queue.retry("a")
    assert desk.claim().generation == 3


def test_dependents_wait_and_say_for_what(desk):
    desk.add("a")
    desk.add("b")
    desk.add("c", depends_on=("b", "a", "a"))
    desk.add("d", depends_on=("c",))
    item = desk.queue.get("c")
    assert (item.state, item.depends_on, item.reason) == (S.BLOCKED, ("b", "a"), "waits for b (ready), a (ready)")
    desk.queue.settle(desk.claim(item="b"), Settlement.DONE, reason="ok")
    assert desk.queue.get("c").reason == "waits for a (ready)"
    desk.queue.settle(desk.claim(item="a"), Settlement.FAILED, reason="no")
    assert desk.queue.get("c").reason == "waits for a (failed)"
    assert desk.queue.get("d").reason == "waits for c (blocked)"
    assert desk.queue.claim("w", "r") is None
    assert desk.queue.retry("c").state is S.BLOCKED
    desk.queue.retry("a")
    desk.queue.settle(desk.claim(), Settlement.DONE, reason="ok")
    assert [(item.id, item.reason) for item in desk.queue.items([S.READY])] == [("c", "")]
    assert desk.moves("c")[-1] == ("blocked", "ready")
    assert desk.add("e", depends_on=("a", "b")).state is S.READY


def test_a_cancelled_dependent_stays_cancelled(desk):
    desk.add("a")
    desk.add("b", depends_on=("a",))
    desk.queue.cancel("b")
    desk.queue.settle(desk.claim(), Settlement.DONE, reason="ok")
    assert desk.queue.get("b").state is S.CANCELLED
    assert desk.queue.retry("b").state is S.READY


def test_what_cannot_be_queued_changes_nothing(desk):
    desk.add("a")
    before = desk.audit.root()
    for new, line in (
        ([NewItem("x", "", depends_on=("nope",), id="b")], "b cannot depend on 'nope': there is no such item"),
        ([NewItem("x", "", id="b", depends_on=("b",))], "wait for each other: b -> b"),
        (
            [NewItem("x", "", id="b", depends_on=("c", "a")), NewItem("x", "", id="c", depends_on=("b",))],
            "wait for each other: (b -> c -> b|c -> b -> c)",
        ),
        ([NewItem("ok", ""), NewItem(" ", "")], "needs a title"),
        ([NewItem("x", "", priority=10**7)], "out of range"),
        (
            [NewItem("x", "", checks=(Check(f"KEY={SECRET} pytest"),))],
            r"secret stands in 'KEY=\[redacted:PASSWORD\] pytest'",
        ),
    ):
        with pytest.raises(UsageError, match=line):
            desk.queue.add_all(new)
    assert desk.audit.root() == before
    assert len(desk.queue.items()) == 1


def test_items_queued_together_may_depend_on_each_other_in_any_order(desk):
    placed = desk.queue.add_all([NewItem("last", "", id="z", depends_on=("y",)), NewItem("first", "", id="y")])
    assert [(item.id, item.state) for item, _ in placed] == [("z", S.BLOCKED), ("y", S.READY)]


@pytest.mark.parametrize("id", ["", "A", "-a", ".a", "a..b", "a.", "a.lock", "a/b", "a b", "ä", "a" * 65, "a\n"])
def test_an_id_must_fit_a_branch_name(desk, id):
    with pytest.raises(UsageError, match="cannot be an item's id"):
        desk.add(id)


def test_no_secret_reaches_the_store(desk, folder):
    desk.add("a", title=f"use {SECRET}")
    desk.queue.settle(desk.claim(), Settlement.FAILED, reason=f"printed {SECRET}", feedback=f"{SECRET}\0 leaked")
    item = desk.queue.get("a")
    assert item.feedback == "[redacted:PASSWORD]\ufffd leaked"
    with desk.store.write():
        pass
    for path in folder.iterdir():
        assert SECRET.encode() not in path.read_bytes()


def test_a_refused_event_undoes_the_move(desk):
    """State and event stand or fall together."""
    desk.add("a")
    claim = desk.claim()

    def refuse(text):
        if text == "claimed":
            raise OSError("disk")
        return text

    desk.audit.redact = refuse
    with pytest.raises(OSError, match="disk"):
        desk.queue.settle(claim, Settlement.DONE, reason="ok")
    desk.audit.redact = str
    assert desk.queue.get("a").state is S.CLAIMED


def test_a_dependency_that_is_not_queued_blocks_until_it_is(desk):
    early = desk.queue.add(NewItem("b", "", id="b", needs=("plan#a",)))[0]
    assert (early.state, early.missing, early.reason) == (S.BLOCKED, ("plan#a",), "waits for plan#a (not queued)")
    assert desk.queue.retry("b").state is S.BLOCKED
    desk.queue.add(NewItem("a", "", id="a", key="plan#a"))
    assert desk.queue.get("b").reason == "waits for a (ready)"
    desk.queue.settle(desk.claim(item="a"), Settlement.DONE, reason="")
    assert desk.queue.get("b").state is S.READY


def test_what_comes_done_lets_the_waiting_go_on_and_is_never_claimed(desk):
    desk.queue.add(NewItem("b", "", id="b", needs=("plan#a",)))
    done = desk.queue.add(NewItem("a", "", key="plan#a", done=True))[0]
    assert (done.state, done.reason) == (S.DONE, "imported as done")
    assert desk.queue.get("b").state is S.READY
    assert desk.claim().item.id == "b"
    assert desk.queue.claim("elsewhere/boot/1/1/x", "run-2") is None


def test_a_cycle_through_what_waited_is_refused_with_its_path(desk):
    desk.queue.add(NewItem("b", "", id="b", key="plan#b", needs=("plan#a",)))
    desk.add("c", depends_on=("b",))
    with pytest.raises(UsageError, match=r"a -> c -> b -> a|c -> b -> a -> c|b -> a -> c -> b"):
        desk.queue.add(NewItem("a", "", id="a", key="plan#a", depends_on=("c",)))
    assert [one.id for one in desk.queue.items()] == ["b", "c"]
    with pytest.raises(UsageError, match="x -> x"):
        desk.queue.add(NewItem("x", "", id="x", key="k", needs=("k",)))


def test_a_person_declares_an_item_done(desk):
    desk.add("a")
    desk.add("b", depends_on=("a",))
    claim = desk.claim(item="a")
    with pytest.raises(UsageError, match="it is claimed"):
        desk.queue.finish("a", "seen")
    desk.queue.settle(claim, Settlement.HELD, reason="asks")
    assert (desk.queue.finish("a", f"seen {SECRET}").state, SECRET in desk.queue.get("a").reason) == (S.DONE, False)
    assert desk.queue.get("b").state is S.READY
    with pytest.raises(ClaimLost):
        desk.queue.settle(claim, Settlement.FAILED, reason="late")
    with pytest.raises(UsageError, match="it is done"):
        desk.queue.finish("a", "again")


def test_an_answer_is_stored_with_the_settlement_of_the_claim_that_holds(desk):
    desk.add("a", deliverable=Deliverable.ANSWER)
    claim = desk.claim()
    assert claim.item.deliverable is Deliverable.ANSWER
    item = desk.queue.settle(claim, Settlement.DONE, reason="answered", answer="sha256:x")
    assert item.answer == desk.queue.items()[0].answer == "sha256:x"
