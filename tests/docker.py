"""A stand-in for Docker: `docker compose up [--scale SERVICE=N]`, as far as that goes without an engine.

Those services of docker-compose.yml that are ours run in their order, each with its command and environment, as
processes of this Python. Where the others are is told by `PLACES`: {"kafka:9092": "127.0.0.1:…", …}. It says where each
service tells its health; SIGTERM ends all.
"""

import json
import os
import signal
import subprocess
import sys
from contextlib import ExitStack, suppress
from pathlib import Path

from ruamel.yaml import YAML

from deploy.local.ports import HOST, free_port

SERVICES = YAML(typ="safe").load(Path(__file__).parents[1] / "docker-compose.yml")["services"]
OURS = "simhash-dedup:local"
METRICS = "0.0.0.0:9108"


def in_order(names):
    """Services, each behind those that it depends on."""
    found = []
    for name in names:
        for each in (*in_order(SERVICES[name].get("depends_on", ())), name):
            if each not in found:
                found.append(each)
    return found


def started(service, places):
    """A service as a process."""
    given = {setting: str(value) for setting, value in service["environment"].items()}
    for there, here in places.items():
        given = {setting: value.replace(there, here) for setting, value in given.items()}
    program = [str(Path(sys.executable).parent / "simhash-dedup"), *service["command"]]
    return subprocess.Popen(program, env=os.environ | given, stdout=sys.__stderr__)


def up(scale):
    """Run all until SIGTERM; the exit code."""
    places = json.loads(os.environ["PLACES"])
    running = []
    with ExitStack() as stack, suppress(KeyboardInterrupt):
        for name in in_order(SERVICES):
            service = SERVICES[name]
            if service["image"] != OURS:
                continue
            if service["restart"] == "no":  # the others wait until it has done its work
                if started(service, places).wait():
                    return 1
                continue
            for _ in range(scale.get(name, 1)):
                port = free_port()
                running.append(stack.enter_context(started(service, {**places, METRICS: f"{HOST}:{port}"})))
                stack.callback(running[-1].terminate)
                sys.stdout.write(f"{name} http://{HOST}:{port}/healthz\n")
        while True:
            signal.pause()
    return max(process.returncode for process in running)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    assert sys.argv[1:3] == ["compose", "up"]
    pairs = [word.split("=") for word in sys.argv[3:] if word != "--scale"]
    sys.exit(up({name: int(count) for name, count in pairs}))
