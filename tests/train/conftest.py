"""Data and models that the tests of training share."""

import pytest
import tiny_data


@pytest.fixture(scope="session")
def beir(tmp_path_factory):
    return tiny_data.save_beir(tmp_path_factory.mktemp("data") / "beir")


@pytest.fixture(scope="session")
def worlds(tmp_path_factory):
    return tiny_data.save_worlds(tmp_path_factory.mktemp("data") / "worlds")


@pytest.fixture(scope="session")
def base(tmp_path_factory):
    pytest.importorskip("accelerate")
    return tiny_data.save_base(tmp_path_factory.mktemp("models") / "base")
