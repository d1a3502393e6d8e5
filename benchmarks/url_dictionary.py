"""Makes the dictionary by which an index compresses URLs where nobody trained one: `simhash/index/urls.zdict`.

    python -m benchmarks.url_dictionary          # trains it anew, the same bytes each time

The URLs that it is trained on are made up here: hosts under many top-level domains, the paths and queries that content
systems, shops, forums, wikis, code hosts and papers use, slugs of words from the bundled sample pages (samples/), escapes
of other scripts. No URL of a real page is among them.
"""

from __future__ import annotations

import io
import json
import re
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from urllib.parse import quote

import zstandard

from simhash.index.urls import HEAD, SHIPPED_PATH, trained

ROOT = Path(__file__).parents[1]
COUNT = 60_000
SIZE = 32 << 10
TOP_LEVEL = (
    "com com com com com com com com org org org net net co.uk de de fr it es nl pl ru cn com.cn co.jp jp kr co.kr in co.in "
    "com.br com.au ca eu ch at be se no dk fi cz hu ro gr pt com.mx com.ar cl co za co.za ir ua com.ua com.tr tw com.tw hk "
    "vn id co.id my sg ph us gov gov.uk edu ac.uk info io ai dev app me tv biz blog news online site shop xyz club"
).split()
SUBDOMAINS = (
    "www www www www www www www. en de fr es it ja zh pt ru m blog blogs news forum forums shop store support help docs "
    "wiki community developer api static cdn img images media old archive my login search edition amp mobile"
).split()
SECTIONS = (
    "news politics world business sport sports football opinion culture arts entertainment music movies tv tech technology "
    "science health lifestyle food recipes travel style fashion money finance markets economy education environment climate "
    "local national international video videos gallery photos live blog blogs article articles story stories post posts "
    "features reviews review interviews analysis column editorial letters obituaries weather jobs cars real-estate games "
    "nachrichten politik wirtschaft kultur wissen panorama regional actualite economie societe culture deportes economia "
    "cultura noticias cronaca esteri wiadomosci sport-news magazine press press-releases media events about faq help "
    "products product category categories tag tags topic topics author authors search archive archives page pages index"
).split()
ENDINGS = [
    "",
    "/",
    "/",
    "/",
    ".html",
    ".html",
    ".htm",
    ".php",
    ".aspx",
    ".shtml",
    "/index.html",
    ".jsp",
    ".do",
    ".pdf",
    "/amp/",
]
QUERIES = (
    "utm_source={w}&utm_medium={w}&utm_campaign={w} utm_source=rss&utm_medium=feed&utm_campaign=rss utm_source=twitter "
    "utm_source=newsletter&utm_medium=email fbclid={x} gclid={x} page={n} p={n} id={n} q={w}+{w} s={w} ref={w} sort={w} "
    "lang=en hl=en locale=en_US start={n} offset={n}&limit=20 view={w} action=edit title={W}&oldid={n} t={n} f={n}&t={n} "
    "sid={x} session={x} PHPSESSID={x} jsessionid={x} replytocom={n} share=facebook print=1 amp=1 output=amp cid={n} "
    "category={w}&page={n} color={w}&size={n} v={n} date={y}-{m}-{d} from={w} source={w} tab={w} mode={w}"
).split()


def words() -> list[str]:
    """Words of the bundled pages, as often as they occur there, the commonest of each writing."""
    data = zstandard.ZstdDecompressor(max_window_size=1 << 31).stream_reader(
        (ROOT / "samples/pages.jsonl.zst").open("rb")
    )
    counted: Counter[str] = Counter()
    for line in io.TextIOWrapper(data, encoding="utf-8"):
        page = json.loads(line)
        text = page.get("text") or re.sub(r"<[^>]*>", " ", page.get("html", ""))
        counted.update(re.findall(r"[^\W\d_]{2,14}", text.lower()))
    return [word for word, count in counted.most_common(6000) for _ in range(1 + min(count, 400) // 20)]


class Maker:
    """Made-up URLs."""

    def __init__(self, vocabulary: Sequence[str], random: Random) -> None:
        self._random = random
        self._plain = [word for word in vocabulary if word.isascii()]
        self._other = [word for word in vocabulary if not word.isascii()]
        self._shapes: list[Callable[[], str]] = [
            self._dated, self._dated, self._dated, self._slug, self._slug, self._section, self._section, self._numbered,
            self._query, self._query, self._shop, self._forum, self._wiki, self._code, self._paper, self._escaped,
            self._upload, self._manual,
        ]  # fmt: skip

    def url(self) -> str:
        """One of them."""
        random = self._random
        scheme = HEAD if random.random() < 0.85 else "http://"
        url = scheme + self._host() + random.choice(self._shapes)()
        return url + ("?" + self._filled(random.choice(QUERIES)) if random.random() < 0.12 and "?" not in url else "")

    def _word(self) -> str:
        return self._random.choice(self._plain)

    def _slugged(self, low: int, high: int) -> str:
        mark = self._random.choice(["-", "-", "-", "-", "_", "+", "%20"])
        return mark.join(self._word() for _ in range(self._random.randint(low, high)))

    def _number(self) -> str:
        return str(self._random.randrange(10 ** self._random.randint(1, 9)))

    def _hex(self) -> str:
        return f"{self._random.getrandbits(self._random.choice([32, 64, 128])):x}"

    def _date(self, mark: str = "/") -> str:
        random = self._random
        year, month, day = random.randint(1999, 2026), random.randint(1, 12), random.randint(1, 28)
        return mark.join([str(year), f"{month:02}", *([f"{day:02}"] if random.random() < 0.6 else [])])

    def _host(self) -> str:
        random = self._random
        name = random.choice(["", "", "-"]).join(self._word() for _ in range(random.choice([1, 1, 2, 2, 3])))
        sub = random.choice(SUBDOMAINS) + "." if random.random() < 0.6 else ""
        return f"{sub.replace('..', '.')}{name}.{random.choice(TOP_LEVEL)}"

    def _end(self) -> str:
        return self._random.choice(ENDINGS)

    def _section(self) -> str:
        random = self._random
        return "/" + "/".join(random.choice(SECTIONS) for _ in range(random.randint(1, 3))) + self._end()

    def _dated(self) -> str:
        before = f"/{self._random.choice(SECTIONS)}" if self._random.random() < 0.5 else ""
        return f"{before}/{self._date()}/{self._slugged(3, 10)}{self._end()}"

    def _slug(self) -> str:
        before = "".join(f"/{self._random.choice(SECTIONS)}" for _ in range(self._random.randint(0, 2)))
        number = f"-{self._number()}" if self._random.random() < 0.4 else ""
        return f"{before}/{self._slugged(3, 10)}{number}{self._end()}"

    def _numbered(self) -> str:
        return f"/{self._random.choice(SECTIONS)}/{self._number()}/{self._slugged(1, 7)}{self._end()}"

    def _query(self) -> str:
        script = self._random.choice(
            ["index.php", "article.php", "view.php", "item", "search", "story.asp", "node", ""]
        )
        return f"/{script}?{self._filled(self._random.choice(QUERIES))}"

    def _filled(self, query: str) -> str:
        random = self._random
        return query.format(
            w=self._word(), W=self._word().title(), n=self._number(), x=self._hex(), y=random.randint(2005, 2026),
            m=f"{random.randint(1, 12):02}", d=f"{random.randint(1, 28):02}",
        )  # fmt: skip

    def _shop(self) -> str:
        kind = self._random.choice(
            ["/products/", "/product/", "/p/", "/dp/", "/item/", "/collections/all/products/", "/shop/"]
        )
        return f"{kind}{self._slugged(2, 6)}{self._random.choice(['', '-' + self._number(), '/' + self._number()])}{self._end()}"

    def _forum(self) -> str:
        kind = self._random.choice(["/viewtopic.php?f={n}&t={n}", "/showthread.php?t={n}", "/threads/{s}.{n}/", "/t/{s}/{n}",
                                    "/questions/{n}/{s}", "/r/{w}/comments/{x}/{s}/", "/forum/topic/{n}-{s}/"])  # fmt: skip
        return kind.format(n=self._number(), s=self._slugged(2, 8), w=self._word(), x=self._hex()[:6])

    def _wiki(self) -> str:
        name = "_".join(self._word().title() for _ in range(self._random.randint(1, 4)))
        kind = self._random.choice(
            ["/wiki/", "/wiki/", "/wiki/Category:", "/wiki/File:", "/wiki/Special:", "/w/index.php?title="]
        )
        return kind + name

    def _code(self) -> str:
        kind = self._random.choice(["/{w}/{w}/blob/master/{w}/{w}.py", "/{w}/{w}/issues/{n}", "/{w}/{w}/pull/{n}", "/{w}/{w}/tree/main/{w}",
                                    "/{w}/{w}/commit/{x}", "/docs/{w}/{w}.html", "/en/latest/{w}/{w}.html", "/package/{w}"])  # fmt: skip
        return kind.format(w=self._slugged(1, 2), n=self._number(), x=self._hex())

    def _paper(self) -> str:
        kind = self._random.choice(["/abs/{y}.{n}", "/pdf/{y}.{n}v1", "/doi/full/10.1016/j.{w}.{Y}.{n}", "/article/view/{n}/{n}",
                                    "/pmc/articles/PMC{n}/", "/science/article/pii/S{n}", "/content/{n}/{n}/{n}.full"])  # fmt: skip
        return kind.format(
            y=f"{self._random.randint(7, 26):02}{self._random.randint(1, 12):02}",
            Y="2019",
            n=self._number(),
            w=self._word(),
        )

    def _escaped(self) -> str:
        kind = self._random.choice(["/wiki/", "/tag/", "/search/", "/news/", "/"])
        return kind + quote(
            self._random.choice(["-", "_", "/", ""]).join(
                self._random.choices(self._other, k=self._random.randint(1, 4))
            )
        )

    def _upload(self) -> str:
        kind = self._random.choice(
            ["/wp-content/uploads/", "/sites/default/files/", "/images/", "/media/", "/assets/", "/files/"]
        )
        return f"{kind}{self._date()}/{self._slugged(1, 6)}{self._random.choice(['.jpg', '.png', '.pdf', '-1024x768.jpg', '.doc'])}"

    def _manual(self) -> str:
        version = f"{self._random.randint(1, 20)}.{self._random.randint(0, 9)}"
        kind = self._random.choice(["/doc/{w}/{v}/html/{w}.html", "/docs/{v}/{w}-{w}.html", "/usr/share/doc/{w}/html/{w}.html", "/manual/en/{w}.html",
                                    "/en/{w}/{w}/{w}", "/reference/{w}.html", "/man/{w}.1.html"])  # fmt: skip
        return kind.format(w=self._word(), v=version)


def main() -> None:
    """Train it, and say how large it is."""
    maker = Maker(words(), Random(1))
    made = trained([maker.url() for _ in range(COUNT)], SIZE)
    SHIPPED_PATH.write_bytes(made.content)
    print(f"{SHIPPED_PATH}: {len(made.content):,} bytes")


if __name__ == "__main__":
    main()
