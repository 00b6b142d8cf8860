"""Exact computation: a token's numbers depend on its sequence and the weights alone, bit for bit.

Trainer and torch engine run the same modules; sums are added in an order that neither the number of rows nor a row's
place among them changes. The backward pass is made by ordinary kernels.

- ``model.py``: A language model made exact: all that it computes gives a token the same numbers in any batch
- ``linear.py``: A linear map whose result for a row depends on the row and the weights alone
- ``norm.py``: The root-mean-square norm of Llama and its kin, each row on its own
- ``causal_attention.py``: Causal attention whose result for a token depends on its own query and the keys and values
  up to it alone
- ``token_scores.py``: Log-prob, entropy and normaliser of each row of logits, on its own
- ``number_by_number.py``: Functions of single numbers, each number computed as every other is, for a CPU
- ``calls.py``: A strategy's own calls of linear maps and products, replaced by exact ones while the strategy runs
- ``order_free.py``: Sums that do not depend on their order, for a CPU: its libraries add in an order of their own
- ``value_and_gradient.py``: The value of one function with the gradient of another: a fixed order of sums forward,
  ordinary kernels backward
- ``kernels/``: Triton kernels whose result for a row does not depend on the other rows; imported on a GPU only
"""
