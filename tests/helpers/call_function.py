"""Calls a function of a test's file with the rank and an argument; run by `forked.call_in_ranks`."""

import importlib
import os
import sys

if __name__ == "__main__":
    module, function, argument = sys.argv[1:]
    getattr(importlib.import_module(module), function)(int(os.environ["RANK"]), argument)
