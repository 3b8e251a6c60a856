"""A batch system's signal ends a command, also where Python would lose the exception."""

import os
import signal
import sys
import time
import weakref

import pytest

from rubix_like.termination import orderly_termination


class Thing:
    """Something that can be taken away."""


@pytest.fixture
def usual_handler():
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


def end_here(*arguments):
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(0.01)  # the handler is called while this function runs


def test_the_signal_leaves_the_block(usual_handler):
    hook = sys.unraisablehook
    with pytest.raises(SystemExit) as caught, orderly_termination():
        end_here()
        pytest.fail("the block went on")
    assert caught.value.code == 128 + signal.SIGTERM
    assert sys.unraisablehook is hook


def test_an_exit_that_is_lost_is_tried_again(usual_handler):
    """Exceptions in the callback of a weak reference are ignored by Python."""
    with pytest.raises(SystemExit) as caught, orderly_termination():
        thing = Thing()
        reference = weakref.ref(thing, end_here)
        del thing
        assert reference() is None
        time.sleep(5)
        pytest.fail("the exit was lost")
    assert caught.value.code == 128 + signal.SIGTERM
