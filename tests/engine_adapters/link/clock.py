"""A clock that stands still, and the model of the entries."""

MODEL = "a model"


class Clock:
    def __init__(self) -> None:
        self.now_s = 1000.7

    def __call__(self) -> float:
        return self.now_s
