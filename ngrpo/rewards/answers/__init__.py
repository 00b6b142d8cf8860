r"""Whether two written answers say the same.

An answer is read in a few ways (`reading.MAX_READINGS`), all of them readings of one statement, and two answers are
equal if a reading of one equals one of the other. A text that holds several candidate values is none of them; it
equals only that very collection. `docs/verifier.md` lists what this means for each kind of answer.
"""
