"""Does exploration help? Many small runs, compared with intervals over seeds; see ``scripts/study.py``."""
