"""Every setting of the program, in one frozen value, and the only place that reads the environment.

A setting comes from (rising precedence) its default here, the TOML file named by `--config` or
`SIMHASH_DEDUP_CONFIG`, the environment (`SIMHASH_DEDUP_` and the name in capitals), a flag (`--name-with-dashes`).
All are validated together at start; an error names the setting and where it came from.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from difflib import get_close_matches
from fractions import Fraction
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    BeforeValidator,
    ByteSize,
    DirectoryPath,
    Field,
    FilePath,
    SecretStr,
    ValidationError,
    model_validator,
)
from pydantic_settings import (
    BaseSettings,
    InitSettingsSource,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    TomlConfigSettingsSource,
)
from pytimeparse2 import parse as parse_duration

from simhash.index.redis.layout import MOST_DOCUMENTS, NAME
from worker.errors import SettingsError
from worker.index.redis_url import check_url
from worker.records.page import MAX_URL_BYTES

PREFIX = "SIMHASH_DEDUP_"
CONFIG_VARIABLE = PREFIX + "CONFIG"
# What Kubernetes puts into every container's environment for a Service that is called simhash-dedup.
_SERVICE_VARIABLE = re.compile(rf"{PREFIX}(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT(_\d+_(TCP|UDP|SCTP)(_\w+)?)?)")
_PASSWORD_FIELD = re.compile(r"(password=)[^&]*", re.IGNORECASE)
_BROKER = re.compile(r"[^\s:/\[\]]+(:\d{1,5})?|\[[0-9a-fA-F:.]+\](:\d{1,5})?")


def _seconds(value: object) -> object:
    """ "90d", "1h30m", "15s" or a number of seconds."""
    if not isinstance(value, str):
        return value
    seconds = parse_duration(value, raise_exception=False)
    if seconds is None:
        raise ValueError(f"{value!r} is no duration: write 30s, 15m, 12h or 90d")
    return seconds


def _count(value: object) -> object:
    """10M, 1.5k, or a number."""
    return count_of(value) if isinstance(value, str) else value


def _brokers(value: str) -> str:
    for server in value.split(","):
        if not _BROKER.fullmatch(server.strip()):
            raise ValueError(f"{server.strip()!r} is no host:port")
    return value


def _redis_url(value: SecretStr) -> SecretStr:
    check_url(value.get_secret_value())
    return value


def _address(value: str) -> str:
    """ "off" can stand in the environment, where an empty value counts as none."""
    return "" if value == "off" else value


Seconds = Annotated[float, BeforeValidator(_seconds), Field(allow_inf_nan=False)]
Count = Annotated[int, BeforeValidator(_count)]
Topic = Annotated[str, Field(pattern=r"^[a-zA-Z0-9._-]{1,249}$")]
Name = Annotated[str, Field(pattern=f"^{NAME}$")]


class Settings(BaseSettings):
    """All settings; field descriptions are the help texts and docs/settings.md's table."""

    model_config = SettingsConfigDict(
        env_prefix=PREFIX, frozen=True, extra="forbid", env_ignore_empty=True, hide_input_in_errors=True
    )

    # Kafka
    bootstrap_servers: Annotated[str, AfterValidator(_brokers)] = Field(
        "127.0.0.1:9092", min_length=1, description="Kafka brokers, comma-separated host:port"
    )
    input_topic: Topic = Field("pages", description="topic of crawled pages")
    verdict_topic: Topic = Field(
        "verdicts", description="topic of this index's verdicts, one a page, under the page's key"
    )
    dead_letter_topic: Topic = Field("pages.dlq", description="topic of what could not be read, with why and where")
    unique_topic: Topic | None = Field(None, description="topic of the unique pages, unchanged; none: not written")
    takedown_topic: Topic | None = Field(
        None, description="topic of pages that were deleted from the index, for rebuilds; none: not written"
    )
    hosts_topic: Topic | None = Field(
        None, description="compacted topic of what verdicts say of each host (`hosts`); none: not written"
    )
    group_id: Name = Field("simhash-dedup", description="consumer group; one group an index")
    page_format: Literal["json", "html"] = Field(
        "json", description="json: a record's value is a JSON page; html: the key is the URL, the value the raw page"
    )
    start: Literal["earliest", "latest"] = Field(
        "earliest",
        description="where a new group begins; partitions that are added later are read from their beginning",
    )
    transactional_id: Name | None = Field(
        None,
        description="Kafka transactional id, of several processes its begin; none: made of group, host name, free slot",
    )
    session_timeout: Seconds = Field(
        10.0, ge=1, le=300, description="a worker silent for this long loses its partitions to the others"
    )
    transaction_timeout: Seconds = Field(
        15.0, ge=1, le=900, description="a transaction left open by a dead worker is aborted after this long"
    )
    kafka_security_protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"] = Field(
        "PLAINTEXT", description="how to talk to the brokers"
    )
    kafka_sasl_mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"] | None = Field(
        None, description="SASL mechanism, when the protocol is SASL_*"
    )
    kafka_username: str | None = Field(None, description="SASL user name")
    kafka_password: SecretStr | None = Field(None, description="SASL password (better in the environment than a flag)")
    kafka_ca_file: FilePath | None = Field(
        None, description="PEM file of the authority that signed the brokers' certificates"
    )
    kafka_cert_file: FilePath | None = Field(None, description="PEM file of this client's certificate")
    kafka_key_file: FilePath | None = Field(None, description="PEM file of this client's key")

    # Index
    redis_url: Annotated[SecretStr, AfterValidator(_redis_url)] = Field(
        SecretStr("redis://127.0.0.1:6379/0"),
        description="Redis: redis://, rediss:// or unix:// URL, or redis+sentinel://host:port,host:port/service/db, or "
        "redis+cluster://host:port,host:port",
    )
    redis_timeout: Seconds = Field(5.0, gt=0, le=60, description="how long one call to Redis may take")
    wait_replicas: int = Field(
        0, ge=0, le=10, description="how many Redis replicas must have a batch before it is committed"
    )
    wait_timeout: Seconds = Field(
        1.0, gt=0, le=30, description="how long to wait for them; then the batch is read again"
    )
    index_name: Name = Field("dedup", description="name of the index: what all its keys in Redis start with")
    profile: str = Field(
        "default",
        min_length=1,
        description="recipe of the fingerprints: a name (and /version), or a TOML file of one's own",
    )
    design: str = Field(
        "auto",
        description="permutation tables of a new index: 3, 6, 10, 15, 3-probed, 6-probed, McC, AxB; auto: by size",
    )
    documents: Count = Field(
        10_000_000,
        ge=1,
        le=MOST_DOCUMENTS,
        description="how many unique pages a new index is laid out for (not a limit)",
    )
    url_dictionary: FilePath | None = Field(
        None, description="by which a new index compresses URLs (`plan --urls` makes one); none: the one that ships"
    )
    base: DirectoryPath | None = Field(
        None, description="compressed tables of earlier crawls: what matches a page there is a duplicate; none: no base"
    )
    archive: DirectoryPath | None = Field(
        None, description="pages that pass max_age or max_documents go to disk here; none: they are forgotten"
    )
    archive_pages: Count = Field(
        100_000, ge=1, description="so many go together: the index holds up to so many more than max_documents"
    )
    previous: bool = Field(
        False, description="say how much a page changed since the last one of its URL; about 50 bytes of Redis a URL"
    )
    max_age: Seconds | None = Field(None, gt=0, description="forget a unique page this long after it was stored")
    max_documents: Count | None = Field(None, ge=1, description="keep at most so many unique pages, the newest")

    # Limits of one page
    max_page_bytes: ByteSize = Field(ByteSize(10 << 20), ge=1, description="largest page, after base64")
    max_url_bytes: ByteSize = Field(ByteSize(8 << 10), ge=1, le=MAX_URL_BYTES, description="longest URL, in UTF-8")
    max_key_bytes: ByteSize = Field(ByteSize(16 << 10), ge=1, le=256 << 10, description="longest record key")
    max_header_bytes: ByteSize = Field(
        ByteSize(64 << 10), ge=1, le=256 << 10, description="all headers of a record, and 10 for each"
    )
    page_deadline: Seconds = Field(
        20.0, gt=0, le=600, description="last resort: a page that takes longer (tried again alone) is a dead letter"
    )

    page_memory: ByteSize = Field(
        ByteSize(160 << 20),
        ge=16 << 20,
        description="last resort: a page that takes more memory to read (tried again alone) is a dead letter",
    )

    # The loop
    batch_pages: Count = Field(200, ge=1, le=10_000, description="most pages in one transaction")
    batch_bytes: ByteSize = Field(ByteSize(8 << 20), ge=1, description="about the most bytes in one transaction")
    processes: Count = Field(1, ge=1, le=256, description="consumers (run), or fingerprinting processes at most (file)")
    stuck_after: Seconds = Field(
        300.0, ge=5, description="a worker whose loop makes no progress for this long ends itself"
    )
    metrics_address: Annotated[str, AfterValidator(_address)] = Field(
        "127.0.0.1:9108",
        pattern=r"^(|off|.+:\d{1,5})$",
        description="host:port of /metrics, /healthz, /readyz; off: none",
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field("info", description="least severe log line written")
    log_format: Literal["text", "json"] = Field("text", description="log lines for people or for machines")

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        names = [name for name in type(self).model_fields if name.endswith("_topic")]
        given = [topic for name in names if (topic := getattr(self, name)) is not None]
        if len(set(given)) < len(given):
            raise ValueError(f"{', '.join(names)} must all differ")
        if self.archive is not None and self.base is not None:
            raise ValueError("archive and base are both asked before the index: set one of them")
        if self.wait_replicas and self.wait_timeout >= self.redis_timeout:
            raise ValueError("wait_timeout must be shorter than redis_timeout")
        if self.transaction_timeout >= self.stuck_after:
            raise ValueError("transaction_timeout must be shorter than stuck_after")
        if self.kafka_security_protocol.startswith("SASL") and not (
            self.kafka_sasl_mechanism and self.kafka_username and self.kafka_password
        ):
            raise ValueError("SASL needs kafka_sasl_mechanism, kafka_username and kafka_password")
        return self

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Flags, environment, TOML file, the command's defaults (file and defaults come with the flags)."""
        flags = dict(init_settings.init_kwargs) if isinstance(init_settings, InitSettingsSource) else {}
        path, defaults = flags.pop("_toml", None), flags.pop("_defaults", {})
        sources: list[PydanticBaseSettingsSource] = [InitSettingsSource(settings_cls, flags), env_settings]
        if path:
            sources.append(TomlConfigSettingsSource(settings_cls, path))
        return (*sources, InitSettingsSource(settings_cls, defaults))

    def toml(self) -> str:
        """The settings as a configuration file that loads to the same, but for secrets, which are masked."""
        lines = []
        for name in type(self).model_fields:
            value = getattr(self, name)
            lines.append(f"{name} = {_quoted(value)}" if value is not None else f"# {name} is not set")
        return "\n".join(lines)


def load(
    flags: Mapping[str, Any], config: Path | None = None, defaults: Mapping[str, Any] = MappingProxyType({})
) -> Settings:
    """The settings of this run.

    Args:
        flags: settings given on the command line; those not given are absent.
        config: TOML file; None: the one named in the environment, if any.
        defaults: what differs from the settings' own defaults.

    Raises:
        SettingsError: one line for each setting that is wrong.
    """
    _refuse_unknown_variables()
    path = config or (Path(os.environ[CONFIG_VARIABLE]) if os.environ.get(CONFIG_VARIABLE) else None)
    if path and not path.is_file():
        raise SettingsError(f"there is no configuration file {path}")
    try:
        return Settings(**dict(flags) | {"_toml": path, "_defaults": defaults})
    except ValidationError as error:
        raise SettingsError("\n".join(_explain(e, flags, path) for e in error.errors())) from None
    except (OSError, ValueError) as error:  # unreadable, or no TOML
        raise SettingsError(f"{path}: {error}") from None


def _refuse_unknown_variables() -> None:
    known = {PREFIX + name.upper() for name in Settings.model_fields} | {CONFIG_VARIABLE}
    unknown = sorted(name for name in os.environ if name.startswith(PREFIX) and name not in known)
    unknown = [name for name in unknown if not _SERVICE_VARIABLE.fullmatch(name)]
    if unknown:
        named = ", ".join(name + _meant(name) for name in unknown)
        raise SettingsError(f"unknown environment variable {named}: no setting has that name")


def _meant(name: str) -> str:
    """The setting whose name is nearly this one, as one says it behind it."""
    prefix = PREFIX if name.startswith(PREFIX) else ""
    likely = get_close_matches(name.removeprefix(prefix).lower(), Settings.model_fields, n=1, cutoff=0.8)
    return f" (did you mean {prefix + likely[0].upper() if prefix else likely[0]}?)" if likely else ""


def _explain(error: Mapping[str, Any], flags: Mapping[str, Any], config: Path | None) -> str:
    message = error["msg"].removeprefix("Value error, ")
    if not error["loc"]:
        return f"settings: {message}"
    name = str(error["loc"][0])
    if error["type"] == "extra_forbidden":
        return f"{name}: no setting has this name (configuration file {config}){_meant(name)}"
    return f"{name} ({_source(name, flags, config)}): {message}"


def _source(name: str, flags: Mapping[str, Any], config: Path | None) -> str:
    if name in flags:
        return f"flag --{name.replace('_', '-')}"
    if os.environ.get(PREFIX + name.upper()):
        return f"environment {PREFIX}{name.upper()}"
    return f"configuration file {config}"


def written(value: object) -> str | None:
    """A setting's value as one would write it, secrets masked; None when it is not set."""
    match value:
        case None:
            return None
        case bool():
            return str(value).lower()
        case SecretStr():
            secret = value.get_secret_value()
            return masked_url(secret) if "://" in secret else "***"
        case ByteSize():
            return next(
                (f"{value >> shift}{unit}" for shift, unit in _UNITS if value % (1 << shift) == 0), str(int(value))
            )
        case float():
            return f"{int(value)}s" if value.is_integer() else repr(value)
        case _:
            return str(value)


_UNITS = ((30, "GiB"), (20, "MiB"), (10, "KiB"))


def _quoted(value: object) -> str:
    """A value in TOML: a number as it is, all else as a string."""
    text = written(value) or ""
    if isinstance(value, int | float) and text[-1].isdigit():
        return text
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def masked_url(url: str) -> str:
    """A URL without its password, wherever it has one; whatever the password is made of."""
    scheme, separator, rest = url.partition("://")
    user, at, place = rest.rpartition("@")
    name = user.partition(":")[0] if ":" in user else ""
    shown = f"{name}:***@" if at else ""
    return scheme + separator + shown + _PASSWORD_FIELD.sub(r"\1***", place)


_COUNT = re.compile(r"(\d[\d_]*(?:\.\d+)?)\s*([kmg]?)", re.IGNORECASE)
_MULTIPLES = {"": 1, "k": 1_000, "m": 1_000_000, "g": 1_000_000_000}


def count_of(text: str) -> int:
    """The whole number that people write so: 10M, 1.5k, 2_000; raises ValueError where it is none."""
    found = _COUNT.fullmatch(text.strip())
    number = Fraction(found[1].replace("_", "")) * _MULTIPLES[found[2].lower()] if found else Fraction(1, 2)
    if number.denominator != 1:
        raise ValueError(f"{text!r} is no count: write 2000, 10k, 1.5M or 2G")
    return int(number)
