"""The results of a study as markdown tables."""

import math
from collections.abc import Mapping, Sequence
from statistics import median

from ngrpo.evaluation.table_rows import table_rows
from ngrpo.study.arm_summary import ArmSummary, figures, pairs, summaries
from ngrpo.study.results import Effect, Results, strength_name
from ngrpo.study.statistics import Mean
from ngrpo.utils.numbers import fixed, fixed_off_zero, significant

_CHANGES = ("next_token", "text", "answer")
"""What a mixed step may change, by its name in an effect."""


def tables(results: Results) -> str:
    """Returns all tables, with what they are of."""
    arms = summaries(results)
    made = [accuracy_table(results, arms), diversity_table(results, arms)]
    if compared := pairs(results):
        made.append(pairs_table(results, compared))
    if results.effects:
        made.append(effect_table(results))
    made.append(speed_table(results, arms))
    if results.tuned:
        made.append(rates_table(results))
    if results.levels:
        made.append(levels_table(results))
    return "\n\n".join([_heading(results), *map("\n".join, made)]) + "\n"


def _heading(results: Results) -> str:
    study, runs = results.study, results.runs
    devices = ", ".join(sorted({run.device for run in runs}))
    dates = sorted({run.date for run in runs})
    span = " to ".join(dict.fromkeys([dates[0], dates[-1]])) if dates else ""
    test = study["test"]
    return (
        f"Study {study['name']}: {len(runs)} runs of {study['iterations']} iterations; {test['problems']} test "
        f"problems, {test['samples']} samples each at temperature 1. {devices}, {span}. Means over seeds with 95 % "
        f"t-intervals; differences to {study['reference']} are paired by seed; * marks those that exclude 0."
    )


def accuracy_table(results: Results, arms: Sequence[ArmSummary]) -> list[str]:
    """Mean@1, Pass@k and the differences to the reference."""
    k = int(results.study["test"]["samples"])
    names = table_rows(["mean@1", f"pass@{min(8, k)}", f"pass@{k}", "pass_area", f"maj@{k}"])
    differing = table_rows(["mean@1", f"pass@{k}", "pass_area"])
    heads = ["arm", "seeds", "rate", *names, *(f"difference in {name}" for name in differing)]
    rows = [
        [
            one.arm,
            str(one.seeds),
            significant(one.rate),
            *_cells(one.figures, names, 3),
            *_differences(one.differences, differing, 3),
        ]
        for one in arms
    ]
    if results.base is not None:
        base = figures(results.base)
        rows.insert(0, ["untrained", "", "", *(_number(base.get(name), 3) for name in names), *[""] * len(differing)])
    return _markdown(heads, rows)


def diversity_table(results: Results, arms: Sequence[ArmSummary]) -> list[str]:
    """Distinct answers and solution paths, of all samples and at equal accuracy, entropy and length."""
    columns = {**_diversity(results), "late/policy/entropy": "entropy at the end", "length": "tokens"}
    differing = ["paths", "right_paths", "wrong_answers"]
    heads = ["arm", *columns.values(), *(f"difference in {columns[name]}" for name in differing)]
    rows = [
        [one.arm, *_cells(one.figures, list(columns), 3), *_differences(one.differences, differing, 3)] for one in arms
    ]
    if results.base is not None:
        base = figures(results.base)
        rows.insert(0, ["untrained", *(_number(base.get(name), 3) for name in columns), *[""] * len(differing)])
    return _markdown(heads, rows)


def pairs_table(results: Results, compared: Mapping[tuple[str, str], Mapping[str, Mean]]) -> list[str]:
    """Arms minus the ones they are compared with beside the reference."""
    k = int(results.study["test"]["samples"])
    passes = table_rows(["mean@1", f"pass@{min(8, k)}", f"pass@{k}", "pass_area"])
    columns = {name: name for name in passes} | _diversity(results)
    rows = [
        [f"{arm} - {other}", str(means["mean@1"].n), *_differences(means, list(columns), 3)]
        for (arm, other), means in compared.items()
    ]
    return _markdown(["pair", "seeds", *columns.values()], rows)


def _diversity(results: Results) -> dict[str, str]:
    """Returns the heads of the diversity figures."""
    group, alike = (int(results.study["diversity"][name]) for name in ("group", "alike"))
    return {
        "answers": f"answers of {group}",
        "paths": f"paths of {group}",
        "right_paths": f"paths of {alike} right",
        "wrong_answers": f"answers of {alike} wrong",
    }


def effect_table(results: Results) -> list[str]:
    """What mixed steps of the untrained model change."""
    changes = [f"{what}: {name.replace('_', ' ')}" for what in ("step", "vector alone") for name in _CHANGES]
    rows = [[arm, *_effect(effect)] for arm, effect in results.effects.items() if effect is not None]
    return _markdown(["arm", "mixed", "cosine", *changes], rows)


def _effect(effect: Effect) -> list[str]:
    changed = [shares[name] for shares in (effect.against_draw, effect.against_token) for name in _CHANGES]
    return [fixed(effect.mixed), fixed(effect.cosine, 4), *map(fixed, changed)]


def speed_table(results: Results, arms: Sequence[ArmSummary]) -> list[str]:
    """Tokens a second alone on the machine and, other arms' runs beside them, in the runs."""
    alone = {arm: median(speed.tokens_per_s) for arm, speed in results.speeds.items()}
    in_runs = {one.arm: one.figures["tokens_per_s"].value for one in arms if "tokens_per_s" in one.figures}
    rows = [
        [arm, *(f"{speeds[arm]:z,.0f}" if arm in speeds else "" for speeds in (alone, in_runs))]
        for arm in dict.fromkeys([*alone, *in_runs])
    ]
    return _markdown(["arm", "tokens/s alone", "tokens/s in runs"], rows)


def rates_table(results: Results) -> list[str]:
    """Every learning rate and strength that was tried, a row a strength, and which were chosen."""
    metric = str(results.study["tune"]["metric"])
    rates = dict.fromkeys(one.rate for tuned in results.tuned.values() for one in tuned.tried)
    rows = []
    for arm, tuned in results.tuned.items():
        for strength in dict.fromkeys(one.strength for one in tuned.tried):
            found = {one.rate: fixed(one.metrics[metric], 4) for one in tuned.tried if one.strength == strength}
            if strength == tuned.strength:
                found[tuned.chosen] += " (chosen)"
            name = arm if strength is None else f"{arm}, {strength_name(strength)}"
            rows.append([name, *(found.get(rate, "") for rate in rates)])
    return _markdown([f"validation {metric}", *(f"rate {significant(rate)}" for rate in rates)], rows)


def levels_table(results: Results) -> list[str]:
    """Mean@1 of the untrained model by difficulty, and Pass@k where the rule is about it."""
    names = list(dict.fromkeys(name for one in results.levels.values() for name in one))
    rows = [[path, *(_number(one.get(name), 3) for name in names)] for path, one in results.levels.items()]
    return _markdown(["problems", *(name.capitalize() for name in names)], rows)


def _markdown(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    lines = [heads, ["---", *["---:"] * (len(heads) - 1)], *rows]
    return [f"| {' | '.join(line)} |" for line in lines]


def _cells(values: Mapping[str, Mean], names: Sequence[str], digits: int) -> list[str]:
    return [with_interval(values[name], digits) if name in values else "" for name in names]


def _differences(values: Mapping[str, Mean] | None, names: Sequence[str], digits: int) -> list[str]:
    if values is None:
        return [""] * len(names)
    return [with_interval(values[name], digits, signed=True) if name in values else "" for name in names]


def with_interval(mean: Mean, digits: int, signed: bool = False) -> str:
    """Returns a mean with its interval: 0.176 [0.174, 0.177]; ``signed`` ones get a * where they exclude 0."""
    value = fixed(mean.value, digits, signed)
    if math.isnan(mean.low):
        return value
    excludes = signed and (mean.low > 0 or mean.high < 0)
    low, high = ((fixed_off_zero if excludes else fixed)(end, digits, signed) for end in (mean.low, mean.high))
    return f"{value} [{low}, {high}]{'*' if excludes else ''}"


def _number(value: float | None, digits: int) -> str:
    return "" if value is None else fixed(value, digits)
