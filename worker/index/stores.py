"""The index that the settings name, on a Redis: connected, opened, beside its base or archive."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import redis
from redis.backoff import ExponentialBackoff
from redis.retry import Retry

from simhash.archive.segments import contents as moments
from simhash.archive.segments.segmented import SegmentedArchive
from simhash.errors import BaseDiffers, IndexMisconfigured, IndexMismatch, TableFault
from simhash.index import IndexSpec
from simhash.index.redis.epochs import Durability
from simhash.index.redis.index import RedisIndex
from simhash.index.redis.layout import meta_key
from simhash.index.redis.opening import existing_index, open_index, recipe_in, spec_there
from simhash.index.redis.operators.filling import Store
from simhash.index.redis.operators.transfer import opened_for_import
from simhash.index.redis.server import advice
from simhash.index.rows import IndexRow
from simhash.signature.profiles import PROFILES, Profile
from simhash.signature.profiles import profile as find_profile
from worker.errors import SettingsError
from worker.index.ageing import ArchiveBase, begin
from worker.index.archive import TableBase
from worker.index.configured import configured_profile, configured_relation, configured_urls, new_spec, retention
from worker.index.redis_url import CLUSTER_SCHEME, SENTINEL_SCHEMES
from worker.index.sentinel import sentinel_client
from worker.index.slot import slot_client
from worker.settings import Settings, masked_url

log = logging.getLogger(__name__)

RETRIES = 2


def judging_profile(settings: Settings, client: redis.Redis | None = None) -> Profile:
    """The profile by which pages are judged in the configured index.

    A name without a version means the newest one, but for an index that an older one made: that goes on as it is.

    Raises:
        SettingsError: see `configured_profile`.
        IndexUnreachable: nobody answers.
    """
    wanted = configured_profile(settings)
    if settings.profile != wanted.name:  # a version, or a file
        return wanted
    made_with = recipe_in(client or connect(settings), settings.index_name) or {}
    label = f"{made_with.get('name')}/{made_with.get('version')}"
    if made_with.get("name") != wanted.name or label == wanted.label or label not in PROFILES:
        return wanted
    log.info("index %s goes on with profile %s; a new one would have %s", settings.index_name, label, wanted.label)
    return find_profile(label)


def connect(settings: Settings) -> redis.Redis:
    """A client of the configured Redis: of a cluster, the primary that holds the index. It connects at its first
    command.

    Raises:
        SettingsError: the URL is none.
    """
    url = settings.redis_url.get_secret_value()
    options: dict[str, Any] = {
        "socket_timeout": settings.redis_timeout,
        "socket_connect_timeout": settings.redis_timeout,
        "retry": Retry(ExponentialBackoff(cap=0.5, base=0.05), RETRIES),
    }
    if not url.startswith("unix://"):
        options["socket_keepalive"] = True
    try:
        if url.startswith(SENTINEL_SCHEMES):
            return sentinel_client(url, options)
        if CLUSTER_SCHEME in url.partition("://")[0]:
            return slot_client(url, meta_key(settings.index_name), options)
        return redis.Redis.from_url(url, **options)
    except ValueError as error:
        # Not the error's text: it may quote a part of the password.
        raise SettingsError(f"redis_url: {masked_url(url)} is no URL that Redis' client understands") from error


Patience = Callable[[BaseDiffers], bool]
"""Asked when the index is judged beside another base than ours: whether to look again (it takes its time to say so)."""


def connected_index(
    settings: Settings,
    profile: Profile,
    client: redis.Redis | None = None,
    *,
    patience: Patience = lambda _: False,
) -> RedisIndex:
    """Open, or create, the configured index.

    Raises:
        SettingsError, IndexFault: see `simhash.index.redis.opening.open_index`.
    """
    if settings.archive is not None and settings.max_age is None and settings.max_documents is None:
        raise SettingsError("archive: set max_age or max_documents too: pages that pass them go there")
    index = _opened(settings, profile, client)
    if settings.archive is not None:
        _judge_beside_archive(archive_of(settings), index)
    elif settings.base is not None:
        _judge_beside(settings.base, index, patience)
    elif generation := index.base():
        name = "archive" if index.archived() is not None else "base"
        raise IndexMismatch(f"index {settings.index_name} is judged beside {name} {generation}: name it by `{name}`")
    return index


def _opened(settings: Settings, profile: Profile, client: redis.Redis | None) -> RedisIndex:
    wanted = (settings.index_name, profile.recipe(), configured_relation(settings, profile), settings.documents)
    kept, adopt, durable = retention(settings), settings.design == "auto", durability(settings)
    server = client or connect(settings)
    urls = configured_urls(settings)
    index = open_index(server, *wanted, kept, adopt_design=adopt, durability=durable, urls=urls)
    for line in [] if client else advice(server):  # one that is given is the embedded one, which needs none
        log.warning("Redis: %s", line)
    return index


def archive_of(settings: Settings) -> Path:
    """Where the archive of this index lies: a directory of its own in the one that is set, which several can share.

    Raises:
        SettingsError: none is set.
    """
    if settings.archive is None:
        raise SettingsError("archive: name the directory into which the index's pages go")
    return settings.archive / settings.index_name


def opened_archive(directory: Path, index: RedisIndex) -> ArchiveBase:
    """The archive at the moment that the index names; an index that has none begins one.

    Raises:
        IndexMisconfigured: it does not lie there, or cannot be read.
        IndexMismatch: it is another index's, or of another make.
    """
    try:
        generation = index.base() or begin(directory).generation
        contents = moments.read(directory, generation)
        return ArchiveBase(SegmentedArchive(directory, contents), index.spec.profile, index.spec.relation)
    except TableFault as error:
        raise IndexMisconfigured(f"archive: {error}") from error
    except OSError as error:
        raise IndexMisconfigured(f"archive: {error.filename or directory}: {error.strerror}") from error


def _judge_beside_archive(directory: Path, index: RedisIndex) -> None:
    while True:
        with suppress(BaseDiffers):  # it was moved on meanwhile
            return index.judge_beside(opened_archive(directory, index))


def _judge_beside(place: Path, index: RedisIndex, patience: Patience) -> None:
    while True:
        try:
            return index.judge_beside(_base(place, index))
        except BaseDiffers as error:
            if not patience(error):
                raise


def _base(place: Path, index: RedisIndex) -> TableBase:
    try:
        return TableBase(place, index.spec.profile, index.spec.relation)
    except TableFault as error:
        raise IndexMisconfigured(f"base: {error}") from error
    except OSError as error:
        raise IndexMisconfigured(f"base: {error.filename or place}: {error.strerror}") from error


def found_index(settings: Settings, writes: bool = False) -> RedisIndex:
    """The index that the settings name, as it is, whatever it was made with.

    Args:
        writes: pages will be removed or stored.

    Raises:
        SettingsError, IndexFault: see `simhash.index.redis.opening.existing_index`.
    """
    return existing_index(connect(settings), settings.index_name, writes)


def opened_store(settings: Settings, head: IndexRow) -> Store:
    """The index that the settings name, to be filled with the rows behind `head`.

    Raises:
        SettingsError, IndexFault: see `simhash.index.redis.operators.transfer.opened_for_import`.
    """
    return opened_for_import(connect(settings), settings.index_name, head)


def spec_to_fill(settings: Settings, profile: Profile) -> IndexSpec:
    """What an index is made with: with design = auto as it was, where there is one; else as a new one.

    Raises:
        SettingsError, IndexFault: see `configured_design`, `simhash.index.redis.opening.spec_there`.
    """
    found = spec_there(connect(settings), settings.index_name) if settings.design == "auto" else None
    return found if found and found.profile == profile.recipe() else new_spec(settings, profile)


def durability(settings: Settings) -> Durability:
    """What the settings say about replicas."""
    return Durability(settings.wait_replicas, int(settings.wait_timeout * 1000))
