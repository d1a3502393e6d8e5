"""`/metrics`, `/healthz` and `/readyz`."""

import urllib.error
import urllib.request

import pytest
from prometheus_client import CollectorRegistry, Counter

from worker import http
from worker.errors import SettingsError
from worker.stream.status import Status


@pytest.fixture
def status():
    return Status()


@pytest.fixture
def get(status):
    registry = CollectorRegistry()
    Counter("seen", "A metric", registry=registry).inc()
    server = http.serve("127.0.0.1:0", registry, [status], healthy_within=300.0)

    def fetch(path):
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{server.server_port}{path}", timeout=10) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    yield fetch
    server.shutdown()
    server.server_close()


def test_metrics_are_shown(get):
    code, body = get("/metrics")
    assert code == 200
    assert "seen_total 1.0" in body


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
