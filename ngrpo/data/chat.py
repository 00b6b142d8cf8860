"""From a problem to token ids."""

from dataclasses import dataclass

from jinja2 import TemplateError
from transformers import PreTrainedTokenizerBase

from ngrpo.data.types import LeftOut, Problem, Prompt
from ngrpo.errors import SettingError


@dataclass(frozen=True)
class PromptBuilder:
    """Applies the tokenizer's chat template, or the plain question where it has none.

    Attributes:
        tokenizer: the model's tokenizer.
        max_prompt_tokens: longer prompts are left out; a prompt is never cut, which would break the template.
        instruction: appended to the question after a line break, e.g. how to mark the final answer.
        system_prompt: the system message, if any; precedes the question where there is no template.
    """

    tokenizer: PreTrainedTokenizerBase
    max_prompt_tokens: int
    instruction: str | None = None
    system_prompt: str | None = None

    def __call__(self, problem: Problem) -> Prompt | LeftOut:
        """Return the prompt of `problem`, or `LeftOut` if it is too long."""
        ids = self._template_ids(problem) if self.tokenizer.chat_template else self._plain_ids(problem)
        return Prompt(problem, tuple(ids)) if len(ids) <= self.max_prompt_tokens else LeftOut("prompt_too_long")

    def _template_ids(self, problem: Problem) -> list[int]:
        messages = [{"role": "user", "content": self._user_text(problem)}]
        if self.system_prompt:
            messages.insert(0, {"role": "system", "content": self.system_prompt})
        try:
            # Tokenised in one go, without special tokens: the template has written its own BOS.
            return self.tokenizer.apply_chat_template(
                messages, add_generation_prompt=True, tokenize=True, return_dict=False
            )
        except TemplateError as error:
            if self.system_prompt is None:
                raise SettingError(
                    f"model.path={self.tokenizer.name_or_path} has a chat template that cannot be applied ({error});"
                    " mend it, or save the tokenizer of another model beside it."
                ) from error
            raise SettingError(
                f"data.system_prompt={self.system_prompt!r} does not suit the chat template ({error});"
                " change or unset it."
            ) from error

    def _plain_ids(self, problem: Problem) -> list[int]:
        text = self._user_text(problem)
        if self.system_prompt:
            text = f"{self.system_prompt}\n{text}"
        ids = self.tokenizer(f"{text}\n")["input_ids"]
        # Keep the BOS of tokenizers that put one, but the answer is yet to come.
        return ids[:-1] if ids[-1] == self.tokenizer.eos_token_id else ids

    def _user_text(self, problem: Problem) -> str:
        return f"{problem.question}\n{self.instruction}" if self.instruction else problem.question
