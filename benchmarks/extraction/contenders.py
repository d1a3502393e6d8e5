"""All that extract text, over one set of pages: this project's extractors, other packages; and a bare parse, the limit.

A contender is a function that goes over all pages once and says what it made of them and what that took, so that
whoever measures can let them run in turns.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import NamedTuple

from resiliparse.parse.html import HTMLTree

from benchmarks import peers
from simhash.errors import PageError, ProfileError
from simhash.reading.extract import EXTRACTORS, extract_text, require_extractor

LIMIT = "a bare parse by lexbor"
_NOT_COMPARED = ("none",)


class Pass(NamedTuple):
    """What one pass over all pages gave: their texts, and the processor seconds of one process."""

    texts: list[str]
    seconds: float


Contender = Callable[[], Pass]


@contextmanager
def contenders(pages: Sequence[str], progress: Callable[[str], None]) -> Iterator[Mapping[str, Contender]]:
    """All contenders over these pages, by name; one that cannot be had is told and left out."""
    found = {name: partial(_timed, partial(_extracted, name), pages) for name in _installed(progress)}
    with ExitStack() as stack:
        options: dict[str, object] = {"pages": str(stack.enter_context(_written(pages)))}
        for start in (partial(peers.asking, "main_text"), peers.asking_crates):
            try:
                named, ask = stack.enter_context(start(options, progress))
            except peers.PeerError as error:
                progress(f"left out: {error}")
                continue
            found |= {name: partial(_asked, ask, name) for name in named["extractors"]}
        yield found | {LIMIT: partial(_timed, _parsed, pages)}


def _installed(progress: Callable[[str], None]) -> Iterator[str]:
    for name in EXTRACTORS:
        try:
            require_extractor(name)
        except ProfileError as error:
            progress(f"left out: {error}")
        else:
            if name not in _NOT_COMPARED:
                yield name


def _extracted(name: str, page: str) -> str:
    """The text; of a page that is refused, none."""
    try:
        return extract_text(page, name)
    except PageError:
        return ""


def _parsed(page: str) -> str:
    """Nothing: the parse alone was meant."""
    HTMLTree.parse(page)
    return ""


def _timed(extract: Callable[[str], str], pages: Sequence[str]) -> Pass:
    began = time.process_time()
    texts = [extract(page) for page in pages]
    return Pass(texts, time.process_time() - began)


def _asked(ask: peers.Ask, name: str) -> Pass:
    answer = ask({"extractor": name})
    return Pass(answer["texts"], answer["seconds"])


@contextmanager
def _written(pages: Sequence[str]) -> Iterator[Path]:
    """A file of them, one JSON string a line; the peers read it."""
    with tempfile.NamedTemporaryFile("w", suffix=".jsonl", encoding="utf-8") as file:
        for page in pages:
            print(json.dumps(page), file=file)
        file.flush()
        yield Path(file.name)
