"""Evaluation: Mean@k, Pass@k, reports."""
