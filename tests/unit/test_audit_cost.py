from agent_harness.audit import Cost, tally
from agent_harness.audit.cost import of_item, of_role, of_run
from agent_harness.types import Event, Spend
from agent_harness.types.kinds import Kind


def event(kind, item="i1", run="r1", **data):
    return Event(1, 0, kind, item, run, data, "")


USAGE = {"input": 100, "output": 20, "cache_read": 60, "cache_write": 5, "reasoning": 7}
EVENTS = [
    event(Kind.RUN_STARTED),
    event(Kind.MODEL_ASKED, role="implementer", call=1),
    event(Kind.MODEL_FAILED, role="implementer", call=1, nanousd=3, seconds=0.5),
    event(Kind.MODEL_ASKED, role="implementer", call=2),
    event(Kind.MODEL_ANSWERED, role="implementer", call=2, usage=USAGE, nanousd=40, seconds=1.5),
    event(Kind.COMMAND_STARTED, where="implementer"),
    event(Kind.COMMAND_ENDED, where="implementer", seconds=2.0),
    event(Kind.MODEL_ASKED, role="reviewer", run="r2", call=1),
    event(Kind.MODEL_ANSWERED, role="reviewer", run="r2", call=1, usage={"input": 1}, nanousd=None, seconds=1),
    event(Kind.MODEL_ASKED, role="reviewer", run="r2", call=2),
    event(Kind.COMMAND_STARTED, item="i2", run="r3", where="checks"),
]


def test_all_of_it():
    (cost,) = tally(EVENTS).values()
    assert cost == Cost(
        steps=2, failed_calls=1, input=101, output=20, cache_read=60, cache_write=5, reasoning=7, nanousd=43,
        unpriced=1, model_seconds=3.0, commands=1, command_seconds=2.0, dangling=2,
    )  # fmt: skip
    assert cost.spend == Spend(2, 121, 43)


def test_groups_add_up_to_the_whole():
    whole = tally(EVENTS)[""]
    for by in (of_item, of_run, of_role):
        assert sum(tally(EVENTS, by).values(), Cost()) == whole
    assert tally(EVENTS, of_role)["reviewer"] == Cost(steps=1, input=1, unpriced=1, model_seconds=1.0, dangling=1)
    assert tally(EVENTS, of_run)["r3"] == Cost(dangling=1)
    assert set(tally(EVENTS, of_item)) == {"i1", "i2"}


def test_what_has_no_price_is_counted_apart_and_tokens_of_a_billed_failure_are_counted_too():
    free = event(Kind.MODEL_ANSWERED, nanousd=0, unpriced=True, usage={"input": 2})  # as the client writes it
    lost = event(Kind.MODEL_FAILED, nanousd=5, usage={"input": 3, "output": 1})
    assert tally([free, lost])[""] == Cost(
        steps=1, failed_calls=1, input=5, output=1, nanousd=5, unpriced=1, dangling=-2
    )  # fmt: skip


def test_nothing_costs_nothing():
    assert tally([event(Kind.RUN_STARTED)]) == {}
