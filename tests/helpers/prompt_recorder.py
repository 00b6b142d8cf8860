"""A callback from outside the package, for the tests: writes which problems each iteration trained on."""

from pathlib import Path

from lightning import Callback


class PromptRecorder(Callback):
    def __init__(self, path: str) -> None:
        self.path = Path(path)

    # At the start: a run that is killed as soon as its checkpoint exists has not reached the end of the batch.
    def on_train_batch_start(self, trainer, pl_module, batch, batch_idx) -> None:
        with self.path.open("a") as file:
            file.write(f"{batch.iteration} {[prompt.problem.key for prompt in batch.prompts]}\n")
