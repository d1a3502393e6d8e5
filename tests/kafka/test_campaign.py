"""A short fault campaign, some minutes: whatever is killed, frozen or restarted, what was told is as promised."""

import pytest

from tests.campaign import FAULTS, Scenario, campaign

LARGE = {"batch_pages": "200"}
"""Batches that take several calls of the index each."""
SMALL = {"batch_pages": "20"}
SCENARIOS = {
    "templates, and nothing happens": Scenario(
        seed=8, templates=6, share=0.4, workers=4, partitions=8, backlog=12000, settings=LARGE
    ),
    "nothing but templates": Scenario(seed=2, templates=3, share=1.0, backlog=1500),
    "workers stand still between two steps and wake up": Scenario(
        seed=81, share=0.1, backlog=2000, rate=150, seconds=12, stills=12, settings=SMALL
    ),
    "anything may happen": Scenario(seed=4, rate=100, seconds=30, faults=tuple(FAULTS)),
}


@pytest.mark.parametrize("scenario", SCENARIOS.values(), ids=SCENARIOS)
def test_what_was_told_is_as_promised_whatever_happened(tmp_path, scenario):
    with campaign(tmp_path, scenario) as stage:
        stage.run()
        stage.stream.check()
