"""Triton kernels whose result for a row does not depend on the other rows; imported on a GPU only.

- ``attention.py``: Causal attention in which each query walks the keys in blocks from the first on
- ``products.py``: The product of rows with a weight matrix, each sum in one order
- ``rows.py``: Norms and token scores, a row at a time
"""
