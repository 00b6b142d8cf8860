"""A word-level tokenizer with a chat template, small enough to read."""

from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

CHAT_TEMPLATE = (
    "{{ bos_token }}{% for m in messages %}<{{ m['role'] }}> {{ m['content'] }} <end> {% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)
SPECIAL = ["<unk>", "<bos>", "<eos>", "<user>", "<system>", "<assistant>", "<end>"]
WORDS = ["what", "is", "please", "box", "plus", "be", "brief", *map(str, range(100))]


def tiny_tokenizer(chat_template: str | None = CHAT_TEMPLATE) -> PreTrainedTokenizerFast:
    """Adds a BOS and an EOS of its own to plain text, as some real tokenizers do."""
    vocab = {token: index for index, token in enumerate(SPECIAL + WORDS)}
    backend = Tokenizer(models.WordLevel(vocab, unk_token="<unk>"))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    backend.post_processor = processors.TemplateProcessing(
        single="<bos> $A <eos>", special_tokens=[("<bos>", vocab["<bos>"]), ("<eos>", vocab["<eos>"])]
    )
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backend,
        unk_token="<unk>",
        bos_token="<bos>",
        eos_token="<eos>",
        additional_special_tokens=["<user>", "<system>", "<assistant>", "<end>"],
    )
    tokenizer.chat_template = chat_template
    return tokenizer
