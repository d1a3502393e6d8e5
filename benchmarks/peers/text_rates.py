"""Text to fingerprint with other packages, a pass over all texts at a time, so that they can be timed in turns.

Options: texts (language -> list); answered by the packages' names. Each question names a package and a language, and
is answered by the texts a second of one pass, by processor time, or by the error that ended it. Texts of spaced scripts
are given to a package that wants features as words, those of unspaced ones as character bigrams; a package that has a
way of its own to cut a text keeps it.
"""

import json
import re
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from importlib import import_module
from types import ModuleType, SimpleNamespace

PERMUTATIONS = 128
WORD = re.compile(r"\w+")
Fingerprint = Callable[[str], object]


def main() -> None:
    """Answer until standard input ends."""
    answers, sys.stdout = sys.stdout, sys.stderr  # for whatever a package prints
    lines = map(json.loads, sys.stdin)
    texts: dict[str, list[str]] = next(lines)["texts"]
    print(json.dumps({"packages": list(PACKAGES)}), file=answers, flush=True)
    for question in lines:
        answer = _answer(question["package"], question["language"], texts)
        print(json.dumps(answer), file=answers, flush=True)


def _answer(package: str, language: str, texts: dict[str, list[str]]) -> dict[str, object]:
    try:
        return {"rate": _rate(_loaded(package, language != "en", texts[language][0]), texts[language])}
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"}


@cache
def _loaded(package: str, unspaced: bool, first: str) -> Fingerprint:
    fingerprint = PACKAGES[package](unspaced)
    fingerprint(first)  # dictionaries are loaded at the first call
    return fingerprint


def _rate(fingerprint: Fingerprint, texts: list[str]) -> float:
    began = time.process_time()
    for text in texts:
        fingerprint(text)
    return len(texts) / (time.process_time() - began)


def features(text: str, unspaced: bool) -> list[str]:
    """Words, or character bigrams."""
    if unspaced:
        return [text[i : i + 2] for i in range(len(text) - 1)]
    return WORD.findall(text.lower())


def shingles(text: str, unspaced: bool) -> list[bytes]:
    """Five words, or five characters, at a time."""
    tokens = list(text) if unspaced else WORD.findall(text.lower())
    mark = "" if unspaced else " "
    return [mark.join(tokens[i : i + 5]).encode() for i in range(max(1, len(tokens) - 4))]


def one_e0ng(unspaced: bool) -> Fingerprint:
    """Simhash of the text as it is given: the package's own four-character shingles, MD5."""
    return import_module("simhash").Simhash  # type: ignore[no-any-return]


def datasketch(unspaced: bool) -> Fingerprint:
    """MinHash over five-token shingles."""
    minhash = import_module("datasketch").MinHash

    def fingerprint(text: str) -> object:
        made = minhash(num_perm=PERMUTATIONS)
        made.update_batch(shingles(text, unspaced))
        return made

    return fingerprint


def text_dedup(unspaced: bool) -> Fingerprint:
    """The package's own function with its defaults, but without the permutations of its index: character 3-grams.

    It imports `datasets`, which this function never calls: empty modules stand in for its 500 MB.
    """
    _stand_in_for_datasets()
    module = import_module("text_dedup.simhash")
    return partial(module.embed_func, idx=0, ngram=3, permutations=None, hash_func=module.xxh3_64_digest)


def gaoya(unspaced: bool) -> Fingerprint:
    """A query of an empty index: the package gives no fingerprint out; Rust."""
    analyzer, ngrams = ("char", (2, 2)) if unspaced else ("word", (1, 1))
    index = import_module("gaoya.simhash").SimHashStringIndex(64, 4, 3, analyzer, True, ngrams)
    return index.query  # type: ignore[no-any-return]


def rensa(unspaced: bool) -> Fingerprint:
    """RMinHash over five-token shingles; Rust."""
    minhash = import_module("rensa").RMinHash

    def fingerprint(text: str) -> object:
        made = minhash(num_perm=PERMUTATIONS, seed=42)
        made.update([shingle.decode() for shingle in shingles(text, unspaced)])
        return made.digest()

    return fingerprint


def jieba_tutorial(unspaced: bool) -> Fingerprint:
    """The tutorials' loop: 20 TF-IDF keywords, a hash of 64 bits each, bit by bit in Python."""
    extract = import_module("jieba.analyse").extract_tags

    def fingerprint(text: str) -> int:
        sums = [0.0] * 64
        for word, weight in extract(text, topK=20, withWeight=True):
            value = string_hash(word)
            for bit in range(64):
                sums[bit] += weight if value >> bit & 1 else -weight
        return sum(1 << bit for bit in range(64) if sums[bit] > 0)

    return fingerprint


def string_hash(source: str) -> int:
    """The multiplicative hash that the tutorials copy."""
    value = ord(source[0]) << 7
    for character in source:
        value = (value * 1000003 ^ ord(character)) & (1 << 128) - 1
    return (value ^ len(source)) & (1 << 64) - 1


def _stand_in_for_datasets() -> None:
    """What text-dedup imports of `datasets`; the standard library's `dataclass` is what it gets there."""
    package, utilities, version = (ModuleType(name) for name in _DATASETS)
    version.__dict__["dataclass"] = dataclass
    for name in ("Dataset", "load_dataset", "load_from_disk"):
        package.__dict__[name] = object
    package.__dict__["logging"] = SimpleNamespace(set_verbosity_error=lambda: None)
    for name, module in zip(_DATASETS, (package, utilities, version), strict=True):
        sys.modules.setdefault(name, module)


_DATASETS = ("datasets", "datasets.utils", "datasets.utils.version")

PACKAGES: dict[str, Callable[[bool], Fingerprint]] = {
    "1e0ng": one_e0ng,
    "datasketch": datasketch,
    "text-dedup": text_dedup,
    "gaoya": gaoya,
    "rensa": rensa,
    "jieba tutorial loop": jieba_tutorial,
}

if __name__ == "__main__":
    main()
