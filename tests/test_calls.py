"""How many pages a call has: by the server's own pace, whatever its caller waits for; and how a batch is divided."""

import time

import pytest

from simhash.index.calls import CallSize, Line
from simhash.index.opening import open_index
from simhash.tables import design
from tests.pages import entry, relation

PAUSE_SECONDS = 0.5


def test_the_size_of_calls_follows_the_second_best_pace_of_late():
    size = CallSize(remembered=3)
    assert size.pages == 25
    size.took(25, 25 * 50)
    assert size.pages == 40
    size.took(40, 1_000_000)
    assert size.pages == 40, "one hiccup changes nothing"
    size.took(40, 40 * 125)
    size.took(40, 40 * 125)
    assert size.pages == 16
    size.took(10, 10_000_000)
    size.took(10, 10_000_000)
    size.took(10, 10_000_000)
    assert size.pages == 1


def test_pages_that_take_no_time_do_not_make_calls_large():
    size = CallSize()
    for _ in range(10):
        size.took(size.pages, 1)
    assert size.pages == 48


class Answering:
    """A connection that gives these answers, each after a second."""

    def __init__(self, clock, *answers):
        self.clock = clock
        self.answers = list(answers)

    def read_response(self):
        self.clock[0] += 1
        return self.answers.pop(0)


def test_a_server_that_cannot_tell_the_time_took_what_was_waited_for(monkeypatch):
    clock = [100.0]
    monkeypatch.setattr(time, "perf_counter", lambda: clock[0])
    line = Line(Answering(clock, [b"answer", 700], [b"answer", 0], []), "sha")
    assert [line.receive() for _ in range(3)] == [([b"answer"], 700), ([b"answer"], 1_000_000), ([], 1_000_000)]


@pytest.mark.parametrize("server", ["client", "valkey_client"])
def test_a_call_that_waits_for_others_is_no_longer_for_it(request, server, name, monkeypatch):
    """Who counted that in would make its calls smaller the more workers there are, and each page the dearer.

    The two tell their scripts the time in different ways.
    """
    client = request.getfixturevalue(server)
    index = open_index(client, name, {}, relation(design("4")), 1000)
    index.check_and_insert([entry(0, 1)], {})
    told: list[int] = []
    monkeypatch.setattr(CallSize, "took", lambda size, pages, microseconds: told.append(microseconds))
    client.client_pause(int(1000 * PAUSE_SECONDS))
    began = time.monotonic()
    index.check_and_insert([entry(n, n << 8) for n in range(1, 21)], {})
    assert time.monotonic() - began > 0.9 * PAUSE_SECONDS
    assert 0 < min(told) <= max(told) < 1e6 * PAUSE_SECONDS


def test_the_first_of_several_calls_has_few_pages():
    size = CallSize()
    assert size.first(25) == 25
    assert size.first(26) == 6
    size.pages = 2
    assert size.first(100) == 1


def test_a_batch_is_divided_so(client, name, monkeypatch):
    index = open_index(client, name, {}, relation(design("4")), 1000)
    index.check_and_insert([entry(0, 1)], {})
    index._size = CallSize()
    monkeypatch.setattr(CallSize, "took", lambda *_: None)
    sent, send = [], Line.send
    monkeypatch.setattr(Line, "send", lambda line, key, call: (sent.append(len(call) - 2), send(line, key, call)))
    index.check_and_insert([entry(n, n << 8) for n in range(1, 101)], {})
    assert sent == [6, 25, 25, 25, 19]
