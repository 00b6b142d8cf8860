"""Rollouts are written alike by orjson and by the standard library, which vLLM's own server may have only."""

import json

import pytest
import torch

from ngrpo.remote.messages import rollout_message, rollout_of
from ngrpo.serving import answers
from ngrpo.types.records import Record
from ngrpo.types.rollouts import Mixture, Rollout, StopReason

ROLLOUT = Rollout(
    key=2**63 - 1,
    prompt_ids=torch.tensor([5, 6]),
    response_ids=torch.tensor([151_935, 0, 7]),
    log_probs=torch.tensor([-0.1, -torch.inf, 0.0]),
    mixture=Mixture(torch.tensor([2]), Record(torch.tensor([[7, 8]], dtype=torch.int32), torch.tensor([[0.9, 0.1]]))),
    stop_reason=StopReason.LENGTH,
)


def written() -> tuple[bytes, str]:
    message = {"rollouts": [rollout_message(ROLLOUT) | {"text": 'ü "\\\n𝟘'}], "weights": {"version": "0", "step": 1}}
    answer = answers.rollout_answer(message)
    assert json.loads(answer.body) == message
    return bytes(answer.body), answer.headers["content-type"]


@pytest.mark.parametrize("has", [True, False])
def test_an_answer_is_read_as_what_was_made(has: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answers, "installed", lambda _: has)
    monkeypatch.setattr(answers, "_write", answers.json_writer())
    octets, media = written()
    assert media == "application/json"
    (one,) = json.loads(octets)["rollouts"]
    read = rollout_of(one, (5, 6))
    assert read.key == ROLLOUT.key
    assert read.response_ids.tolist() == ROLLOUT.response_ids.tolist()
    assert read.log_probs.tolist() == ROLLOUT.log_probs.tolist()
    assert read.mixture.record.weights.tolist() == ROLLOUT.mixture.record.weights.tolist()
