"""Policy, reference and critic: loaded, adapted and sharded."""

from dataclasses import dataclass
from typing import TypeVar

import torch
from torch.distributed.device_mesh import DeviceMesh

from ngrpo.exploration.base import Exploration
from ngrpo.modeling.critic import ValueModel
from ngrpo.modeling.embedding_scale import check_embedding_scale
from ngrpo.modeling.exact.model import make_exact
from ngrpo.modeling.layers import prepare_layers
from ngrpo.modeling.learned import load_learned
from ngrpo.modeling.loading import ModelSource
from ngrpo.modeling.lora import add_adapter
from ngrpo.modeling.overflow import check_range
from ngrpo.modeling.policy import ScoringModel
from ngrpo.modeling.precision import round_parameters
from ngrpo.modeling.sharding import shard
from ngrpo.training.update_settings import UpdateSettings

Model = TypeVar("Model", bound=ScoringModel)


@dataclass(frozen=True)
class Models:
    """The models of a run.

    Attributes:
        policy: is trained.
        reference: frozen, that the KL is measured to; None without a KL, and where it is the policy without its
            adapter.
        critic: is trained beside the policy; None where the algorithm needs none.
    """

    policy: ScoringModel
    reference: ScoringModel | None
    critic: ValueModel | None


@dataclass(frozen=True)
class ModelLoader:
    """Loads the models of a run; all start from the same weights.

    Attributes:
        source: where they are loaded from.
        exploration: the strategy of the rollouts, whose learned parameters each model has its own of.
        settings: rows of the head, precision, offloading.
        device: of the models.
        mesh: with the dimensions ``data_parallel`` and ``tensor_parallel``, to shard over; None with one process.
    """

    source: ModelSource
    exploration: Exploration
    settings: UpdateSettings
    device: torch.device
    mesh: DeviceMesh | None

    def load(self, reference: bool, critic: bool) -> Models:
        """Loads the policy, and what is wanted beside it; ``reference``: the algorithm measures a KL."""
        policy = self._load(ScoringModel, self.source.checkpointing)
        return Models(
            policy=policy,
            critic=self._load(ValueModel, self.source.checkpointing) if critic else None,
            reference=self._load(ScoringModel, "off", frozen=True) if reference and not self._adapted else None,
        )

    @property
    def _adapted(self) -> bool:
        """Whether the policy without its adapter is the reference."""
        return self.source.lora is not None and not self.exploration.learning_rates()

    def _load(self, kind: type[Model], checkpointing: str, frozen: bool = False) -> Model:
        learned = load_learned(self.source, self.exploration)
        model = kind(self.source.load(), learned).requires_grad_(not frozen)
        if self.settings.exact and kind is ScoringModel:
            make_exact(model.lm)
        if self.settings.mixed_in is not None:
            check_range(model.lm.named_parameters(), self.settings.mixed_in, self.source.path)
        check_embedding_scale(model.lm, self.exploration, self.source.path)
        if self.source.lora is not None and kind is ScoringModel and not frozen:
            add_adapter(model.lm, self.source.lora)
        model = model.to(self.device)
        model.head_rows = self.settings.head_rows
        if frozen and self.settings.mixed_in is not None:
            round_parameters(model, self.settings.mixed_in)
        prepare_layers(model.lm.base_model.layers, checkpointing, self.source.compile)
        if self.mesh is None:
            return model
        return shard(model, self.mesh, self.settings.mixed_in, frozen and self.settings.offload_reference)
