"""Kafka as a local process: one node in KRaft mode, broker and controller at once.

Its settings are deploy/kafka/server.properties, as in the compose file; this adds addresses and directories.
The quorum is named by `controller.quorum.voters` because the container image formats its storage that way
(it has no way to say `--standalone`), and both are to run the same.
"""

import os
import shutil
import socket
import struct
import subprocess
from pathlib import Path

from deploy.local.installing import CACHE, require_jars
from deploy.local.ports import HOST, free_port
from deploy.local.processes import Server, ServerError

SETTINGS = Path(__file__).parents[1] / "kafka" / "server.properties"
LOGGING = Path(__file__).parent / "kafka" / "log4j2.properties"
HEAP = "-Xmx512m"
# Any 16 bytes in base64; fixed, because a node's data directory belongs to one cluster for good.
CLUSTER_ID = "c2ltaGFzaC1kZWR1cC0wMQ"

# Size of the answer, correlation id, number of brokers: all that is read of a Metadata answer.
_METADATA_HEAD = struct.Struct(">iii")


class KafkaServer(Server):
    """A Kafka broker at `bootstrap_servers`, data and log below `directory`."""

    name = "kafka"

    def __init__(self, directory: Path, port: int = 0, *, dies_with_parent: bool = False, cache: Path = CACHE) -> None:
        super().__init__(directory, port, dies_with_parent=dies_with_parent)
        self._cache = cache

    @property
    def bootstrap_servers(self) -> str:
        return self.address

    def prepare(self) -> None:
        require_jars(self._cache)
        self._properties.write_text(SETTINGS.read_text() + _lines(self.place_settings()))
        if not (self._data / "meta.properties").exists():
            self._format()

    def place_settings(self) -> dict[str, str]:
        """What the shared settings leave to the place where Kafka runs."""
        controller = free_port()
        return {
            "listeners": f"PLAINTEXT://{self.address},CONTROLLER://{HOST}:{controller}",
            "advertised.listeners": f"PLAINTEXT://{self.address}",
            "controller.quorum.voters": f"1@{HOST}:{controller}",
            "log.dirs": str(self._data),
        }

    def command(self) -> list[str]:
        return [*self._java(HEAP), "kafka.Kafka", str(self._properties)]

    def answers(self) -> bool:
        return registered_brokers(self.port) > 0

    @property
    def _properties(self) -> Path:
        return self.directory / "server.properties"

    @property
    def _data(self) -> Path:
        return self.directory / "kafka-data"

    def _java(self, *options: str) -> list[str]:
        return [java(), *options, f"-Dlog4j2.configurationFile={LOGGING}", "-cp", f"{self._cache}/*"]

    def _format(self) -> None:
        # A short life: compiling it thoroughly would take longer than running it.
        tool = [*self._java("-XX:TieredStopAtLevel=1"), "kafka.tools.StorageTool", "format"]
        arguments = ["--cluster-id", CLUSTER_ID, "--config", str(self._properties)]
        done = subprocess.run([*tool, *arguments], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise ServerError(f"kafka: its storage could not be formatted\n{done.stdout}{done.stderr}")


def java() -> str:
    """The Java runtime: JAVA_HOME's if that is set, else the one on the path."""
    home = os.environ.get("JAVA_HOME")
    found = shutil.which("java", path=f"{home}/bin" if home else None)
    if found is None:
        raise ServerError("java is missing: run `deploy/local/servers install`")
    return found


def registered_brokers(port: int) -> int:
    """How many brokers the cluster's metadata names, asked as a client asks; 0 while none answers.

    A port that accepts connections says little: the broker listens before the controller has let it in, and
    clients that come then are sent away. One Metadata request (version 1) is small enough to speak here.
    """
    client = b"servers"
    header = struct.pack(">hhih", 3, 1, 0, len(client)) + client
    no_topics = struct.pack(">i", 0)
    request = header + no_topics
    try:
        with socket.create_connection((HOST, port), timeout=5) as connection:
            connection.sendall(struct.pack(">i", len(request)) + request)
            answer = connection.makefile("rb").read(_METADATA_HEAD.size)
        _size, _correlation, brokers = _METADATA_HEAD.unpack(answer)
    except (OSError, struct.error):  # refused, or closed before the answer was whole
        return 0
    return int(brokers)


def _lines(settings: dict[str, str]) -> str:
    return "\n" + "".join(f"{key}={value}\n" for key, value in settings.items())
