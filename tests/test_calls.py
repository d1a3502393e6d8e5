"""Calls under way on one connection: which of them can be timed, and how a batch is divided among them."""

import time

import pytest

from simhash.index.calls import CallSize, Line
from simhash.index.opening import open_index
from simhash.tables import design
from tests.pages import entry, relation


class Server:
    """A connection whose answers are there when the test says so."""

    def __init__(self):
        self.answered = False
        self.sent = []

    def send_command(self, *arguments):
        self.sent.append(arguments)

    def can_read(self, timeout):
        return self.answered

    def read_response(self):
        return [b"answer"]


@pytest.fixture
def clock(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])
    return now


def test_a_call_is_timed_from_when_the_server_was_free_for_it(clock):
    line = Line(Server(), "sha")
    line.send("key", [])
    clock[0] += 1
    line.send("key", [])
    clock[0] += 2
    assert line.receive() == ([b"answer"], 3)
    clock[0] += 4
    assert line.receive() == ([b"answer"], 4)
    clock[0] += 5
    line.send("key", [])
    clock[0] += 6
    assert line.receive() == ([b"answer"], 6)


def test_an_answer_that_was_there_already_times_neither_its_call_nor_the_next(clock):
    server = Server()
    line = Line(server, "sha")
    for _ in range(3):
        line.send("key", [])
    clock[0] += 1
    server.answered = True
    assert line.receive()[1] is None
    server.answered = False
    clock[0] += 1
    assert line.receive()[1] is None
    clock[0] += 2
    assert line.receive()[1] == 2


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
