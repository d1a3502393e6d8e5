"""`/metrics`, `/healthz` and `/readyz`."""

import resource
import socket
import threading
import urllib.error
import urllib.request

import pytest
from prometheus_client import CollectorRegistry, Counter

from tests.stream import until
from worker.errors import SettingsError
from worker.stream import http
from worker.stream.status import Status


@pytest.fixture
def status():
    return Status()


@pytest.fixture
def server(status):
    registry = CollectorRegistry()
    Counter("seen", "A metric", registry=registry).inc()
    made = http.serve("127.0.0.1:0", registry, [status], healthy_within=300.0)
    yield made
    made.shutdown()
    made.server_close()


@pytest.fixture
def get(server):
    def fetch(path):
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{server.server_port}{path}", timeout=10) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    return fetch


def test_metrics_are_shown(get):
    code, body = get("/metrics")
    assert code == 200
    assert "seen_total 1.0" in body


@pytest.mark.slow
def test_an_address_may_be_of_ipv6(status):
    """Every one, which takes IPv4 too: `::1` is not there in every container."""
    server = http.serve("[::]:0", CollectorRegistry(), [status], healthy_within=300.0)
    with urllib.request.urlopen(f"http://127.0.0.1:{server.server_port}/healthz", timeout=10) as answer:
        assert answer.read() == b"ok\n"
    server.shutdown()
    server.server_close()


def test_healthy_means_that_the_loop_makes_progress(get, status, monkeypatch):
    assert get("/healthz") == (200, "ok\n")
    monkeypatch.setattr(status, "stuck_for", lambda: 301.0)
    assert get("/healthz") == (503, "no progress for 301 s\n")


def test_ready_means_assigned_and_the_index_answers(get, status):
    assert get("/readyz") == (503, "no partitions assigned yet\n")
    status.ready(assigned=True)
    assert get("/readyz") == (503, "the index does not answer\n")
    status.ready(index=True)
    assert get("/readyz") == (200, "ok\n")
    status.ready(index=False)
    assert get("/readyz")[0] == 503


def test_other_paths_say_what_there_is(get):
    assert get("/") == (404, "here are /metrics, /healthz and /readyz\n")


def test_no_address_means_no_server():
    assert http.serve("", CollectorRegistry(), [], 1.0) is None


@pytest.mark.parametrize("address", ["127.0.0.1:99999", "192.0.2.1:80", "no.such.host.invalid:1"])
def test_an_address_that_cannot_be_had_is_a_wrong_setting(address):
    with pytest.raises(SettingsError, match=f"metrics_address: cannot listen on {address}"):
        http.serve(address, CollectorRegistry(), [], 1.0)


def test_a_port_in_use_is_a_wrong_setting(get):
    taken = http.serve("127.0.0.1:0", CollectorRegistry(), [], 1.0)
    with pytest.raises(SettingsError, match="in use"):
        http.serve(f"127.0.0.1:{taken.server_port}", CollectorRegistry(), [], 1.0)
    taken.shutdown()
    taken.server_close()


def given_up(client):
    """Whether the server has ended the connection; what it still said is passed over."""
    try:
        return not client.recv(1 << 16)
    except ConnectionError:
        return True
    except TimeoutError:
        return False


@pytest.fixture
def slow(server):
    """Clients that say nothing, or begin a request and do not end it."""
    made = []

    def connect(count):
        for number in range(count):
            made.append(socket.create_connection(server.server_address, timeout=10))
            made[-1].settimeout(0.05)
            if number % 2:
                made[-1].sendall(b"GET /metrics HTTP/1.1\r\nHost: ")
        return made

    yield connect
    for client in made:
        client.close()


@pytest.mark.slow
def test_hundreds_of_slow_clients_take_few_threads_and_leave_probes_their_answer(get, slow):
    before = threading.active_count()
    clients = slow(10 * http.MOST_CONNECTIONS)
    assert get("/healthz") == (200, "ok\n")
    until(lambda: threading.active_count() <= before + http.MOST_CONNECTIONS, "the threads of all others end", 20)
    until(lambda: all(map(given_up, clients[: -http.MOST_CONNECTIONS])), "the oldest are given up", 20)
    assert get("/healthz") == (200, "ok\n")


def test_a_client_that_is_slow_or_idle_is_given_up_in_the_end(get, slow, monkeypatch, capfd):
    monkeypatch.setattr(http, "REQUEST_SECONDS", 0.2)
    clients = slow(4)
    until(lambda: all(map(given_up, clients)), "they are given up", 20)
    assert get("/healthz") == (200, "ok\n")
    assert capfd.readouterr().err == ""


def test_without_a_file_descriptor_left_it_waits_for_one(get, slow):
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    clients = slow(1)
    resource.setrlimit(resource.RLIMIT_NOFILE, (clients[0].fileno() + 2, before[1]))
    try:
        with pytest.raises(OSError, match="Too many open files"):
            slow(8)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    assert get("/healthz") == (200, "ok\n")
