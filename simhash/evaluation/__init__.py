"""How good a fingerprint is: signatures and known pairs in, figures out. No files, no clock, no processes.

joining     every pair of pages that is alike, from their shingles
truth       which pairs of pages are near-duplicates, by Jaccard similarity or by people's labels
search      every pair of the set compared: which the index would find, and how far apart all are
figures     recall, precision and false pairs, by language, by Jaccard band and by length
substring   longest common substring, the verifier to compare others with
"""

from simhash.evaluation.figures import (
    ALL,
    BANDS,
    LENGTHS,
    Band,
    Figures,
    Wrong,
    by_reading,
    duplicates_by_reading,
    figures_by_language,
    recall_by_length,
    wrong_pairs,
)
from simhash.evaluation.joining import joined, shingles_of
from simhash.evaluation.search import FoundPairs, Histograms, MatchRule, Search, SignatureTable, histograms, search
from simhash.evaluation.substring import common_share, longest_common_substring
from simhash.evaluation.truth import KnownPairs, PairClass, Truth, make_truth

__all__ = [
    "ALL",
    "BANDS",
    "LENGTHS",
    "Band",
    "Figures",
    "FoundPairs",
    "Histograms",
    "KnownPairs",
    "MatchRule",
    "PairClass",
    "Search",
    "SignatureTable",
    "Truth",
    "Wrong",
    "by_reading",
    "common_share",
    "duplicates_by_reading",
    "figures_by_language",
    "histograms",
    "joined",
    "longest_common_substring",
    "make_truth",
    "recall_by_length",
    "search",
    "shingles_of",
    "wrong_pairs",
]
