"""Settings of a user that name code as version 0.1 called it."""

from pathlib import Path

from forked import Scripts
from omegaconf import OmegaConf

from ngrpo.config.renamed_targets import rename

QUICK = ("debug=fast", "trainer.accelerator=cpu", "callbacks.evaluation=null", "callbacks.export=null")
MINE = """
# @package _global_
logger: {_target_: ngrpo.loggers.Csv}
callbacks: {rollout: {_target_: callbacks.rollout.RolloutCallback}}
trainer: {schedule: {_target_: ngrpo.schedule.cosine}}
"""


def test_every_target_has_its_present_name_after_it_was_renamed() -> None:
    node = OmegaConf.create(
        {"a": [{"_target_": "ngrpo.schedule.cosine"}, None, 3], "b": {"_target_": "mine.Own"}, "c": None}
    )
    assert rename(node, "top") == [
        "top.a.0._target_=ngrpo.schedule.cosine has moved; write "
        "top.a.0._target_=ngrpo.training.optim.lr_schedule.cosine."
    ]
    assert node.a[0]._target_ == "ngrpo.training.optim.lr_schedule.cosine"
    assert node.b._target_ == "mine.Own"
    assert rename(node) == []


def test_old_names_in_a_users_settings_train_with_a_sentence_each(tmp_path: Path, scripts: Scripts) -> None:
    here = tmp_path / "here"
    (here / "settings" / "experiment").mkdir(parents=True)
    (here / "settings" / "experiment" / "mine.yaml").write_text(MINE)
    critic = "critic._target_=ngrpo.critic_update.CriticSettings"
    command = ["train.py", "--config-dir", "settings", "experiment=mine", "algo=ppo", *QUICK, critic]
    done = scripts.run(command, here)
    assert done.status == 0, done.said
    for setting, old, new in (
        ("logger", "ngrpo.loggers.Csv", "ngrpo.loggers.csv.Csv"),
        ("callbacks.rollout", "callbacks.rollout.RolloutCallback", "ngrpo.callbacks.rollout.RolloutCallback"),
        ("trainer.schedule", "ngrpo.schedule.cosine", "ngrpo.training.optim.lr_schedule.cosine"),
        ("critic", "ngrpo.critic_update.CriticSettings", "ngrpo.training.critic_update.CriticSettings"),
    ):
        assert done.said.count(f"{setting}._target_={old} has moved; write {setting}._target_={new}.") == 1
