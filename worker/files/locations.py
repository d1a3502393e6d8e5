"""Where files are: paths of this machine, and addresses that fsspec knows (s3://, hf://, gs://, https://, memory://).

An address is a path too: universal-pathlib gives it pathlib's methods. fsspec and its drivers raise errors of many
kinds; here they become OSError, as those of files are.
"""

from __future__ import annotations

import io
import os
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, cast

from worker.errors import InputError, SettingsError

_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+(://|::)")


def is_remote(path: str | Path) -> bool:
    """Whether this is an address, and no path of this machine."""
    return _ADDRESS.match(str(path)) is not None


def place(name: str) -> Path:
    """The path, or the address as one.

    Raises:
        SettingsError: what reads addresses, or those of this kind, is not installed.
    """
    if not is_remote(name):
        return Path(name)
    try:
        from upath import UPath

        found = UPath(name)
        _ = found.fs  # looks for the driver
    except ImportError as error:
        raise SettingsError(f"{name}: {_missing(error, name)}") from error
    except ValueError as error:
        raise SettingsError(f"{name}: {error}") from error
    return cast(Path, found)


def _missing(error: ImportError, name: str) -> str:
    """What to install; fsspec says itself which package has a driver."""
    if error.name == "upath":
        return "addresses need fsspec and universal-pathlib: pip install 'simhash-dedup[remote]'"
    return f"{error}" + (" (pip install 'simhash-dedup[s3]')" if name.startswith("s3") else "")


def named(path: Path) -> str:
    """What names a file wherever it is asked for: a whole path, or the address."""
    return str(path) if is_remote(path) else os.path.abspath(path)


def in_utf8(name: object) -> str:
    """A path as JSON, HTML and Java can hold it: a file's name may be any bytes."""
    return str(name).encode("utf-8", "backslashreplace").decode()


def identity(path: Path) -> str:
    """The same for two names of one file."""
    return str(path) if is_remote(path) else os.path.realpath(path)


def check_unread(written: Iterable[Path | None], read: Iterable[Path | None]) -> None:
    """Refuse to write to a file that is read; None stands for what was not given.

    Raises:
        InputError: it would be destroyed.
    """
    names = {identity(path) for path in read if path}
    for path in filter(None, written):
        if identity(path) in names:
            raise InputError(f"{path} is an input: writing to it would destroy it")


def opened(path: Path, mode: str = "rb") -> Any:
    """A file's bytes, without a buffer where there is no need of one.

    Raises:
        OSError: it cannot be opened.
    """
    if not is_remote(path):
        return io.FileIO(path) if mode == "rb" else path.open(mode)
    with failing():
        if mode != "rb":
            # A driver sends nothing before there is much, or all: whether it may is asked now, not in hours.
            path.open(mode).close()
        return _Remote(path.open(mode))


def size_of(path: Path) -> int | None:
    """Bytes; None where a server does not say.

    Raises:
        OSError: there is no such file, or it cannot be asked for.
    """
    with failing():
        return path.stat().st_size or (None if is_remote(path) else 0)


def version_of(path: Path) -> bytes | None:
    """What a server says of a file's contents (ETag, size, time); None: it is a file of this machine, which is read."""
    if not is_remote(path):
        return None
    with failing():
        return str(cast(Any, path).fs.ukey(cast(Any, path).path)).encode()


@contextmanager
def failing() -> Iterator[None]:
    """Every failure is an OSError: drivers have errors of their own."""
    try:
        yield
    except (OSError, BrokenPipeError):
        raise
    except Exception as error:
        raise OSError(f"{type(error).__name__}: {error}") from error


class _Remote(io.RawIOBase):
    """A file of fsspec's, whose failures are OSErrors."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file

    def readable(self) -> bool:
        return self._file.readable()

    def writable(self) -> bool:
        return self._file.writable()

    def seekable(self) -> bool:
        return self._file.seekable()

    def readinto(self, buffer: Any) -> int:
        with failing():
            data = self._file.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def write(self, data: Any) -> int:
        with failing():
            self._file.write(bytes(data))
        return len(data)

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        with failing():
            return self._file.seek(offset, whence)

    def tell(self) -> int:
        return self._file.tell()

    def close(self) -> None:
        """Upload what is left, of a file that is written."""
        if not self.closed:
            with failing():
                self._file.close()
            super().close()
