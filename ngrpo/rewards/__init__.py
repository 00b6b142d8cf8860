r"""Rewards: the verifier of answers, further terms, and processes that isolate custom ones.

- ``answers/``: The verifier: the equality of two written answers
- ``countdown.py``: The countdown reward: an expression of given numbers, each used once, that reaches the target
- ``formulas.py``: Text as formulas: their numbers and letters, and the operators between them, whatever notation they
  are written in
- ``functions/``: Reward functions as people write them: of completions and named columns, returning numbers
- ``grade_cache.py``: Grades of a judge on disk, so that what has been asked before is answered as it was
- ``isolation/``: Rewards in processes of their own, which can be killed
- ``llm_judge.py``: An LLM judge: a model behind an OpenAI-compatible endpoint that grades completions
- ``math.py``: The mathematics reward: the boxed answer, compared with the reference
- ``plain_texts.py``: The mathematics reward for the texts of any program, TRL's reward functions among them
- ``protocol.py``: The protocol of rewards
- ``reasoning.py``: The reasoning block that a prompt opens, as a reward sees it
- ``reward_model.py``: A reward model: a sequence classifier of transformers that scores a chat
- ``terms/``: Reward terms: what is added to correctness, by weight
- ``unevaluated.py``: Unevaluated answers, which leave to the reader what the question asks for: ``\binom{8}{2}`` of
  it, for 28
"""
