"""Text and HTML to fingerprint, in English and Chinese, against other packages and against limits.

All in one process each and by processor time, so that others on the machine weigh little. Texts are the main texts of
the sample's pages as the shipped profile extracts them; a peer, having no extractor, is given them ready, and its
HTML rate is that of this extractor and its own fingerprint one after the other.

Limits are what no fingerprint can be faster than: hashing the same words with the same hash, natively, and nothing
else; cutting the same text into words; extracting the same pages.
"""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from operator import methodcaller
from pathlib import Path
from statistics import mean, median
from typing import Any

from benchmarks import peers
from benchmarks.report import Ratio, Report
from benchmarks.samples import read_pages
from simhash import native
from simhash.extract import extract_text
from simhash.features import normalise
from simhash.fingerprint import fingerprint
from simhash.profiles import SEGMENTED, Profile
from simhash.segment import han_words, jieba_cut, segmenter
from simhash.vectors import fingerprint_with_a_hash_per_bit
from worker.settings import load
from worker.stores import configured_profile

NAME = "texts"
LANGUAGES = {"en": ("en",), "zh": ("zh", "zh-Hant")}
EXPECTED = {"1e0ng": 25.0, "text-dedup": 25.0, "datasketch": 5.0, "gaoya": 1.0}
"""How many times a peer's rate the native kernel should reach; it computes two fingerprints, gaoya one."""
EXPECTED_OF_NUMPY = {"1e0ng": 5.0}
MOST_ACCUMULATED = 1.3
"""Hashing and adding up should take at most so many times as long as hashing alone."""
WORD = re.compile(r"\w+")
NATIVE_ROUNDS = 500
"""A page's words are hashed in microseconds."""
NATIVE_RUNS = 15


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


@dataclass(frozen=True)
class Bench:
    """One language's pages, what they are signed by, and where the figures go."""

    report: Report
    corpus: Corpus
    profile: Profile
    runs: int

    def rate(self, name: str, work: Callable[[Any], object], items: Sequence[Any], rounds: int = 1) -> float:
        """Items a second of processor time, the median of the runs; each item `rounds` times over in every run."""
        return self.figure(name, _rates(work, items, self.runs, rounds))

    def figure(self, name: str, rates: Sequence[float]) -> float:
        """A figure of pages/s."""
        return self.report.figure(NAME, f"{name} ({self.corpus.language})", "pages/s", rates, "by processor time")

    def ratio(self, name: str, value: float, unit: str, bound: str = ">=", expected: float | None = None) -> None:
        """A ratio."""
        limit: Any = bound
        self.report.ratio(Ratio(NAME, f"{name} ({self.corpus.language})", value, unit, limit, expected))

    @property
    def words(self) -> list[list[str]]:
        """Words of the texts: between what is no letter in English, by the segmenter in Chinese."""
        cut = WORD.findall if self.corpus.language == "en" else han_words
        return [cut(normalise(text)) for text in self.corpus.texts]


def run(report: Report, sizes: Sizes, sample: Path) -> None:
    """Measure this project, its limits and the peers on the same texts."""
    profile = configured_profile(load({}))
    corpora = [_corpus(language, profile, sizes, sample) for language in LANGUAGES]
    options: dict[str, object] = {"texts": {c.language: c.texts for c in corpora}, "runs": sizes.runs}
    report.heading(f"texts: to a fingerprint of profile {profile.name}/{profile.version}, by {native.describe()}")
    found = peers.run("text_rates", options, report.progress)
    for corpus in corpora:
        letters = mean(map(len, corpus.texts))
        report.heading(f"texts, {corpus.language}: {len(corpus.texts)} pages of {letters:,.0f} characters on average")
        bench = Bench(report, corpus, profile, sizes.runs)
        _language(bench, {name: rates[corpus.language] for name, rates in found.items()})


def _corpus(language: str, profile: Profile, sizes: Sizes, sample: Path) -> Corpus:
    pages = [page["html"] for page in read_pages(sample) if page.get("lang") in LANGUAGES[language] and "html" in page]
    texts = [(page, extract_text(page, profile.extractor)) for page in pages[: sizes.pages]]
    kept = [(page, text) for page, text in texts if text]
    if not kept:
        raise ValueError(f"{sample.name} has no page with lang {language!r} and text")
    return Corpus(language, *zip(*kept, strict=True))


def _language(bench: Bench, found: Mapping[str, Any]) -> None:
    corpus, profile = bench.corpus, bench.profile
    ours = {"NumPy": bench.rate("text to fingerprint, NumPy", _by_numpy(profile), corpus.texts)}
    if native.absence() is None:
        ours["kernel"] = bench.rate("text to fingerprint, kernel", lambda t: profile.signature(t, b""), corpus.texts)
    html = bench.rate("HTML to fingerprint", lambda p: profile.signature_of_html(p, b""), corpus.pages)
    extraction = bench.rate("extraction alone", lambda p: extract_text(p, profile.extractor), corpus.pages)
    bench.ratio("HTML to fingerprint, share of extraction alone", html / extraction, "%")
    for name, rates in found.items():
        if isinstance(rates, str):
            bench.report.progress(f"{name} ({corpus.language}) failed: {rates}")
            continue
        _against(bench, name, bench.figure(f"{name}, text to fingerprint", rates), ours, html, extraction)
    _hashing(bench, ours)
    if corpus.language == "zh":
        _segmentation(bench)


def _against(bench: Bench, name: str, theirs: float, ours: Mapping[str, float], html: float, extraction: float) -> None:
    expected = {"kernel": EXPECTED.get(name), "NumPy": EXPECTED_OF_NUMPY.get(name)}
    for path, rate in ours.items():
        bench.ratio(f"text against {name}, {path}", rate / theirs, "x", ">=", expected[path])
    bench.ratio(f"HTML against {name} behind the same extraction", html * (1 / extraction + 1 / theirs), "x")


def _hashing(bench: Bench, ours: Mapping[str, float]) -> None:
    """Hashing alone, natively; hashing and adding up; and a hash function for each bit, in Python both."""
    words = bench.words
    if "kernel" in ours:
        kept = [import_module("simhash._native").Words(page) for page in words]
        works = (methodcaller("hashed"), methodcaller("simhash"))
        # In turns, run by run: a pace of the machine that changes meanwhile weighs on both alike.
        runs = [[_rates(work, kept, 1, NATIVE_ROUNDS)[0] for work in works] for _ in range(NATIVE_RUNS)]
        hashed = bench.figure("hashing alone: its words by xxh3, natively", [alone for alone, _ in runs])
        bench.figure("hashing and adding up, natively", [both for _, both in runs])
        ratio = median(alone / both for alone, both in runs)
        bench.ratio("hashing and adding up, times hashing alone", ratio, "x", "<=", MOST_ACCUMULATED)
        bench.ratio("text to two fingerprints, times hashing alone", hashed / ours["kernel"], "x")
    bags: list[Mapping[str, float]] = [dict(Counter(page)) for page in words]
    one = bench.rate("a bag of words by one hash of 64 bits", fingerprint, bags)
    each = bench.rate("a bag of words by 64 hashes of one bit", fingerprint_with_a_hash_per_bit, bags)
    bench.ratio("one hash of 64 bits against 64 of one bit", one / each, "x")


def _segmentation(bench: Bench) -> None:
    """Profile `segmented` against cutting alone, which bounds it."""
    texts = bench.corpus.texts
    normalised = [normalise(text) for text in texts]
    signing = bench.rate("text to fingerprint, profile segmented", lambda t: SEGMENTED.signature(t, b""), texts)
    cutting = bench.rate(f"segmentation alone: {segmenter()}", han_words, normalised)
    bench.ratio("profile segmented, share of segmentation alone", signing / cutting, "%")
    slow = bench.rate("segmentation alone: jieba", jieba_cut, normalised)
    bench.ratio(f"segmentation by {segmenter()} against jieba", cutting / slow, "x")


def _rates(work: Callable[[Any], object], items: Sequence[Any], runs: int, rounds: int) -> list[float]:
    """Items a second of processor time, in each run; dictionaries are loaded before."""
    work(items[0])
    rates = []
    for _ in range(runs):
        began = time.process_time()
        for item in items:
            for _ in range(rounds):
                work(item)
        rates.append(rounds * len(items) / (time.process_time() - began))
    return rates


def _by_numpy(profile: Profile) -> Callable[[str], object]:
    return lambda text: profile.signature_in_numpy(text, b"")
