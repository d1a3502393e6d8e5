"""Pages through child processes that decode, extract and fingerprint: work for a processor, with limits that can kill.

A parser stuck in native code cannot be interrupted from within its process, so pages are prepared in children. Pages
travel in chunks; when a chunk takes longer than the deadline, runs out of the memory that a child may have or takes its
child down, each of its pages is tried once more, alone, and the one that fails again is rejected. Results come back in
the order of the records. What a lost child had not begun goes to the next one (`worker.judging.children`).

Memory is limited by the system (RLIMIT_DATA), from the moment on at which a child has loaded what it needs. Where the
system does not tell what a process has (no /proc), there is no such limit.
"""

from __future__ import annotations

import resource
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, wait
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from simhash.signature.profiles import Profile
from worker.judging.children import ChildLost, Children
from worker.judging.heap import give_large_blocks_back, give_memory_back, look_for_cycles_seldom, resident
from worker.judging.judge import Prepared, Recipe, Rejected, prepare
from worker.records.page import Limits
from worker.records.passing import RawRecord, runs

if TYPE_CHECKING:  # the children need none of what reads settings
    from worker.settings import Settings

CHUNK_PAGES = 32
CHUNK_BYTES = 1 << 20
"""A chunk is large enough to hide the cost of passing it on (0.2 ms) and small enough to share the work evenly."""
KEPT_BYTES = 32 << 20
"""A child that has so many bytes more than at rest gives back what is free: small pages of many elements take a lot."""
_NO_OBJECT = "PyObject pointer is null"
"""How parsers in Rust (PyO3) panic where Python had no memory for an object."""
WARM_UP = "<p>" + "One page to load by what the others are read: 一頁で足りる, enough for dictionaries. " * 8
WARM_UP += " ".join(map(str, range(1_000)))  # NumPy's products take 32 MB of address space at 512 features and more
PAGES_PER_CHILD = 200_000
"""A child is replaced after so many pages: native parsers that leak a little never leak much."""


class PageLimits(NamedTuple):
    """What one page may take: seconds, and bytes of memory beyond what a child has when it begins."""

    seconds: float
    memory: int = 160 << 20


def recipe(settings: Settings, profile: Profile) -> Recipe:
    """What the children must know."""
    limits = Limits(
        page=settings.max_page_bytes,
        url=settings.max_url_bytes,
        key=settings.max_key_bytes,
    )
    return Recipe(profile, settings.page_format, limits)


def recipe_for_files(settings: Settings, profile: Profile) -> Recipe:
    """The same where pages come from files: `page_format` is that of a topic, a file's lines are JSON."""
    return recipe(settings, profile)._replace(page_format="json")


def page_limits(settings: Settings) -> PageLimits:
    """What one page may take of a child."""
    return PageLimits(settings.page_deadline, settings.page_memory)


Outcome = Prepared | Rejected
Prepare = Callable[[RawRecord, Recipe], Outcome]


def _make_work(recipe: Recipe, memory: int, prepare: Prepare) -> Callable[[Sequence[RawRecord]], list[Outcome]]:
    """In the child: load all that pages need, and limit what they may take."""
    give_large_blocks_back()
    recipe.profile.signature_of_html(WARM_UP, b"")
    look_for_cycles_seldom()
    resting = resident()
    _limit_memory(memory)
    return partial(_prepare_chunk, recipe=recipe, prepare=prepare, resting=resting)


def _prepare_chunk(records: Sequence[RawRecord], recipe: Recipe, prepare: Prepare, resting: int) -> list[Outcome]:
    outcomes: list[Outcome] | None = None
    with suppress(MemoryError):  # raised anew, for the frames of this one hold all that the page has built
        outcomes = [_prepare_one(record, recipe, prepare) for record in records]
    if resident() > resting + KEPT_BYTES:
        give_memory_back()
    if outcomes is None:
        raise MemoryError
    return outcomes


def _prepare_one(record: RawRecord, recipe: Recipe, prepare: Prepare) -> Outcome:
    try:
        return prepare(record, recipe)
    except MemoryError:
        raise  # says something about this moment, not about the page: tried again alone
    except BaseException as error:  # a panic of a parser in Rust is no Exception; nor are SystemExit and its like
        if _NO_OBJECT in str(error):
            raise MemoryError from None
        return Rejected(record.source, "fingerprint", type(error).__name__, f"unexpected failure: {error!r:.500}")


def _limit_memory(more: int) -> None:
    """Let this process have so many bytes more than it has now."""
    with suppress(FileNotFoundError):  # no /proc
        status = Path("/proc/self/status").read_text()
        now = next(int(line.split()[1]) << 10 for line in status.splitlines() if line.startswith("VmData:"))
        _, most = resource.getrlimit(resource.RLIMIT_DATA)
        wanted = now + more if most == resource.RLIM_INFINITY else min(now + more, most)
        resource.setrlimit(resource.RLIMIT_DATA, (wanted, most))


@dataclass
class _Part:
    """Neighbouring records that travel together."""

    records: Sequence[RawRecord]
    future: Future[list[Outcome]]
    alone: bool = False


@dataclass
class Pending:
    """A batch on its way through the children."""

    pool: Fingerprinters
    parts: list[_Part] = field(default_factory=list)

    def ready(self, timeout: float) -> bool:
        """Whether all results are there, waiting for them up to `timeout` seconds; failed chunks are tried again."""
        end = time.monotonic() + timeout
        while True:
            wait([part.future for part in self.parts], timeout=max(0.0, end - time.monotonic()))
            self.parts = [again for part in self.parts for again in self.pool.retried(part)]
            if all(part.future.done() for part in self.parts):
                return True
            if time.monotonic() >= end:
                return False

    def results(self) -> list[Outcome]:
        """The outcomes, in the order of the records; only once `ready`."""
        return [outcome for part in self.parts for outcome in part.future.result()]


class Fingerprinters:
    """A pool of `processes` children that prepare records after `recipe`, each page within `limits`.

    Args:
        prepare: what the children do to a record; importable, as it is looked up by its name there.
    """

    def __init__(self, recipe: Recipe, processes: int, limits: PageLimits, prepare: Prepare = prepare) -> None:
        give_large_blocks_back()  # the parent holds each page a few times over, too
        look_for_cycles_seldom()
        self.processes = processes
        self._limits = limits
        make_work = partial(_make_work, recipe, limits.memory, prepare)
        self._children = Children(processes, make_work, limits.seconds, PAGES_PER_CHILD // CHUNK_PAGES)

    def submit(self, records: Sequence[RawRecord]) -> Pending:
        """Begin to prepare `records`."""
        return Pending(
            self, [self._part(chunk) for chunk in runs(records, lambda record: record.size, CHUNK_BYTES, CHUNK_PAGES)]
        )

    def retried(self, part: _Part) -> Iterator[_Part]:
        """The part itself unless it failed; else its pages one by one, or the rejection of a page already alone."""
        error = part.future.exception() if part.future.done() else None
        if error is None:
            yield part
        elif not isinstance(error, (TimeoutError, ChildLost, MemoryError)):
            raise error
        elif part.alone:
            done: Future[list[Outcome]] = Future()
            done.set_result([self._rejection(part.records[0], error)])
            yield _Part(part.records, done, alone=True)
        else:
            yield from (self._part([record], alone=True) for record in part.records)

    def close(self) -> None:
        """End the children, and wait for their end; what is still under way is dropped."""
        self._children.close()

    def _part(self, records: Sequence[RawRecord], alone: bool = False) -> _Part:
        return _Part(records, self._children.schedule(records), alone)

    def _rejection(self, record: RawRecord, error: BaseException) -> Rejected:
        if isinstance(error, TimeoutError):
            message = f"took longer than page_deadline = {self._limits.seconds:g} s, twice"
        elif isinstance(error, MemoryError):
            message = f"needed more memory than page_memory = {self._limits.memory:,} bytes, twice"
        else:
            message = f"ended its process, twice: {error}"
        return Rejected(record.source, "extract", type(error).__name__, message, by_chance=True)
