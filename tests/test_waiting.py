"""Waiting for programs that are recorded."""

from __future__ import annotations

import os
import subprocess

import pytest

from pyallocx._running import wait_for


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("seconds", ["0", "0.12"])
def test_waiting(monkeypatch: pytest.MonkeyPatch, known: bool, seconds: str) -> None:
    if not known:

        def refuse(pid: int) -> int:
            raise OSError(38, "function not implemented")

        monkeypatch.setattr(os, "pidfd_open", refuse)
    before = os.listdir("/proc/self/fd")
    process = subprocess.Popen(["sh", "-c", f"sleep {seconds}; exit 7"])
    assert wait_for(process) == 7
    assert os.listdir("/proc/self/fd") == before
    gone = subprocess.Popen(["true"])
    gone.wait()
    assert wait_for(gone) == 0
