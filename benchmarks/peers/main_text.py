"""Main text by other packages, a pass over all pages at a time, so that they can be timed in turns.

Options: pages (a file of JSON strings, one a line); answered by the extractors' names. Each question names one, and is
answered by the texts and the processor seconds that they took. A page on which a package fails has an empty text.
"""

import json
import sys
import time
from collections.abc import Callable
from importlib import import_module

Extractor = Callable[[str], str]


def main() -> None:
    """Answer until standard input ends."""
    answers, sys.stdout = sys.stdout, sys.stderr  # for whatever a package prints
    lines = map(json.loads, sys.stdin)
    with open(next(lines)["pages"], encoding="utf-8") as file:
        pages: list[str] = [json.loads(line) for line in file]
    print(json.dumps({"extractors": list(EXTRACTORS)}), file=answers, flush=True)
    for question in lines:
        extract = EXTRACTORS[question["extractor"]]
        began = time.process_time()
        texts = [_or_empty(extract, page) for page in pages]
        print(json.dumps({"seconds": time.process_time() - began, "texts": texts}), file=answers, flush=True)


def readability(html: str) -> str:
    """readability-lxml's summary, which is HTML, as the text of its blocks."""
    summary = import_module("readability").Document(html).summary(html_partial=True)
    etree = import_module("lxml.html")
    root = etree.fragment_fromstring(summary, create_parent="div")
    return "\n".join(text for part in root.itertext() if (text := " ".join(part.split())))


def _or_empty(extract: Extractor, page: str) -> str:
    try:
        return extract(page)
    except Exception:
        return ""


EXTRACTORS: dict[str, Extractor] = {"readability-lxml": readability}

if __name__ == "__main__":
    main()
