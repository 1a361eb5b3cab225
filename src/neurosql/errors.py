"""The one exception for input that can't be used."""


class InputError(ValueError):
    """What the caller gave can't be used. The message says what was wrong, with the value, and what to do."""
