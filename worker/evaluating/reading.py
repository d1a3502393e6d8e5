"""What `evaluate` reads and runs: pages, pairs and labels from files, signatures made as a worker makes them.

The files: pages as `file` takes them, with `id` and `lang` besides (without an id the URL is it); pairs and labels
one JSON object a line, plain, .gz or .zst; unknown fields are ignored:

    pairs   {"a": id, "b": id, "jaccard": 0.873}     every pair of Jaccard >= 0.5
    labels  {"a": id, "b": id, "label": "duplicate"} or "different"; overrides the Jaccard similarity

A pair may stand there twice, either way round, if both say the same; pairs of pages that are not in the set are counted
and left out.
"""

from __future__ import annotations

import codecs
import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from simhash.decoding import Decoder
from simhash.errors import PageError
from simhash.evaluation import FoundPairs, common_share, joined, shingles_of
from simhash.evaluation.truth import Pair
from simhash.reading.extract import extract_text
from simhash.signature.profiles import Signature
from worker.errors import InputError
from worker.files.inputs import open_input
from worker.judging.children import Children
from worker.judging.fingerprinters import Fingerprinters, PageLimits, Pending
from worker.judging.judge import Prepared, Recipe, utf8_of
from worker.lines import lines_in
from worker.records.page import page_in
from worker.records.passing import RawRecord

BATCH_PAGES = 128
BATCHES_AHEAD = 3
PAIRS_A_TASK = 64
TASKS_AHEAD = 256
TASKS_EACH = 10_000
WAIT_SECONDS = 60.0
UNKNOWN_LANGUAGE = "unknown"
Progress = Callable[[int], None]
"""Called with how many more pages (pairs) are done."""


class _PageLine(msgspec.Struct, frozen=True):
    id: str | None = None
    url: str | None = None
    lang: str = UNKNOWN_LANGUAGE


class _PairLine(msgspec.Struct, frozen=True):
    a: str
    b: str
    jaccard: Annotated[float, msgspec.Meta(ge=0, le=1)]


class _LabelLine(msgspec.Struct, frozen=True):
    a: str
    b: str
    label: Literal["duplicate", "different"]


_Line = TypeVar("_Line", _PageLine, _PairLine, _LabelLine)
_Value = TypeVar("_Value", float, bool)


@dataclass(frozen=True)
class Corpus:
    """Page files: their pages' ids and languages, in order.

    Attributes:
        ids: where there is none the URL; those of several pages with a number: "ID, page 12".
        shared: those that several pages have.
    """

    files: tuple[Path, ...]
    largest_page: int
    ids: list[str] = field(default_factory=list)
    languages: list[str] = field(default_factory=list)
    shared: set[str] = field(default_factory=set)

    def records(self) -> Iterator[RawRecord]:
        """The pages once more, from the files: a corpus need not fit in memory."""
        return _records(self.files, self.largest_page)


@dataclass
class Fingerprinted:
    """What the children made of a corpus.

    Attributes:
        signatures: one a page, in order; a rejected page has a digest of its own and nothing else.
        first_rejection: which page was the first to be rejected, and why; empty if none was.
        extract_seconds, fingerprint_seconds: time spent in all, by one process.
    """

    signatures: list[Signature] = field(default_factory=list)
    rejected: int = 0
    first_rejection: str = ""
    extract_seconds: float = 0.0
    fingerprint_seconds: float = 0.0


def read_corpus(files: Sequence[Path], largest_page: int) -> Corpus:
    """The pages of these files.

    Raises:
        InputError: a file cannot be read, or a page has neither id nor URL.
    """
    corpus = Corpus(tuple(files), largest_page)
    decoder = Decoder(_PageLine)
    seen: set[str] = set()
    for number, record in enumerate(corpus.records(), start=1):
        line = record.page or _parsed(decoder, record.value or b"", f"page {number}")
        name = line.id or line.url or ""
        if not name:
            raise InputError(f"page {number} has neither id nor url")
        if name in seen:
            corpus.shared.add(name)
        seen.add(name)
        corpus.ids.append(name)
        corpus.languages.append(line.lang if isinstance(line, _PageLine) else UNKNOWN_LANGUAGE)
    if not corpus.ids:
        raise InputError("there are no pages in " + ", ".join(map(str, files)))
    numbered = enumerate(corpus.ids, start=1)
    corpus.ids[:] = [f"{name}, page {number}" if name in corpus.shared else name for number, name in numbered]
    return corpus


def _records(files: Sequence[Path], largest_page: int) -> Iterator[RawRecord]:
    for path in files:
        for record in open_input(str(path), largest_page, spool=False).records():
            if not isinstance(record, RawRecord):
                raise InputError(f"{path}: {record.message}")
            yield record


def read_pairs(path: Path) -> dict[Pair, float]:
    """Jaccard similarity of the listed pairs.

    Raises:
        InputError: the file is not of that form, pairs a page with itself, or contradicts itself.
    """
    return _said(path, ((where, line, line.jaccard) for where, line in _lines(path, _PairLine)))


def read_labels(path: Path) -> dict[Pair, bool]:
    """True for pairs labelled duplicates, False for different ones; InputError as above."""
    return _said(path, ((where, line, line.label == "duplicate") for where, line in _lines(path, _LabelLine)))


def _said(path: Path, lines: Iterable[tuple[str, _PairLine | _LabelLine, _Value]]) -> dict[Pair, _Value]:
    """What is said of each pair; the same may be said twice, with the pages in either order."""
    said: dict[Pair, _Value] = {}
    for where, line, value in lines:
        if line.a == line.b:
            raise InputError(f"{path}: {where}: a page is paired with itself: {line.a}")
        pair = (min(line.a, line.b), max(line.a, line.b))
        before = said.setdefault(pair, value)
        if before != value:
            earlier, now = (_as_given(each) for each in (before, value))
            raise InputError(f"{path}: {where}: {line.a} and {line.b} have {now}, but {earlier} further above")
    return said


def _as_given(value: float | bool) -> str:
    if isinstance(value, bool):
        return f'the label "{"duplicate" if value else "different"}"'
    return f"jaccard {value:g}"


def _lines(path: Path, kind: type[_Line]) -> Iterator[tuple[str, _Line]]:
    decoder = Decoder(kind)
    for number, line in lines_in(path):
        where = f"line {number}"
        yield where, _parsed(decoder, line, f"{path}: {where}")


def _parsed(decoder: Decoder[_Line], line: bytes, where: str) -> _Line:
    try:
        return decoder.decode(line.removeprefix(codecs.BOM_UTF8))
    except msgspec.DecodeError as error:
        raise InputError(f"{where}: {error}") from error


def fingerprint(
    corpus: Corpus, recipe: Recipe, processes: int, limits: PageLimits, on_pages: Progress
) -> Fingerprinted:
    """Signatures of all pages, by the worker's own children; InputError where not a single page can be read."""
    children = Fingerprinters(recipe, processes, limits)
    done = Fingerprinted()
    try:
        ahead: deque[Pending] = deque()
        for batch in _batches(corpus.records()):
            ahead.append(children.submit(batch))
            if len(ahead) == BATCHES_AHEAD:
                on_pages(_collect(ahead.popleft(), done))
        while ahead:
            on_pages(_collect(ahead.popleft(), done))
    finally:
        children.close()
    if done.rejected == len(done.signatures):
        raise InputError(f"every page is rejected; {done.first_rejection}")
    return done


def _batches(records: Iterator[RawRecord]) -> Iterator[list[RawRecord]]:
    batch: list[RawRecord] = []
    for record in records:
        batch.append(record)
        if len(batch) == BATCH_PAGES:
            yield batch
            batch = []
    if batch:
        yield batch


def _collect(pending: Pending, done: Fingerprinted) -> int:
    while not pending.ready(WAIT_SECONDS):
        pass
    outcomes = pending.results()
    for outcome in outcomes:
        if isinstance(outcome, Prepared):
            done.signatures.append(outcome.signature)
            done.extract_seconds += outcome.seconds.decode + outcome.seconds.extract
            done.fingerprint_seconds += outcome.seconds.fingerprint
        else:
            done.rejected += 1
            number = len(done.signatures) + 1
            done.first_rejection = done.first_rejection or f"page {number}: {outcome.error}: {outcome.message}"
            done.signatures.append(Signature(None, None, f"rejected:{len(done.signatures)}", 0))
    return len(outcomes)


def true_pairs(corpus: Corpus, recipe: Recipe, processes: int, on_pages: Progress) -> dict[Pair, float]:
    """Jaccard similarity of every pair of 0.5 and more, from all shingles of their main texts.

    Raises:
        InputError: there are too many.
    """
    children = Children(processes, _make_work, seconds=math.inf, tasks_each=TASKS_EACH)
    try:
        sets: list[NDArray[np.uint64]] = []
        for shingles in _mapped(children, _shingles_of_task, ((record, recipe) for record in corpus.records())):
            sets.append(shingles)
            on_pages(1)
    finally:
        children.close()
    try:
        return {(corpus.ids[a], corpus.ids[b]): jaccard for (a, b), jaccard in joined(sets).items()}
    except ValueError as error:
        raise InputError(str(error)) from error


def _shingles_of_task(task: tuple[RawRecord, Recipe]) -> NDArray[np.uint64]:
    return shingles_of(text_of(*task))


def common_shares(corpus: Corpus, found: FoundPairs, recipe: Recipe, processes: int, on_pairs: Progress) -> list[float]:
    """For each found pair of rows, the longest common substring's share of the shorter text."""
    page_of = np.unique(found.row, return_index=True)[1]
    pairs = list(zip(page_of[found.first].tolist(), page_of[found.second].tolist(), strict=True))
    children = Children(processes, _make_work, seconds=math.inf, tasks_each=TASKS_EACH)
    try:
        texts = _texts(corpus, sorted({page for pair in pairs for page in pair}), recipe, children)
        parts = [pairs[start : start + PAIRS_A_TASK] for start in range(0, len(pairs), PAIRS_A_TASK)]
        shares: list[float] = []
        for part in _mapped(children, _shares, ([(texts[a], texts[b]) for a, b in part] for part in parts)):
            shares += part
            on_pairs(len(part))
        return shares
    finally:
        children.close()


def _texts(corpus: Corpus, wanted: list[int], recipe: Recipe, children: Children) -> dict[int, str]:
    among = set(wanted)
    records = (record for number, record in enumerate(corpus.records()) if number in among)
    tasks = ((record, recipe) for record in records)
    return dict(zip(wanted, _mapped(children, _text_of_task, tasks), strict=True))


def _make_work() -> Callable[[tuple[Callable[[Any], Any], Any]], Any]:
    return _called


def _called(task: tuple[Callable[[Any], Any], Any]) -> Any:
    function, argument = task
    return function(argument)


def _mapped(children: Children, function: Callable[[Any], Any], arguments: Iterable[Any]) -> Iterator[Any]:
    """What `function` gives for each argument, in order; some are under way."""
    under_way: deque[Future[Any]] = deque()
    for argument in arguments:
        under_way.append(children.schedule((function, argument)))
        if len(under_way) == TASKS_AHEAD:
            yield under_way.popleft().result()
    while under_way:
        yield under_way.popleft().result()


def _text_of_task(task: tuple[RawRecord, Recipe]) -> str:
    return text_of(*task)


def text_of(record: RawRecord, recipe: Recipe) -> str:
    """The main text of a page, as it is fingerprinted; empty where the page is rejected."""
    try:
        page = page_in(record, recipe.page_format, recipe.limits)
        utf8 = utf8_of(page)
        return extract_text(utf8, recipe.profile.extractor) if page.is_html else utf8.decode()
    except PageError:
        return ""


def _shares(texts: list[tuple[str, str]]) -> list[float]:
    return [common_share(a, b) for a, b in texts]
