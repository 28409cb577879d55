"""The kinds of events, and the data each carries. The one list: writers, receipt, progress and audit read it.

Every paid call, command and effect has two events: the intent before it, the result after it. A kill between
leaves the intent dangling, which is the truth.
"""

from __future__ import annotations

from enum import StrEnum


class Kind(StrEnum):
    """The comment beside each names its data keys (a trailing `?` marks one that may be absent)."""

    ITEM_QUEUED = "item.queued"  # title, state, key?
    ITEM_CLAIMED = "item.claimed"  # generation, worker
    ITEM_STATE = "item.state"  # old, new, reason (every other move of an item)

    RUN_STARTED = "run.started"  # generation, base, source, mode (live|record|replay|dry), config, version, purpose?
    RUN_ENDED = "run.ended"  # outcome, exit, reason, seconds

    WORKSPACE_READY = "workspace.ready"  # base, start (the base, or kept work that is gone on with), seconds
    IMAGE_READY = "image.ready"  # image, base, seconds (only where it is made from the base)
    SANDBOX_STARTING = "sandbox.starting"  # purpose (implementer|reviewer|checks-base|checks-candidate), mode, image
    SANDBOX_READY = "sandbox.ready"  # purpose, container, image, seconds
    SANDBOX_CLOSED = "sandbox.closed"  # purpose, container

    ROLE_STARTED = "role.started"  # role, role_run, mode, prompts {name: digest}, limits {steps,tokens,nanousd,seconds}
    ROLE_SUBMITTED = "role.submitted"  # where, round, submission (body: what was accepted, before and after the story)
    ROLE_ENDED = "role.ended"  # role, role_run, ended, detail, steps, tokens, nanousd, seconds, submission? (body)

    MODEL_ASKED = "model.asked"  # role, call, route, model, history, worst {..}, request (digest), messages [digests]
    MODEL_ANSWERED = "model.answered"  # role, call, route, model, finish, usage {..}, nanousd, prices, seconds, reply
    MODEL_FAILED = "model.failed"  # role, call, route, model, fault, why, seconds, nanousd, usage?, retry_after_s?

    COMMAND_STARTED = "command.started"  # where (role run or gate), command
    COMMAND_ENDED = "command.ended"  # where, end, exit_code, bytes, seconds, output (body digest)
    NETWORK_DENIED = "network.denied"  # where, host, port, why, count
    EDIT_MADE = "edit.made"  # where, path, edits
    TOOL_REFUSED = "tool.refused"  # where, tool, reason

    CANDIDATE_CAPTURED = "candidate.captured"  # tree, commit, files, refusals, ignored, seconds

    ANSWER_GIVEN = "answer.given"  # base, answer (body digest)

    GATE_STARTED = "gate.started"  # gate, tree
    GATE_JUDGED = "gate.judged"  # gate, tree, outcome, reasons, seconds, evidence (body)

    # verdict, blind, told (the words before and after the story), altered (by it), findings, proofs {..}, unsupported
    REVIEW_JUDGED = "review.judged"  # (claims), remembered

    RECEIPT_ISSUED = "receipt.issued"  # receipt (body digest)
    DELIVERY_INTENDED = "delivery.intended"  # target, old, new, tree
    DELIVERY_LANDED = "delivery.landed"  # target, commit
    DELIVERY_REFUSED = "delivery.refused"  # target, reason
