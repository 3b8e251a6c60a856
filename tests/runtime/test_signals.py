"""A batch system's signal ends a command, also where Python would lose the exception."""

import os
import signal
import sys
import time
import weakref

import pytest

from rubix_like.runtime.exit_codes import orderly_termination


class Thing:
    """Something that can be taken away."""


@pytest.fixture
def usual_handler():
    """Ctrl-C is Python's: a shell's background jobs ignore it, and so would these tests."""
    before = signal.getsignal(signal.SIGTERM)
    interrupt = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, interrupt)
    signal.signal(signal.SIGTERM, before)


def end_here(*arguments):
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(0.01)  # the handler is called while this function runs


def signalled():
    with orderly_termination():
        end_here()
        pytest.fail("the block went on")


def interrupt_here(*arguments):
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(0.01)


def signalled_where_it_is_lost(how=end_here):
    """Exceptions in the callback of a weak reference are ignored by Python."""
    with orderly_termination():
        thing = Thing()
        reference = weakref.ref(thing, how)
        del thing
        assert reference() is None
        time.sleep(5)
        pytest.fail("the exit was lost")


@pytest.mark.parametrize("ended", [signalled, signalled_where_it_is_lost])
def test_the_signal_leaves_the_block(usual_handler, ended):
    hook = sys.unraisablehook
    with pytest.raises(SystemExit) as caught:
        ended()
    assert caught.value.code == 128 + signal.SIGTERM
    assert sys.unraisablehook is hook


def test_ctrl_c_is_not_lost(usual_handler):
    with pytest.raises(KeyboardInterrupt):
        signalled_where_it_is_lost(interrupt_here)
