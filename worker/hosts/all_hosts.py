"""All hosts: each kept as the bytes that are written of it, and opened while its verdicts are counted."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from worker.hosts.host import Host
from worker.records.hints import host_of
from worker.records.verdict import Verdict

_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(Host)


class Hosts:
    """See the module.

    Args:
        known: of each host its bytes.
    """

    def __init__(self, known: dict[str, bytes] | None = None) -> None:
        self._known = known or {}
        self.nowhere = 0
        """Pages whose URL names no host."""

    def __len__(self) -> int:
        return len(self._known)

    def __iter__(self) -> Iterator[bytes]:
        """The bytes of each, those with most pages first."""
        pages = {name: decoded(line).pages for name, line in self._known.items()}
        return (self._known[name] for name in sorted(pages, key=lambda name: (-pages[name], name)))

    def names(self) -> list[str]:
        """Of all hosts."""
        return sorted(self._known)

    def add(self, verdicts: Iterable[Verdict]) -> dict[str, bytes]:
        """Count these; the hosts that changed, and what is to be written of them."""
        opened: dict[str, Host] = {}
        for verdict in verdicts:
            name = host_of(verdict.url)
            if not name:
                self.nowhere += 1
                continue
            if name not in opened:
                line = self._known.get(name)
                opened[name] = Host(name) if line is None else decoded(line)
            opened[name].add(verdict)
        for host in opened.values():
            host.work_out()
        changed = {name: _encoder.encode(host) for name, host in opened.items()}
        self._known |= changed
        return changed


def decoded(line: bytes) -> Host:
    """A host; msgspec.DecodeError: it is none."""
    return _decoder.decode(line)
