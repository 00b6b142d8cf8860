r"""The verifier: the equality of two written answers.

The text of a response goes through these files from top to bottom. Its answer is read in a few ways
(`reading.MAX_READINGS`), all of them readings of one statement, and two answers are equal if a reading of one equals
one of the other. A text that holds several candidate values is none of them; it equals only that very collection.
`docs/answer_checking.md` lists what this means for each kind of answer. Nothing else of the package is imported here.

1. The box, searched in the trainer's process:

- ``boxed.py``: The stated answer of a response: the last ``\boxed{...}`` after the reasoning

2. The text of the box in one notation:

- ``notation.py``: The one notation for what is written in many: ``\dfrac12``, ``½`` and ``\tfrac{1}{2}`` become
  ``\frac{1}{2}``
- ``characters.py``: Characters that people type instead of LaTeX, each with its LaTeX
- ``scan.py``: A scanner of LaTeX text that respects its brackets

3. The readers, the first of which that can read the text decides, and what they make of it:

- ``read.py``: The reader of answers: from the text of an answer to its readings
- ``reading.py``: Answers and their readings, and the equality of two answers

   words and introductions:

- ``words.py``: Answers in words, and the letters of multiple choice: ``\text{East}`` is ``east``, ``\text{(B)}`` is
  ``B``
- ``leads.py``: Words that introduce an answer: ``The answer is 5``, ``\text{Total area} = 12``
- ``names.py``: Names of what an answer gives a value to: ``x``, ``f(3)``, ``\angle ABC``, ``\frac{AB}{CD}``, ``(n,
  k)``

   several values, and relations between them:

- ``several.py``: Lists without brackets: values, points, pieces of a set, conditions on an unknown, named values
- ``collections.py``: Several answers in one: lists and sets without order, pairs and tuples with one
- ``assignments.py``: Values of several names: ``n = 7, k = 2``, ``(n, k) = (7, 2)``, and several such solutions
- ``relations.py``: Equations, inequalities and memberships: ``x = 5``, ``0 < x < 1``, ``x \in (0,1)``, ``2x + 4y =
  3``
- ``regions.py``: Sets of real numbers: intervals, their unions, ``\mathbb{R}`` without some points, solutions of
  inequalities
- ``approximations.py``: Approximations, ``\sqrt{2} \approx 1.414``: the left side rounded to the digits written on
  the right

   one value:

- ``quantity.py``: A value with or without a unit
- ``units.py``: Units of measure, percent signs, degrees and currencies around a number
- ``unit_names.py``: The names of units: ``square inches`` and ``inches^2`` are both ``in^2``, ``miles per hour`` is
  ``mph``
- ``nouns.py``: Nouns behind a number: what is counted, ``12 apples`` or ``20 different ways``, and words that are no
  such thing
- ``rationals.py``: Numbers read exactly and without a parser: ``1,000.5``, ``1\frac{1}{2}``, ``3\times10^5``,
  ``0.\overline{3}``
- ``bases.py``: Numbers written in a base: ``101_2``, ``1A_{16}``, ``101_{\text{two}}``, ``101 base 2``
- ``clock.py``: Times of day and ratios, mostly written with colons
- ``matrices.py``: Matrices and column vectors, with a factor in front or not; determinants are left to the grammar of
  expressions

4. Expressions: evaluated within limits, and compared by value:

- ``expression.py``: Arithmetic expressions: their exact value, the numbers in them, and one form for all that do the
  same
- ``latex.py``: LaTeX to SymPy: math-verify's grammar, its tree evaluated within limits and its decimals made exact
- ``latex_grammar.py``: The adapter to math-verify's LaTeX grammar (latex2sympy2_extended), of which nothing else is
  used
- ``limits.py``: Limits on what is computed, however short it is to write: ``9^{9^{9^9}}`` or ``(10!)!``
- ``values.py``: The equality of two expressions by value
"""
