"""Where tokens begin and end: kinds of characters, runs of a kind, and the words inside a run of Han.

Everything here works on *normalised* text (`features.normalise`). Kinds come from one table over all code
points, so that another implementation with the same table finds the same tokens.

jieba (the segmenter of Han text) loads 0.9 s and 100 MB when first needed, and never through its cache in
the temporary directory: that file is shared between users and decides how text is cut, so a stale or planted
one would change fingerprints. rjieba, 14 times as fast, stands in where it is installed and cuts `SAMPLE` as
jieba does.
"""

from __future__ import annotations

import logging
import re
import threading
import unicodedata
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from importlib.util import find_spec
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from simhash.errors import ProfileError

if TYPE_CHECKING:
    import jieba

LETTER = 1
"""Letters and digits of scripts that put spaces between words (Hangul has its own kind)."""
MARK = 2
"""Combining marks: they continue a word but begin none. Variation selectors separate instead."""
HANGUL = 4
HAN = 8
KANA = 16
UNSPACED = 32
"""Letters and digits of Thai, Lao, Khmer and Myanmar."""
UNSPACED_MARK = 64

_HAN_RANGES = ((0x3005, 0x3007), (0x3400, 0x4DBF), (0x4E00, 0x9FFF), (0xF900, 0xFAFF), (0x20000, 0x323AF))
_KANA_RANGES = ((0x3040, 0x30FF), (0x31F0, 0x31FF), (0xFF66, 0xFF9F))
_HANGUL_RANGES = ((0xAC00, 0xD7AF),)
_UNSPACED_RANGES = ((0x0E00, 0x0EFF), (0x1000, 0x109F), (0x1780, 0x17FF), (0xA9E0, 0xA9FF), (0xAA60, 0xAA7F))
_SELECTOR_RANGES = ((0xFE00, 0xFE0F), (0xE0100, 0xE01EF))
_LAST_LETTER = 0x3FFFF
IDEOGRAPHS = 0x20000
"""From here on to the last letter all are ideographs: no marks, and none that composes with another."""
_CODE_POINTS = 0x110000

PIECE_CHARACTERS = 1 << 16
"""A text is taken apart in pieces of at most so many characters: memory for tokens is bounded."""

HAN_RUN_CHARACTERS = 256
"""Longer runs of Han are cut: jieba's handling of unknown characters copies its path at every step,
quadratic in the run. Sentences end long before (the longest run in 8,184 real pages has 78)."""

_OTHER_HAN = "[\u3005-\u3007\u3400-\u4dbf\u9fd6-\u9fff\uf900-\ufaff\U00020000-\U000323af]"
_HAN_RUN = re.compile(f"[\u4e00-\u9fd5]{{1,{HAN_RUN_CHARACTERS}}}|{_OTHER_HAN}")


def code_points(end: int) -> str:
    """All characters below `end`, in their order, lone surrogates among them."""
    return np.arange(end, dtype="<u4").tobytes().decode("utf-32-le", "surrogatepass")


@cache
def kinds_table() -> NDArray[np.uint8]:
    """Kind of every code point, shape (0x110000,); 0 separates. Python's Unicode (3.11: version 14.0)."""
    table = np.zeros(_CODE_POINTS, dtype=np.uint8)
    every = code_points(_LAST_LETTER + 1)
    for run in re.finditer(r"[^\W_]+", every):
        table[run.start() : run.end()] = LETTER
    categories = np.frombuffer("".join(map(unicodedata.category, every[:IDEOGRAPHS])).encode(), np.uint8)
    table[:IDEOGRAPHS][categories[::2] == ord("M")] = MARK
    _assign(table, _HAN_RANGES, {LETTER: HAN, 0: HAN})
    _assign(table, _KANA_RANGES, {LETTER: KANA, MARK: KANA, 0: KANA})
    _assign(table, _HANGUL_RANGES, {LETTER: HANGUL})
    _assign(table, _UNSPACED_RANGES, {LETTER: UNSPACED, MARK: UNSPACED_MARK})
    _assign(table, _SELECTOR_RANGES, {MARK: 0})
    return table


def _assign(table: NDArray[np.uint8], ranges: tuple[tuple[int, int], ...], kinds: dict[int, int]) -> None:
    for first, last in ranges:
        part = table[first : last + 1]
        before = part.copy()
        for old, new in kinds.items():
            part[before == old] = new


@dataclass(frozen=True)
class Piece:
    """A piece of normalised text with the kinds of its characters."""

    text: str

    @cached_property
    def code_points(self) -> NDArray[np.uint32]:
        """Shape (n,)."""
        return np.frombuffer(self.text.encode("utf-32-le", "surrogatepass"), dtype="<u4")

    @cached_property
    def kinds(self) -> NDArray[np.uint8]:
        """Shape (n,)."""
        return kinds_table().take(self.code_points)

    @cached_property
    def present(self) -> int:
        """All kinds that occur, or-ed together."""
        return int(np.bitwise_or.reduce(self.kinds, initial=0))

    @cached_property
    def words(self) -> list[str]:
        """Runs of letters, digits and Hangul with the marks after them, in order."""
        return self.runs(LETTER | HANGUL, marks=MARK)

    def spans(self, kinds: int) -> Iterator[tuple[int, int]]:
        """Beginning and end of each longest run of characters of these kinds."""
        member = np.zeros(len(self.text) + 2, dtype=bool)
        np.not_equal(self.kinds & np.uint8(kinds), 0, out=member[1:-1])
        edges = np.flatnonzero(member[1:] != member[:-1]).tolist()
        return zip(edges[::2], edges[1::2], strict=True)

    def runs(self, kinds: int, marks: int = 0) -> list[str]:
        """Longest runs of these kinds and the marks after them; marks before the first letter fall off."""
        text = self.text
        if not self.present & kinds:
            return []
        if not self.present & marks:
            return [text[start:end] for start, end in self.spans(kinds)]
        runs = (text[self._first(start, end, kinds) : end] for start, end in self.spans(kinds | marks))
        return [run for run in runs if run]

    def _first(self, start: int, end: int, kinds: int) -> int:
        while start < end and not self.kinds[start] & kinds:
            start += 1
        return start

    def han_words(self) -> list[str]:
        """Words of the Han runs, in order; each run cut alone, as if nothing stood around it."""
        return han_words(self.text) if self.present & HAN else []


def pieces(text: str) -> Iterator[Piece]:
    """Cut a text into pieces of at most PIECE_CHARACTERS, each after a separator unless a run is longer."""
    start = 0
    while len(text) - start > PIECE_CHARACTERS:
        window = Piece(text[start : start + PIECE_CHARACTERS])
        separators = np.flatnonzero(window.kinds == 0)
        length = int(separators[-1]) + 1 if len(separators) else PIECE_CHARACTERS
        yield Piece(window.text[:length])
        start += length
    yield Piece(text[start:])


def han_words(text: str) -> list[str]:
    """Words of all Han runs of a text, in order.

    jieba knows U+4E00 to U+9FD5; a Han character outside is a word by itself (so jieba would say, too).
    """
    return [word for word in _cutter()(" ".join(_HAN_RUN.findall(text))) if word != " "]


def new_tokenizer() -> jieba.Tokenizer:
    """Build a jieba tokenizer of one's own with the dictionary that jieba brings, past any cache file."""
    require_jieba()
    import jieba

    jieba.setLogLevel(logging.CRITICAL)
    tokenizer = jieba.Tokenizer()
    tokenizer.FREQ, tokenizer.total = tokenizer.gen_pfdict(tokenizer.get_dict_file())
    tokenizer.initialized = True
    return tokenizer


def require_jieba() -> None:
    """Say what to install where jieba, which most profiles do without, is not there; before each import of it.

    Raises:
        ProfileError: it is not installed.
    """
    if find_spec("jieba") is None:
        raise ProfileError("this profile cuts Han by jieba, which is not installed: pip install 'simhash-dedup[jieba]'")
    # When Python 3.12 or later compiles it, at the first import or at each, it warns of jieba's patterns, in 20 lines.
    warnings.filterwarnings("ignore", category=SyntaxWarning, module=r".*\bjieba\b")


_loading = threading.Lock()


@cache
def _shared_tokenizer() -> jieba.Tokenizer:
    return new_tokenizer()


def shared_tokenizer() -> jieba.Tokenizer:
    """Return the one tokenizer without user words; never change it (others may change jieba's own)."""
    with _loading:
        return _shared_tokenizer()


@cache
def _cutter() -> Callable[[str], list[str]]:
    return rjieba_cut() or jieba_cut


def jieba_cut(text: str) -> list[str]:
    """Cut by jieba, accurate mode, with its model for unknown words."""
    return list(shared_tokenizer().cut(text))


def rjieba_cut() -> Callable[[str], list[str]] | None:
    """Return rjieba's cut where it is installed and cuts the sample as jieba does, else None."""
    try:
        import rjieba
    except ImportError:
        return None
    cut: Callable[[str], list[str]] = rjieba.cut
    return cut if all(cut(cuts.replace("/", "")) == cuts.split("/") for cuts in SAMPLE) else None


def segmenter() -> str:
    """Name the segmenter in use for Han runs: "rjieba" or "jieba"."""
    return "jieba" if _cutter() is jieba_cut else "rjieba"


SAMPLE = (
    "我/来到/北京/清华大学",
    "他/来到/了/网易/杭研/大厦",
    "小明/硕士/毕业/于/中国科学院/计算所/后/在/日本京都大学/深造",
    "工信处/女干事/每月/经过/下属/科室/都/要/亲口/交代/交换机/等/技术性/器件/的/安装/工作",
    "结婚/的/和/尚未/结婚/的/确实/在理",
    "研究/生命/的/起源/与/研究生/活动中心/并不相同",
    "南京市/长江大桥/昨日/通车",
    "乒乓球/拍卖/完/了",
    "武汉市/长江/二桥/的/桥墩",
    "下雨天/留客/天留/我/不留",
    "网页/去/重/系统/把/近似/重复/的/新闻/归为/一组",
    "搜索引擎/抓取/网页/时先/计算/指纹/再/查询/索引",
    "海明/距离/不/超过/三/的/两个/指纹/被/视为/近似/重复",
    "欧阳修/与/司马光/同朝/为官",
    "李世石/与/柯洁/先后/负于/阿尔法/围棋",
    "诺贝尔文学奖/得主/古尔纳出/生于/桑给巴尔",
    "魑魅魍魉/饕餮/蚩尤/囹圄/耄耋",
    "彳亍/丬/丨/丶/丿/乀/乁",
    "臺/灣大學/資訊/工程/學系/的/研究/團隊/發表論/文",
    "電腦/程式/設計師/正在/撰寫/軟體/說明/文件",
    "這個/網站/的/內容/與/另/一個/網站/幾乎/完全相同",
    "東/京都/渋/谷/区/神/南",
    "国際連/合/総/会/決/議",
    "人民法院/应当/自/收到/申请/之日起/三十日/内/作出/裁定",
    "第/二百三十/四条/第一款/规定/的/期限/届满",
    "一千二百/三十四万/五千/六百/七十八",
    "蛋白质/组学/与/代谢/组学",
    "区块/链/与/元/宇宙",
    "爨龑/靐/齉/爩/麤/鱻",
    "的/了/是/在/我/有/和/就/不/人/都/一上/也/很/到/说/要/去/你",
)
"""Texts as jieba 0.42.1 cuts them: ambiguous, rare, traditional and unknown words, names, numbers. A test
holds jieba to them, and compares the two segmenters on random text."""
