"""report.html: one page with everything in it, made from a run's folder."""

import base64
import hashlib
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from plotly.offline import get_plotlyjs

from ngrpo.errors import SettingError
from ngrpo.evaluation.table_rows import table_rows
from ngrpo.report.curves import benchmarks, pass_curve
from ngrpo.report.figures import Chart, charts
from ngrpo.report.run_records import EvaluationRecord, IterationRecord, StoredRollout
from ngrpo.report.run_store import RunStore
from ngrpo.utils.atomic_write import write_text
from ngrpo.utils.input_files import read_json
from ngrpo.utils.numbers import fixed
from ngrpo.utils.sanitize import visible

PAGE = "report.html"
_ASSETS = Path(__file__).parent / "assets"


@dataclass(frozen=True)
class Script:
    """An inline script that the page's policy names by its hash, so that no other one runs.

    Attributes:
        text: the source.
    """

    text: str

    @property
    def markup(self) -> Markup:
        """The source as it goes into the page; it is ours, so it is not escaped."""
        return Markup(self.text)

    @property
    def source(self) -> str:
        """How the content security policy names it."""
        digest = base64.b64encode(hashlib.sha256(self.text.encode()).digest()).decode()
        return f"'sha256-{digest}'"


def write_page(run_dir: Path) -> Path:
    """Writes ``report.html`` into a run's folder, whole or not at all, and returns its path.

    Raises:
        SettingError: the folder has no record.
    """
    text = page(run_dir)
    final = run_dir / PAGE
    write_text(final, text)
    return final


def page(run_dir: Path) -> str:
    """Returns the page of a run.

    All that a model or a data set wrote reaches it through autoescaping or as JSON that cannot end its element, and the
    page's script puts it into text nodes only.

    Raises:
        SettingError: the folder has no record.
    """
    store = RunStore(run_dir)
    iterations, evaluations = store.iterations(), store.evaluations()
    if not iterations:
        raise SettingError(f"{run_dir} holds no record of a run; give a run's folder (callbacks.run_record writes it).")
    summary = _summary(run_dir)
    drawn = charts(iterations, evaluations)
    scripts = [Script(get_plotlyjs()), *(Script(_asset(name)) for name in ("charts.js", "browser.js"))]
    environment = Environment(
        loader=PackageLoader("ngrpo.report", "assets"), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    return environment.get_template("page.html.jinja").render(
        title=" ".join(f"{group}={name}" for group, name in summary.get("methods", {}).items()) or run_dir.name,
        tiles=tiles(summary, iterations, evaluations),
        charts=drawn,
        figures={chart.name: _figure(chart) for chart in drawn},
        rollouts={n: [browsable(r) for r in store.rollouts(n)] for n in store.rollout_iterations()},
        style=Markup(_asset("page.css")),
        scripts=scripts,
    )


def tiles(
    summary: dict[str, Any], iterations: Sequence[IterationRecord], evaluations: Sequence[EvaluationRecord]
) -> list[tuple[str, str]]:
    """Returns label and figure of what stands at the top of the page."""
    made = [("iterations", str(len(iterations)))]
    if "wall_s" in summary:
        made.append(("minutes", fixed(summary["wall_s"] / 60, 1)))
    if "tokens_generated" in summary:
        made.append(("tokens generated", f"{summary['tokens_generated']:,}"))
    if len(evaluations) < 2:
        return [*made, ("reward, last iteration", fixed(iterations[-1].metrics.get("train/reward", math.nan)))]
    before, after = evaluations[0].metrics, evaluations[-1].metrics
    for prefix, label in benchmarks(evaluations).items():
        for name in table_rows(["mean@1", f"pass@{max(pass_curve(after, prefix))}"]):
            made.append((f"{name}, {label}", f"{fixed(before[prefix + name])} \u2192 {fixed(after[prefix + name])}"))
    return made


def browsable(rollout: StoredRollout) -> dict[str, Any]:
    """Returns a rollout as the page's script reads it; short names, since there are many tokens."""
    return {
        "group": rollout.group,
        "question": visible(rollout.question),
        "reference": visible(rollout.reference),
        "answer": None if rollout.answer is None else visible(rollout.answer),
        "verdict": rollout.verdict,
        "reward": rollout.reward,
        "advantage": rollout.advantage,
        "stop": rollout.stop,
        "length": rollout.length,
        "tokens": [visible(token) for token in rollout.tokens],
        "logProbs": _rounded(rollout.log_probs),
        "entropies": _rounded(rollout.entropies),
        "mixed": {
            m.place: {
                "names": [visible(name) for name in m.names],
                "weights": [round(weight, 4) for weight in m.weights],
                "noise": m.noise,
            }
            for m in rollout.mixed
        },
    }


def _rounded(values: Sequence[float]) -> list[float | None]:
    return [round(value, 3) if math.isfinite(value) else None for value in values]


def _figure(chart: Chart) -> dict[str, Any]:
    figure: dict[str, Any] = json.loads(chart.figure.to_json())
    figure["layout"].pop("template", None)  # the page has its own colours, in two themes
    return figure


def _summary(run_dir: Path) -> dict[str, Any]:
    path = run_dir / "summary.json"
    found = read_json(path, "the summary") if path.exists() else {}
    numbers = [found.get(name, 0) for name in ("wall_s", "tokens_generated")] if isinstance(found, dict) else [None]
    if not all(type(value) in (int, float) for value in numbers) or not isinstance(found.get("methods", {}), dict):
        raise SettingError(f"{path} is no summary of a run; take it out, and the page is made without it.")
    return found


def _asset(name: str) -> str:
    return (_ASSETS / name).read_text(encoding="utf-8")
