"""What the peers make of texts: 1e0ng's and text-dedup's simhashes, and the pairs of datasketch's MinHashLSH.

Options: texts (a file of JSON strings, one a line) and thresholds. Each package is used as its README shows it:
`Simhash(text)` and `embed_func` with their defaults; a MinHash of 128 permutations over the set of 5-grams of tokens,
inserted into a `MinHashLSH` and asked for: as it answers, and again with only those answers that the sketches' own
estimate of the similarity bears out, as its documentation advises. A text on which a package fails has no fingerprint.
"""

from __future__ import annotations

import json
import re
import sys
import time
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from unittest.mock import MagicMock

from datasketch import MinHash, MinHashLSH

PERMUTATIONS = 128
CHECKED = {0.6: 0.75}
"""Least estimated similarity of what an index of this threshold answers, beside the same without."""
SHINGLE = 5
SINGLE = "\u3005-\u3007\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uff66-\uff9f\uac00-\ud7af"
TOKEN = re.compile(f"[{SINGLE}\U00020000-\U0002fa1f]|[^\\W_{SINGLE}\U00020000-\U0002fa1f]+")


def main(texts: str, thresholds: list[float]) -> dict[str, object]:
    """Fingerprints by package (hexadecimal or null), found pairs, and the processor seconds that each took."""
    with open(texts, encoding="utf-8") as file:
        pages = [json.loads(line) for line in file]
    fingerprints, seconds = {}, {}
    for name, fingerprint in (("1e0ng", one_e0ng()), ("text-dedup", text_dedup())):
        started = time.process_time()
        fingerprints[name] = [_or_none(fingerprint, page) for page in pages]
        seconds[name] = time.process_time() - started
    started = time.process_time()
    sketches = [minhash(page) for page in pages]
    seconds["datasketch"] = time.process_time() - started
    lsh = [found(sketches, threshold) for threshold in thresholds]
    lsh += [found(sketches, threshold, least) for threshold, least in CHECKED.items() if threshold in thresholds]
    return {"fingerprints": fingerprints, "seconds": seconds, "lsh": lsh}


def one_e0ng() -> Callable[[str], str]:
    """1e0ng's simhash, which has the name of this project's library."""
    simhash = import_module("simhash").Simhash
    return lambda text: f"{simhash(text).value:016x}"


def text_dedup() -> Callable[[str], str]:
    """text-dedup's: character 3-grams as a set. It imports `datasets`, which this function never calls."""
    version = MagicMock(dataclass=dataclass)
    sys.modules.update({"datasets": MagicMock(), "datasets.utils": MagicMock(), "datasets.utils.version": version})
    module = import_module("text_dedup.simhash")
    options = {"ngram": 3, "permutations": None, "hash_func": module.xxh3_64_digest}
    return lambda text: str(module.embed_func(text, 0, **options)["__signature__"].hex())


def _or_none(fingerprint: Callable[[str], str], text: str) -> str | None:
    try:
        return fingerprint(text)
    except Exception:
        return None


def minhash(text: str) -> MinHash | None:
    """MinHash of a text's shingles, None without tokens."""
    tokens = TOKEN.findall(unicodedata.normalize("NFKC", text).casefold())
    if not tokens:
        return None
    shingles = {"\x1f".join(tokens[i : i + SHINGLE]).encode() for i in range(max(1, len(tokens) - SHINGLE + 1))}
    sketch = MinHash(PERMUTATIONS)
    sketch.update_batch(sorted(shingles))
    return sketch


def found(sketches: list[MinHash | None], threshold: float, least: float = 0.0) -> dict[str, object]:
    """Pairs that the index answers with, page by page as they are inserted, of at least this estimated similarity."""
    index = MinHashLSH(threshold=threshold, num_perm=PERMUTATIONS)
    pairs = []
    for number, sketch in enumerate(sketches):
        if sketch is not None:
            near = (other for other in index.query(sketch) if not least or sketch.jaccard(sketches[other]) >= least)
            pairs += [(other, number) for other in near]
            index.insert(number, sketch)
    return {"threshold": threshold, "least": least, "bands": [index.b, index.r], "pairs": pairs}


if __name__ == "__main__":
    print(json.dumps(main(**json.load(sys.stdin))))
