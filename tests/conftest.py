"""Order of the tests: those that trace come first.

``jax.profiler`` crashes in a process where libtpu was loaded without a TPU, and compiling for a
topology loads it. Tests marked ``tracing`` therefore run before all others, in one worker.
"""

from __future__ import annotations

import pytest


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.get_closest_marker("tracing"):
            item.add_marker(pytest.mark.xdist_group("tracing"))
    items.sort(key=lambda item: item.get_closest_marker("tracing") is None)
