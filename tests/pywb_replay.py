"""Whether pywb replays what `file --unique-out` wrote of a WARC: every capture, with the bytes of the source.

For an environment of its own, where pywb's packages do not meet ours; exit code 1 where a capture differs:

    python -m venv /tmp/pywb && /tmp/pywb/bin/pip install pywb
    simhash-dedup file crawl.warc.gz --out verdicts.jsonl --unique-out unique.warc.gz
    /tmp/pywb/bin/python tests/pywb_replay.py crawl.warc.gz unique.warc.gz
"""

import os
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

from warcio.archiveiterator import ArchiveIterator

START_SECONDS = 60.0
PROGRAMS = Path(sys.executable).parent


def captures(path, kinds):
    """Type, address, time as pywb writes it, and payload as a browser gets it, of these types of records."""
    with open(path, "rb") as file:
        for record in ArchiveIterator(file):
            if record.rec_type in kinds:
                date = "".join(c for c in record.rec_headers["WARC-Date"] if c.isdigit())[:14]
                yield record.rec_type, record.rec_headers["WARC-Target-URI"], date, record.content_stream().read()


def served(directory, port):
    """pywb over the collection in a directory."""
    command = [PROGRAMS / "wayback", "--port", str(port), "--bind", "127.0.0.1"]
    server = subprocess.Popen(command, cwd=directory, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    end = time.monotonic() + START_SECONDS
    while time.monotonic() < end:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return server
        except OSError:
            time.sleep(0.2)
    server.kill()
    raise SystemExit("pywb does not start")


def free_port():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]


def main(source, written):
    payloads = {(uri, date): payload for _, uri, date, payload in captures(source, {"response"})}
    with tempfile.TemporaryDirectory() as directory:
        for arguments in (["init", "crawl"], ["add", "crawl", os.path.abspath(written)]):
            subprocess.run([PROGRAMS / "wb-manager", *arguments], cwd=directory, check=True, capture_output=True)
        port = free_port()
        server = served(directory, port)
        try:
            seen, wrong = {}, []
            for kind, uri, date, _ in captures(written, {"response", "revisit"}):
                seen[kind] = seen.get(kind, 0) + 1
                try:  # id_: the payload as it was captured, with no banner put in
                    replayed = urllib.request.urlopen(f"http://127.0.0.1:{port}/crawl/{date}id_/{uri}").read()
                except OSError as error:
                    replayed = str(error)
                if replayed != payloads[uri, date]:
                    wrong.append((kind, uri, replayed[:100]))
        finally:
            server.terminate()
            server.wait()
    sys.stdout.write(f"replayed: {seen}, wrong: {wrong}\n")
    sys.exit(1 if wrong or not seen.get("revisit") else 0)


if __name__ == "__main__":
    main(*sys.argv[1:])
