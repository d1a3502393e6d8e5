"""Text and HTML to fingerprint, in English and Chinese, against other packages and against limits.

All in one process each and by processor time, so that others on the machine weigh little. Texts are the main texts of
the sample's pages as the shipped profile extracts them; a peer, having no extractor, is given them ready, and its
HTML rate is that of this extractor and its own fingerprint one after the other.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, median
from typing import Any

import jieba
import xxhash

from benchmarks import peers
from benchmarks.report import Ratio, Report
from benchmarks.samples import read_pages
from simhash.extract import extract_text
from simhash.profiles import Profile
from worker.settings import load
from worker.stores import configured_profile

NAME = "texts"
LANGUAGES = {"en": ("en",), "zh": ("zh", "zh-Hant")}
EXPECTED = {"1e0ng": 5.0, "text-dedup": 5.0}
"""How many times a peer's rate the NumPy path should reach."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """How many pages of a language, and how many times over."""

    pages: int = 100
    runs: int = 5


QUICK = Sizes(pages=15, runs=2)


@dataclass(frozen=True, slots=True)
class Corpus:
    """Pages of one language with their main texts."""

    language: str
    pages: Sequence[str]
    texts: Sequence[str]


def run(report: Report, sizes: Sizes, sample: Path) -> None:
    """Measure this project, its limits and the peers on the same texts."""
    profile = configured_profile(load({}))
    corpora = [_corpus(language, profile, sizes, sample) for language in LANGUAGES]
    options: dict[str, object] = {"texts": {c.language: c.texts for c in corpora}, "runs": sizes.runs}
    report.heading(f"texts: to a fingerprint of profile {profile.name}/{profile.version}")
    found = peers.run("text_rates", options, report.progress)
    for corpus in corpora:
        _language(report, corpus, profile, sizes.runs, {name: rates[corpus.language] for name, rates in found.items()})


def _corpus(language: str, profile: Profile, sizes: Sizes, sample: Path) -> Corpus:
    pages = [page["html"] for page in read_pages(sample) if page.get("lang") in LANGUAGES[language] and "html" in page]
    texts = [(page, extract_text(page, profile.extractor)) for page in pages[: sizes.pages]]
    kept = [(page, text) for page, text in texts if text]
    if not kept:
        raise ValueError(f"{sample.name} has no page with lang {language!r} and text")
    return Corpus(language, *zip(*kept, strict=True))


def _language(report: Report, corpus: Corpus, profile: Profile, runs: int, found: Mapping[str, Any]) -> None:
    language = corpus.language
    letters = mean(map(len, corpus.texts))
    report.heading(f"texts, {language}: {len(corpus.texts)} pages of {letters:,.0f} characters of text on average")
    text = _figure(report, f"text to fingerprint ({language})", _rates(_signing(profile), corpus.texts, runs))
    html = _figure(report, f"HTML to fingerprint ({language})", _rates(_reading(profile), corpus.pages, runs))
    extraction = _limits(report, corpus, profile, runs, text, html)
    for name, rates in found.items():
        if isinstance(rates, str):
            report.progress(f"{name} ({language}) failed: {rates}")
            continue
        theirs = _figure(report, f"{name}, text to fingerprint ({language})", rates)
        both = 1 / (1 / extraction + 1 / theirs)
        report.ratio(Ratio(NAME, f"text against {name} ({language})", text / theirs, "x", ">=", EXPECTED.get(name)))
        report.ratio(Ratio(NAME, f"HTML against {name} behind the same extraction ({language})", html / both, "x"))


def _limits(report: Report, corpus: Corpus, profile: Profile, runs: int, text: float, html: float) -> float:
    """What no fingerprint can be faster than; the rate of extraction alone."""
    language = corpus.language
    cut = jieba.cut if language == "zh" else str.split
    words = [[word.encode() for word in cut(body)] for body in corpus.texts]
    hashing = _figure(report, f"hashing alone: xxh3 of every word ({language})", _rates(_hashing, words, runs))
    report.ratio(Ratio(NAME, f"text to fingerprint, share of hashing alone ({language})", text / hashing, "%"))
    if language == "zh":
        cutting = _figure(
            report, "segmentation alone: jieba (zh)", _rates(lambda t: list(jieba.cut(t)), corpus.texts, runs)
        )
        report.ratio(Ratio(NAME, "text to fingerprint against segmentation alone (zh)", text / cutting, "x"))
    extracting = _rates(lambda page: extract_text(page, profile.extractor), corpus.pages, runs)
    extraction = _figure(report, f"extraction alone ({language})", extracting)
    report.ratio(Ratio(NAME, f"HTML to fingerprint, share of extraction alone ({language})", html / extraction, "%"))
    return extraction


def _figure(report: Report, name: str, rates: Sequence[float]) -> float:
    report.figure(NAME, name, "pages/s", rates, "by processor time")
    return float(median(rates))


def _rates(work: Callable[[Any], object], items: Sequence[Any], runs: int) -> list[float]:
    """Items a second of processor time, in each run; dictionaries are loaded before."""
    work(items[0])
    rates = []
    for _ in range(runs):
        began = time.process_time()
        for item in items:
            work(item)
        rates.append(len(items) / (time.process_time() - began))
    return rates


def _signing(profile: Profile) -> Callable[[str], object]:
    return lambda text: profile.signature(text, b"")


def _reading(profile: Profile) -> Callable[[str], object]:
    return lambda page: profile.signature(extract_text(page, profile.extractor), b"")


def _hashing(words: Sequence[bytes]) -> None:
    for word in words:
        xxhash.xxh3_64_intdigest(word)
