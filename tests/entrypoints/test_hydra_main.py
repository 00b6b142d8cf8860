"""Hydra's listing of the groups for ``--help``: the same as its own, without a copy of the repository for each."""

import pytest
from hydra._internal import config_loader_impl
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra._internal.utils import create_config_search_path
from hydra.core.object_type import ObjectType

from ngrpo.entrypoints.hydra_main import CONF, typed_only

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
