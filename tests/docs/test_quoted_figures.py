"""The figures that the pages quote are those of the stored results."""

import json
import re
from datetime import datetime
from pathlib import Path
from statistics import mean
from typing import Any

import pytest
from places import ROOT
from prose import PAGES, execute

from ngrpo.rollout.vllm.versions import TESTED_ON_CPU
from ngrpo.study.arm_summary import late
from ngrpo.study.results import load


def benchmark(name: str) -> dict[str, Any]:
    """Returns what a benchmark wrote."""
    return json.loads((ROOT / "docs/benchmarks" / f"{name}.json").read_text())


def quoted(first: str) -> list[str]:
    """Returns the cells after the first of the page's row that begins with it."""
    (row,) = re.findall(rf"^\| {re.escape(first)} \| (.*) \|$", PAGES["docs/benchmarks.md"], flags=re.MULTILINE)
    return [cell.strip() for cell in row.split("|")]


@pytest.mark.parametrize(
    ("file", "first"),
    [
        ("update_h100", "H100 80GB"),
        ("update_h200", "H200"),
        ("update_h200_12288", "H200, larger passes"),
        ("update_2xh200", "two H200, FSDP2"),
        ("update_2xh200_once", "two H200, gathering once"),
    ],
)
def test_the_updates_quoted_were_measured(file: str, first: str) -> None:
    made = benchmark(file)
    (run,), (result,) = made["runs"], made["results"]
    sequences, *cells = quoted(first)
    assert sequences.split()[-1] == str(run["lengths"][0])
    expected = [f"{run['microbatch_tokens']:,}", f"{result['tokens_per_s']:,.0f}", f"{result['mfu_percent']:.1f} %"]
    expected += [f"{result['activation_gib']:.1f} GiB"]
    expected += [f"{result['loss']:.5f}", f"{result['grad_norm']:.4f}"] if "loss" in result else ["", ""]
    assert cells == expected


def test_two_cards_are_as_fast_as_quoted() -> None:
    names = ("update_h200_12288", "update_2xh200", "update_2xh200_once")
    one, each, once = (benchmark(name)["results"][0] for name in names)
    text = " ".join(PAGES["docs/benchmarks.md"].split())
    assert f"Two cards are {each['tokens_per_s'] / one['tokens_per_s']:.2f} times as fast as one that makes" in text
    assert f"they are {once['tokens_per_s'] / one['tokens_per_s']:.2f} times as fast." in text
    assert benchmark(names[2])["runs"][0]["gather_once"]
    for two in (each, once):
        assert two["loss"] == pytest.approx(one["loss"], rel=1e-3)
        assert two["grad_norm"] == pytest.approx(one["grad_norm"], rel=1e-3)


def test_the_profile_of_two_cards_was_measured() -> None:
    made = benchmark("update_2xh200_profile")
    one = made["one card"]
    assert f"One card alone made {one['tokens_per_s']:,.0f} tokens/s" in " ".join(PAGES["docs/benchmarks.md"].split())
    for name, two in made["two cards"].items():
        profile = two.get("profile")
        waits = (
            [f"{profile[part] / profile['span_ms']:.0%}" for part in ("nccl_exposed_ms", "idle_ms")] if profile else []
        )
        expected = [f"{two['tokens_per_s']:,.0f}", f"{two['tokens_per_s'] / one['tokens_per_s']:.2f}"]
        assert quoted(name) == [*expected, *(wait.replace("%", " %") for wait in waits or ["", ""])]
        assert two["loss"] == pytest.approx(one["loss"], rel=1e-3)
        assert two["grad_norm"] == pytest.approx(one["grad_norm"], rel=1e-3)


FASTER = {
    "before": "before",
    "additions compiled": "microbatches' gradients added by a compiled kernel",
    "head added in the product": "and the head's gradient added in its product",
    "shared heads": "and attention that shares key and value heads",
    "cudnn": "and attention by cuDNN in place of PyTorch's kernel",
    "cudnn, 8192 tokens": "the same, 8,192 tokens a pass",
}
KERNELS = {
    "matrix products": "matrix products of the layers",
    "head": "head and softmax",
    "attention": "attention",
    "norms, rotary, elementwise": "norms, rotary positions, activations",
    "gradient additions": "gradients added up",
    "optimiser": "optimiser",
    "no kernel": "no kernel",
}


def test_what_makes_the_update_faster_was_measured() -> None:
    made = benchmark("update_candidates_h200")
    text = " ".join(PAGES["docs/benchmarks.md"].split())
    for name, one in made["medians"].items():
        cells = [f"{one['tokens_per_s']:,.0f}", f"{one['mfu_percent']:.1f} %", f"{one['peak_gib']:.1f} GiB"]
        assert quoted(FASTER[name]) == cells
        assert one["rounds"] >= 4
        assert one["loss"] == pytest.approx(made["medians"]["before"]["loss"], rel=1e-6)
        assert one["grad_norm"] == pytest.approx(made["medians"]["before"]["grad_norm"], rel=1e-3)
    before, after = (made["128 sequences"][name] for name in ("before", "after"))
    assert f"made {before['tokens_per_s']:,.0f} tokens/s before and {after['tokens_per_s']:,.0f} after" in text
    assert f"with {before['peak_gib']:.1f} and {after['peak_gib']:.1f} GiB" in text
    whole = made["profile"]["span_ms"]
    assert f"an optimiser step of {whole:,.0f} ms" in text
    for name, spent in made["profile"]["groups_ms"].items():
        if name in KERNELS:
            assert quoted(KERNELS[name]) == [f"{spent:,.0f} ms", f"{spent / whole:.1%}".replace("%", " %")]
    for name, first in (("of the benchmark", "a pass of the benchmark"), ("long", "3 x 4,096"), ("short", "24 x 512")):
        kinds = (made["attention"][name][kind] for kind in ("repeated", "shared", "cudnn"))
        assert quoted(first) == [f"{kind['both_ms']:.2f} ms" for kind in kinds]
    weights = made["weight_gradients_ms"]["gate, up"]
    for kind in ("product", "product and compiled addition", "product in the total"):
        assert f"{weights[kind]:.3f} ms" in text


def test_the_memory_quoted_was_measured() -> None:
    made = benchmark("memory_h200")
    for run, result in zip(made["runs"], made["results"], strict=True):
        assert run["checkpointing"] == "full"
        assert quoted(f"{run['microbatch_tokens']:,}") == [f"{result['activation_gib']:.1f} GiB"]


TWICE = ("seventh", "eighth", "ninth")
"""Machines with both orders."""
MACHINES = {
    "first": "step_h200",
    "second": "step_h200_trl_first",
    **{machine: f"step_h200_{machine}" for machine in ("third", "fourth", "fifth", "sixth", *TWICE)},
}
"""Those with an H200 that whole iterations were measured on."""


def test_the_iterations_quoted_were_measured() -> None:
    text = " ".join(PAGES["docs/benchmarks.md"].split())
    for card, file in {"H100": "step_h100", "H200": "step_h200_eighth"}.items():
        for mode, first in (("ours bf16", "ours"), ("trl liger", "TRL + Liger")):
            result = benchmark(file)["results"][mode]
            seconds = [f"{result[name]:.2f} s" for name in ("step_s", "generate_s", "score_s", "update_s")]
            seconds.append(f"{result['sync_s']:.2f} s" if "sync_s" in result else "in generate")
            assert quoted(f"{first}, {card}") == [*seconds, f"{result['used_gib']:.1f} GiB"]
    made = {f"{machine} machine": benchmark(file) for machine, file in MACHINES.items()}
    made |= {f"{machine} machine again": benchmark(f"{MACHINES[machine]}_again") for machine in TWICE}
    for machine, one in made.items():
        order = ["TRL" if mode == "trl liger" else "ours" for mode in one["results"]]
        theirs, ours = one["results"]["trl liger"], one["results"]["ours bf16"]
        seconds = [f"{spent:.2f} s" for spent in (theirs["step_s"], theirs["generate_s"], ours["step_s"])]
        cells = quoted(f"{machine}, {one['date']}")
        assert cells == [order[0], *seconds, f"{one['speed_up']['ours bf16']:.2f}"]
        assert one["speed_up"]["ours bf16"] == pytest.approx(theirs["step_s"] / ours["step_s"])
        assert (len(theirs["steps"]) == 3) == (machine != "third machine")
    first = [made["first machine"]["results"][mode] for mode in ("ours bf16", "trl liger")]
    kernels, whole = ([one[name] for one in first] for name in ("kernel_s", "step_s"))
    assert (
        f"in {kernels[0]:.2f} s of the {whole[0]:.2f} s, of TRL's in {kernels[1]:.2f} s of the {whole[1]:.2f} s" in text
    )
    ours, before = (made[f"{machine} machine"]["results"]["ours bf16"] for machine in ("eighth", "sixth"))
    assert (
        f"log-probs take {ours['score_s']:.2f} s instead of {before['score_s']:.2f} s, "
        f"the update {ours['update_s']:.2f} s instead of {before['update_s']:.2f} s." in text
    )
    for machine, same in zip(TWICE, ("trl liger", "trl liger", "ours bf16"), strict=True):
        first, again = (made[f"{machine} machine{which}"]["results"] for which in ("", " again"))
        assert first[same] == again[same]
        assert list(first) == list(reversed(again))
    assert all(made[f"ninth machine{which}"]["speed_up"]["ours bf16"] >= 2.4 for which in ("", " again"))
    recorded = benchmark("step_h200_kernels")["results"]["ours bf16"]
    assert f"ours took {recorded['step_s']:.2f} s (median of two), and a kernel ran in" in text
    assert f"a kernel ran in {recorded['kernel_s']:.2f} s of them" in text
    assert (
        f"The transfer is {ours['sync_s']:.2f} s of the {ours['step_s']:.2f} s on the H200, "
        f"{ours['sync_s'] / ours['step_s']:.1%}. ".replace("%", " %")
        in text
    )
    assert f"a part of the update's {ours['update_s']:.2f} s, could be hidden." in text
    whole = benchmark("n_grpo_1_5b_h200")["results"]["ours"]
    assert f"at most {whole['used_gib']:.1f} GiB in use" in text
    assert f"it took {whole['step_s']:.1f} s before bursts" in text
    later = benchmark("n_grpo_1_5b_h200_bursts")["results"]["ours"]
    assert f"and {later['step_s']:.1f} s on another machine" in text
    assert f"Of those, {later['reward_s']:.1f} s were the start of the process" in text
    generation, log_probs, update = (later[name] for name in ("generate_s", "score_s", "update_s"))
    phases = f"Generation was {generation:.1f} s, log-probs {log_probs:.1f} s, the update {update:.1f} s"
    assert f"{phases}, and the first weight transfer with a sleeping engine {later['sync_s']:.1f} s." in text


def test_the_decode_steps_quoted_were_measured() -> None:
    plain, compiled = benchmark("decode_torch_h200"), benchmark("decode_torch_compiled_h200")
    made = {(one["mode"], one["burst"], one["rows"]): one for one in plain["steps"] + compiled["steps"]}
    for rows in (32, 128, 256):
        steps = [made[mode, burst, rows] for mode, burst in (("eager", 1), ("eager", 32), ("compiled", 32))]
        assert quoted(f"{rows} rows") == [f"{one[name]:.1f} ms" for one in steps for name in ("wall_ms", "kernel_ms")]
    assert f"about {plain['capture_ms']:.0f} ms for each" in " ".join(PAGES["docs/benchmarks.md"].split())


def test_the_decode_steps_of_vllm_quoted_were_measured() -> None:
    made, rollout = benchmark("decode_h200"), benchmark("rollout_h200")
    text = " ".join(PAGES["docs/benchmarks.md"].split())
    assert f"(H200, {made['date']}, vLLM {made['vllm']}," in text
    assert f"contexts of {made['context']:,} tokens" in text
    rows = sorted({step["rows"] for step in made["steps"]})
    for mode, burst in {(step["mode"], step["burst"]) for step in made["steps"]}:
        found = {step["rows"]: step for step in made["steps"] if (step["mode"], step["burst"]) == (mode, burst)}
        cells = [f"{found[n]['wall_ms']:.2f} / {found[n]['kernel_ms']:.2f}" if n in found else "" for n in rows]
        assert quoted(mode if burst is None else f"{mode}, burst {burst}") == cells
    bursts = [step for step in made["steps"] if step["burst"] == 32]
    assert all(step["wall_ms"] <= 1.15 * step["kernel_ms"] for step in bursts)
    speeds = rollout["tokens_per_s"]
    assert f"at {speeds['neighbor']:,.0f} tokens/s with bursts, {speeds['neighbor, single steps']:,.0f} with" in text
    assert f"and {speeds['plain']:,.0f} with vLLM plain" in text
    tokens = rollout["requests"] * rollout["tokens"]
    assert f"the kernels alone would allow {tokens / rollout['kernel_s']:,.0f}." in text
    again, rounds = rollout["again"]["tokens_per_s"], rollout["again"]["rounds"]["neighbor"]
    assert f"it was {again['neighbor']:,.0f} with bursts (rounds of {min(rounds):,.0f} to {max(rounds):,.0f})" in text
    assert f"and {again['plain']:,.0f} with vLLM plain, where the kernels would allow" in text
    assert f"would allow {tokens / rollout['again']['kernel_s']:,.0f}." in text
    whole = rollout["whole_contexts"]
    speeds, rounds = whole["tokens_per_s"], whole["rounds"]["neighbor"]
    assert f"at {speeds['neighbor']:,.0f} tokens/s (rounds of {min(rounds):,.0f} to {max(rounds):,.0f})" in text
    assert f"makes {speeds['plain']:,.0f} and the kernels would allow {tokens / whole['kernel_s']:,.0f}." in text
    assert speeds["neighbor"] >= 52_000
    assert tokens / speeds["neighbor"] <= 1.15 * whole["kernel_s"]


def test_the_splits_of_attention_quoted_were_measured() -> None:
    made = benchmark("attention_splits_h200")
    whole = [one / many for _, heads, rows, longest, _, one, many in made["rows"] if longest <= 5 * heads * rows]
    text = " ".join(PAGES["docs/benchmarks.md"].split())
    assert f"In {len(whole)} shapes of the table" in text
    assert f"takes {sum(whole) / len(whole):.2f} of the time on average, {max(whole):.2f} at most." in text


def test_the_facts_about_the_training_data_were_counted() -> None:
    made = benchmark("deepscaler_data")
    data, checking = (" ".join(PAGES[f"docs/{name}.md"].split()) for name in ("data", "answer_checking"))
    math, aime, copied = made["math"], made["aime"], made["copied"]
    assert f"against MATH-500 ({math['rows']:,} rows," in data
    assert (
        f"reports {math['missing_answer']} rows without an answer, {math['duplicate']} duplicates and no overlap"
        in data
    )
    assert math["in_math500"] == 0
    assert (
        f"Of the {aime['rows']} problems of the AIME part, {aime['in_math']} are also in the MATH part and "
        f"{aime['in_math500']} in MATH-500."
    ) in data
    shares = (
        f"{copied[name] / copied['problems']:.1%}".replace("%", " %") for name in ("solved", "solved_with_the_rule")
    )
    assert f"would solve {next(shares)} of the training problems" in checking
    assert f"solves {next(shares)} of these problems" in checking


def test_the_times_of_first_commands_were_measured() -> None:
    evaluation, printed = benchmark("evaluation_cpu"), benchmark("first_run_cpu")["printed"]
    text = " ".join(PAGES["docs/evaluation.md"].split())
    asked = f"{evaluation['problems']} problems x {evaluation['samples']} samples"
    assert f"{asked} take {evaluation['cpu_s']:.0f} CPU seconds" in text
    times = [datetime.strptime(line[:8], "%H:%M:%S") for line in printed if line[2:3] == ":"]
    assert "Training takes about a minute." in PAGES["docs/start.md"]
    assert 45 <= (times[-1] - times[0]).total_seconds() <= 90


def test_the_times_of_compiling_were_measured() -> None:
    made = benchmark("compile_h200")
    full, selective = (made[mode]["training_s"][0] for mode in ("full", "selective"))
    text = " ".join(PAGES["docs/benchmarks.md"].split())
    assert f"{full:.1f} s with `model.checkpointing=full` and {selective:.1f} s with `selective`" in text


def test_the_newest_vllm_is_as_fast_as_quoted() -> None:
    made = benchmark("vllm_0330_h200")
    plain, bursts, single = (made["tokens_per_s"][k] for k in ("plain", "neighbor", "neighbor, single steps"))
    text = " ".join(PAGES["docs/vllm.md"].split())
    assert f"vLLM {made['vllm']} on the same work" in text
    assert f"plain {plain:,.0f}, `rollout.engine.burst=32` {bursts:,.0f}, `rollout.engine.burst=1`" in text
    assert f"{single:,.0f} tokens/s; a sleep" in text
    assert f"a sleep frees {made['freed_gib']:.0f} GiB in {made['sleep_s']:.2f} s" in text
    assert f"takes {made['wake_s']:.2f} s and the weights {made['weight_transfer_s']:.2f} s" in text
    assert made["rows_equal_after_sleep"] == 256
    assert f"{made['rows_bit_equal']} were equal bit for bit" in text
    assert min(made["first_difference"]) >= 510


def test_the_difference_of_trainer_and_engine_was_measured() -> None:
    page = PAGES["docs/precision.md"]
    for name, one in benchmark("precision_h200")["formats"].items():
        means = (f"{one[kind]['mean']:.4f}" for kind in ("mixed", "plain", "ignored"))
        speeds = (f"{one[f'{phase}_tokens_per_s']:,.0f}" for phase in ("rollout", "update"))
        assert f"| {name} | {' | '.join([*means, *speeds])} |" in page
        assert one["mixed"]["tokens"] + one["plain"]["tokens"] == one["ignored"]["tokens"] == 16384


def test_the_update_with_all_of_it_was_measured() -> None:
    made = benchmark("update_cudnn_h200")
    ((run,), (one,)) = made["runs"], made["results"]
    text = " ".join(PAGES["docs/benchmarks.md"].split())
    assert f"made {one['tokens_per_s']:,.0f} tokens/s ({one['mfu_percent']:.1f} % MFU, {made['date']})" in text
    assert f"Its peak of {one['peak_gib']:.1f} GiB includes" in text
    assert run["kl"]
    assert (len(run["lengths"]), run["microbatch_tokens"]) == (48, 12288)


def test_the_formats_learn_as_quoted() -> None:
    runs = benchmark("precision_curves_h200")["runs"]
    last = min(map(len, runs.values()))
    page = PAGES["docs/precision.md"]
    assert f"of iterations {last - 9} to {last}." in " ".join(page.split())
    for name in ("float32", "bfloat16", "float16"):
        seeds = [runs[f"{name}-{seed}"] for seed in range(3)]
        ends = [mean(seed[last - 10 : last]) for seed in seeds]
        cells = [f"{mean(mean(seed[:5]) for seed in seeds):.2f}", ", ".join(f"{end:.2f}" for end in ends)]
        assert f"| {name} | {' | '.join([*cells, f'{mean(ends):.2f}'])} |" in page


def test_what_smollm2_learns_in_each_format_was_measured() -> None:
    made = benchmark("precision_curves_h200")["smollm2"]
    page = PAGES["docs/precision.md"]
    assert set(map(len, made["runs"].values())) == {40}
    assert set(made["overflowed_steps"].values()) == {0}
    for name in ("float32", "bfloat16", "float16"):
        names = [f"{name}-{seed}" for seed in range(3)]
        ends = [mean(made["runs"][one][30:]) for one in names]
        cells = [
            f"{mean(mean(made['runs'][one][:5]) for one in names):.2f}",
            ", ".join(f"{end:.2f}" for end in ends),
            f"{mean(ends):.2f}",
            f"{mean(made['mismatch_mean'][one] for one in names):.5f}",
        ]
        assert f"| {name} | {' | '.join(cells)} |" in page


def test_the_transfer_of_weights_quoted_was_measured() -> None:
    made = benchmark("transfer_h200")
    runs = {(one["interface"], one["own_process"]): one for one in made["runs"]}
    inside, own = (runs["vLLM's", own_process] for own_process in (False, True))
    page = " ".join(PAGES["docs/vllm.md"].split())
    said = f"{made['gib']:.1f} GiB of weights takes {inside['seconds']:.2f} s in process and {own['seconds']:.2f} s"
    assert said in page
    most = max(inside["memory_gib"], own["memory_gib"])
    assert f"({most:.2f} GiB at most; H200, {made['date']}, vLLM {made['vllm']})" in page


def test_the_vllm_versions_listed_passed_their_tests() -> None:
    made = benchmark("vllm_versions_cpu")
    assert [one["vllm"] for one in made["outcomes"]] == list(TESTED_ON_CPU)
    assert {one["failed"] for one in made["outcomes"]} == {0}
    page = PAGES["docs/vllm.md"]
    columns = ("vllm", "torch", "transformers", "passed", "failed", "skipped", "seconds")
    rows = ["| " + " | ".join(str(one[name]) for name in columns) + " |" for one in made["outcomes"]]
    assert "\n".join(rows) in page
    assert f", {made['date']}:" in page.split(rows[0])[0].split("## ")[-1]


def rows_of(table: str) -> dict[tuple[str, str], str]:
    """Returns the cells of a markdown table by first cell and heading."""
    heads, _, *rows = ([cell.strip() for cell in line.strip("| ").split("|")] for line in table.strip().splitlines())
    return {(row[0], head): cell for row in rows for head, cell in zip(heads[1:], row[1:], strict=False)}


@pytest.mark.parametrize("name", [folder.name for folder in (ROOT / "docs/study").iterdir()])
def test_the_studies_quoted_are_those_of_the_stored_runs(name: str, tmp_path: Path) -> None:
    folder = ROOT / "docs/study" / name
    execute(["python", "scripts/study.py", "report", "--results", str(folder / "results.json"), "--to", str(tmp_path)])
    made = (tmp_path / f"{name}.md").read_text()
    assert made == (folder / f"{name}.md").read_text()
    assert (tmp_path / f"{name}.png").stat().st_size > 0
    stored: dict[tuple[str, str], str] = {}
    for table in made.split("\n\n")[1:]:
        stored |= rows_of(table)
    (section,) = (part for part in PAGES["docs/studies.md"].split("\n## ") if f"study/{name}/{name}.png" in part)
    quoted_cells: dict[tuple[str, str], str] = {}
    for table in section.split("\n\n"):
        quoted_cells |= rows_of(table) if table.startswith(("| arm |", "| pair |")) else {}
    assert len({first for first, _ in quoted_cells}) == 12 + 2
    assert {"mean@1", "vector alone: answer"} <= {head for _, head in quoted_cells}
    assert {key: cell for key, cell in quoted_cells.items() if stored.get(key, "") != cell} == {}


def test_the_validation_figures_quoted_are_those_of_the_stored_runs() -> None:
    tuned = load(ROOT / "docs/study/smollm2/results.json").tuned
    plain, gumbel = (
        next(one.metrics for one in tuned[arm].tried if one.rate == rate)
        for arm, rate in (("token_grpo", 3e-6), ("gumbel_grpo", 1e-5))
    )
    text = " ".join(PAGES["docs/studies.md"].split())
    ours, theirs = (
        [f"{metrics[name]:.3f}" for name in ("mean@16", "pass@8", "pass@16")] for metrics in (plain, gumbel)
    )
    assert f"a Mean@16 of {ours[0]}, a Pass@8 of {ours[1]} and a Pass@16 of {ours[2]}" in text
    assert f"Gumbel mixing at 1e-5 had {theirs[0]}, {theirs[1]} and {theirs[2]}." in text


def test_the_ways_quoted_of_arms_that_do_not_learn_are_those_of_the_stored_runs() -> None:
    results = load(ROOT / "docs/study/demo/results.json")
    ways, gaussian = (
        mean([late(run)["late/train/distinct_paths"] for run in results.of_arm(arm)])
        for arm in ("neighbor_no_gate_grpo", "gaussian_grpo")
    )
    text = " ".join(PAGES["docs/studies.md"].split())
    assert f"({ways:.2f} paths a group at the end), with Gaussian noise few do ({gaussian:.2f})" in text


def test_the_first_run_printed_what_the_readme_shows() -> None:
    made = benchmark("first_run_cpu")
    assert f"```bash\n{made['command']}\n```" in PAGES["README.md"]
    assert "```text\n" + "\n".join(made["printed"]) + "\n```" in PAGES["README.md"]


def test_the_findings_of_the_readme_are_those_of_the_stored_runs() -> None:
    results = load(ROOT / "docs/study/smollm2/results.json")
    effect = results.effects["neighbor_grpo"]
    assert effect is not None
    text = " ".join(PAGES["README.md"].split())
    assert f"(cosine {effect.cosine:.4f})" in text
    same = round(1000 * (1 - effect.against_token["next_token"]))
    assert f"leads to the same next token after {same} of 1000 mixed steps" in text


def test_exact_products_take_as_long_as_quoted() -> None:
    made = benchmark("exact_products_h200")
    assert made["tiles_equal"]
    assert made["attention_of_a_decode_step_equals_packed"]

    def layer(rows: str, kind: str) -> float:
        return sum(made[rows][kind][shape] * count for shape, count in made["products_in_a_layer"].items())

    text = " ".join(PAGES["docs/exact.md"].split())
    ours, theirs = ((layer("rows_32", kind), layer("rows_8192", kind) / 1000) for kind in ("exact", "cublas"))
    assert f"take {ours[0]:.0f} µs for 32 rows and {ours[1]:.2f} ms for 8,192, PyTorch's own {theirs[0]:.0f} µs" in text
    assert f"µs and {theirs[1]:.2f} ms. A product's" in text


def test_the_run_of_trl_is_as_quoted() -> None:
    made = benchmark("trl_demo_cpu")["generations"]
    first, last = (mean(one["reward"] for one in part) for part in (made[:5], made[-5:]))
    text = " ".join(PAGES["docs/trl.md"].split())
    assert f"from {first:.2f} to {last:.2f}; the largest replay difference was" in text
    assert f"difference was {max(one['replay_difference'] for one in made):.1e}" in text
    assert made[-1]["step"] + 3 == 120


def test_a_step_of_trl_takes_what_the_page_says() -> None:
    made = benchmark("step_trl_h200")
    one, settings = made["results"]["ours in trl"], made["settings"]
    text = " ".join(PAGES["docs/trl.md"].split())
    parts = [f"{one[name]:.2f} s" for name in ("step_s", "generate_s", "score_s", "update_s")]
    work = f"{8 * int(settings['prompts'])} completions of {settings['tokens']} tokens"
    quoted = "a step of {} took {}: {} generation with weight transfer, {} log-probs, {} update ("
    assert quoted.format(work, *parts) in text
    plain = made["results"]["trl"]
    theirs = [f"{plain[name]:.2f} s" for name in ("step_s", "generate_s", "score_s", "update_s")]
    quoted = "took {} on the same card right after: {} generation with weight transfer, {} log-probs, {} update"
    assert quoted.format(*theirs) in text
    assert f"{plain['step_s'] / one['step_s']:.2f} times as fast as none" in text
    assert f"The largest replay difference was {one['exploration/replay_difference']:.3f}, in bfloat16" in text
    assert made["date"] in text


def test_ignoring_records_costs_what_the_page_says() -> None:
    made = benchmark("records_ignored_cpu")
    page, gaps = PAGES["docs/trl.md"], []
    for model, part in (("demo", made), ("SmolLM2-135M", made["smollm2"])):
        for name, one in part["strategies"].items():
            lost = one["ignored"]
            largest = f"{lost['largest']:.1f}" if lost["largest"] > 1 else f"{lost['largest']:.2f}"
            mixed, outside = (f"{100 * share:.1f} %" for share in (one["mixed"], lost["outside_0.8_1.2"]))
            assert f"| {model} with `{name}` | {mixed} | {largest} | {lost['mean']:.4f} | {outside} |" in page
            gaps.append(one["replayed"]["largest"])
    assert f"with the records the largest is {max(gaps):.1e} (" in page


def test_bursts_are_as_fast_as_quoted() -> None:
    slow, fast = benchmark("bursts_h200")["machines"]
    rows = re.findall(
        r"^\| `rollout.engine.burst=.*\| ([\d,]+) \| ([\d.]*) ?\|$", PAGES["docs/vllm.md"], flags=re.MULTILINE
    )
    names = ("burst 1", "burst 32", "burst 32, captured")
    assert [speed for speed, _ in rows] == [f"{mean(fast[name]):,.0f}" for name in names]
    assert [host for _, host in rows] == ["", *(f"{mean(fast['host_ms'][name]):.2f}" for name in names[1:])]
    assert fast["different_rows"] == [0] * 5
    text = " ".join(PAGES["docs/vllm.md"].split())
    assert f"vLLM plain, without log-probs, made {fast['plain']:,} there" in text
    made = [mean(slow["burst 1"]), slow["plain"], mean(slow[names[2]])]
    quoted_there = "`rollout.engine.burst=1` made {:,.0f}, vLLM plain {:,}, and `rollout.engine.burst=32` {:,.0f}."
    assert quoted_there.format(*made) in text


def exact_rows() -> list[str]:
    """Returns the rows of the measured differences, without and with exact computation."""
    names = {"qwen2-1.5b": "Qwen2, 1.78 B", "llama": "Llama, 8 layers"}
    rows = []
    for file in ("exact_h200", "exact_llama_h200"):
        for one in sorted(benchmark(file)["results"], key=lambda one: (one["model"], one["dtype"], one["exact"])):
            cells = [f"{names[one['model']]}, {one['dtype']}", "with" if one["exact"] else "without"]
            cells += [f"{one[name]:.2g}" if one[name] else "0" for name in ("max_mixed", "max_plain")]
            cells += [f"{one['different']:,} of {one['tokens']:,}"]
            cells += [f"{one[name]:.1f} s" for name in ("rollout_s", "score_s", "update_s")]
            rows.append(f"| {' | '.join(cells)} |")
    return rows


def test_the_differences_without_and_with_exact_are_those_measured() -> None:
    found = [line for line in PAGES["docs/exact.md"].splitlines() if "| with" in line]
    assert found == exact_rows()
    for file in ("exact_h200", "exact_llama_h200"):
        made = benchmark(file)
        assert made["device"] == "NVIDIA H200"
        assert all(one["different"] == 0 for one in made["results"] if one["exact"])


def test_the_methods_on_the_demo_are_quoted_as_they_were_run() -> None:
    made = benchmark("methods_demo_cpu")
    page = PAGES["docs/methods.md"]
    for run in made["runs"]:
        (row,) = re.findall(rf"^\| `{re.escape(run['settings'])}` \| (.*) \|$", page, flags=re.MULTILINE)
        before, after = run["evaluations"][0], run["evaluations"][-1]
        expected = [f"{before[name]:.3f} to {after[name]:.3f}" for name in ("mean@1", "pass@8", "pass@16")]
        assert [cell.strip() for cell in row.split("|")][:3] == expected
        assert run["replay_error_max"] < 1e-4
        train = run["train_reward"]
        assert f"{train['first_5_iterations']:.3f} to {train['last_5_iterations']:.3f}" in row


def test_what_is_quoted_of_the_server_was_measured() -> None:
    text = " ".join(PAGES["docs/serving.md"].split())
    checks, speed = benchmark("serving_checks_cpu"), benchmark("serving_h200")
    assert f"with {checks['clients']} clients at once" in text
    assert f"{checks['killed']} clients that hung up" in text
    assert f"{sum(checks['malformed'].values()):,} malformed bodies" in text
    assert f"{checks['statuses']['200']} requests were answered, {checks['rollouts']:,} rollouts" in text
    assert f"to {checks['largest_difference']:.1e} (float32)" in text
    assert len(checks["of_version"]) == 3
    assert not any(status >= "500" for status in checks["malformed"])
    assert not any(checks["left"].values())
    once, thrice = speed["measured"]
    ratios, later = once["of_engine"], thrice["of_engine"]
    assert (
        f"{once['requests']} rollouts of {once['tokens']} tokens: {once['tokens_per_s']['engine']:,.0f} tokens/s"
        in text
    )
    assert f"{ratios['group']:.2f} of that for one client" in text
    assert f"and {ratios['single']:.2f} for {once['requests']} clients" in text
    after_other = f"{thrice['tokens_per_s']['engine']:,.0f} tokens/s, {later['group']:.2f} and {later['single']:.2f} ("
    assert f"With three requests each, one after the other, it is {after_other}" in text
    assert min(ratios["single"], later["single"]) >= 0.9
    assert f"Before, it was {speed['before'][0]['of_engine']['single']:.2f} for" in text
    on_cpu = benchmark("serving_cpu")["measured"]
    after, before = ([one["of_engine"]["single"] for one in on_cpu[name]] for name in ("after", "before"))
    clients = on_cpu["after"][0]["requests"]
    assert f"{clients} clients with one request each get {after[0]:.2f} of the engine's tokens/s" in text
    assert f"and {before[0]:.2f} before that" in text
    assert f"it is {after[1]:.2f} and {before[1]:.2f}" in text
