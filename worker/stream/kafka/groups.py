"""Consumer groups, for what an operator does while there must be no worker."""

from __future__ import annotations

import kafka.errors as errors

from worker.errors import BrokerError
from worker.settings import Settings
from worker.stream.kafka.connect import admin_client, translated


def refuse_live_group(settings: Settings) -> None:
    """Make sure that the workers' group has no members.

    Raises:
        BrokerError: it has some.
        BrokerUnreachable: a broker does not answer.
    """
    members = _members(settings)
    if members:
        raise BrokerError(
            f"group {settings.group_id} has {members} members: stop all workers first (one that was killed counts "
            f"until its session ends, {settings.session_timeout:.0f} s)"
        )


def _members(settings: Settings) -> int:
    with admin_client(settings) as admin, translated(settings):
        try:
            (group,) = admin.describe_groups([settings.group_id]).values()
        except errors.GroupIdNotFoundError:
            return 0
    return len(group["members"])
