"""vLLM's worker, which hears how many steps the scheduler wants with a batch (``worker_cls``)."""

from typing import TYPE_CHECKING, Any

from vllm.platforms import current_platform

from ngrpo.rollout.vllm.attachment import attachment_of
from ngrpo.rollout.vllm.settings import burst_of

if TYPE_CHECKING:
    Base: Any
elif current_platform.is_cpu():
    from vllm.v1.worker.cpu_worker import CPUWorker as Base
else:
    from vllm.v1.worker.gpu_worker import Worker as Base


class BurstWorker(Base):
    """The platform's worker."""

    def execute_model(self, scheduler_output: Any, *args: Any, **kwargs: Any) -> Any:
        """Runs a batch; what a burst has beyond its first step is made when the first tokens have been chosen."""
        steps = burst_of(scheduler_output)
        if steps > 1:
            attachment_of(self.get_model()).runner.bursts.expect(steps, self.model_runner)
        return super().execute_model(scheduler_output, *args, **kwargs)
