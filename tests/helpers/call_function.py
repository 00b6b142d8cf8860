"""Calls a function of a test's file, with the rank first if there is one, and prints what it returns as JSON.

Run by `forked`.
"""

import importlib
import json
import os
import sys

if __name__ == "__main__":
    module, function, arguments = sys.argv[1:]
    rank = [int(os.environ["RANK"])] if "RANK" in os.environ else []
    print(json.dumps(getattr(importlib.import_module(module), function)(*rank, *json.loads(arguments))))
