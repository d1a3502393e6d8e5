"""Every error this library raises, in one tree.

    SimhashError
    ├── PageError        one page cannot be judged; `stage` says where, the message says what was wrong
    ├── WidthError       a number that is no fingerprint of that width
    ├── ProfileError     a profile that cannot be
    ├── DesignError      a permutation design that cannot be, or that does not reach k
    ├── OrderError       keys that must ascend do not
    ├── TableFault       compressed tables cannot be used
    │   ├── BrokenBlock      a block's bytes are not what was written
    │   ├── TableCorrupt     a file is damaged or cut off; the message names it and the place
    │   └── TableMismatch    it holds something else than what is asked for
    └── IndexFault       the index refuses or cannot answer
        ├── IndexUnreachable     nobody answers there; try again later (`retriable`)
        │   └── IndexServerChanged   the server was restarted or failed over; what it has must be looked at first
        ├── IndexUnreplicated    too few replicas have what was stored (`retriable`)
        ├── IndexLost            pages whose verdicts were committed are missing: an operator must act
        ├── IndexDamaged         another program wrote into it, or the server's files are broken
        ├── IndexMisconfigured   the server's settings would lose or bloat data
        ├── IndexMismatch        the index was made with another profile, design or generation
        │   ├── IndexMigrated        it has another generation now: open it again
        │   └── BaseDiffers          it is judged beside another base than the caller's
        └── StaleObservation     a page whose verdict is committed already was handed in again

Errors of drivers are translated into these at the edge (`simhash/index/redis/faults.py`), so no caller imports a driver
to catch its errors. `retriable` is an attribute of the class: the same call may succeed later without anybody's doing.
"""

from typing import Self


class SimhashError(Exception):
    """Base of all errors of this library."""

    retriable = False


class PageError(SimhashError):
    """One page cannot be judged.

    Attributes:
        stage: "decode", "extract", "fingerprint" or "index": the step that refused it.
    """

    def __init__(self, stage: str, message: str) -> None:
        super().__init__(message)
        self.stage = stage

    def __reduce__(self) -> tuple[type["PageError"], tuple[str, str]]:
        """Pickle both arguments: pages are fingerprinted in child processes."""
        return type(self), (self.stage, str(self))


class WidthError(SimhashError, ValueError):
    """A number is no fingerprint of the width that is asked for."""


class ProfileError(SimhashError, ValueError):
    """A profile that cannot be."""


class DesignError(SimhashError, ValueError):
    """A permutation design that cannot be, or whose tables do not reach k."""


class OrderError(SimhashError, ValueError):
    """Keys that must ascend do not."""


class TableFault(SimhashError):
    """Compressed tables cannot be used."""


class BrokenBlock(TableFault):
    """The bytes of a block are not what was written.

    Attributes:
        block: its number among those handed in, from 0.
    """

    def __init__(self, block: int, reason: str) -> None:
        super().__init__(block, reason)
        self.block = block
        self.reason = reason


class TableCorrupt(TableFault):
    """A file is damaged or cut off; the message names the file and the block or the part."""


class TableMismatch(TableFault):
    """Tables that hold something else than what is asked of them."""


class IndexFault(SimhashError):
    """The index refuses or cannot answer."""


class IndexUnreachable(IndexFault):
    """Nobody answers where the index should be, or the answer was cut off."""

    retriable = True


class IndexServerChanged(IndexUnreachable):
    """The server has another replication id than at the last call. Present watermarks (`Index.present`), then go on."""


class IndexUnreplicated(IndexFault):
    """Too few replicas have acknowledged what was stored, or it cannot be known."""

    retriable = True


class IndexLost(IndexFault):
    """The index lacks pages whose verdicts were committed."""


class IndexDamaged(IndexFault):
    """What stands in the index is not what it wrote there: another program did, or the server's files are broken.

    Attributes:
        what: that, in words.
    """

    def __init__(self, what: str) -> None:
        self.what = what
        super().__init__(
            f"{what}. `simhash-dedup index check` says what is damaged; `simhash-dedup rebuild` makes it again"
        )

    def __reduce__(self) -> tuple[type[Self], tuple[str]]:
        return type(self), (self.what,)  # an exception is made again of its message, else


class IndexMisconfigured(IndexFault):
    """The server's settings would drop keys or bloat the index."""


class IndexMismatch(IndexFault):
    """The index was made with another profile, design or generation than the caller's."""


class IndexMigrated(IndexMismatch):
    """The index has another generation than when it was opened; opened again, it can be used."""


class BaseDiffers(IndexMismatch):
    """The index is judged beside another base than the caller's: its workers have yet to move, or have moved."""


class StaleObservation(IndexFault):
    """A page below the committed mark: its verdict is out, it is not judged again.

    Retriable by reading anew: whoever hands in such a page no longer owns its partition.
    """

    retriable = True
