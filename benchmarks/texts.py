"""Text and HTML to fingerprint, in English and Chinese, against other packages and against limits.

All in one process each, by processor time, and in turns: in every round each package and each path of this project
goes once over all the texts, and a ratio is the median of the rounds' ratios. So a machine that is slow for a while is
slow for both sides. Texts are the main texts of the sample's pages as the shipped profile extracts them; a peer, having
no extractor, is given them ready, and its HTML rate is that of this extractor and its own fingerprint one after the
other.

Limits are what no fingerprint can be faster than: hashing the same words with the same hash, natively, and nothing
else; cutting the same text into words; extracting the same pages.
"""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from operator import methodcaller
from pathlib import Path
from statistics import mean, median
from typing import Any

from benchmarks import peers
from benchmarks.report import Ratio, Report
from benchmarks.samples import read_pages
from simhash import native
from simhash.features.normalisation import normalise
from simhash.features.segment import han_words, jieba_cut, segmenter
from simhash.reading.extract import extract_text
from simhash.signature.fingerprint import fingerprint
from simhash.signature.profiles import SEGMENTED, Profile
from tests.references import fingerprint_with_a_hash_per_bit
from worker.index.configured import configured_profile
from worker.settings import load

NAME = "texts"
LANGUAGES = {"en": ("en",), "zh": ("zh", "zh-Hant")}
EXPECTED = {"1e0ng": 25.0, "text-dedup": 25.0, "datasketch": 5.0, "gaoya": 1.0}
"""How many times a peer's rate the native kernel should reach; it computes two fingerprints, gaoya one."""
EXPECTED_OF_NUMPY = {"1e0ng": 5.0}
MOST_ACCUMULATED = 1.3
"""Hashing and adding up should take at most so many times as long as hashing alone."""
WORD = re.compile(r"\w+")
KERNEL_PASSES = 10
"""In a round: one pass over a hundred texts takes the kernel a few milliseconds."""
NATIVE_PASSES = 500
"""A page's words are hashed in microseconds."""
HTML, EXTRACTION = "HTML to fingerprint", "extraction alone"
Pass = Callable[[], float]
"""Goes over all texts, and says how many it did in a second of processor time."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """How many pages of a language, and how many rounds."""

    pages: int = 100
    runs: int = 15


QUICK = Sizes(pages=15, runs=2)


@dataclass(frozen=True, slots=True)
class Corpus:
    """Pages of one language with their main texts."""

    language: str
    pages: Sequence[str]
    texts: Sequence[str]


@dataclass(frozen=True)
class Bench:
    """One language's pages, what they are signed by, and where the figures go.

    Attributes:
        rates: of each pass that was timed, texts a second in each round.
    """

    report: Report
    corpus: Corpus
    profile: Profile
    runs: int
    rates: dict[str, list[float]] = field(default_factory=dict)

    def in_turns(self, passes: Mapping[str, Pass]) -> None:
        """Time each of these once a round; one that fails is left out from then on."""
        left = dict(passes)
        for _ in range(self.runs):
            for name, timed in list(left.items()):
                try:
                    self.rates.setdefault(name, []).append(timed())
                except peers.PeerError as error:
                    self.report.progress(f"{name} ({self.corpus.language}) failed: {error}")
                    del left[name], self.rates[name]
        for name in left:
            label, language = f"{name} ({self.corpus.language})", self.rates[name]
            self.report.figure(NAME, label, "pages/s", language, "by processor time, in turns")

    def times(self, ours: str, theirs: str) -> float:
        """How many times as fast one is as the other: the median of the rounds."""
        return median(a / b for a, b in zip(self.rates[ours], self.rates[theirs], strict=True))

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
    options: dict[str, object] = {"texts": {c.language: c.texts for c in corpora}}
    report.heading(f"texts: to a fingerprint of profile {profile.label}, by {native.describe()}")
    with peers.asking("text_rates", options, report.progress) as (packages, ask):
        for corpus in corpora:
            letters = mean(map(len, corpus.texts))
            report.heading(f"texts, {corpus.language}: {len(corpus.texts)} pages of {letters:,.0f} characters each")
            theirs = {name: partial(_asked, ask, name, corpus.language) for name in packages["packages"]}
            _language(Bench(report, corpus, profile, sizes.runs), theirs)


def _asked(ask: peers.Ask, package: str, language: str) -> float:
    answer = ask({"package": package, "language": language})
    if "error" in answer:
        raise peers.PeerError(answer["error"])
    return float(answer["rate"])


def _corpus(language: str, profile: Profile, sizes: Sizes, sample: Path) -> Corpus:
    pages = [page["html"] for page in read_pages(sample) if page.get("lang") in LANGUAGES[language] and "html" in page]
    texts = [(page, extract_text(page, profile.extractor)) for page in pages[: sizes.pages]]
    kept = [(page, text) for page, text in texts if text]
    if not kept:
        raise ValueError(f"{sample.name} has no page with lang {language!r} and text")
    return Corpus(language, *zip(*kept, strict=True))


def _language(bench: Bench, theirs: Mapping[str, Pass]) -> None:
    profile, texts, pages = bench.profile, bench.corpus.texts, bench.corpus.pages
    ours = {"NumPy": _pass(lambda text: profile.signature_in_numpy(text, b""), texts)}
    if native.absence() is None:
        ours["kernel"] = _pass(lambda text: profile.signature(text, b""), texts, KERNEL_PASSES)
    html = {
        HTML: _pass(lambda page: profile.signature_of_html(page, b""), pages),
        EXTRACTION: _pass(lambda page: extract_text(page, profile.extractor), pages),
    }
    bench.in_turns({**ours, **html, **theirs})
    bench.ratio(f"{HTML}, share of {EXTRACTION}", bench.times(HTML, EXTRACTION), "%")
    for name in theirs:
        if name in bench.rates:
            _against(bench, name, list(ours))
    _hashing(bench)
    if bench.corpus.language == "zh":
        _segmentation(bench)


def _against(bench: Bench, name: str, ours: Sequence[str]) -> None:
    expected = {"kernel": EXPECTED.get(name), "NumPy": EXPECTED_OF_NUMPY.get(name)}
    for path in ours:
        bench.ratio(f"text against {name}, {path}", bench.times(path, name), "x", ">=", expected[path])
    behind = bench.times(HTML, EXTRACTION) + bench.times(HTML, name)
    bench.ratio(f"HTML against {name} behind the same extraction", behind, "x")


def _hashing(bench: Bench) -> None:
    """Hashing alone, natively; hashing and adding up; and a hash function for each bit, in Python both."""
    words = bench.words
    if "kernel" in bench.rates:
        kept = [import_module("simhash._native").Words(page) for page in words]
        alone, both = "hashing alone: its words by xxh3, natively", "hashing and adding up, natively"
        named = {alone: methodcaller("hashed"), both: methodcaller("simhash")}
        bench.in_turns({name: _pass(work, kept, NATIVE_PASSES) for name, work in named.items()})
        accumulating = "hashing and adding up, times hashing alone"
        bench.ratio(accumulating, bench.times(alone, both), "x", "<=", MOST_ACCUMULATED)
        bench.ratio("text to two fingerprints, times hashing alone", bench.times(alone, "kernel"), "x")
    bags: list[Mapping[str, float]] = [dict(Counter(page)) for page in words]
    one, each = "a bag of words by one hash of 64 bits", "a bag of words by 64 hashes of one bit"
    bench.in_turns({one: _pass(fingerprint, bags), each: _pass(fingerprint_with_a_hash_per_bit, bags)})
    bench.ratio("one hash of 64 bits against 64 of one bit", bench.times(one, each), "x")


def _segmentation(bench: Bench) -> None:
    """Profile `segmented` against cutting alone, which bounds it."""
    texts = bench.corpus.texts
    normalised = [normalise(text) for text in texts]
    signing, cutting = "text to fingerprint, profile segmented", f"segmentation alone: {segmenter()}"
    slowly = "segmentation alone: jieba"
    bench.in_turns(
        {
            signing: _pass(lambda text: SEGMENTED.signature(text, b""), texts),
            cutting: _pass(han_words, normalised),
            slowly: _pass(jieba_cut, normalised),
        }
    )
    bench.ratio("profile segmented, share of segmentation alone", bench.times(signing, cutting), "%")
    bench.ratio(f"segmentation by {segmenter()} against jieba", bench.times(cutting, slowly), "x")


def _pass(work: Callable[[Any], object], items: Sequence[Any], passes: int = 1) -> Pass:
    """So many passes over the items, one item after the other; dictionaries are loaded before."""
    work(items[0])

    def timed() -> float:
        began = time.process_time()
        for _ in range(passes):
            for item in items:
                work(item)
        return passes * len(items) / (time.process_time() - began)

    return timed
