"""The client: the chain, the ladder, the ceilings, and what the log says of it."""

import json
import threading
import time

import pytest

from agent_harness.budget import Budget
from agent_harness.errors import (
    AuditError,
    Cancelled,
    ConfigError,
    CredentialError,
    LimitReached,
    ModelFault,
    ModelFaultKind,
    ReplayDrift,
)
from agent_harness.models.bounds import InputBounds
from agent_harness.models.client import ModelClient, Patience, Route
from agent_harness.models.deadline import within
from agent_harness.models.pricing import Price, PriceTable
from agent_harness.models.records import reply_from_json
from agent_harness.models.routes import Parking
from agent_harness.types import (
    NANO,
    Finish,
    Limits,
    Message,
    ModelRequest,
    Spend,
    ToolCall,
    ToolSpec,
    Usage,
    canonical,
    digest,
)
from fakes.model_parts import FakeClock, ListRecorder, ScriptedTransport, reply

PRICE = Price.of({"input": 1, "output": 10})
USER = Message("user", "fix it")
ASK = ModelRequest("implementer", (USER,), (), 1000)
WIDE = Limits(1000, 10**9, 1000 * NANO, 10**6)


def fault(kind: str, **more) -> ModelFault:
    return ModelFault(ModelFaultKind(kind), f"it was {kind}", **more)


class Desk:
    """A client over scripted routes, with all that it touches at hand."""

    def __init__(self, limits: Limits = WIDE, *, stop=None, patience=None, route=None, **routes):
        self.clock, self.recorder = FakeClock(), ListRecorder()
        self.transports = {name: ScriptedTransport(list(steps)) for name, steps in routes.items()}
        self.budget = Budget(self.clock, "run", limits)
        self.client = ModelClient(
            [route or Route(name, f"p/{name}", f"http://{name}", price=PRICE) for name in routes],
            lambda route: self.transports[route.name],
            recorder=self.recorder,
            clock=self.clock,
            prices=PriceTable.load(),
            redact=lambda text: text.replace("s3cret", "[redacted]"),
            stop=stop,
            patience=patience,
        )

    def ask(self, request: ModelRequest = ASK):
        return self.client.complete(request, self.budget)

    def asked(self) -> dict[str, int]:
        return {name: len(transport.requests) for name, transport in self.transports.items()}

    def fails(self, error: type[Exception], request: ModelRequest = ASK):
        with pytest.raises(error) as caught:
            self.ask(request)
        return caught.value


# --- one call -----------------------------------------------------------------------------------------------


def test_an_answer_is_charged_and_recorded_with_its_price():
    desk = Desk(main=[reply("hi", usage=Usage(1000, 20, cache_read=300))])
    assert desk.ask().message.content == "hi"
    assert desk.budget.spent() == Spend(1, 1020, 1000 * 1000 + 20 * 10_000)
    asked, answered = desk.recorder.events
    assert (asked.kind, answered.kind) == ("model.asked", "model.answered")
    tie = {"role": "implementer", "call": 1, "route": "main"}
    assert tie.items() <= asked.data.items() and tie.items() <= answered.data.items()
    assert asked.data["model"] == "p/main" and answered.data["model"] == "m-1"
    assert answered.data["usage"] == {
        "input": 1000, "output": 20, "cache_read": 300, "cache_write": 0, "reasoning": 0, "counted": False,
    }  # fmt: skip
    assert answered.data["nanousd"] == 1_200_000 and answered.data["prices"] == "route"
    assert answered.data["price"]["output"] == 10 * NANO and "unpriced" not in answered.data
    body = json.loads(desk.recorder.bodies[answered.data["reply"]])
    assert reply_from_json(body) == reply("hi", usage=Usage(1000, 20, cache_read=300))


def test_the_providers_own_cost_wins():
    desk = Desk(main=[reply(nanousd=77)])
    desk.ask()
    assert desk.budget.spent().nanousd == 77
    assert desk.recorder.of("model.answered")[0]["prices"] == "provider"


def test_the_price_is_the_tables_only_at_the_providers_own_endpoint():  # story T10
    table = PriceTable.load()
    desk = Desk(main=[reply()], route=Route("main", "openai/gpt-4o-mini"))
    desk.ask()
    assert desk.recorder.of("model.answered")[0]["prices"] == table.digest
    for route in (Route("main", "openai/gpt-4o", "http://elsewhere"), Route("main", "openai/unheard-of")):
        with pytest.raises(ConfigError, match="the price of") as caught:
            Desk(main=[], route=route)
        assert "routes.main.price" in caught.value.next
    with pytest.raises(ConfigError, match="no route"):
        Desk()


def test_an_unpriced_answer_costs_nothing_says_so_and_is_bounded_all_the_same():  # field case 52
    route = Route("main", "local/x", allow_unpriced=True)
    desk = Desk(Limits(2, 10**6, 1, 100.0), main=[reply()] * 3, route=route)
    desk.ask()
    desk.ask()
    data = desk.recorder.of("model.answered")[0]
    assert (data["nanousd"], data["unpriced"], data["prices"]) == (0, True, "unpriced")
    assert desk.fails(LimitReached).limit == "steps"
    assert desk.asked() == {"main": 2}


def test_the_responses_door_has_the_models_own_price():
    table = PriceTable.load()
    desk = Desk(main=[reply()], route=Route("main", "openai/responses/gpt-4o-mini"))
    desk.ask()
    assert desk.recorder.of("model.answered")[0]["prices"] == table.digest


# --- the log ------------------------------------------------------------------------------------------------


def test_the_intent_is_written_before_the_call_and_holds_each_message_once():
    first = reply("look", calls=[ToolCall("c", "bash", "{}")])
    desk = Desk(main=[first, reply("done"), reply("other")])
    history = (Message("system", "be good"), USER)
    desk.ask(ModelRequest("implementer", history, (), 100))
    longer = (*history, first.message, Message("tool", "out", tool_call_id="c"))
    desk.ask(ModelRequest("implementer", longer, (), 100))
    desk.ask(ModelRequest("implementer", (Message("system", "be good"), Message("user", "again")), (), 100))
    one, two, three = desk.recorder.of("model.asked")
    text = lambda message: canonical(message.as_json())
    assert one["messages"] == [digest(text(message)) for message in history]
    assert two["messages"] == [digest(text(message)) for message in longer[2:]]
    assert (one["history"], two["history"], three["history"]) == (2, 4, 2)
    assert {key for key in two if key.startswith("message.")} == {"message.2", "message.3"}
    assert {key for key in three if key.startswith("message.")} == {"message.1"}  # the system message is stored already
    assert len(three["messages"]) == 2
    assert desk.recorder.bodies[two["messages"][1]] == text(longer[3])
    assert len({one["request"], two["request"], three["request"]}) == 3


def test_no_call_is_made_when_the_intent_cannot_be_written():
    desk = Desk(main=[reply()])
    desk.recorder.broken = AuditError("disk full")
    desk.fails(AuditError)
    assert desk.asked() == {"main": 0}
    assert desk.budget.spent() == Spend()
    desk.budget.reserve(Spend(WIDE.steps, 1, 1))  # the reservation was given back


def test_an_answer_is_charged_also_when_it_cannot_be_recorded():
    desk = Desk(main=[])

    def answer(_):
        desk.recorder.broken = AuditError("disk full")
        return reply()

    desk.transports["main"].steps.append(answer)
    desk.fails(AuditError)
    assert desk.budget.spent().steps == 1


def test_secrets_are_in_no_body_and_no_reason():
    desk = Desk(main=[fault("refused", why="key s3cret"), reply("s3cret")])
    desk.fails(ModelFault, ModelRequest("implementer", (Message("user", "s3cret"),), (), 100))
    desk.ask(ModelRequest("implementer", (Message("user", "s3cret"),), (), 100))
    assert "s3cret" not in repr(desk.recorder)


# --- ceilings -----------------------------------------------------------------------------------------------


def test_the_worst_case_is_reserved_and_less_output_is_asked_for_where_only_less_fits():
    # 1 token of "output" costs 10_000; 30 steps of money for about 1000 output tokens and the input's bound.
    desk = Desk(Limits(10, 10**6, 7_000_000, 100.0), main=[reply(usage=Usage(5, 5))])
    desk.ask()
    worst = desk.recorder.of("model.asked")[0]["worst"]
    assert worst["nanousd"] <= 7_000_000
    assert 256 <= desk.transports["main"].requests[0].max_output_tokens < 1000
    assert (
        desk.recorder.of("model.asked")[0]["max_output_tokens"] == desk.transports["main"].requests[0].max_output_tokens
    )


def test_no_call_is_made_that_could_pass_the_spend_ceiling():
    desk = Desk(Limits(10, 10**6, 1_000_000, 100.0), main=[reply()])
    error = desk.fails(LimitReached)
    assert error.limit == "spend" and "could cost" in error.line
    assert desk.asked() == {"main": 0} and desk.recorder.events == []


def test_malformed_answers_at_a_dollar_end_at_the_ceiling():  # field case 50
    desk = Desk(Limits(100, 10**7, 5 * NANO // 2, 100.0), main=[reply("", nanousd=NANO)] * 9)
    with pytest.raises(LimitReached, match="spend"):
        for _ in range(9):
            desk.ask()
    assert desk.asked() == {"main": 3}


def test_steps_count_answers_and_the_last_one_may_be_used():  # field cases 61, 62
    desk = Desk(Limits(3, 10**7, NANO, 100.0), main=[reply(), fault("retry"), reply(), reply(), reply()])
    for _ in range(3):
        desk.ask()
    desk.fails(LimitReached)
    assert desk.asked() == {"main": 4}  # the failed try was no step


def test_the_seconds_of_the_budget_bound_the_call():
    desk = Desk(Limits(9, 10**7, NANO, 12.0), main=[reply()])
    desk.clock.sleep(5)
    desk.ask()
    assert desk.transports["main"].timeouts == [7.0]
    desk.clock.sleep(7)
    assert desk.fails(LimitReached).limit == "seconds"


def test_the_input_bound_is_by_bytes_first_and_then_by_the_providers_count():
    bounds, route = InputBounds(), Route("main", "p/m")
    tool = ToolSpec("bash", "Run", {"type": "object"})
    history = (Message("system", "ü" * 1000), USER)
    request = ModelRequest("implementer", history, (tool,), 100)
    first = bounds.of(route, request)
    assert first > 2000 + len("fix it") + len(canonical(["bash", "Run", {"type": "object"}]))
    answer = reply("look", usage=Usage(300, 40))
    bounds.learn(route, request, answer)
    observed = Message("tool", "x" * 50, tool_call_id="c")
    longer = ModelRequest("implementer", (*history, answer.message, observed), (tool,), 100)
    assert 390 < bounds.of(route, longer) < 500
    # Another route counts by another vocabulary, another role has another history, a rewritten one is unknown.
    assert bounds.of(Route("other", "p/m"), longer) > 2000
    assert bounds.of(route, ModelRequest("reviewer", longer.messages, (tool,), 100)) > 2000
    assert bounds.of(route, ModelRequest("implementer", (Message("system", "ö" * 1000), USER), (tool,), 100)) > 2000


def test_thoughts_that_go_back_count_where_the_history_was_shortened_or_cleaned():
    """They stand in no message, so its bytes are no bound of them: a ceiling could be passed at a step of elision."""
    bounds, route = InputBounds(), Route("main", "p/m")
    said = reply("look", usage=Usage(300, 5000, reasoning=4900))
    request = ModelRequest("implementer", (USER,), (), 100)
    bounds.learn(route, request, said)
    cleaned = Message("assistant", "loo")
    assert bounds.of(route, ModelRequest("implementer", (USER, cleaned), (), 100)) >= 5300
    bounds.learn(route, ModelRequest("implementer", (USER, said.message, USER), (), 100), said)
    elided = (Message("user", "short"), said.message, USER, said.message)
    assert bounds.of(route, ModelRequest("implementer", elided, (), 100)) >= 10_000


def test_a_failed_call_that_was_billed_is_charged():
    desk = Desk(main=[fault("malformed", usage=Usage(100, 10)), reply(usage=Usage(1, 1))])
    desk.ask()
    assert desk.budget.spent() == Spend(1, 112, 100 * 1000 + 10 * 10_000 + 1000 + 10_000)
    failed = desk.recorder.of("model.failed")[0]
    assert (failed["fault"], failed["nanousd"], failed["usage"]["input"]) == ("malformed", 200_000, 100)


def test_an_answer_that_nobody_can_read_is_charged_as_the_most_it_can_have_cost():
    desk = Desk(main=[fault("malformed"), reply(usage=Usage(1, 1))])
    desk.ask()
    asked, failed = desk.recorder.of("model.asked")[0], desk.recorder.of("model.failed")[0]
    assert failed["nanousd"] == asked["worst"]["nanousd"] == desk.budget.spent().nanousd - 11_000
    assert failed["usage"]["counted"]
    assert desk.budget.spent().tokens == asked["worst"]["tokens"] + 2


# --- the ladder ---------------------------------------------------------------------------------------------


def test_a_fault_is_tried_again_a_bounded_number_of_times():
    desk = Desk(main=[fault("retry")] * 9)
    error = desk.fails(ModelFault)
    assert error.kind is ModelFaultKind.RETRY and "main: it was retry" in error.line
    assert desk.asked() == {"main": 3}
    assert desk.budget.spent() == Spend()
    assert sum(desk.clock.slept) <= 1 + 2


def test_the_chain_is_walked_before_any_wait():  # story S23
    desk = Desk(one=[fault("retry")] * 3, two=[fault("retry", retry_after_s=50)] * 3, three=[reply("third")])
    assert desk.ask().message.content == "third"
    assert desk.clock.slept == []
    assert desk.asked() == {"one": 1, "two": 1, "three": 1}


@pytest.mark.parametrize("kind", ["cap", "auth", "refused", "context", "filtered"])
def test_what_a_second_try_cannot_mend_is_asked_once_and_the_next_route_answers(kind):
    desk = Desk(one=[fault(kind)] * 9, two=[fault("retry"), reply()])
    desk.ask()
    assert desk.asked() == {"one": 1, "two": 2}


@pytest.mark.parametrize(
    ("kinds", "speaks"),
    [
        (["cap", "retry"], "retry"),
        (["auth", "cap"], "cap"),
        (["refused", "context"], "context"),
        (["filtered", "refused"], "filtered"),
        (["malformed", "refused"], "malformed"),
    ],
)
def test_the_most_hopeful_fault_speaks_for_the_chain(kinds, speaks):
    desk = Desk(one=[fault(kinds[0])] * 3, two=[fault(kinds[1])] * 3)
    error = desk.fails(ModelFault)
    assert error.kind.value == speaks
    assert "one: " in error.line and "two: " in error.line


def test_refused_keys_on_every_route_are_a_credential_error():
    desk = Desk(one=[fault("auth")], two=[CredentialError("KEY is not set", next="export KEY")])
    error = desk.fails(CredentialError)
    assert "KEY is not set" in error.line and error.exit == 4
    assert [event["fault"] for event in desk.recorder.of("model.failed")] == ["auth", "credentialerror"]


def test_the_wait_is_the_one_of_the_latest_answer():  # field case 67
    desk = Desk(main=[fault("retry", retry_after_s=2), fault("retry", retry_after_s=5), reply()])
    desk.ask()
    waits = [desk.recorder.events.index(event) for event in desk.recorder.events if event.kind == "model.asked"]
    assert waits == [0, 2, 4]
    assert 7 <= sum(desk.clock.slept) <= 7 * 1.1 + 0.01


def test_a_route_is_not_asked_before_the_time_it_named():
    desk = Desk(slow=[fault("retry", retry_after_s=50)] * 3, main=[fault("retry"), reply()])
    desk.ask()
    assert desk.asked() == {"slow": 1, "main": 2}


def test_a_wait_that_is_too_long_gives_the_item_back():
    desk = Desk(main=[fault("retry", retry_after_s=3600)] * 3)
    error = desk.fails(ModelFault)
    assert error.kind is ModelFaultKind.RETRY and error.retry_after_s == pytest.approx(3600, abs=2)
    assert desk.asked() == {"main": 1} and desk.clock.slept == []


def test_no_wait_goes_beyond_the_budgets_seconds():
    desk = Desk(Limits(9, 10**6, NANO, 20.0), main=[fault("retry", retry_after_s=30)] * 3)
    assert desk.fails(ModelFault).retry_after_s >= 30
    assert desk.clock.slept == []


def test_a_drifted_replay_is_final():
    desk = Desk(one=[ReplayDrift("call 3 differs")], two=[reply()])
    desk.fails(ReplayDrift)
    assert desk.asked() == {"one": 1, "two": 0}
    assert desk.recorder.of("model.failed")[0]["why"] == "call 3 differs"


# --- parking ------------------------------------------------------------------------------------------------


def test_a_cap_parks_the_endpoint_for_this_role_only():  # story S22
    desk = Desk(main=[fault("cap"), reply("for the reviewer"), reply("later")])
    desk.fails(ModelFault)
    assert desk.fails(ModelFault).kind is ModelFaultKind.CAP
    assert desk.asked() == {"main": 1}
    assert desk.ask(ModelRequest("reviewer", (USER,), (), 100)).message.content == "for the reviewer"
    desk.clock.sleep(1000)
    assert desk.ask().message.content == "later"


def test_a_refused_key_stays_parked():
    desk = Desk(main=[fault("auth"), reply()])
    desk.fails(CredentialError)
    desk.clock.sleep(10**6 - 1)
    desk.fails(CredentialError)
    assert desk.asked() == {"main": 1}


def test_clients_that_share_parking_learn_from_each_other():
    parking = Parking(FakeClock())
    one = Desk(main=[fault("cap")], patience=Patience(parking=parking))
    two = Desk(main=[reply()], patience=Patience(parking=parking))
    one.fails(ModelFault)
    two.fails(ModelFault)
    assert two.asked() == {"main": 0}


# --- deadlines and cancellation -----------------------------------------------------------------------------


def test_a_transport_that_ignores_its_timeout_is_left_behind():  # field cases 13, 14
    gate = threading.Event()

    def hang(_):
        gate.wait(30)
        return reply()

    route = Route("main", "p/main", price=PRICE, timeout_s=0.05)
    desk = Desk(main=[hang, reply("second")], route=route, patience=Patience(grace_s=0.0))
    started = time.monotonic()
    assert desk.ask().message.content == "second"
    assert time.monotonic() - started < 2
    failed, asked = desk.recorder.of("model.failed")[0], desk.recorder.of("model.asked")[0]
    assert "no answer within" in failed["why"]
    assert failed["nanousd"] == asked["worst"]["nanousd"] > 0, "it may be billed: the most that it can be is charged"
    assert failed["usage"]["counted"] is True
    assert desk.budget.spent().nanousd > failed["nanousd"]
    gate.set()


def test_a_cancelled_run_leaves_the_call_and_gives_the_reservation_back():
    stop, gate = threading.Event(), threading.Event()

    def hang(_):
        stop.set()
        gate.wait(30)
        return reply()

    desk = Desk(main=[hang], stop=stop)
    started = time.monotonic()
    desk.fails(Cancelled)
    assert time.monotonic() - started < 2
    gate.set()
    assert desk.recorder.of("model.failed")[0]["fault"] == "cancelled"
    assert desk.budget.spent().nanousd == desk.recorder.of("model.asked")[0]["worst"]["nanousd"]
    desk.budget.reserve(Spend(WIDE.steps, 1, 1))


def test_a_cancelled_run_does_not_wait_for_a_provider():
    stop = threading.Event()
    stop.set()
    desk = Desk(main=[fault("retry", retry_after_s=30)] * 3, stop=stop)
    desk.fails(Cancelled)
    assert sum(desk.clock.slept) == 0


def test_within_hands_on_values_and_every_error():
    assert within(5, lambda: 42) == 42
    with pytest.raises(ZeroDivisionError):
        within(5, lambda: 1 // 0)
    with pytest.raises(SystemExit):
        within(5, lambda: (_ for _ in ()).throw(SystemExit(3)))


def test_a_programming_error_of_a_transport_comes_through_and_is_charged_as_the_most_it_can_have_cost():
    desk = Desk(main=[KeyError("bug")])
    desk.fails(KeyError)
    worst = desk.recorder.of("model.asked")[0]["worst"]
    assert desk.budget.spent() == Spend(1, worst["tokens"], worst["nanousd"]) and worst["nanousd"] > 0
    assert desk.budget.reserve(Spend(WIDE.steps - 1, 1, 1)) > 0, "the reservation is still held beside it"


def test_filtered_answers_come_back_charged():  # field case 71
    desk = Desk(main=[reply("", finish=Finish.FILTERED)])
    assert desk.ask().finish is Finish.FILTERED
    assert desk.budget.spent().steps == 1
