"""VLLM's worker with what is ours: the methods that our engine calls, and the steps of bursts."""

from typing import TYPE_CHECKING, Any

from vllm.platforms import current_platform

from ngrpo.rollout.vllm.attachment import attachment_of
from ngrpo.rollout.vllm.private import import_before_loading
from ngrpo.rollout.vllm.settings import burst_of
from ngrpo.rollout.vllm.worker_methods import WorkerMethods

if TYPE_CHECKING:
    from vllm.v1.worker.worker_base import WorkerBase as Worker
elif current_platform.is_cpu():
    from vllm.v1.worker.cpu_worker import CPUWorker as Worker
else:
    from vllm.v1.worker.gpu_worker import Worker


class MixingWorker(WorkerMethods, Worker):
    """The platform's worker (``worker_cls``)."""

    def load_model(self, *args: Any, **kwargs: Any) -> None:
        """Loads the model."""
        import_before_loading()
        super().load_model(*args, **kwargs)

    def execute_model(self, scheduler_output: Any, *args: Any, **kwargs: Any) -> Any:
        """Runs a batch; what a burst has beyond its first step is made when the first tokens have been chosen."""
        steps = burst_of(scheduler_output)
        if steps > 1:
            attachment_of(self.get_model()).runner.bursts.expect(steps, self)
        return super().execute_model(scheduler_output, *args, **kwargs)
