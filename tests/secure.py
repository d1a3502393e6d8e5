"""Kafka and Redis as strangers must not enter them: TLS, passwords, and rights for each user.

The harness itself comes in by a second listener in the clear, as the administrator that hands out the rights.
"""

import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from kafka import KafkaAdminClient
from kafka.admin import UserScramCredentialUpsertion

from deploy.local.ports import HOST, free_port
from tests.servers import KafkaServer

MECHANISM = "SCRAM-SHA-256"


@dataclass(frozen=True)
class Certificates:
    """An authority of our own, and a server's key and certificate, as PEM files."""

    authority: Path
    certificate: Path
    key: Path
    both: Path


def certificates(directory: Path) -> Certificates:
    """Made by openssl, for 127.0.0.1, with the extensions that Python 3.13 wants."""
    directory.mkdir(parents=True, exist_ok=True)
    made = Certificates(*(directory / name for name in ("ca.pem", "server.pem", "server.key", "both.pem")))
    root, usage = directory / "ca.key", ("-addext", "keyUsage=critical,keyCertSign")
    new = ("req", "-newkey", "rsa:2048", "-nodes")
    _openssl(*new, "-x509", *usage, "-subj", "/CN=ca", "-keyout", root, "-out", made.authority)
    asked, extensions = directory / "server.csr", directory / "extensions"
    _openssl(*new, "-subj", f"/CN={HOST}", "-keyout", made.key, "-out", asked)
    extensions.write_text(f"subjectAltName=IP:{HOST}\nauthorityKeyIdentifier=keyid\n")
    signed = ("-CA", made.authority, "-CAkey", root, "-CAcreateserial", "-extfile", extensions)
    _openssl("x509", "-req", "-in", asked, *signed, "-out", made.certificate)
    made.both.write_text(made.key.read_text() + made.certificate.read_text() + made.authority.read_text())
    return made


def _openssl(*arguments: object) -> None:
    subprocess.run(["openssl", *map(str, arguments)], check=True, capture_output=True)


class SecureKafka(KafkaServer):
    """A broker with an authorizer and, at `secure_servers`, a listener with TLS and SCRAM."""

    def __init__(self, directory: Path, made: Certificates) -> None:
        super().__init__(directory, dies_with_parent=True)
        self._certificates = made
        self._secure_port = free_port()

    @property
    def secure_servers(self) -> str:
        """What `bootstrap_servers` is set to."""
        return f"{HOST}:{self._secure_port}"

    def place_settings(self) -> dict[str, str]:
        place = super().place_settings()
        listener = f",SECURE://{self.secure_servers}"
        protocols = "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SECURE:SASL_SSL"
        return place | {
            "listeners": place["listeners"] + listener,
            "advertised.listeners": place["advertised.listeners"] + listener,
            "listener.security.protocol.map": protocols,
            "sasl.enabled.mechanisms": MECHANISM,
            f"listener.name.secure.{MECHANISM.lower()}.sasl.jaas.config": (
                "org.apache.kafka.common.security.scram.ScramLoginModule required;"
            ),
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self._certificates.both),
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:ANONYMOUS",
        }

    def add_users(self, passwords: Mapping[str, str]) -> None:
        """Users who may log in and, so far, do nothing."""
        admin = KafkaAdminClient(bootstrap_servers=self.bootstrap_servers)
        try:
            admin.alter_user_scram_credentials(
                [UserScramCredentialUpsertion(user, MECHANISM, password) for user, password in passwords.items()]
            )
        finally:
            admin.close()
