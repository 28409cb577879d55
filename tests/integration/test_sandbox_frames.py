"""Frames, output and deadlines, without a container."""

import http.client
import json
import socket
import struct
import threading
import time

import pytest

from agent_harness.errors import SandboxLost
from agent_harness_sandbox.channel import Channel
from agent_harness_sandbox.execd import CHUNK, Folder, Output


def frame(head, body=b"", stream=1):
    text = json.dumps(head).encode()
    data = struct.pack("!II", len(text), len(body)) + text + body
    return struct.pack("!BxxxI", stream, len(data)) + data


@pytest.fixture
def pair():
    ours, theirs = socket.socketpair()
    yield Channel(ours, lambda: None), theirs
    ours.close()
    theirs.close()


def test_closing_a_channel_closes_the_answer_that_it_came_from():
    """Else the collector does, whose complaint Python 3.13 prints."""
    ours, theirs = socket.socketpair()
    theirs.sendall(b"HTTP/1.1 101 UPGRADED\r\nConnection: Upgrade\r\n\r\n")
    answer = http.client.HTTPResponse(ours)
    answer.begin()
    stream = answer.fp.raw  # what docker-py hands out, with the answer held by it
    stream._response = answer
    channel = Channel(stream, lambda: None)
    channel.close()
    channel.close()
    assert answer.closed and answer.fp is None
    theirs.close()


def test_a_frame_in_any_pieces(pair):
    channel, theirs = pair
    data = frame({"a": 1}, b"body" * 1000)
    payload = data[8:]
    pieces = b"".join(
        struct.pack("!BxxxI", 1, len(payload[i : i + 700])) + payload[i : i + 700] for i in range(0, len(payload), 700)
    )

    def slowly():
        for i in range(0, len(pieces), 1111):
            theirs.sendall(pieces[i : i + 1111])

    threading.Thread(target=slowly).start()
    assert channel.receive(seconds=5, most=4000) == ({"a": 1}, b"body" * 1000)


@pytest.mark.parametrize(
    "data",
    [
        frame({}, b"x" * 11),
        struct.pack("!BxxxIII", 1, 8, 1 << 30, 0),
        struct.pack("!BxxxIII", 1, 10, 2, 0) + b"{{",
        b"",
    ],
)
def test_too_long_nonsense_and_the_end_are_a_lost_sandbox(pair, data):
    channel, theirs = pair
    theirs.sendall(data)
    theirs.shutdown(socket.SHUT_WR)
    with pytest.raises(SandboxLost):
        channel.receive(seconds=5, most=10)


def test_silence_ends_at_the_deadline_and_looks_at_the_container():
    ours, theirs = socket.socketpair()
    looked = []
    channel = Channel(ours, lambda: looked.append(1))
    begun = time.monotonic()
    with pytest.raises(SandboxLost, match="in time"):
        channel.receive(seconds=0.5, most=1)
    assert time.monotonic() - begun < 2
    assert looked
    theirs.sendall(struct.pack("!BxxxI", 2, 5) + b"oops\n")
    theirs.shutdown(socket.SHUT_WR)
    with pytest.raises(SandboxLost, match="oops"):
        channel.receive(seconds=0.5, most=1)
    ours.close()
    theirs.close()


@pytest.mark.parametrize("total", [0, 1, 99, 100, 101, 250, 5000, 3 * CHUNK])
@pytest.mark.parametrize("step", [1, 7, CHUNK])
def test_head_and_tail_are_the_ends_of_what_came(tmp_path, total, step):
    data = bytes(i % 251 for i in range(min(total, 2 * CHUNK))) + b"z" * max(0, total - 2 * CHUNK)
    if step < 7 and total > 5000:
        return
    output = Output(100, Folder(1 << 20, str(tmp_path / "out")))
    for i in range(0, total, step):
        output.feed(data[i : i + step])
    head, tail = output.ends()
    assert output.total == total
    if total <= 100:
        assert (head, tail, output.saved) == (data, b"", False)
    else:
        assert (head, tail) == (data[:20], data[-80:])
        saved = output.folder.finish()
        with open(saved, "rb") as file:
            assert file.read() == data[: 1 << 19]


def test_kept_outputs_stay_within_their_share(tmp_path):
    folder = Folder(1000, str(tmp_path / "out"))
    for _ in range(6):
        output = Output(10, folder)
        output.feed(b"x" * 700)
        output.ends()
        folder.finish()
    sizes = [path.stat().st_size for path in (tmp_path / "out").iterdir()]
    assert (len(sizes), sum(sizes)) == (2, 1000)


def test_a_spoilt_folder_costs_only_the_copy(tmp_path):
    (tmp_path / "out").write_text("a file")
    output = Output(10, Folder(1000, str(tmp_path / "out")))
    output.feed(b"x" * 700)
    output.feed(b"y" * 700)
    assert output.folder.finish() == ""
    assert (output.total, output.ends()) == (1400, (b"xx", b"y" * 8))
