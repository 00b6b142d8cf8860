"""Prompts: sources, chat templates, the data module."""
