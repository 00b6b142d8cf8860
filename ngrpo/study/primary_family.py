"""The primary family: the comparisons named before the runs, corrected for their number."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ngrpo.study.arm_summary import figures
from ngrpo.study.results import Results
from ngrpo.study.statistics import Mean, detectable, holm, p_value, paired


@dataclass(frozen=True)
class Comparison:
    """A comparison of the family.

    Attributes:
        setting: the study's name.
        arm: the method.
        against: what it is compared with.
        metric: the figure.
        seeds: that were planned.
        power: probability with which the design was expected to find ...
        detectable: ... a difference of at least this, stated before the runs.
        difference: paired by seed, over the planned ones alone, with its own 95 % interval; None without a common seed.
        adjusted_p: Holm's, over the family; None with fewer than two common seeds.
    """

    setting: str
    arm: str
    against: str
    metric: str
    seeds: int
    power: float
    detectable: float
    difference: Mean | None
    adjusted_p: float | None

    @property
    def verdict(self) -> str:
        """Says in a word what is known: ``open`` before all planned seeds are there."""
        if self.difference is None or self.adjusted_p is None or self.difference.n < self.seeds:
            return "open"
        if self.adjusted_p > 0.05:
            return "not decided"
        return "higher" if self.difference.value > 0 else "lower"


def comparisons(settings: Sequence[Results]) -> list[Comparison]:
    """Returns the primary comparisons of all settings; their p-values are corrected together."""
    found = [one for results in settings for one in _of_setting(results)]
    family = max((int((results.study.get("primary") or {}).get("family", 0)) for results in settings), default=0)
    tested = [
        (index, p_value(one.difference))
        for index, one in enumerate(found)
        if one.difference is not None and one.difference.n > 1
    ]
    # What was named counts, whether its runs are there or not: another study may have a family of its own.
    corrected = holm([p for _, p in tested], max(family, len(found)))
    adjusted = dict(zip((index for index, _ in tested), corrected, strict=True))
    return [replace(one, adjusted_p=adjusted.get(index)) for index, one in enumerate(found)]


def _of_setting(results: Results) -> list[Comparison]:
    primary = results.study.get("primary")
    if not primary:
        return []
    found = []
    for one in primary["comparisons"]:
        seeds = min(int(results.study["arms"][one[role]]["seeds"]) for role in ("arm", "against"))
        own, other = (_by_seed(results, one[role], one["metric"], seeds) for role in ("arm", "against"))
        power = float(primary["power"])
        found.append(
            Comparison(
                setting=str(results.study["name"]),
                arm=one["arm"],
                against=one["against"],
                metric=one["metric"],
                seeds=seeds,
                power=power,
                detectable=detectable(float(primary["assumed_sd"]), seeds, int(primary["family"]), power),
                difference=paired(own, other),
                adjusted_p=None,
            )
        )
    return found


def _by_seed(results: Results, arm: str, metric: str, seeds: int) -> dict[int, float]:
    """Returns a figure of the planned seeds, from 0 on: none is added after a look at the results."""
    every = {run.seed: figures(run.test) for run in results.of_arm(arm) if run.seed < seeds}
    return {seed: one[metric] for seed, one in every.items() if metric in one}
