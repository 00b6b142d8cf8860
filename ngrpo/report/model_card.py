"""The model card of an exported policy: README.md, with the metadata that the Hub reads."""

import logging
from collections.abc import Sequence
from pathlib import Path, PurePath
from typing import Any

from huggingface_hub import ModelCard, ModelCardData

from ngrpo.evaluation.benchmark_report import Estimate
from ngrpo.evaluation.evaluation_result import EvaluationResult
from ngrpo.report.curves import benchmarks
from ngrpo.report.intervals import pass_estimates
from ngrpo.report.run_description import RunDescription
from ngrpo.report.run_facts import short_commit
from ngrpo.utils.hub_access import is_repository_name
from ngrpo.utils.numbers import fixed
from ngrpo.utils.sanitize import visible

log = logging.getLogger(__name__)

FILE = "README.md"
_TEMPLATE = Path(__file__).parent / "assets" / "model_card.md.jinja"
_LICENCE = ("license", "license_name", "license_link")


def write_model_card(
    folder: Path,
    name: str | None,
    base_card: Path | None,
    run: RunDescription | None,
    evaluations: Sequence[EvaluationResult],
    iterations: int,
) -> None:
    """Writes the card beside an exported model.

    Args:
        folder: of the export.
        name: on the Hub, ``user/name``; None for a model that stays here.
        base_card: README.md of the model that training started from, for its licence; None without one.
        run: what was trained; None where that was not recorded.
        evaluations: of the run, in order.
        iterations: that the policy has behind it.
    """
    card = model_card(name, base_card, run, [one for one in evaluations if one.iteration <= iterations], iterations)
    card.save(folder / FILE)


def model_card(
    name: str | None,
    base_card: Path | None,
    run: RunDescription | None,
    evaluations: Sequence[EvaluationResult],
    iterations: int,
) -> ModelCard:
    """Returns the card; see `write_model_card`. Of paths on this machine it tells the last part only."""
    ends = [evaluations[0], evaluations[-1]] if len(evaluations) > 1 else list(evaluations)
    card: ModelCard = ModelCard.from_template(
        _metadata(base_card, run),
        template_path=str(_TEMPLATE),
        title=name or "A model trained with ngrpo",
        location=name or "path/to/this/folder",
        base="A model" if run is None else f"`{_public(run.model)}`",
        method="" if run is None else ", ".join(f"{group} `{chosen}`" for group, chosen in run.methods.items()),
        held_out="held-out problems" if run is None or not run.held_out else _cell(run.held_out),
        headings=[f"iteration {one.iteration}" for one in ends],
        rows=_rows(ends),
        facts=[] if run is None else _facts(run, iterations),
        changed=[] if run is None else [(setting, f"`{_cell(value)}`") for setting, value in run.changed.items()],
    )
    return card


def _metadata(base_card: Path | None, run: RunDescription | None) -> ModelCardData:
    chosen = [] if run is None else [run.methods[group] for group in ("algo", "exploration") if group in run.methods]
    return ModelCardData(
        base_model=run.model if run is not None and _on_hub(run.model) else None,
        datasets=(run.hub_data or None) if run is not None else None,
        library_name="transformers",
        pipeline_tag="text-generation",
        tags=["ngrpo", "reinforcement-learning", *chosen],
        **_licence(base_card),
    )


def _licence(base_card: Path | None) -> dict[str, Any]:
    """Returns the base model's licence as its own card tells it; nothing where it does not."""
    if base_card is None:
        return {}
    try:
        told = ModelCard.load(base_card, ignore_metadata_errors=True).data.to_dict()
    except Exception as error:  # a card of somebody else's, which no export may fail for
        log.debug("%s tells no licence (%s)", base_card, error)
        return {}
    return {key: told[key] for key in _LICENCE if isinstance(told.get(key), str)}


def _on_hub(model: str) -> bool:
    return is_repository_name(model) and not Path(model).exists()


def _facts(run: RunDescription, iterations: int) -> list[tuple[str, str]]:
    software = ", ".join(f"{package} {version}" for package, version in run.versions.items())
    told = [
        ("base model", f"`{_public(run.model)}`"),
        ("data", _cell(run.data)),
        ("strategy", f"`{_cell(run.strategy)}`"),
        ("iterations", str(iterations)),
        ("seed", str(run.seed)),
        ("commit", short_commit(run.commit)),
        ("software", software),
        ("hardware", run.hardware),
    ]
    return [(label, text) for label, text in told if text]


def _rows(ends: Sequence[EvaluationResult]) -> list[list[str]]:
    """Returns a line a Pass@k: problems, metric, and an estimate of each evaluation."""
    rows = []
    for prefix, label in benchmarks(ends).items():
        found = pass_estimates(ends, prefix)
        for k in found[-1]:
            metric = "mean@1" if k == 1 else f"pass@{k}"
            rows.append([label, metric, *(_estimate(one[k]) if k in one else "" for one in found)])
    return rows


def _estimate(one: Estimate) -> str:
    return f"{fixed(one.value)} [{fixed(one.low)}, {fixed(one.high)}]"


def _public(text: str) -> str:
    """Returns a path of this machine by its last part, which says enough and nothing of its folders."""
    path = PurePath(text)
    return f".../{path.name}" if path.is_absolute() or text.startswith("~") else text


def _cell(text: str) -> str:
    """Returns a text for a cell of a table: on one line, without what ends the cell or its code."""
    shown = ", ".join(
        ": ".join(_public(part) for part in one.split(": ")) for one in visible(" ".join(text.split())).split(", ")
    )
    return shown.replace("|", "\\|").replace("`", "'")
