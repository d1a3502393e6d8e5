"""What all clients share: options from the settings, the client's errors turned into ours, where a consumer stands."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import kafka.errors as errors
from kafka import KafkaAdminClient, KafkaConsumer, OffsetAndMetadata, TopicPartition
from kafka.net.connection import KafkaConnection
from kafka.net.manager import KafkaConnectionManager
from kafka.net.selector import NetworkSelector

from worker.errors import BatchAborted, BrokerError, BrokerUnreachable, Fenced, NobodyAnswers, SessionLost
from worker.settings import Settings

_Receive = Callable[[], tuple[bytes, Exception | None]]

BOOTSTRAP_SECONDS = 10.0
GREETING_SECONDS = 3.0
"""So long at least a broker may take to answer, however many are named: a slow one is not a silent one."""
BOOTSTRAP_PAUSE_SECONDS = 0.1
UNREACHABLE = (
    errors.KafkaConnectionError,
    errors.KafkaTimeoutError,
    errors.NodeNotReadyError,
    errors.RequestTimedOutError,
)
_FENCES = ("ProducerFencedError", "InvalidProducerEpochError")
_BEYOND_LIMITS = {
    "InvalidSessionTimeout": "session_timeout must lie between the brokers' group.min.session.timeout.ms and "
    "group.max.session.timeout.ms",
    "InvalidTransactionTimeout": "transaction_timeout must not be more than the brokers' transaction.max.timeout.ms",
}
_WHY = {
    "Timestamp": "this machine's clock is wrong, or the topic takes too little: message.timestamp.before.max.ms, "
    "message.timestamp.after.max.ms",
    "InconsistentGroupProtocol": "another program is in this group: give it another one (group_id)",
    "GroupMaxSizeReached": "it has as many members as the brokers allow: group.max.size",
}
"""What the client's errors leave unsaid, by a part of their names."""
_WRONG_LOGIN = (
    errors.SaslAuthenticationFailedError,
    errors.UnsupportedSaslMechanismError,
    errors.IllegalSaslStateError,
)
_REFUSED = (errors.AuthorizationError, errors.KafkaConfigurationError, errors.UnsupportedVersionError)


def client_options(settings: Settings) -> dict[str, Any]:
    """Options that every client of this program shares. It begins at a broker that answers, whichever of them do not.

    The client itself gives all its time to one broker, taken at random: where that one stands still, it says that it
    cannot begin, though others answer.

    Raises:
        NobodyAnswers: none does.
        BrokerError: the login is refused.
    """
    options = _options(settings)
    return options | {"bootstrap_servers": [_answering(settings, options)]}


def _options(settings: Settings) -> dict[str, Any]:
    options: dict[str, Any] = {
        "bootstrap_servers": [server.strip() for server in settings.bootstrap_servers.split(",")],
        "client_id": "simhash-dedup",
        "security_protocol": settings.kafka_security_protocol,
        "bootstrap_timeout_ms": int(BOOTSTRAP_SECONDS * 1000),
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
def admin_client(settings: Settings, kind: type[KafkaAdminClient] = KafkaAdminClient) -> Iterator[KafkaAdminClient]:
    """An admin client, closed at the end.

    Raises:
        BrokerUnreachable: a broker does not answer.
        BrokerError: the login is refused.
    """
    with translated(settings):
        client = kind(**client_options(settings))
        try:
            yield client
        finally:
            client.close()


def positions(consumer: KafkaConsumer) -> dict[TopicPartition, OffsetAndMetadata]:
    """What is to be polled next of each partition of a consumer that has that: the offset, and the leader epoch of the
    record before it (-1: not known).

    The client's public way asks for one partition and looks through all: twice the partitions, four times the work.
    """
    found: dict[TopicPartition, OffsetAndMetadata] = consumer._subscription.all_consumed_offsets()
    return found


def go_to(consumer: KafkaConsumer, tp: TopicPartition, offset: int, epoch: int) -> None:
    """Poll an assigned partition from `offset` on, behind a record of this leader epoch (-1: not known).

    The client's public way forgets the epoch. With it, it asks the brokers before it fetches whether they still have
    what was before the offset (KIP-320).
    """
    consumer._subscription.seek(tp, OffsetAndMetadata(offset, "", epoch))


def _answering(settings: Settings, options: dict[str, Any]) -> str:
    """A broker that answers, by a connection of our own, which says too when a login is refused: the client says of
    that, after all its tries, that nobody answered."""
    servers: list[str] = options["bootstrap_servers"]
    seconds = max(GREETING_SECONDS, BOOTSTRAP_SECONDS / len(servers))
    end = time.monotonic() + BOOTSTRAP_SECONDS
    while True:
        for server in random.sample(servers, len(servers)):
            try:
                _reach(options | {"bootstrap_servers": [server]}, seconds)
            except _WRONG_LOGIN as error:
                raise BrokerError(
                    f"Kafka at {settings.bootstrap_servers} refuses the login of {settings.kafka_username} "
                    f"(kafka_username, kafka_password, kafka_sasl_mechanism): {error}"
                ) from error
            except (errors.KafkaError, OSError) as error:
                last = error
            else:
                return server
        if time.monotonic() > end:
            raise NobodyAnswers(f"no Kafka broker answers at {settings.bootstrap_servers}: {last}") from last
        time.sleep(BOOTSTRAP_PAUSE_SECONDS)


def _reach(options: dict[str, Any], seconds: float) -> None:
    net = NetworkSelector(**options)
    manager = KafkaConnectionManager(net, **options)
    try:
        net.run(_greet, net, manager, time.monotonic() + seconds)
    finally:
        manager.close()
        net.close()


async def _greet(net: NetworkSelector, manager: KafkaConnectionManager, timeout_at: float) -> None:
    """By the steps of the client's own connection, one by one: the broker hangs up behind its refusal of a login, and
    of the two the whole connection tells the other. Its transport drops what was received together with the end.
    """
    broker = manager.cluster.bootstrap_brokers()[0]
    connection = KafkaConnection(net, node_id=broker.node_id, **manager.config)
    try:
        transport = await manager._build_transport(broker, timeout_at=timeout_at)
        transport._sock_recv = _received_first(transport._sock_recv)
        connection.connection_made(transport)
        await connection._get_api_versions(timeout_at)
        if connection.sasl_enabled:
            await connection._sasl_authenticate(timeout_at)
    finally:
        connection.close()


def _received_first(receive: _Receive) -> _Receive:
    """What was received, and the end at the next call: it does not go away."""

    def received() -> tuple[bytes, Exception | None]:
        data, error = receive()
        return data, None if data else error

    return received


@contextmanager
def translated(settings: Settings) -> Iterator[None]:
    """Turn the client's errors into BrokerErrors; what is not clearly otherwise is the session's end."""
    try:
        yield
    except UNREACHABLE as error:
        raise BrokerUnreachable(f"Kafka at {settings.bootstrap_servers} does not answer: {error}") from error
    except _REFUSED as error:
        raise BrokerError(f"Kafka at {settings.bootstrap_servers} refuses: {error}") from error
    except errors.CommitFailedError as error:
        raise BatchAborted(f"the group moved on while a batch was under way: {error}") from error
    except errors.KafkaError as error:
        # Once a producer has failed, every further call says so in a general error that only quotes the first one.
        said = f"{type(error).__name__}: {error}"
        for name, why in _BEYOND_LIMITS.items():
            if name in said:
                raise BrokerError(f"Kafka at {settings.bootstrap_servers} refuses: {name} ({why})") from error
        fenced = any(name in said for name in _FENCES)
        reasons = "".join(f" ({why})" for name, why in _WHY.items() if name in said)
        raise (Fenced if fenced else SessionLost)(said + reasons) from error
