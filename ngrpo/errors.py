"""The one exception type for mistakes that a user can mend."""


class SettingError(ValueError):
    """A setting cannot work; the message names it, its value and the remedy in one sentence."""
