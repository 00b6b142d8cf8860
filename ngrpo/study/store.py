"""Reads what the finished runs of a study left."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ngrpo.study.results import RESULT, Results, Sampled, Tuned, probe_of, run_of


def collect(
    study: Mapping[str, Any], out: Path, tuned: Mapping[str, Tuned], probes: Path, levels: Mapping[str, float]
) -> Results:
    """Returns the results of a study's folder, as far as they are there.

    Args:
        study: the definition, as JSON values; runs of arms that it does not have are left out, and so are those with
            another learning rate than the chosen one.
        out: the folder.
        tuned: the chosen rates.
        probes: file of the probes, which need not exist.
        levels: accuracy by difficulty.
    """
    base = out / "base" / RESULT
    runs = [run_of(json.loads(file.read_text())) for file in sorted((out / "runs").glob(f"*/*/seed-*/{RESULT}"))]
    chosen = {arm: one.chosen for arm, one in tuned.items() if arm in study["arms"]}
    probed = json.loads(probes.read_text()) if probes.exists() else {}
    return Results(
        study=study,
        base=Sampled(**json.loads(base.read_text())) if base.exists() else None,
        tuned=tuned,
        runs=[run for run in runs if run.rate == chosen.get(run.arm)],
        probes={arm: probe_of(one) for arm, one in probed.items()},
        levels=levels,
    )
