"""Completions and chat completions as OpenAI's clients know them, with a strategy and a key."""

from typing import Any

import pytest
from running_server import QUESTION, RunningServer

import ngrpo
from ngrpo.remote.explorer import RemoteExplorer

MESSAGES = [{"role": "user", "content": QUESTION}]
NEIGHBOR = {"name": "neighbor", "rate": 0.4}


def test_a_chat_is_what_sample_makes(server: RunningServer) -> None:
    body = {"model": "demo", "messages": MESSAGES, "n": 3, "key": 7, "exploration": NEIGHBOR}
    said = server.post("/v1/chat/completions", body)
    made = ngrpo.sample("demo", QUESTION, exploration=NEIGHBOR, n=3, seed=7, accelerator="cpu")
    assert [one["message"]["content"] for one in said["choices"]] == [one.text for one in made]
    assert [one["mixed_positions"] for one in said["choices"]] == [len(one.mixed) for one in made]
    assert [one["finish_reason"] for one in said["choices"]] == [one.stop_reason for one in made]
    assert said["usage"]["completion_tokens"] == sum(one.length for one in made)
    assert said["usage"]["prompt_tokens"] == len(made[0].prompt_ids)
    assert said["system_fingerprint"] == RemoteExplorer(server.url).weights()[server.url]["version"]
    assert said["object"] == "chat.completion"


def test_the_seed_is_the_key_where_there_is_none(server: RunningServer) -> None:
    by_key, by_seed, other = (
        server.post("/v1/chat/completions", {"messages": MESSAGES, **words})["choices"][0]["message"]
        for words in ({"key": 7}, {"seed": 7}, {"seed": 7, "key": 8})
    )
    assert by_key == by_seed != other


def test_without_a_key_each_answer_is_another(server: RunningServer) -> None:
    body = {"messages": MESSAGES, "exploration": {"name": "token"}}
    answers = {
        server.post("/v1/chat/completions", body)["choices"][0]["message"]["content"] for _ in range(8)
    }  # one of 8 equal pairs is usual with short answers
    assert len(answers) > 1


def test_log_probs_and_ids_are_told_on_request(server: RunningServer) -> None:
    body = {"messages": MESSAGES, "key": 3, "logprobs": True, "return_token_ids": True}
    (choice,) = server.post("/v1/chat/completions", body)["choices"]
    (rollout,) = RemoteExplorer(server.url).rollout(QUESTION, seed=3)
    assert choice["token_ids"] == rollout.response_ids.tolist()
    assert choice["prompt_token_ids"] == rollout.prompt_ids.tolist()
    assert [one["logprob"] for one in choice["logprobs"]["content"]] == rollout.log_probs.tolist()
    body = {"prompt": rollout.prompt_ids.tolist(), "key": 3, "logprobs": 1}
    (choice,) = server.post("/v1/completions", body)["choices"]
    assert choice["logprobs"]["token_logprobs"] == rollout.log_probs.tolist()
    assert "".join(choice["logprobs"]["tokens"]).startswith(choice["text"])


def test_completions_take_texts_ids_and_lists_of_them(server: RunningServer) -> None:
    for prompt, count in (("Tom has", 2), ([5, 6], 2), (["Tom", "Ann has"], 4), ([[5, 6], [7]], 4)):
        said = server.post("/v1/completions", {"prompt": prompt, "n": 2, "key": 1, "max_tokens": 3})
        assert [one["index"] for one in said["choices"]] == list(range(count))
        assert all(one["finish_reason"] in ("length", "stop") for one in said["choices"])
        assert said["object"] == "text_completion"


def test_the_model_is_listed(server: RunningServer) -> None:
    _, said, _ = server.ask("GET", "/v1/models")
    assert [one["id"] for one in said["data"]] == ["demo"]


@pytest.mark.parametrize(
    ("field", "said"),
    [
        ({"top_p": 0.9}, 'exploration={"name": "token", "top_p": 0.9}'),
        ({"stream": 1}, "give true or false"),
        ({"stream_options": {"include_usage": True}}, "leave it out, or set stream=true"),
        ({"stop": [""]}, "give at most 16 texts of 1 to 256 characters"),
        ({"stop": 5}, "give at most 16 texts of 1 to 256 characters"),
        ({"stop": ["a"] * 17}, "give at most 16 texts of 1 to 256 characters"),
        ({"tools": [{"type": "function"}]}, "it is not served here"),
        ({"presence_penalty": 0.5}, "presence_penalty=0.5"),
        ({"temperature": 0}, "give a number in [0.01, 100]"),
        ({"temperature": 1e-320}, "give a number in [0.01, 100]"),
        ({"n": 0}, "give a whole number in [1, 1024]"),
        ({"n": 5000}, "give a whole number in [1, 1024]"),
        ({"max_tokens": 100000}, "give a whole number in [1, 64]"),
        ({"max_tokens": 5, "max_completion_tokens": 5}, "are two names of one setting; give one"),
        ({"logprobs": 5}, "the chosen tokens' are told only"),
        ({"messages": [{"role": "assistant", "content": "x"}]}, "messages are no conversation"),
        ({"messages": [{"role": "user", "content": "x " * 500}]}, "the prompt cannot be used (prompt too long)"),
        ({"unheard_of": 1}, "'unheard_of' is not served here"),
    ],
)  # fmt: skip
def test_what_a_rollout_cannot_do_is_refused(server: RunningServer, field: dict[str, Any], said: str) -> None:
    assert said in server.refusal("/v1/chat/completions", {"messages": MESSAGES} | field)


def test_what_asks_for_nothing_is_taken(server: RunningServer) -> None:
    harmless = {"top_p": 1, "stream": False, "stop": None, "presence_penalty": 0, "user": "me", "logit_bias": {}}
    server.post("/v1/chat/completions", {"messages": MESSAGES, "max_completion_tokens": 2, **harmless})


def test_another_model_is_not_found(server: RunningServer) -> None:
    said = server.refusal("/v1/chat/completions", {"messages": MESSAGES, "model": "other"}, status=404)
    assert said == "model=other is not served here; ask for demo."
