"""How to reach the brokers: client options from the settings, and the client's errors turned into ours."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import kafka.errors as errors
from kafka import KafkaAdminClient

from worker.errors import BatchAborted, BrokerError, BrokerUnreachable, Fenced, SessionLost
from worker.settings import Settings

BOOTSTRAP_TIMEOUT_MS = 10_000
UNREACHABLE = (errors.KafkaConnectionError, errors.KafkaTimeoutError, errors.NodeNotReadyError)
_FENCES = ("ProducerFencedError", "InvalidProducerEpochError")
_REFUSED = (errors.AuthorizationError, errors.KafkaConfigurationError, errors.UnsupportedVersionError)


def client_options(settings: Settings) -> dict[str, Any]:
    """Options that every client of this program shares."""
    options: dict[str, Any] = {
        "bootstrap_servers": [server.strip() for server in settings.bootstrap_servers.split(",")],
        "client_id": "simhash-dedup",
        "security_protocol": settings.kafka_security_protocol,
        "bootstrap_timeout_ms": BOOTSTRAP_TIMEOUT_MS,
        "reconnect_backoff_max_ms": 2_000,
    }
    if settings.kafka_security_protocol.startswith("SASL") and settings.kafka_password:
        options |= {
            "sasl_mechanism": settings.kafka_sasl_mechanism,
            "sasl_plain_username": settings.kafka_username,
            "sasl_plain_password": settings.kafka_password.get_secret_value(),
        }
    files = {
        "ssl_cafile": settings.kafka_ca_file,
        "ssl_certfile": settings.kafka_cert_file,
        "ssl_keyfile": settings.kafka_key_file,
    }
    return options | {name: str(path) for name, path in files.items() if path}


@contextmanager
def admin_client(settings: Settings) -> Iterator[KafkaAdminClient]:
    """An admin client, closed at the end.

    Raises:
        BrokerUnreachable: nobody answers.
    """
    with translated(settings):
        client = KafkaAdminClient(**client_options(settings))
        try:
            yield client
        finally:
            client.close()


@contextmanager
def translated(settings: Settings) -> Iterator[None]:
    """Turn the client's errors into BrokerErrors; what is not clearly otherwise is the session's end."""
    try:
        yield
    except UNREACHABLE as error:
        raise BrokerUnreachable(f"no Kafka broker answers at {settings.bootstrap_servers}: {error}") from error
    except _REFUSED as error:
        raise BrokerError(f"Kafka at {settings.bootstrap_servers} refuses: {error}") from error
    except errors.CommitFailedError as error:
        raise BatchAborted(f"the group moved on while a batch was under way: {error}") from error
    except errors.KafkaError as error:
        # Once a producer has failed, every further call says so in a general error that only quotes the first one.
        fenced = any(name in f"{type(error).__name__} {error}" for name in _FENCES)
        raise (Fenced if fenced else SessionLost)(f"{type(error).__name__}: {error}") from error
