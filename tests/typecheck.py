"""What checks the package's annotations while the tests run, and how a test looks past it."""

import re
from contextlib import contextmanager

import jaxtyping
import pytest
from beartype import BeartypeConf, beartype

# A whole number is fine where a float is asked for, as it is for every type checker that reads the source.
_checked = beartype(conf=BeartypeConf(is_pep484_tower=True))

# These tell a learner what is wrong with an argument better than an annotation can, so they are left to do it.
_CHECK_THEIR_OWN = {"SamplingParams.__init__"}


def typecheck(function):
    """Check a function's arguments and result at every call; conftest.py hands this to jaxtyping's hook."""
    return function if function.__qualname__ in _CHECK_THEIR_OWN else _checked(function)


@contextmanager
def unchecked():
    """Run the package as learners do: with its annotations unchecked."""
    before = jaxtyping.config.jaxtyping_disable
    jaxtyping.config.update("jaxtyping_disable", True)
    try:
        yield
    finally:
        jaxtyping.config.update("jaxtyping_disable", before)


@contextmanager
def refused(*words: object):
    """Expect a ValueError of the package's own, seen by learners too, whose message holds all the words."""
    pattern = "".join(f"(?=.*{re.escape(str(word))})" for word in words)
    with unchecked(), pytest.raises(ValueError, match=f"(?s){pattern}"):
        yield
