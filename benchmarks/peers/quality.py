"""Which pairs of texts the peers call near-duplicates: 1e0ng's simhash, and datasketch's MinHashLSH by threshold.

Options: texts (a file of JSON strings, one a line) and thresholds. Each package is used as its README shows it:
`Simhash(text)` with its defaults; a MinHash of 128 permutations over the set of 5-grams of tokens, inserted into a
`MinHashLSH` and asked for. A text on which a package fails has no fingerprint.
"""

import json
import re
import sys
import time
import unicodedata

from datasketch import MinHash, MinHashLSH

from simhash import Simhash

PERMUTATIONS = 128
SHINGLE = 5
SINGLE = "\u3005-\u3007\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uff66-\uff9f\uac00-\ud7af"
TOKEN = re.compile(f"[{SINGLE}\U00020000-\U0002fa1f]|[^\\W_{SINGLE}\U00020000-\U0002fa1f]+")


def main(texts: str, thresholds: list[float]) -> dict[str, object]:
    """Fingerprints (hexadecimal or null) and found pairs, with the seconds that each took."""
    with open(texts, encoding="utf-8") as file:
        pages = [json.loads(line) for line in file]
    started = time.process_time()
    fingerprints = [fingerprint(page) for page in pages]
    simhash_seconds = time.process_time() - started
    started = time.process_time()
    sketches = [minhash(page) for page in pages]
    minhash_seconds = time.process_time() - started
    return {
        "fingerprints": fingerprints,
        "simhash_seconds": simhash_seconds,
        "minhash_seconds": minhash_seconds,
        "lsh": [found(sketches, threshold) for threshold in thresholds],
    }


def fingerprint(text: str) -> str | None:
    """1e0ng's simhash of a text, None where it raises."""
    try:
        return f"{Simhash(text).value:016x}"
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


def found(sketches: list[MinHash | None], threshold: float) -> dict[str, object]:
    """Pairs that the index answers with, page by page as they are inserted."""
    index = MinHashLSH(threshold=threshold, num_perm=PERMUTATIONS)
    pairs = []
    for number, sketch in enumerate(sketches):
        if sketch is not None:
            pairs += [(other, number) for other in index.query(sketch)]
            index.insert(number, sketch)
    return {"threshold": threshold, "bands": [index.b, index.r], "pairs": pairs}


if __name__ == "__main__":
    print(json.dumps(main(**json.load(sys.stdin))))
