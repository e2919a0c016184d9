"""pytest plugin: run test bodies against the backend, world sizes and schedules of choice.

Fixtures: ``backend`` (a ``tiebreak.backends.Backend``), ``world_size`` and
``schedule``.  A test that uses one runs once per value.  A backend that was
asked for and cannot run is an error, not a skip.  The mark ``transports`` keeps
a test to backends with the transports it names; it leaves the run where none was chosen.

Kernels of this process are interpreted.  The ``cuda`` backends run compiled
ones in worker processes, so they can be chosen together with simulated ranks.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from tiebreak.environment import prepare_interpreter

prepare_interpreter()

DEFAULT_BACKENDS = ["spec", "sim"]
NO_BACKEND = "none"
DEFAULT_RANKS = [2, 3]
DEFAULT_SCHEDULES = ["round-robin", "random:1", "pct:1:1:3"]

_OPTIONS: dict[str, tuple[str, list[Any], type, str]] = {
    "backend": ("--backend", DEFAULT_BACKENDS, str, "backend to run against; repeatable (spec, sim, cuda)"),
    "world_size": ("--ranks", DEFAULT_RANKS, int, "world size; repeatable"),
    "schedule": ("--schedule", DEFAULT_SCHEDULES, str, "scheduler, for example random:SEED or replay:...; repeatable"),
}


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options of the group ``tiebreak``."""
    group = parser.getgroup("tiebreak")
    for fixture, (flag, _, kind, text) in _OPTIONS.items():
        group.addoption(flag, action="append", type=kind, dest=f"tiebreak_{fixture}", help=text)


def chosen(config: pytest.Config, fixture: str) -> list[Any]:
    """Return the values that a fixture takes in this run."""
    given: list[Any] = config.getoption(f"tiebreak_{fixture}") or []
    return given or _OPTIONS[fixture][1]


def backend_names(config: pytest.Config) -> list[str]:
    """Return the full names of the chosen backends.

    Raises:
        pytest.UsageError: A backend is unknown or cannot run here.
    """
    from tiebreak.backends.registry import expand_names
    from tiebreak.errors import TiebreakError

    try:
        return expand_names(chosen(config, "backend"))
    except TiebreakError as error:
        raise pytest.UsageError(str(error)) from error


def pytest_configure(config: pytest.Config) -> None:
    """Check the chosen backends before anything is collected."""
    config.addinivalue_line("markers", "transports(*names): run on backends with these transports only")
    config.addinivalue_line("markers", "backend: set on every test that takes the fixture of that name")
    if config.getoption("tiebreak_backend"):
        backend_names(config)


def pytest_report_header(config: pytest.Config) -> str:
    """Print what the run is about."""
    parts = [f"{flag[2:]} {', '.join(map(str, chosen(config, name)))}" for name, (flag, *_) in _OPTIONS.items()]
    return "tiebreak: " + "; ".join(parts)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run tests once per backend, world size and schedule, unless a test names its own."""
    own = {name for mark in metafunc.definition.iter_markers("parametrize") for name in _names(mark.args[0])}
    if "backend" in metafunc.fixturenames and "backend" not in own:
        metafunc.parametrize("backend", _fitting_backends(metafunc) or [NO_BACKEND], indirect=True)
    for name in ("world_size", "schedule"):
        if name in metafunc.fixturenames and name not in own:
            values = chosen(metafunc.config, name)
            metafunc.parametrize(name, values, ids=[f"{name}={value}" for value in values])


def _fitting_backends(metafunc: pytest.Metafunc) -> list[str]:
    """Return the chosen backends with a transport that the test takes, on a GPU if it needs one."""
    from tiebreak.backends.registry import form_of, on_device, on_ptx_machine

    names = backend_names(metafunc.config)
    if metafunc.definition.get_closest_marker("gpu") is not None:
        names = [name for name in names if on_device(name)]
    mark = metafunc.definition.get_closest_marker("transports")
    if mark is None:
        return names
    transports = {name: form_of(name) if on_ptx_machine(name) else name.rpartition(":")[2] for name in names}
    return [name for name in names if transports[name] in mark.args]


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark tests that take a backend, and leave out those of which no chosen backend has the transport."""
    for item in items:
        if _backend_of(item) is not None:
            item.add_marker("backend")
    idle = [item for item in items if _backend_of(item) == NO_BACKEND]
    if idle:
        items[:] = [item for item in items if item not in idle]
        config.hook.pytest_deselected(items=idle)


def _backend_of(item: pytest.Item) -> str | None:
    """Return the name of the backend that a test runs against, if it takes one."""
    callspec = getattr(item, "callspec", None)
    return None if callspec is None else callspec.params.get("backend")


def _names(argument: Any) -> list[str]:
    """Return the argument names that a ``parametrize`` mark sets."""
    return [name.strip() for name in argument.split(",")] if isinstance(argument, str) else list(argument)


@pytest.fixture
def backend(request: pytest.FixtureRequest) -> Any:
    """Return the backend that a test runs against."""
    from tiebreak.backends.registry import make_backend

    return make_backend(request.param)


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Print how many tests passed and failed per backend."""
    counts: dict[str, Counter[str]] = {}
    for outcome in ("passed", "failed"):
        for report in terminalreporter.stats.get(outcome, []):
            for name in dict(report.user_properties).get("backend", "").split():
                counts.setdefault(name, Counter())[outcome] += 1
    for name, counter in counts.items():
        terminalreporter.write_line(f"backend {name}: {counter['passed']} passed, {counter['failed']} failed")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Note the backend of a test as a property, in JUnit too."""
    name = _backend_of(item)
    if name is not None:
        item.user_properties.append(("backend", name))
