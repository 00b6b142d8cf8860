r"""Whether two written answers say the same.

An answer is read in a few ways (`reading.MAX_READINGS`), all of them readings of one statement, and two answers are
equal if a reading of one equals one of the other. A text that holds several candidate values is none of them; it
equals only that very collection. `docs/verifier.md` lists what this means for each kind of answer.

- ``approximations.py``: Approximations, ``\sqrt{2} \approx 1.414``: the right side must be the left one rounded to
  the digits written
- ``assignments.py``: Values of several names: ``n = 7, k = 2``, ``(n, k) = (7, 2)``, and several such solutions
- ``bases.py``: Numbers written in a base: ``101_2``, ``1A_{16}``, ``101_{\text{two}}``, ``101 base 2``
- ``boxed.py``: Where a response states its answer: the last ``\boxed{...}`` after the reasoning
- ``characters.py``: Characters that people type instead of LaTeX, each with its LaTeX
- ``clock.py``: Times of day and ratios, mostly written with colons
- ``collections.py``: Several answers in one: lists and sets without order, pairs and tuples with one
- ``latex.py``: LaTeX to SymPy: math-verify's grammar, its tree evaluated within limits and its decimals made exact
- ``leads.py``: Words that introduce an answer: ``The answer is 5``, ``\text{Total area} = 12``
- ``limits.py``: What is not computed, however short it is to write: ``9^{9^{9^9}}`` or ``(10!)!``
- ``matrices.py``: Matrices and column vectors, with a factor in front or not; determinants are left to the grammar of
  expressions
- ``names.py``: Names of what an answer gives a value to: ``x``, ``f(3)``, ``\angle ABC``, ``\frac{AB}{CD}``, ``(n,
  k)``
- ``notation.py``: One notation for what is written in many: ``\dfrac12``, ``½`` and ``\tfrac{1}{2}`` become
  ``\frac{1}{2}``
- ``nouns.py``: What is counted, ``12 apples`` or ``20 different ways``, and words behind a number that are no such
  thing
- ``quantity.py``: A value with or without a unit
- ``rationals.py``: Numbers read exactly and without a parser: ``1,000.5``, ``1\frac{1}{2}``, ``3\times10^5``,
  ``0.\overline{3}``
- ``read.py``: From the text of an answer to what it can be read as
- ``reading.py``: What an answer can be read as, and when two readings agree
- ``regions.py``: Sets of real numbers: intervals, their unions, ``\mathbb{R}`` without some points, solutions of
  inequalities
- ``relations.py``: Equations, inequalities and memberships: ``x = 5``, ``0 < x < 1``, ``x \in (0,1)``, ``2x + 4y =
  3``
- ``scan.py``: Reading LaTeX with an eye on its brackets
- ``several.py``: Lists without brackets: values, points, pieces of a set, conditions on an unknown, named values
- ``unit_names.py``: The names of units: ``square inches`` and ``inches^2`` are both ``in^2``, ``miles per hour`` is
  ``mph``
- ``units.py``: Units of measure, percent signs, degrees and currencies around a number
- ``values.py``: Whether two expressions have the same value
- ``words.py``: Answers in words, and the letters of multiple choice: ``\text{East}`` is ``east``, ``\text{(B)}`` is
  ``B``
"""
