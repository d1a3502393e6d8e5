"""`simhash-dedup dlq`: what could not be judged: list it, look at it, send it back to the input."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

import click
import msgspec
from pytimeparse2 import parse as parse_duration

from worker.cli.operating.telling import saying_what_is_next, teller
from worker.cli.options import LOGGING, settings_of, settings_options
from worker.cli.terminal import plain
from worker.errors import InputError
from worker.files.summary import MOST_KINDS, OTHER, kind_of
from worker.records.dead_letter import Letter, Place
from worker.records.passing import runs
from worker.settings import Settings
from worker.stream.kafka.letters import all_letters, letter_at, sending, sent_back

F = TypeVar("F", bound=Callable[..., Any])

KAFKA = [name for name in Settings.model_fields if name.startswith("kafka_")]
READING = ("dead_letter_topic", "bootstrap_servers", *KAFKA, *LOGGING)
REPLAYING = ("dead_letter_topic", "input_topic", "group_id", "transactional_id", "bootstrap_servers", *KAFKA, *LOGGING)
PLACES_SHOWN = 3
REASON_CHARACTERS = 200
SHOWN_BYTES = 4096
LETTERS_AT_ONCE = 100
BYTES_AT_ONCE = 8 << 20
"""Of one transaction, and so of what is held in memory; a letter that is larger goes alone."""
GONE_ROUND = "was sent back before and failed again, as it would once more: mend the cause, then give --again"


class _PlaceType(click.ParamType[Place]):
    name = "PLACE"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Place:
        try:
            return value if isinstance(value, Place) else Place.read(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


class _Moment(click.ParamType[int]):
    """A time, in milliseconds since the epoch: RFC 3339 (UTC where no offset is given), or how long ago."""

    name = "TIME"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        try:
            moment = datetime.fromisoformat(value)
        except ValueError:
            seconds = parse_duration(value, raise_exception=False)
            if seconds is None:
                self.fail(f"{value!r} is no time: write 2026-11-24T18:00:00Z, or 2h for two hours ago", param, ctx)
            return max(0, int(time.time() * 1000) - int(seconds * 1000))
        return max(0, int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000))


@dataclass(frozen=True)
class Wanted:
    """Which letters are meant: all that agree with what is given.

    Attributes:
        error: the stage, the name of the error, or a part of its message.
        partitions: of the records, in their own topic.
        since, until: when the letter was written, in milliseconds since the epoch, the end not among them.
    """

    places: tuple[Place, ...] = ()
    error: str | None = None
    partitions: tuple[int, ...] = ()
    since: int | None = None
    until: int | None = None

    def has(self, letter: Letter) -> bool:
        """Whether this one is meant."""
        written = letter.written_ms or 0
        return (
            (not self.places or letter.place in self.places)
            and (self.error is None or self.error in (letter.stage, letter.error) or self.error in letter.message)
            and (not self.partitions or letter.partition in self.partitions)
            and (self.since is None or written >= self.since)
            and (self.until is None or written < self.until)
        )


@dataclass
class Group:
    """Letters of which the same is to be said."""

    said: str
    count: int = 0
    places: list[Place] = field(default_factory=list)


class LetterGroups:
    """Letters by what is said of them; what differs in numbers alone is one."""

    def __init__(self) -> None:
        self._groups: dict[str, Group] = {}

    def add(self, letter: Letter, said: str) -> None:
        """Count one."""
        kind = kind_of(said)
        if kind not in self._groups and len(self._groups) == MOST_KINDS:
            kind = said = OTHER
        group = self._groups.setdefault(kind, Group(said))
        group.count += 1
        if len(group.places) < PLACES_SHOWN:
            group.places.append(letter.place)

    def __len__(self) -> int:
        return sum(group.count for group in self._groups.values())

    def lines(self) -> Iterator[str]:
        """A line for each group, the most frequent first."""
        for group in sorted(self._groups.values(), key=lambda group: -group.count):
            places = " ".join(map(str, group.places)) + (" …" if group.count > len(group.places) else "")
            yield f"{group.count:9,}  {plain(group.said)[:REASON_CHARACTERS]}  ({places})"


def reason(letter: Letter) -> str:
    """Why its record could not be judged, in a line."""
    return f"{letter.stage}: {letter.error}: {letter.message}"


def which_letters(function: F) -> F:
    """The options that say which letters are meant."""
    for option in (
        click.option("--until", type=_Moment(), help="only letters that were written before this time"),
        click.option("--since", type=_Moment(), help="only letters that were written from this time on, or 2h: ago"),
        click.option(
            "--partition",
            "partitions",
            type=click.IntRange(0),
            multiple=True,
            help="only records of this partition of the input; may be given again",
        ),
        click.option("--error", help="only of this stage or error, or with this in their message"),
    ):
        function = option(function)
    return function


@click.command(name="list")
@which_letters
@click.option("--json", "as_json", is_flag=True, help="each letter as a line of JSON, without its bytes")
@settings_options(READING)
def list_(
    error: str | None,
    partitions: tuple[int, ...],
    since: int | None,
    until: int | None,
    as_json: bool,
    config: Path | None,
    **flags: Any,
) -> None:
    """Count dead letters by their reason, and say where the first ones of each stand.

    Letters whose records were sent back already are counted apart. The whole topic is read, up to its end as of now.

    \b
      simhash-dedup dlq list --since 24h
      simhash-dedup dlq list --error MarkupError --partition 3
      simhash-dedup dlq list --json | jq -r .message | sort | uniq -c
    """
    settings, wanted = settings_of(config, flags), Wanted((), error, partitions, since, until)
    done, groups, replayed = sent_back(settings), LetterGroups(), 0
    for letter in _read(settings, wanted):
        if as_json:
            click.echo(msgspec.json.encode(_told(letter, letter.place in done)))
        elif letter.place in done:
            replayed += 1
        else:
            groups.add(letter, reason(letter))
    if as_json:
        return
    for line in groups.lines():
        click.echo(line)
    click.echo(f"{len(groups):,} dead letters in {settings.dead_letter_topic}, and {replayed:,} that were sent back")


def _told(letter: Letter, replayed: bool) -> dict[str, object]:
    return {
        "place": str(letter.place),
        "written": _moment(letter.written_ms),
        "topic": letter.topic,
        "partition": letter.partition,
        "offset": letter.offset,
        "stage": letter.stage,
        "error": letter.error,
        "message": letter.message,
        "bytes": None if letter.value is None else len(letter.value),
        "lacks": letter.lacks,
        "replays": letter.replays,
        "replayed": replayed,
    }


def _moment(milliseconds: int | None) -> str | None:
    if milliseconds is None:
        return None
    try:
        return datetime.fromtimestamp(milliseconds / 1000, UTC).isoformat(timespec="milliseconds")
    except (ValueError, OverflowError, OSError):
        return None  # a producer may stamp what it likes


def _read(settings: Settings, wanted: Wanted) -> Iterator[Letter]:
    """The letters that are meant, with a word of progress now and then."""
    tell = teller()
    for number, letter in enumerate(all_letters(settings), 1):
        tell(f"reading {settings.dead_letter_topic}: {number:,} letters")
        if wanted.has(letter):
            yield letter


@click.command()
@click.argument("place", type=_PlaceType())
@click.option("--raw", is_flag=True, help="write the record's bytes, all and as they are, and nothing else")
@settings_options(READING)
def show(place: Place, raw: bool, config: Path | None, **flags: Any) -> None:
    """Show the dead letter at PLACE (partition/offset): its error, and its record as far as it is short.

    What could steer a terminal is escaped. --raw writes the bytes themselves, to look at them with other tools.

    \b
      simhash-dedup dlq show 0/12
      simhash-dedup dlq show 0/12 --raw > page.json
    """
    settings = settings_of(config, flags)
    letter = letter_at(settings, place)
    if letter is None:
        raise InputError(f"{settings.dead_letter_topic} has no dead letter at {place}: `dlq list` says where they are")
    if raw:
        _warn_of_what_lacks(letter)
        sys.stdout.buffer.write(letter.value or b"")
        return
    for line in _lines(letter):
        click.echo(line)


def _warn_of_what_lacks(letter: Letter) -> None:
    if "value" in letter.lacks:
        click.echo("the value was too large for the dead-letter topic, or null: this is what stands for it", err=True)


def _lines(letter: Letter) -> Iterator[str]:
    yield f"letter   {letter.place}, written {_moment(letter.written_ms)}"
    yield f"record   {plain(letter.topic)}[{letter.partition}] offset {letter.offset}"
    yield f"stage    {plain(letter.stage)}"
    yield f"error    {plain(letter.error)}"
    yield f"message  {plain(letter.message)}"
    if letter.replays:
        yield f"replays  {letter.replays}: {GONE_ROUND}"
    if letter.lacks:
        yield f"lacks    {', '.join(letter.lacks)}: too large for the dead-letter topic, or null"
    for name, content in letter.headers:
        yield f"header   {plain(name)}: {_escaped(content)}"
    yield f"key      {'null' if letter.key is None else _escaped(letter.key)}"
    if letter.value is None:
        yield "value    null"
        return
    yield f"value    {len(letter.value):,} bytes:"
    yield from map(_escaped, letter.value[:SHOWN_BYTES].split(b"\n"))
    if (more := len(letter.value) - SHOWN_BYTES) > 0:
        yield f"… and {more:,} bytes more: --raw writes all"


def _escaped(content: bytes) -> str:
    """Bytes as a line of text: a backslash of theirs is two, so that it cannot be taken for one of ours."""
    text = content.decode("utf-8", "surrogateescape").replace("\\", "\\\\")
    return plain("".join(f"\\x{ord(c) - 0xDC00:02x}" if "\udc80" <= c <= "\udcff" else c for c in text))


@click.command()
@click.argument("places", type=_PlaceType(), nargs=-1, metavar="[PLACE]...")
@which_letters
@click.option("--again", is_flag=True, help="also letters whose records were sent back before and failed again")
@click.option("--execute", is_flag=True, help="send them; without this, only say what would be sent")
@settings_options(REPLAYING)
def replay(
    places: tuple[Place, ...],
    error: str | None,
    partitions: tuple[int, ...],
    since: int | None,
    until: int | None,
    again: bool,
    execute: bool,
    config: Path | None,
    **flags: Any,
) -> None:
    """Send the records of dead letters back to the input topic: their bytes, key and headers, as they came.

    Without PLACEs (partition/offset in the dead-letter topic) and filters, all of them. Workers may go on. A record
    comes back to its partition, with the header simhash-dedup.replays beside its own; a mark in the dead-letter topic,
    written in the same transaction, says that it was sent, so that none is sent twice.

    Refused is what cannot be sent as it was (a part was too large for the dead-letter topic), what came from another
    topic, and what would go round: a record that was sent back and failed again (--again, once its cause is mended).
    Exit code 1 where something that was meant is refused or not there.

    \b
      simhash-dedup dlq replay --error HtmlTooDeep --since 2026-11-24T18:00Z
      simhash-dedup dlq replay 0/12 0/15 --execute
    """
    settings, wanted = settings_of(config, flags), Wanted(places, error, partitions, since, until)
    sender = sending(settings) if execute else nullcontext(lambda letters: None)
    sent, refused = LetterGroups(), LetterGroups()
    # What was sent is marked, so an interrupted replay is simply begun again.
    with saying_what_is_next("the same command sends the rest") if execute else nullcontext(), sender as send:
        done = sent_back(settings)  # behind the beginning of `sending`: what others sent is in it
        found = _sorted_out(_read(settings, wanted), settings, done, again, refused)
        for letters in runs(found, lambda letter: len(letter.value or b""), BYTES_AT_ONCE, LETTERS_AT_ONCE):
            send(letters)
            for letter in letters:
                sent.add(letter, reason(letter))
    for line in _replayed(sent, refused, execute):
        click.echo(line)
    wrong = len(refused) or (len(places) > len(sent))
    sys.exit(1 if wrong else 0)


def _sorted_out(
    letters: Iterable[Letter], settings: Settings, done: set[Place], again: bool, refused: LetterGroups
) -> Iterator[Letter]:
    """The letters whose records can be sent."""
    for letter in letters:
        if letter.place in done:
            continue
        if why := _why_not(letter, settings, again):
            refused.add(letter, why)
        else:
            yield letter


def _why_not(letter: Letter, settings: Settings, again: bool) -> str | None:
    if letter.topic != settings.input_topic:
        return f"came from topic {letter.topic}, and the input topic is {settings.input_topic}"
    if letter.lacks:
        where = f"{letter.topic}[{letter.partition}] offset {letter.offset}"
        return f"its {' and '.join(letter.lacks)} cannot be sent as it was: the record stood at {where}"
    return GONE_ROUND if letter.replays and not again else None


def _replayed(sent: LetterGroups, refused: LetterGroups, execute: bool) -> Iterator[str]:
    yield from sent.lines()
    yield f"{len(sent):,} {'sent back' if execute else 'would be sent back: give --execute'}"
    if len(refused):
        yield f"{len(refused):,} refused:"
        yield from refused.lines()
