"""A wiki and ticket tracker, Trac, on loopback: pages with revisions and links, tickets, a timeline, reports, queries.

Options: directory; pages: a list of [name, [text of each revision]]; tickets: a list of [summary, description]. Answers
{"url": …} and serves until its standard input ends.
"""

import json
import os
import sys
import threading
from datetime import UTC, datetime, timedelta
from socketserver import ThreadingMixIn
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

FIRST = datetime(2025, 1, 6, tzinfo=UTC)


class Server(ThreadingMixIn, WSGIServer):
    """Answers several at once."""

    daemon_threads = True


class Quiet(WSGIRequestHandler):
    """Logs nothing."""

    def log_message(self, *_: object) -> None:
        """See the class."""


def main() -> None:
    """Make the site, and serve it."""
    options = json.loads(sys.stdin.readline())
    said, sys.stdout = sys.stdout, sys.stderr
    path = make(options)
    from trac.web.main import dispatch_request

    def answer(environ: Any, start_response: Any) -> Any:
        environ["trac.env_path"] = path
        return dispatch_request(environ, start_response)

    server = make_server("127.0.0.1", 0, answer, Server, Quiet)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print(json.dumps({"url": f"http://127.0.0.1:{server.server_port}/"}), file=said, flush=True)
    sys.stdin.read()


def make(options: dict[str, Any]) -> str:
    """The directory of a Trac with these pages and tickets, a change every seven hours."""
    from trac.admin.console import TracAdmin
    from trac.env import open_environment
    from trac.ticket.model import Ticket
    from trac.wiki.model import WikiPage

    path = os.path.join(options["directory"], "trac")
    TracAdmin(path).do_initenv("Site sqlite:db/trac.db")
    env = open_environment(path)
    when = FIRST
    for name, revisions in options["pages"]:
        for text in revisions:
            page = WikiPage(env, name)
            page.text = text
            page.save("somebody", "a change", t=when)
            when += timedelta(hours=7)
    for summary, description in options["tickets"]:
        ticket = Ticket(env)
        ticket["summary"], ticket["description"], ticket["status"] = summary, description, "new"
        ticket["reporter"] = "somebody"
        ticket.insert(when=when)
        when += timedelta(hours=7)
    return path


if __name__ == "__main__":
    main()
