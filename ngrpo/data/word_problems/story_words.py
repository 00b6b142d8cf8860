"""The words of the demo's stories, one tuple for each slot.

The words of a slot are interchangeable: they are drawn independently in the question and in the written
reasoning, so that a model trained on the stories gives them neighbouring embeddings.
"""

NAMES = {
    "she": ("Anna", "Emma", "Lily", "Mia", "Nora", "Rosa"),
    "he": ("Ben", "Jack", "Leo", "Max", "Sam", "Tom"),
}
OBJECTS = (
    "apples",
    "pears",
    "plums",
    "lemons",
    "peaches",
    "marbles",
    "balls",
    "cards",
    "stamps",
    "coins",
    "books",
    "pens",
)
CONTAINERS = ("bags", "boxes", "jars", "bowls", "crates", "baskets")
HAVE = ("has", "owns", "holds", "keeps", "carries")
GAIN = ("finds", "buys", "gets", "wins", "collects", "gathers", "earns")
LOSE = ("loses", "sells", "drops", "trades", "donates", "returns", "wastes")
LINKS = ("Then", "Later", "Next", "Soon", "Afterwards")
ENDS = ("now", "today", "overall")
NUMBERS = (
    "zero",
    "one",
    "two",
    "three",
    "four",
    "five",
    "six",
    "seven",
    "eight",
    "nine",
    "ten",
    "eleven",
    "twelve",
    "thirteen",
    "fourteen",
    "fifteen",
    "sixteen",
    "seventeen",
    "eighteen",
    "nineteen",
    "twenty",
)
# The words of an answer given without calculating.
POINTERS = ("This", "That", "It")
SEEMS = ("is", "looks", "seems")
EASY = ("easy", "simple", "clear", "plain")
