"""Hydra's listing of the groups for ``--help``, without a copy of the repository for each; parts that are needed."""

import pytest
from hydra._internal import config_loader_impl
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra._internal.utils import create_config_search_path
from hydra.core.object_type import ObjectType

from ngrpo.entrypoints.composition import composed
from ngrpo.entrypoints.hydra_main import CONF, typed_only
from ngrpo.errors import SettingError

GROUPS = ["", "algo", "callbacks", "hydra", "hydra/job_logging", "trainer/optimizer", "no_such_group"]
KINDS = [ObjectType.CONFIG, ObjectType.GROUP, None]


def listings() -> list[list[str]]:
    loader = ConfigLoaderImpl(create_config_search_path(str(CONF)))
    return [loader.get_group_options(group, kind) for group in GROUPS for kind in KINDS]


def test_the_groups_of_help_are_those_that_hydra_lists_but_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = listings()
    assert sum(map(len, expected)) > 50
    monkeypatch.setattr(config_loader_impl, "CachingConfigRepository", None)
    with typed_only([]):
        assert listings() == expected
    with pytest.raises(TypeError):
        listings()


@pytest.mark.parametrize("override", ["~algo", "~exploration", "~algo=grpo", "~rollout", "~data"])
def test_a_part_that_every_run_needs_cannot_be_taken_away(override: str) -> None:
    group = override.strip("~").partition("=")[0]
    with pytest.raises(SettingError) as caught:
        composed("train", ["seed=1", override])
    assert str(caught.value) == (
        f"{override} takes away a part that every run needs; choose another instead, as {group}=<name> of conf/{group}."
    )


def test_other_parts_and_single_settings_can_be() -> None:
    made = composed("train", ["~callbacks.export", "~algo.kl_coef", "~logger"])
    assert "kl_coef" not in made.config.algo
