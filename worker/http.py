"""`/metrics`, `/healthz` and `/readyz` over HTTP, in a thread of their own."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from socketserver import ThreadingMixIn
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from prometheus_client import CollectorRegistry, make_wsgi_app

from worker.errors import SettingsError
from worker.stream.status import Status

StartResponse = Callable[[str, list[tuple[str, str]]], Any]


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True


class _Quiet(WSGIRequestHandler):
    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
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
    threading.Thread(target=server.serve_forever, name="http", daemon=True).start()
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
