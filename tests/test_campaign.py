"""A short fault campaign (about two minutes): whatever is killed, frozen or restarted, what was told is as promised."""

import pytest

from tests.campaign import FAULTS, Scenario, campaign

WORKERS = ("kill_a_worker", "end_a_worker", "stop_a_worker_past_its_session", "stop_a_worker_for_a_moment")
SCENARIOS = {
    "templates, and nothing happens": Scenario(seed=1, templates=12, share=0.6, workers=2, backlog=3000, seconds=0),
    "nothing but templates": Scenario(seed=2, templates=3, share=1.0, backlog=1000, rate=0, seconds=0),
    "workers stand still and wake up": Scenario(
        seed=3, faults=("stop_a_worker_past_its_session", "stop_two_workers_past_their_sessions"), rate=200, seconds=30
    ),
    "anything may happen": Scenario(seed=4, faults=tuple(FAULTS), seconds=40),
}


@pytest.mark.parametrize("scenario", SCENARIOS.values(), ids=SCENARIOS)
def test_what_was_told_is_as_promised_whatever_happened(tmp_path, scenario):
    with campaign(tmp_path, scenario) as stage:
        stage.run()
        stage.stream.check()
