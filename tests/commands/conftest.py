"""Training that is stopped where it takes a moment to stop."""

import signal
from itertools import count

import pytest

from mimex.train.evaluate import evaluate


@pytest.fixture
def stops_in_evaluation(monkeypatch):
    """Lets SIGTERM come at the beginning of the nth evaluation from here."""

    def stop_in(number):
        numbers = count(1)

        def stopped(*arguments, **settings):
            if next(numbers) == number:
                signal.raise_signal(signal.SIGTERM)
            return evaluate(*arguments, **settings)

        monkeypatch.setattr("mimex.train.runner.evaluate", stopped)

    return stop_in
