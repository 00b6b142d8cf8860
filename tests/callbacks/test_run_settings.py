"""The settings in every logger."""

from fake_run import trainer

from ngrpo.callbacks.run_settings import RunSettings


def test_settings_are_logged_nested_and_as_text_on_rank_0() -> None:
    settings = {"seed": 0, "model": {"path": "demo"}}
    callback = RunSettings(settings, {"algo": "gspo"})
    run = trainer()
    callback.on_train_start(run, None)
    (logger,) = run.loggers
    assert logger.settings == settings | {"methods": {"algo": "gspo"}}
    ((tag, text, step),) = logger.media
    assert (tag, text.markdown, step) == ("config", "```yaml\nseed: 0\nmodel:\n  path: demo\n```", 0)
    other = trainer()
    other.is_global_zero = False
    callback.on_train_start(other, None)
    assert other.loggers[0].media == []
