"""Characters that people type instead of LaTeX, each with its LaTeX."""

_COMMANDS = {
    "×": r"\times",
    "⋅": r"\cdot",
    "·": r"\cdot",
    "∙": r"\cdot",
    "÷": r"\div",
    "±": r"\pm",
    "∓": r"\mp",
    "∞": r"\infty",
    "≤": r"\le",
    "≥": r"\ge",
    "⩽": r"\le",
    "⩾": r"\ge",
    "≠": r"\ne",
    "≈": r"\approx",
    "∪": r"\cup",
    "∩": r"\cap",
    "∈": r"\in",
    "∖": r"\setminus",
    "∅": r"\emptyset",
    "ℝ": r"\mathbb{R}",
    "ℤ": r"\mathbb{Z}",
    "√": r"\sqrt",
    "∠": r"\angle",
    "π": r"\pi",
    "α": r"\alpha",
    "β": r"\beta",
    "γ": r"\gamma",
    "δ": r"\delta",
    "θ": r"\theta",
    "λ": r"\lambda",
    "μ": r"\mu",
    "σ": r"\sigma",
    "φ": r"\phi",
    "ω": r"\omega",
    "⟨": r"\langle",
    "⟩": r"\rangle",
}
_FRACTIONS = {"½": (1, 2), "⅓": (1, 3), "⅔": (2, 3), "¼": (1, 4), "¾": (3, 4), "⅕": (1, 5), "⅛": (1, 8), "⅜": (3, 8)}
_PLAIN = {"−": "-", "–": "-", "—": "-", "﹣": "-", "°": r"^\circ", "％": r"\%", "，": ",", "（": "(", "）": ")"}
_PLAIN |= {"：": ":", "“": '"', "”": '"', "’": "'", "‘": "'", "′": "'", "\u00a0": " ", "\u2009": " ", "\u202f": " "}

TO_LATEX = str.maketrans(
    _PLAIN
    | {character: command + " " for character, command in _COMMANDS.items()}
    | {character: rf"\frac{{{a}}}{{{b}}}" for character, (a, b) in _FRACTIONS.items()}
    | {character: f"^{digit}" for digit, character in enumerate("⁰¹²³⁴⁵⁶⁷⁸⁹")}
)
