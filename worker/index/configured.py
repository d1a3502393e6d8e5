"""What the settings say of an index, wherever it lies: profile, design, relation, retention; and one in memory."""

from __future__ import annotations

import time

from simhash.errors import DesignError, ProfileError
from simhash.index import IndexSpec, Relation, Retention
from simhash.index.memory import MemoryIndex
from simhash.index.redis.layout import bucket_bits
from simhash.index.urls import UrlDictionary, shipped
from simhash.reading.extract import require_extractor
from simhash.relation.tables import Design, automatic_design, design_for
from simhash.relation.tables import design as find_design
from simhash.signature.profile_file import named_profile
from simhash.signature.profiles import Profile
from worker.errors import SettingsError
from worker.settings import Settings


def configured_profile(settings: Settings) -> Profile:
    """The profile that the settings name, or whose file they name.

    Raises:
        SettingsError: there is none of that name, the file says nothing that can be, or its extractor is not installed.
    """
    try:
        profile = named_profile(settings.profile)
        require_extractor(profile.extractor)
        return profile
    except ProfileError as error:
        raise SettingsError(f"profile: {error}") from error


def configured_design(settings: Settings, profile: Profile) -> Design:
    """The permutation design for a new index.

    Raises:
        SettingsError: no such design, or one that does not reach the profile's k.
    """
    name = settings.design
    try:
        if name == "auto":
            return automatic_design(profile.k, profile.bits, settings.documents)
        design = find_design(name, profile.bits)
    except DesignError as error:
        raise SettingsError(f"design: {error}") from error
    if design.k < profile.k:
        fitting = design_for(profile.k, profile.bits).name
        raise SettingsError(
            f"design: {name} guarantees {design.k} bits, profile {profile.name} needs {profile.k}: {fitting} does, "
            "and auto chooses it"
        )
    return design


def configured_relation(settings: Settings, profile: Profile) -> Relation:
    """Which pages match in a new index.

    Raises:
        SettingsError: see `configured_design`.
    """
    design = configured_design(settings, profile)
    return Relation(design, profile.reach, profile.verifier_reach, profile.verifier_bits, profile.bands)


def configured_urls(settings: Settings) -> UrlDictionary:
    """By which a new index compresses URLs.

    Raises:
        SettingsError: the file holds no dictionary.
    """
    path = settings.url_dictionary
    if path is None:
        return shipped()
    try:
        return UrlDictionary(path.read_bytes())
    except (OSError, ValueError) as error:
        raise SettingsError(f"url_dictionary: {path}: {error}") from error


def retention(settings: Settings) -> Retention:
    """What the settings say about forgetting."""
    age = None if settings.max_age is None else int(settings.max_age * 1000)
    return Retention(age, settings.max_documents)


def new_spec(settings: Settings, profile: Profile) -> IndexSpec:
    """What a new index is made with.

    Raises:
        SettingsError: see `configured_design`, `configured_urls`.
    """
    relation = configured_relation(settings, profile)
    b, urls = bucket_bits(settings.documents, relation.design), configured_urls(settings)
    return IndexSpec(profile.recipe(), relation, b, settings.documents, urls)


def index_in_memory(settings: Settings, profile: Profile) -> MemoryIndex:
    """A new index of this process alone.

    Raises:
        SettingsError: see `configured_design`, `configured_urls`.
    """
    return MemoryIndex(new_spec(settings, profile), retention(settings), lambda: time.time_ns() // 1_000_000, profile)
