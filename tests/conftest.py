import os

import pytest


@pytest.fixture(autouse=True)
def no_fsync(monkeypatch):
    """Only a power cut needs it, and the tests write thousands of files."""
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)
