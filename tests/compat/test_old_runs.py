"""Checkpoints and skipped steps that version 0.1 wrote: a run goes on from the ones, the others are looked at again.

``state_0_1.pt`` has what is in a checkpoint beside weights, and the settings in its manifest; it and
``skipped_step_0_1.pt`` were written by a run of `SETTINGS`.
"""

from pathlib import Path

import torch
from forked import Scripts

from ngrpo.checkpoint import manifest

HERE = Path(__file__).parent
SETTINGS = (
    "debug=fast", "trainer.accelerator=cpu", "callbacks.export=null", "callbacks.checkpoint.every=1",
    "exploration=neighbor", "algo=gspo", "reward_terms=[count_bonus]", "rollout.ahead=1", "algo/correction=truncate",
    "algo.prompts_per_batch=2", "algo.optimizer_steps=2", "rollout.max_new_tokens=16", "data.eval_problems=2",
)  # fmt: skip


def test_a_run_goes_on_from_a_checkpoint(tmp_path: Path, scripts: Scripts) -> None:
    begun = scripts.run(["train.py", *SETTINGS, "trainer.iterations=1", "hydra.run.dir=run"], tmp_path)
    assert begun.status == 0, begun.said
    checkpoint = tmp_path / "run" / "checkpoints" / "iteration-1"
    old = torch.load(HERE / "state_0_1.pt", weights_only=True)
    run = old.pop("run")
    assert run["selection._target_"] == "ngrpo.rollout.selection.DynamicSampling"  # moved since
    state = torch.load(checkpoint / "state.ckpt", weights_only=True)
    assert state["callbacks"].keys() >= old["callbacks"].keys()  # otherwise the old state would be read by none
    (checkpoint / "manifest.json").unlink()
    torch.save(state | old, checkpoint / "state.ckpt")
    manifest.write(checkpoint, run)
    resumed = scripts.run(["train.py", *SETTINGS, "trainer.iterations=2", "ckpt=run"], tmp_path)
    assert resumed.status == 0, resumed.said
    assert "resuming from" in resumed.said
    assert "iteration 2/2" in resumed.said
    assert "has moved" not in resumed.said


def test_a_skipped_step_is_looked_at_again(tmp_path: Path, scripts: Scripts) -> None:
    done = scripts.run(["replay_step.py", str(HERE / "skipped_step_0_1.pt")], tmp_path)
    assert done.status == 0, done.said
    assert "iteration 1, optimiser step 1 was skipped: policy/grad_norm nan" in done.said
    assert "has moved" not in done.said
