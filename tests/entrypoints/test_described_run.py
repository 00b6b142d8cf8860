"""How a run's strategy is named."""

from dataclasses import dataclass

from ngrpo.entrypoints.described_run import strategy_text
from ngrpo.exploration.neighbor import NeighborMixing
from ngrpo.exploration.token import TokenSampling


@dataclass(frozen=True)
class Own(TokenSampling):
    """A user's."""

    strength: float = 0.5


def test_a_strategy_is_named_by_its_class_and_settings() -> None:
    assert strategy_text(NeighborMixing(rate=0.2)).startswith("NeighborMixing(")
    assert "rate=0.2" in strategy_text(NeighborMixing(rate=0.2))


def test_a_strategy_of_the_users_own_is_named_with_its_module() -> None:
    text = strategy_text(Own())
    assert text.startswith(f"{__name__}.Own(")
    assert "strength=0.5" in text
