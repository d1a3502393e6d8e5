"""A profile assessed on a corpus: which rules are tried, and what comes out, as values and as JSON.

    profile     the profile as the index answers for it: gate, verifier and bands through the tables
    plain       fingerprints within k bits and nothing else, through tables that find all of those
    verified    within k bits with the profile's verifier and bands, through the same tables
    lcs         the profile's tables and reach, but longest common substrings in place of its verifier

Beside what the index answers stands `raw`: the same distances with every pair compared, tables or not.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace

import numpy as np
from numpy.typing import NDArray

from simhash.evaluation import (
    ALL,
    Band,
    Figures,
    FoundPairs,
    Histograms,
    KnownPairs,
    MatchRule,
    PairClass,
    SignatureTable,
    Wrong,
    by_reading,
    duplicates_by_reading,
    figures_by_language,
    histograms,
    recall_by_length,
    search,
    wrong_pairs,
)
from simhash.index import Relation
from simhash.relation.tables import Design
from simhash.signature.profiles import Profile
from worker.evaluating.reading import Fingerprinted

SHARE_STEPS = 20

DEFINITIONS = {
    "recall_080": "found positives / positives; positive: Jaccard >= 0.8 or labelled duplicate, exact copies apart",
    "recall_090": "the same for positives of Jaccard >= 0.9",
    "precision": "found positives / (found positives + false_pairs); pairs of Jaccard 0.5 to 0.8 are not scored",
    "false_pairs": "found pairs of Jaccard < 0.5 or labelled different, counted over all pairs of the set",
    "exact": "Jaccard 1 or the same digest of the normalised text; in none of the other figures",
    "duplicates": "pages called duplicate when all are judged one after the other, by what page and match are: exact, "
    "positive (Jaccard >= 0.8), grey (0.5 to 0.8), negative; grey_share: grey / all of them",
    "language": "of both pages of a pair; mixed: of two languages",
    "raw": "the same figures when every pair is compared, instead of those that meet in the index's tables",
    "rule": "profile: as shipped; plain: within k bits only; verified: within k bits, and verifier; lcs: longest "
    "common substring as verifier",
}


@dataclass(frozen=True)
class Result:
    """Figures of one rule; `raw` is empty where it would be the same.

    Attributes:
        duplicates: pages called duplicate when all are judged one after the other, by `PairClass` of page and match.
    """

    rule: str
    k: int
    reach: int
    verifier_reach: int | None
    design: str
    answered: Mapping[str, Figures]
    raw: Mapping[str, Figures]
    duplicates: NDArray[np.int64]

    @property
    def grey_share(self) -> float | None:
        """Of the pages called duplicate the share whose match is of Jaccard 0.5 to 0.8; None without duplicates."""
        total = int(self.duplicates.sum())
        return int(self.duplicates[PairClass.GREY]) / total if total else None


@dataclass(frozen=True)
class Speed:
    """How the corpus was read, and pages/s of one process."""

    pages: int
    rejected: int
    first_rejection: str
    without_fingerprint: int
    html_to_fingerprint: float
    text_to_fingerprint: float


@dataclass(frozen=True, eq=False)
class Assessment:
    """Everything found out about one profile; the first result is the profile as shipped."""

    profile: Profile
    speed: Speed
    results: list[Result]
    histograms: Histograms
    lengths: list[Band]
    shares: NDArray[np.int64] | None = None
    wrong: Sequence[Wrong] = ()

    @property
    def shipped(self) -> Result:
        """The profile as it ships."""
        return self.results[0]


@dataclass(frozen=True)
class _Trial:
    """A rule to be tried: what the index of these tables answers, and every pair compared."""

    name: str
    k: int
    answered: MatchRule

    @property
    def rules(self) -> tuple[MatchRule, MatchRule]:
        return self.answered, replace(self.answered, design=None)


def relation_of(profile: Profile, design: Design) -> Relation:
    """The relation of an index for this profile."""
    return Relation(design, profile.reach, profile.verifier_reach, profile.verifier_bits, profile.bands)


@dataclass(frozen=True)
class FingerprintedCorpus:
    """A fingerprinted corpus with what is known of its pairs."""

    profile: Profile
    design: Design
    made: Fingerprinted
    known: KnownPairs
    languages: Sequence[str]

    def table(self) -> SignatureTable:
        """The signatures in columns."""
        profile = self.profile
        return SignatureTable.of(self.made.signatures, profile.bits, profile.verifier_bits, profile.bands)

    def figures(self, found: FoundPairs) -> dict[str, Figures]:
        """Figures of found pairs, by language."""
        return figures_by_language(found, self.known, self.languages)

    def candidates(self) -> FoundPairs:
        """Pairs that meet in the tables within the profile's reach, verifier or not."""
        rule = replace(MatchRule.of(relation_of(self.profile, self.design)), verifier_reach=None)
        return search(self.table(), [rule]).found[0]


def assess(bench: FingerprintedCorpus, ks: Sequence[int], designs: Mapping[int, Design]) -> Assessment:
    """The profile as shipped, and at each k; `designs` are the tables for each k."""
    trials = list(_trials(bench, ks, designs))
    table = bench.table()
    searched = search(table, [rule for trial in trials for rule in trial.rules])
    pairs = zip(searched.found[::2], searched.found[1::2], strict=True)
    results = [_result(trial, bench, *found) for trial, found in zip(trials, pairs, strict=True)]
    lengths = recall_by_length(searched.found[0], bench.known, [s.features for s in bench.made.signatures])
    wrong = list(wrong_pairs(searched.found[0], bench.known))
    counted = histograms(table, bench.known, searched)
    return Assessment(bench.profile, _speed(bench.made), results, counted, lengths, wrong=wrong)


def best(found: Sequence[Assessment]) -> tuple[Profile, Result] | None:
    """The profile and rule of the highest F1 of recall (Jaccard >= 0.8) and precision, of two alike the one with fewer
    false pairs, and then the first; None where there are no pairs to go by."""
    known = [
        (f1, -result.answered[ALL].false_pairs, each.profile, result)
        for each in found
        for result in each.results
        if (f1 := _f1(result.answered[ALL])) is not None
    ]
    return max(known, key=lambda one: one[:2])[2:] if known else None


def _f1(figures: Figures) -> float | None:
    recall, precision = figures.recall_080, figures.precision
    if recall is None:
        return None
    return 2 * recall * precision / (recall + precision) if recall and precision else 0.0


def with_common_substrings(
    found: Assessment, bench: FingerprintedCorpus, candidates: FoundPairs, shares: Sequence[float], least: float
) -> Assessment:
    """The assessment and the rule `lcs`: candidates whose longest common substring is at least `least` of a page."""
    share = np.array(shares, dtype=float)
    shipped = found.shipped
    agreeing = candidates.only(share >= least)
    duplicates = duplicates_by_reading(agreeing, bench.known)
    result = Result("lcs", shipped.k, shipped.reach, None, shipped.design, bench.figures(agreeing), {}, duplicates)
    step = np.minimum((share * SHARE_STEPS).astype(np.int64), SHARE_STEPS - 1)
    counted = by_reading(candidates, bench.known, step, SHARE_STEPS)
    return replace(found, results=[*found.results, result], shares=counted)


def _trials(bench: FingerprintedCorpus, ks: Sequence[int], designs: Mapping[int, Design]) -> Iterator[_Trial]:
    profile = bench.profile
    yield _Trial("profile", profile.k, MatchRule.of(relation_of(profile, bench.design)))
    for k in ks:
        yield _Trial("plain", k, MatchRule(k, None, designs[k]))
        if profile.verifier_reach is not None:
            yield _Trial("verified", k, MatchRule(k, profile.verifier_reach, designs[k], profile.bands > 0))


def _result(trial: _Trial, bench: FingerprintedCorpus, answered: FoundPairs, raw: FoundPairs) -> Result:
    rule = trial.answered
    design = rule.design.name if rule.design else ""
    return Result(
        trial.name,
        trial.k,
        rule.reach,
        rule.verifier_reach,
        design,
        bench.figures(answered),
        bench.figures(raw),
        duplicates_by_reading(answered, bench.known),
    )


def _speed(made: Fingerprinted) -> Speed:
    pages = len(made.signatures) - made.rejected
    both = made.extract_seconds + made.fingerprint_seconds
    return Speed(
        pages=len(made.signatures),
        rejected=made.rejected,
        first_rejection=made.first_rejection,
        without_fingerprint=sum(s.fingerprint is None for s in made.signatures),
        html_to_fingerprint=pages / both if both else 0.0,
        text_to_fingerprint=pages / made.fingerprint_seconds if made.fingerprint_seconds else 0.0,
    )


def as_json(assessments: Sequence[Assessment], corpus: Mapping[str, object]) -> dict[str, object]:
    """All of it for JSON: `results` has one object for each profile, rule, k and language."""
    return {
        "corpus": dict(corpus),
        "definitions": DEFINITIONS,
        "profiles": [_profile_as_json(each) for each in assessments],
        "results": [row for each in assessments for result in each.results for row in _rows(each.profile, result)],
    }


def _profile_as_json(found: Assessment) -> dict[str, object]:
    return {
        "profile": found.profile.label,
        "recipe": found.profile.recipe(),
        "speed": asdict(found.speed),
        "gate_distances": _by_reading(found.histograms.gate),
        "verifier_distances": _by_reading(found.histograms.verifier),
        "common_substring_shares": {} if found.shares is None else _by_reading(found.shares),
        "lengths": [asdict(band) | {"recall": band.recall} for band in found.lengths],
    }


def _rows(profile: Profile, result: Result) -> Iterator[dict[str, object]]:
    for language, figures in result.answered.items():
        row: dict[str, object] = {
            "profile": profile.label,
            "rule": result.rule,
            "k": result.k,
            "reach": result.reach,
            "verifier_reach": result.verifier_reach,
            "design": result.design,
            "language": language,
        }
        if language == ALL:
            duplicates = {reading.name.lower(): int(result.duplicates[reading]) for reading in PairClass}
            row |= {"duplicates": duplicates, "grey_share": result.grey_share}
        raw = result.raw.get(language)
        yield row | _figures_as_json(figures) | {"raw": raw and _figures_as_json(raw)}


def _figures_as_json(figures: Figures) -> dict[str, object]:
    bands = [asdict(band) | {"recall": band.recall} for band in figures.bands]
    return asdict(figures) | {"bands": bands}


def _by_reading(counted: NDArray[np.int64]) -> dict[str, list[int]]:
    return {reading.name.lower(): counted[reading].tolist() for reading in PairClass}
