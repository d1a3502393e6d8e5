"""`/metrics`, `/healthz` and `/readyz` over HTTP, in a thread of their own."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from socketserver import ThreadingMixIn
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from prometheus_client import CollectorRegistry, make_wsgi_app

from worker.errors import SettingsError
from worker.stream.status import Status

StartResponse = Callable[[str, list[tuple[str, str]]], Any]


MOST_CONNECTIONS = 32
"""A scraper and two probes need three. Beyond, the oldest is given up: one that just came can be answered."""
REQUEST_SECONDS = 10.0
"""From the first byte to the last; a client that is slower, or says nothing, is given up."""
PAUSE_SECONDS = 0.1
"""After a connection could not be taken (no file descriptor left): it stands in line all the while."""
LOOKS_SECONDS = 0.05
"""Between two looks whether it is to end: half a second, as the class has it, a worker would take longer to stop."""


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True
    request_queue_size = 128

    def __init__(self, address: tuple[str, int], *args: Any) -> None:
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        super().__init__(address, *args)
        self._since: dict[socket.socket, float] = {}
        self._changing = threading.Lock()

    def get_request(self) -> tuple[socket.socket, Any]:
        try:
            return super().get_request()
        except OSError:
            time.sleep(PAUSE_SECONDS)
            raise

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._changing:
            self._since[request] = time.monotonic()
            self._give_up(list(self._since)[:-MOST_CONNECTIONS])
        super().process_request(request, client_address)

    def service_actions(self) -> None:
        """Between requests."""
        late = time.monotonic() - REQUEST_SECONDS
        with self._changing:
            self._give_up([request for request, since in self._since.items() if since < late])

    def close_request(self, request: Any) -> None:
        with self._changing:
            self._since.pop(request, None)
        super().close_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients that go away, or are given up, are no news."""

    def _give_up(self, requests: Iterable[socket.socket]) -> None:
        """End their connections; the thread of each sees that, and closes it."""
        for request in requests:
            del self._since[request]
            with suppress(OSError):
                request.shutdown(socket.SHUT_RDWR)


class _Quiet(WSGIRequestHandler):
    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - of the class above
        """Requests of probes are no news."""


def serve(
    address: str, registry: CollectorRegistry, workers: Sequence[Status], healthy_within: float
) -> _Server | None:
    """Answer on `address` ("host:port"; empty: do not) until the server's `shutdown`.

    Raises:
        SettingsError: the address cannot be bound.
    """
    if not address:
        return None
    host, _, port = address.rpartition(":")
    app = _app(registry, workers, healthy_within)
    try:
        server = make_server(host.strip("[]"), int(port), app, server_class=_Server, handler_class=_Quiet)
    except (OSError, OverflowError) as error:
        raise SettingsError(f"metrics_address: cannot listen on {address}: {error}") from error
    threading.Thread(target=server.serve_forever, args=(LOOKS_SECONDS,), name="http", daemon=True).start()
    return server


def _app(
    registry: CollectorRegistry, workers: Sequence[Status], healthy_within: float
) -> Callable[..., Iterable[bytes]]:
    metrics: Callable[..., Iterable[bytes]] = make_wsgi_app(registry)

    def health() -> str | None:
        stuck = max(status.stuck_for() for status in workers)
        return f"no progress for {stuck:.0f} s" if stuck > healthy_within else None

    def readiness() -> str | None:
        return next((why for status in workers if (why := status.why_not_ready())), None)

    probes = {"/healthz": health, "/readyz": readiness}

    def app(environ: dict[str, Any], start_response: StartResponse) -> Iterable[bytes]:
        path = environ.get("PATH_INFO", "/")
        if path == "/metrics":
            return metrics(environ, start_response)
        if path not in probes:
            start_response("404 Not Found", [("Content-Type", "text/plain")])
            return [b"here are /metrics, /healthz and /readyz\n"]
        wrong = probes[path]()
        start_response("503 Service Unavailable" if wrong else "200 OK", [("Content-Type", "text/plain")])
        return [f"{wrong or 'ok'}\n".encode()]

    return app
