"""What an extractor takes of a page, marked in the page: `python -m benchmarks.extraction.pictures OUT`.

Three pages are shown by Chromium: two of `pages` (written for this: a story of a news site, a Chinese thread of a
forum), and one of a manual, of the bundled sample as it is packaged. What was taken is yellow. It is found from
outside, by the texts alone: of all ways to lay the page's pieces of text along the extracted text, in order, the one
that covers most.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import click

from benchmarks.samples import read_pages
from simhash.reading.extract import EXTRACTORS, extract_text
from simhash.signature.profiles import DEFAULT

PAGES = Path(__file__).parent / "pages"
MANUAL = "apache2-doc/manual/en/platform/rpm.html"
"""Apache-2.0: it may be shown."""
SIZE = "1000,900"
SCRIPT = """<style>.taken{background:#fd5;color:#222}</style><script>
const taken = TAKEN, bare = text => text.replace(/\\s+/g, ""), most = 20;
const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT), pieces = [];
while (walker.nextNode()) {
  const node = walker.currentNode, text = bare(node.data);
  if (text && !["SCRIPT", "STYLE"].includes(node.parentNode.tagName)) pieces.push({node, text});
}
const places = [];
pieces.forEach(({text}, piece) => {
  for (let at = taken.indexOf(text), n = 0; at >= 0 && n < most; at = taken.indexOf(text, at + 1), n++)
    places.push({piece, at, end: at + text.length, best: text.length, before: null});
});
for (let i = 0; i < places.length; i++) {
  const here = places[i], own = here.best;
  for (const other of places.slice(0, i)) {
    if (other.piece >= here.piece || other.end > here.at) continue;
    const both = other.best + own - (here.piece - other.piece) / 1e4;  // of two like pieces the nearer one
    if (both > here.best) { here.best = both; here.before = other; }
  }
}
let last = places.reduce((a, b) => b.best > a.best ? b : a, {best: 0});
for (; last && last.best; last = last.before) {
  const mark = document.createElement("span"), node = pieces[last.piece].node;
  mark.className = "taken";
  node.replaceWith(mark);
  mark.append(node);
}
</script>"""


@click.command()
@click.argument("out", type=click.Path(path_type=Path, file_okay=False))
@click.option("--extractor", type=click.Choice([*EXTRACTORS]), default=DEFAULT.extractor, show_default=True)
def main(out: Path, extractor: str) -> None:
    """Write three pictures into the folder OUT: extracted-news.png, extracted-forum.png, extracted-manual.png."""
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    if browser is None:
        raise click.ClickException("Chromium draws the pictures, and there is none: apt-get install chromium")
    out.mkdir(parents=True, exist_ok=True)
    for name, page in _pages():
        picture = out / f"extracted-{name}.png"
        _draw(browser, marked(page, extract_text(page, extractor)), picture)
        print(picture)


def _pages() -> Iterator[tuple[str, str]]:
    for name in ("news", "forum"):
        yield name, (PAGES / f"{name}.html").read_text(encoding="utf-8")
    yield "manual", next(page["html"] for page in read_pages() if page["url"].endswith(MANUAL))


def marked(page: str, taken: str) -> str:
    """The page with the taken text marked, once a browser shows it."""
    return page + SCRIPT.replace("TAKEN", json.dumps("".join(taken.split())).replace("</", "<\\/"))


def _draw(browser: str, page: str, picture: Path) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        shown = Path(scratch) / "page.html"
        shown.write_text("\ufeff" + page, encoding="utf-8")
        asked = [f"--screenshot={picture.resolve()}", f"--window-size={SIZE}", f"--user-data-dir={scratch}"]
        offline = ["--headless", "--no-sandbox", "--hide-scrollbars", "--host-resolver-rules=MAP * ~NOTFOUND"]
        subprocess.run([browser, *offline, *asked, shown.as_uri()], check=True, capture_output=True, timeout=120)


if __name__ == "__main__":
    main()
