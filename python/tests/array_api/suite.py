"""A plugin of pytest for `array-api-tests`, which `run.py` loads: what is refused, and what came of each test.

A test that `refused.txt` names counts as refused if it ends with an exception that says what is not there. If it passes
or finds another value, it counts as failed: so no wrong value hides behind the list.
"""

import importlib.util
import json
import os
import pathlib
import sys

import hypothesis
import pytest

LIST = pathlib.Path(__file__).with_name("refused.txt")


def without_complex_numbers():
    """Imports a module of the suite that takes the widest of its complex types, of which there are none here."""
    spec = importlib.util.find_spec("array_api_tests.dtype_helpers")
    module = importlib.util.module_from_spec(spec)
    module.max = lambda values, **how: max(values, default=(None, 0), **how)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    del module.max
    # Signatures are tried with arrays of that type, if there is one.
    module.dtype_to_name = module.EqualityMapping([*module.dtype_to_name.items(), (None, "complex128")])


without_complex_numbers()


def entries() -> dict[str, str]:
    """The tests that are refused, with the reason of each."""
    found = {}
    for line in LIST.read_text().splitlines():
        if line and not line.startswith("#"):
            name, _, reason = line.partition(" | ")
            assert reason, f"{LIST.name}: no reason behind {name}"
            found[name] = reason
    return found


REFUSED = entries()
RESULTS: dict[str, dict] = {}


def of(nodeid: str) -> str:
    """The name of a test in the list: without folders."""
    return nodeid.rpartition("array_api_tests/")[2]


def errors(error: BaseException) -> list[BaseException]:
    """An exception, or those of a group, which Hypothesis raises for several."""
    return [each for part in error.exceptions for each in errors(part)] if hasattr(error, "exceptions") else [error]


def says_what_is_missing(error: BaseException) -> bool:
    """Whether an exception is a refusal of the namespace, or the suite's for a name that is not there."""
    import fulgurite

    text = str(error)
    if isinstance(error, AssertionError):
        return any(words in text for words in ("is not defined in", "is missing the", "not found in linalg extension"))
    if isinstance(error, AttributeError):
        return "fulgurite.array_api" in text
    # Memory that may only be read is none for consumers of DLPack before 1.0.
    return isinstance(error, fulgurite.Error) or isinstance(error, BufferError) and "read-only" in text


@pytest.hookimpl(trylast=True)
def pytest_configure():
    # A busy machine is no fault of the functions. The suite's own profile is loaded by now.
    hypothesis.settings.register_profile("slow", suppress_health_check=[hypothesis.HealthCheck.too_slow])
    hypothesis.settings.load_profile("slow")


def pytest_collection_modifyitems(items):
    for item in items:
        case = getattr(item, "callspec", None) and item.callspec.params.get("case")
        if getattr(case, "is_complex", False):
            item.add_marker(pytest.mark.skip(reason="complex numbers are not found in array module"))


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    report = (yield).get_result()
    name = of(item.nodeid)
    if call.when != "call" and not report.skipped and not report.failed:
        return
    text = "" if call.excinfo is None else f"{call.excinfo.typename}: {call.excinfo.value}"
    if report.skipped:
        missing = "not found in array module" in text or "no complex data types" in text
        result = "refused" if missing else "skipped"
    elif name in REFUSED:
        refused = call.excinfo is not None and all(map(says_what_is_missing, errors(call.excinfo.value)))
        result = "refused" if refused else "failed"
        text = text or "passed, though it is in the list"
    else:
        result = "passed" if report.passed else "failed"
    RESULTS[name] = {"result": result, "text": text[:2000]}
    if name in REFUSED and result == "refused":
        report.outcome, report.wasxfail = "skipped", REFUSED[name]
    elif result == "failed" and report.passed:
        report.outcome, report.longrepr = "failed", text


def pytest_sessionfinish():
    pathlib.Path(os.environ["FULGURITE_SUITE_RESULTS"]).write_text(json.dumps(RESULTS, indent=1))
