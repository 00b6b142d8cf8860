"""Serialization of experiences: what is read equals what was written, under keys that checkpoints keep."""

import io
from dataclasses import replace

import torch
from made_rollouts import experience, rollout, score

from ngrpo.types.scores import Verdict
from ngrpo.types.serialization import (
    deserialize_experience,
    deserialize_rollout,
    serialize_experience,
    serialize_rollout,
)
from ngrpo.types.support import Support

MADE = experience([rollout([1], [2, 3]), rollout([1], [4])], [score(Verdict.CORRECT, "7")] * 2, group_size=2)


def test_an_experience_is_read_as_it_was_written_without_running_code() -> None:
    written, file = replace(MADE, discarded_tokens=5, terms={"length": torch.tensor([1.0, 2.0])}), io.BytesIO()
    torch.save(serialize_experience(written), file)
    file.seek(0)
    read = deserialize_experience(torch.load(file, weights_only=True))
    assert read.terms["length"].equal(written.terms["length"])
    for ours, theirs in zip(read.rollouts, written.rollouts, strict=True):
        assert ours.response_ids.equal(theirs.response_ids)
        assert ours.mixture.positions.equal(theirs.mixture.positions)
    assert replace(read, terms={}, rollouts=[]) == replace(written, terms={}, rollouts=[])


def test_the_keys_are_those_of_earlier_checkpoints() -> None:
    assert serialize_experience(replace(MADE, discarded_tokens=5))["left_out_tokens"] == 5


def test_a_prefix_is_still_one_after_reading() -> None:
    written = serialize_rollout(replace(MADE.rollouts[0], prefix_length=1))
    assert deserialize_rollout(written).prefix_length == 1


def test_supports_are_read_as_they_were_written() -> None:
    support = Support.of(torch.tensor([[5, 2, -1], [-1, -1, -1]]))
    file = io.BytesIO()
    torch.save(serialize_rollout(replace(MADE.rollouts[0], support=support)), file)
    file.seek(0)
    read = deserialize_rollout(torch.load(file, weights_only=True)).support
    assert read is not None
    assert read.rows().equal(support.rows())
    assert deserialize_rollout(serialize_rollout(MADE.rollouts[0])).support is None


def test_a_file_of_version_0_1_has_no_prefixes_and_no_supports() -> None:
    written = serialize_rollout(MADE.rollouts[0])
    del written["prefix_length"], written["support"]
    read = deserialize_rollout(written)
    assert (read.prefix_length, read.support) == (0, None)
