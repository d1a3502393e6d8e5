"""The command `deploy/local/servers`: installs, starts, stops and shows Kafka and Redis on this machine."""

import argparse
import os
import signal
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from types import FrameType

from deploy.local.brokers import KafkaServer
from deploy.local.installing import CACHE, install, renew_sums
from deploy.local.processes import Server, ServerError
from deploy.local.stores import RedisServer

DIRECTORY = Path(__file__).parents[2] / ".cache" / "servers"
ENDINGS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
NOT_RUNNING = 3  # as the Linux Standard Base has it for `status`


def main(arguments: list[str] | None = None) -> int:
    """Run one command; the exit code is 0, 1 for an error, 3 for `status` when a server does not run."""
    options = _parser().parse_args(arguments)
    try:
        code: int = options.run(options)
    except ServerError as error:
        print(f"servers: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    return code


def _install(options: argparse.Namespace) -> int:
    done = install(options.cache, dry_run=options.dry_run)
    verb = "would run" if options.dry_run else "done"
    for line in done or ["nothing to do: all is here"]:
        print(f"{verb}: {line}" if done else line)
    return 0


def _renew_sums(options: argparse.Namespace) -> int:
    renew_sums(options.cache.absolute())
    return 0


def _start(options: argparse.Namespace) -> int:
    for server in _servers(options):
        verb = "started" if server.start() else "already running"
        print(
            f"{server.name}: {verb}, {server.address}, process {server.pid}, log {server.log_file}",
            flush=True,
        )
    return 0


def _stop(options: argparse.Namespace) -> int:
    for server in reversed(_servers(options)):
        print(f"{server.name}: {'stopped' if server.stop() else 'was not running'}", flush=True)
    return 0


def _status(options: argparse.Namespace) -> int:
    servers = _servers(options)
    for server in servers:
        print(f"{server.name}: {_state(server)}")
    return 0 if all(server.pid is not None for server in servers) else NOT_RUNNING


def _state(server: Server) -> str:
    if server.pid is None:
        return "not running"
    return f"{'answers' if server.answers() else 'does not answer'} at {server.address}, process {server.pid}"


def _env(options: argparse.Namespace) -> int:
    for name, value in _environment(_servers(options)).items():
        print(f"export {name}={value}")
    return 0


def _with(options: argparse.Namespace) -> int:
    """Start, run a command, stop whatever happens; servers that ran before stay."""
    for number in ENDINGS:
        signal.signal(number, _leave)
    with ExitStack() as leaving:
        servers = _servers(options, dies_with_parent=True)
        for server in servers:
            if server.start():
                leaving.callback(server.stop)
        return _run_as_group(options.command, {**os.environ, **_environment(servers)})


def _run_as_group(command: list[str], environment: dict[str, str]) -> int:
    """Run the command; when we are told to end, so is it, with every process that it started."""
    # A signal that raised while the process is being made would leave it to itself: until it is known, only note it.
    noted: list[int] = []
    for number in ENDINGS:
        signal.signal(number, lambda number, _frame: noted.append(number))
    child = subprocess.Popen(command, env=environment, start_new_session=True)
    try:
        for number in ENDINGS:
            signal.signal(number, _leave)
        if noted:
            _leave(noted[0], None)
        return child.wait()
    except SystemExit:
        os.killpg(child.pid, signal.SIGTERM)
        child.wait()
        raise


def _leave(number: int, _frame: FrameType | None) -> None:
    sys.exit(128 + number)


def _servers(options: argparse.Namespace, *, dies_with_parent: bool = False) -> list[Server]:
    kafka = KafkaServer(
        options.dir / "kafka",
        options.kafka_port,
        dies_with_parent=dies_with_parent,
        cache=options.cache.absolute(),
    )
    redis = RedisServer(options.dir / "redis", options.redis_port, dies_with_parent=dies_with_parent)
    return [redis, kafka]


def _environment(servers: list[Server]) -> dict[str, str]:
    for server in servers:
        if server.pid is None:
            raise ServerError(f"{server.name} is not running: start it first")
    redis, kafka = servers
    return {
        "SIMHASH_DEDUP_BOOTSTRAP_SERVERS": kafka.address,
        "SIMHASH_DEDUP_REDIS_URL": f"redis://{redis.address}/0",
    }


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="servers", description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    places = _places()
    for name, function, text in (
        ("start", _start, "start both and wait until they answer"),
        ("stop", _stop, "stop both; their data stays in DIR"),
        ("status", _status, "say which run; exit code 3 unless both do"),
        ("env", _env, 'print the settings of simhash-dedup for them: eval "$(servers env)"'),
    ):
        commands.add_parser(name, parents=[places], help=text, description=text).set_defaults(run=function)
    _add_with(commands, places)
    _add_installing(commands, places)
    return parser


def _places() -> argparse.ArgumentParser:
    places = argparse.ArgumentParser(add_help=False)
    places.add_argument("--dir", type=Path, default=DIRECTORY, help="data, logs and records (default: %(default)s)")
    places.add_argument("--cache", type=Path, default=CACHE, help="Kafka's jars (default: %(default)s)")
    places.add_argument("--kafka-port", type=int, default=0, help="0: that of the last start, or a free one")
    places.add_argument("--redis-port", type=int, default=0, help="0: that of the last start, or a free one")
    return places


def _add_with(commands: "argparse._SubParsersAction[argparse.ArgumentParser]", places: argparse.ArgumentParser) -> None:
    text = "run a command with both servers and their settings in its environment, then stop them"
    parser = commands.add_parser("with", parents=[places], help=text, description=text)
    parser.add_argument("command", nargs=argparse.REMAINDER, help="the command and its arguments")
    parser.set_defaults(run=_with)


def _add_installing(
    commands: "argparse._SubParsersAction[argparse.ArgumentParser]", places: argparse.ArgumentParser
) -> None:
    text = "install what the servers and the tests of deploy/ need: apt-get as root, Maven for Kafka's jars"
    parser = commands.add_parser("install", parents=[places], help=text, description=text)
    parser.add_argument("--dry-run", action="store_true", help="only say what would be run")
    parser.set_defaults(run=_install)
    text = "write jars.sha256 anew after a change of pom.xml"
    commands.add_parser("renew-sums", parents=[places], help=text, description=text).set_defaults(run=_renew_sums)
