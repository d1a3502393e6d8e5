"""In the place of Kafka's `kafka-acls.sh`, which is not among the broker's jars: understands what deploy/kafka/acls.sh
says to it, as that program's documentation has it, and hands it to the broker.
"""

import argparse

from kafka import KafkaAdminClient
from kafka.admin import (
    ACL,
    ACLOperation,
    ACLPermissionType,
    ACLResourcePatternType,
    ResourcePattern,
    ResourceType,
)


def main() -> None:
    """Add the rights of one call."""
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--bootstrap-server", required=True)
    parser.add_argument("--add", action="store_true", required=True)
    parser.add_argument("--force", action="store_true")
    parser.add_argument("--allow-principal", required=True)
    parser.add_argument("--operation", action="append", required=True)
    parser.add_argument("--resource-pattern-type", choices=["literal", "prefixed"], default="literal")
    for resource in ("topic", "group", "transactional-id"):
        parser.add_argument(f"--{resource}", action="append", default=[])
    given = parser.parse_args()
    pattern = ACLResourcePatternType[given.resource_pattern_type.upper()]
    named = {
        ResourceType.TOPIC: given.topic,
        ResourceType.GROUP: given.group,
        ResourceType.TRANSACTIONAL_ID: given.transactional_id,
    }
    acls = [
        ACL(
            given.allow_principal,
            "*",
            _operation(operation),
            ACLPermissionType.ALLOW,
            ResourcePattern(kind, name, pattern),
        )
        for kind, names in named.items()
        for name in names
        for operation in given.operation
    ]
    admin = KafkaAdminClient(bootstrap_servers=given.bootstrap_server)
    try:
        failed = admin.create_acls(acls)["failed"]
    finally:
        admin.close()
    assert not failed, failed


def _operation(name: str) -> ACLOperation:
    return ACLOperation["DESCRIBE_CONFIGS" if name == "DescribeConfigs" else name.upper()]


if __name__ == "__main__":
    main()
