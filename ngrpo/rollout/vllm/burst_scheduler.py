"""The scheduler of bursts: while rows do nothing but decode, each gets room for several tokens at once."""

from typing import Any

from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.output import SchedulerOutput
from vllm.v1.outputs import ModelRunnerOutput
from vllm.v1.request import Request

from ngrpo.rollout.vllm import plugin
from ngrpo.rollout.vllm.burst_length import BurstLength, most_steps
from ngrpo.rollout.vllm.settings import burst_of, is_ours, note_burst, settings_of

plugin.install()  # where the entry point is not: ``VLLM_PLUGINS`` leaves it out, or ngrpo runs from a checkout


class BurstScheduler(AsyncScheduler):
    """vLLM's scheduler, which gives rows that decode their slots for N tokens (``scheduler_cls``).

    The workers then make N steps, and hand back up to N tokens a row. A single step is scheduled while a request could
    start, prompts are prefilled, blocks run short, or others than our requests run.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        settings = settings_of(self.vllm_config)
        self._most = settings.burst if settings is not None and _possible(self.vllm_config) else 1
        self._length = BurstLength(self._most)
        self._steps = 1

    def limit_bursts(self, steps: int) -> None:
        """Makes bursts of at most so many steps from now on, never more than the engine was started for."""
        self._length = BurstLength(min(steps, self._most))

    def schedule(self, *args: Any, **kwargs: Any) -> SchedulerOutput:
        """Schedules a step, or a burst of them."""
        for request in self.running:
            if _remaining(request) <= 0:  # all its tokens are being made
                request.next_decode_eligible_step = self.current_step + 2
        self._steps = self._burst()
        self.num_lookahead_tokens = self._steps - 1
        try:
            return super().schedule(*args, **kwargs)
        finally:
            self.num_lookahead_tokens = 0

    def update_from_output(self, scheduler_output: SchedulerOutput, model_runner_output: ModelRunnerOutput) -> Any:
        """Takes the tokens of a step or a burst."""
        steps = burst_of(scheduler_output)
        if steps > 1:
            made = sum(map(len, model_runner_output.sampled_token_ids))
            self._length.observe(made, steps * len(scheduler_output.num_scheduled_tokens))
        return super().update_from_output(scheduler_output, model_runner_output)

    def _burst(self) -> int:
        """Returns the number of steps that the running rows can make now."""
        rows = [request for request in self.running if _remaining(request) > 0]
        could_start = self.get_request_counts()[1] > 0 and len(self.running) < self.max_num_running_reqs
        if not rows or could_start or not all(map(_decodes, rows)):
            return 1
        steps = self._length.steps(max(map(_remaining, rows)))
        if len(self.running) < self.max_num_running_reqs:
            steps = min(steps, most_steps([*map(_made, rows)]))
        free = self.kv_cache_manager.block_pool.get_num_free_blocks()
        while steps > 1 and len(rows) * self._blocks(steps) > free:
            steps //= 2
        return steps

    def _blocks(self, tokens: int) -> int:
        """Returns the most blocks that so many more tokens of a row can need."""
        groups = self.kv_cache_config.kv_cache_groups
        return sum(1 + (tokens - 1) // group.kv_cache_spec.block_size for group in groups)

    def _update_after_schedule(self, scheduler_output: SchedulerOutput) -> None:
        """Counts the tokens that a burst will make as computed, as vLLM does with those of a step."""
        super()._update_after_schedule(scheduler_output)
        scheduled = scheduler_output.num_scheduled_tokens
        tokens = scheduler_output.total_num_scheduled_tokens  # none while vLLM is paused
        decode_alone = 0 < tokens == len(scheduled) and not scheduler_output.preempted_req_ids
        steps = self._steps if decode_alone else 1
        note_burst(scheduler_output, steps)
        for request_id in scheduled:
            request = self.requests[request_id]
            if request.is_prefill_chunk:
                continue
            more = min(steps - 1, max(0, _remaining(request)))
            request.num_computed_tokens += more
            request.num_output_placeholders += more


def _possible(vllm_config: Any) -> bool:
    """Says whether the workers can advance rows by themselves.

    Not in vLLM's old runner; where a row's cache lies on several GPUs; where a token's position is not a number; where
    vLLM embeds the tokens before each forward, and its graphs read the embeddings.
    """
    alone = vllm_config.parallel_config.decode_context_parallel_size == 1 and vllm_config.kv_transfer_config is None
    model = vllm_config.model_config
    embedded_before = model.is_multimodal_model or model.enable_prompt_embeds
    return vllm_config.use_v2_model_runner and alone and not (model.uses_mrope or embedded_before)


def _remaining(request: Request) -> int:
    """Returns the tokens that a request may still be given, beside those that are being made for it."""
    most = request.num_prompt_tokens + request.max_tokens
    made: int = most - request.num_tokens - request.num_output_placeholders
    return made


def _made(request: Request) -> int:
    """Returns the tokens of a response, with those that are being made."""
    made: int = request.num_output_tokens + request.num_output_placeholders
    return made


def _decodes(request: Request) -> bool:
    """Says whether a request is ours, and all but the last of its tokens have been computed."""
    computed = request.num_computed_tokens - request.num_output_placeholders
    return computed == request.num_tokens - 1 and is_ours(request.sampling_params)
