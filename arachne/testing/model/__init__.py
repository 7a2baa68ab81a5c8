"""The contract of a backend checked on one model of the user's, without pytest: `check_model`."""

from __future__ import annotations

from arachne.testing.model.checks import CHECKS, Check
from arachne.testing.model.subject import NotHereError, Subject
from arachne.testing.outcome import FAILED, PASSED, SKIPPED, Outcome

__all__ = ["Subject", "check_model"]


def check_model(subject: Subject) -> tuple[Outcome, ...]:
    """Every check in turn; the model's weights are as before when it ends."""
    return tuple(_run(subject, operation, check) for operation, checks in CHECKS.items() for check in checks)


def _run(subject: Subject, operation: str, check: Check) -> Outcome:
    sentence = " ".join(str(check.__doc__).split())
    try:
        check(subject)
    except NotHereError as reason:
        return Outcome(operation, sentence, SKIPPED, str(reason))
    except Exception as error:  # whatever a backend does wrong is what is asked for
        message = " ".join(str(error).split())
        named = message if isinstance(error, AssertionError) else f"{type(error).__name__}: {message}"
        return Outcome(operation, sentence, FAILED, named)
    finally:
        subject.restore()
    return Outcome(operation, sentence, PASSED)
