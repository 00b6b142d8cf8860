"""``ngrpo.score``: the log-probs and entropies of rollouts under a model."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from ngrpo.config.check import checked
from ngrpo.config.schema import SampleConfig
from ngrpo.entrypoints.composition import composed
from ngrpo.entrypoints.exact_check import check_exact_scores
from ngrpo.entrypoints.input_validation import check_accelerator
from ngrpo.entrypoints.python_api.arguments import folder_of, words_given
from ngrpo.entrypoints.python_api.model_argument import Model, source_of, words_for
from ngrpo.entrypoints.python_api.session import session
from ngrpo.entrypoints.sampled_rollout import SampledRollout
from ngrpo.errors import SettingError
from ngrpo.modeling.exact.model import make_exact
from ngrpo.modeling.learned import load_learned
from ngrpo.modeling.loading import ModelSource
from ngrpo.modeling.packing import pack
from ngrpo.modeling.policy import ScoringModel, TokenScores
from ngrpo.training.batching import microbatches
from ngrpo.utils.given_values import plain, shown
from ngrpo.utils.torch_settings import accelerator_of, set_torch

_TOKENS = 8192
"""Most tokens of one forward pass, as a training has it."""


def score(
    model: Model,
    rollouts: SampledRollout | Iterable[SampledRollout],
    *overrides: str,
    tokenizer: Any = None,
    config_dir: Path | str | None = None,
    verbose: bool = False,
    **settings: Any,
) -> list[TokenScores]:
    """Scores rollouts as the trainer does: their mixtures are replayed with the model's own embeddings.

    Args:
        model: as of `ngrpo.sample`; another than the one that made the rollouts, too, if it has the same tokens.
        rollouts: one or several, from `ngrpo.sample`.
        overrides: settings of conf/sample.yaml, such as ``"model.dtype=bfloat16"``; with ``"rollout.exact=true"`` the
            log-probs are those of an exact engine.
        tokenizer: of a model in memory.
        config_dir: a folder of yaml files and modules of yours.
        verbose: shows what is logged.
        settings: further settings by group.

    Returns:
        Of each rollout ``log_prob``, float32 [T] at the temperature of the sampling, and ``entropy``, float32 [T] in
        nats, on the CPU; of one that started from a prefix, those of the tokens after it.

    Raises:
        SettingError: a setting cannot work, or a rollout is none, or one of other tokens than the model's.
    """
    words = [*words_for(model), *words_given(settings, overrides)]
    given = _several(rollouts)
    with session(verbose):
        config = checked(composed("sample", words, folder_of(config_dir)).config, SampleConfig)
        set_torch(config.threads, config.matmul_precision)
        check_accelerator(config.accelerator, "accelerator", "accelerator=cpu")
        device = torch.device("cuda" if accelerator_of(config.accelerator) == "gpu" else "cpu")
        source = source_of(model, tokenizer, config)
        if config.rollout.exact:
            for alike in _made_alike(given):
                check_exact_scores(source, given[alike[0]].exploration)
        return _scored(source, given, device, config.rollout.exact)


def _several(rollouts: Any) -> list[SampledRollout]:
    """Returns one or several rollouts as a list."""
    rollouts = plain(rollouts)
    if isinstance(rollouts, SampledRollout):
        return [rollouts]
    if not isinstance(rollouts, Iterable) or isinstance(rollouts, str | bytes | Mapping):
        raise SettingError(f"rollouts={shown(rollouts)} are none; give what ngrpo.sample returns.")
    given = list(rollouts)
    for index, one in enumerate(given):
        if not isinstance(one, SampledRollout):
            raise SettingError(f"rollouts[{index}]={shown(one)} is no rollout; give what ngrpo.sample returns.")
    return given


def _check_tokens(rollouts: Sequence[SampledRollout], known: int) -> None:
    """Refuses rollouts of more tokens than the model knows."""
    for index, one in enumerate(rollouts):
        kept = () if one.support is None else (one.support.ids,)
        parts = (one.prompt_ids, one.response_ids, one.mixture.record.ids, *kept)
        largest = max(int(part.max()) for part in parts if part.numel())
        if largest >= known:
            raise SettingError(
                f"rollouts[{index}] has the token {largest}, and model= knows {known} tokens; give a model with the "
                "tokens of the one that made the rollouts."
            )


@torch.no_grad()
def _scored(
    source: ModelSource, rollouts: list[SampledRollout], device: torch.device, exact: bool
) -> list[TokenScores]:
    lm = source.load().to(device)
    if exact:
        make_exact(lm)
    _check_tokens(rollouts, lm.get_input_embeddings().num_embeddings)
    found: dict[int, TokenScores] = {}
    for alike in _made_alike(rollouts):
        strategy, temperature = rollouts[alike[0]].exploration, rollouts[alike[0]].temperature
        policy = ScoringModel(lm, load_learned(source, strategy)).to(device)
        lengths = [rollouts[index].tokens for index in alike]
        for part in microbatches(lengths, lengths, _TOKENS, agree=lambda needed: needed):
            chosen = [alike[index] for index in part]
            batch = pack([rollouts[index] for index in chosen])
            scores = policy(batch.to(device), temperature, strategy)
            split = (channel.cpu().split(batch.response_lengths.tolist()) for channel in scores)
            found.update(zip(chosen, map(TokenScores._make, zip(*split, strict=True)), strict=True))
    return [found[index] for index in range(len(rollouts))]


def _made_alike(rollouts: Sequence[SampledRollout]) -> list[list[int]]:
    """Returns the indices of rollouts that can be scored together: of one strategy, at one temperature."""
    groups: list[tuple[SampledRollout, list[int]]] = []
    for index, rollout in enumerate(rollouts):
        for first, indices in groups:
            if first.exploration == rollout.exploration and first.temperature == rollout.temperature:
                indices.append(index)
                break
        else:
            groups.append((rollout, [index]))
    return [indices for _, indices in groups]
