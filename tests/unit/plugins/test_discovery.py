"""Plugins that are wrong in every way, as distributions on the path: the error names which."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from hermes.errors import HermesError, PluginError
from hermes.interfaces import IEncoder, IRetentionPolicy, RetentionSettings
from hermes.plugins import available, find_plugin, load_plugin, verify_plugin

GROUP = "hermes.retention"

CODE = """
from zope.interface import implementer
from hermes.interfaces import IRetentionPolicy

@implementer(IRetentionPolicy)
class Good:
    def __init__(self, settings, *, keep=0):
        self.settings, self.keep = settings, keep
    def expired(self, segments, now_ms):
        return 0

def make_good(settings):
    return Good(settings)

def make_bad(settings):
    return object()

class Undeclared:
    def __init__(self, settings): ...
    def expired(self, segments, now_ms):
        return 0

@implementer(IRetentionPolicy)
class NoMethod:
    def __init__(self, settings): ...

@implementer(IRetentionPolicy)
class TooFew:
    def __init__(self, settings): ...
    def expired(self, segments):
        return 0

@implementer(IRetentionPolicy)
class NotCallable:
    expired = 3

@implementer(IRetentionPolicy)
class Fails:
    def __init__(self, settings):
        raise RuntimeError("no options\\nat all")
    def expired(self, segments, now_ms):
        return 0

constant = 7
"""

Install = Callable[..., None]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Puts a distribution with one module and some entry points on the path."""

    def install(name: str, *entries: str, code: str = CODE, version: str = "1.2") -> None:
        folder = tmp_path / name
        metadata = folder / f"{name}-{version}.dist-info"
        metadata.mkdir(parents=True)
        (metadata / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
        )
        lines = "\n".join(entries)
        (metadata / "entry_points.txt").write_text(f"[{GROUP}]\n{lines}\n")
        (folder / f"{name}.py").write_text(code)
        monkeypatch.syspath_prepend(folder)
        monkeypatch.delitem(sys.modules, name, raising=False)

    return install


def load(name: str) -> object:
    return load_plugin(GROUP, name, IRetentionPolicy, RetentionSettings(time_ms=3))


def refusal(name: str) -> str:
    with pytest.raises(PluginError) as caught:
        load(name)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_third_party_plugin_is_found_beside_the_built_ins(install: Install) -> None:
    install("acme_rules", "acme = acme_rules:Good", "made = acme_rules:make_good")
    assert {"acme", "made", "size", "time", "time-and-size"} <= set(available(GROUP))
    for name in ("acme", "made"):
        policy = load(name)
        assert type(policy).__name__ == "Good"
        assert policy.settings == RetentionSettings(time_ms=3)  # type: ignore[attr-defined]


def test_arguments_reach_the_factory(install: Install) -> None:
    install("acme_rules", "acme = acme_rules:Good")
    policy = load_plugin(GROUP, "acme", IRetentionPolicy, RetentionSettings(), keep=5)
    assert policy.keep == 5


def test_one_that_was_found_makes_many(install: Install) -> None:
    install("acme_rules", "acme = acme_rules:Good")
    make = find_plugin(GROUP, "acme", IRetentionPolicy)
    policies = [make(RetentionSettings(time_ms=number)) for number in (1, 2)]
    assert [each.settings.time_ms for each in policies] == [1, 2]


def test_a_missing_entry_tells_what_is_installed() -> None:
    text = refusal("tmie")
    assert text.startswith("hermes.retention: there is no 'tmie'; did you mean 'time'? installed: ")
    assert "size, time, time-and-size" in text


def test_an_empty_group_says_so() -> None:
    assert available("hermes.nothing") == ()
    with pytest.raises(PluginError, match=r"^hermes\.nothing: there is no 'x', nor any other"):
        load_plugin("hermes.nothing", "x", IRetentionPolicy)


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ("acme_rules:Nothing", "can't be loaded from 'acme_rules:Nothing': AttributeError: "),
        ("acme_absent:Good", "can't be loaded from 'acme_absent:Good': ModuleNotFoundError: "),
        ("acme_rules:constant", "'acme_rules:constant' is a int, expected a class or function"),
        (
            "acme_rules:make_bad",
            "builtins.object is not an IRetentionPolicy: it isn't declared with ",
        ),
        (
            "acme_rules:Undeclared",
            "acme_rules.Undeclared is not an IRetentionPolicy: it isn't declared with "
            "@implementer(IRetentionPolicy)",
        ),
        (
            "acme_rules:NoMethod",
            "acme_rules.NoMethod is not an IRetentionPolicy: expired(segments, now_ms) is missing",
        ),
        (
            "acme_rules:TooFew",
            "expired(segments, now_ms): implementation doesn't allow enough arguments",
        ),
        ("acme_rules:NotCallable", "expired(segments, now_ms): implementation is not a method"),
        ("acme_rules:Fails", "could not be created: RuntimeError: no options at all"),
    ],
)
def test_a_wrong_plugin_is_named_with_its_fault(
    install: Install, target: str, expected: str
) -> None:
    install("acme_rules", f"bad = {target}")
    text = refusal("bad")
    assert text.startswith("hermes.retention: 'bad' of acme_rules 1.2: ")
    assert expected in text


def test_a_module_that_fails_while_it_is_imported_is_named(install: Install) -> None:
    install("acme_broken", "bad = acme_broken:Good", code="raise ImportError('no numpy here')")
    install("acme_syntax", "worse = acme_syntax:Good", code="def\n")
    assert "'bad' of acme_broken 1.2: can't be loaded" in refusal("bad")
    assert "ImportError: no numpy here" in refusal("bad")
    assert "'worse' of acme_syntax 1.2: can't be loaded" in refusal("worse")


def test_two_distributions_with_one_name_are_both_named(install: Install) -> None:
    install("acme_one", "time = acme_one:Good")
    text = refusal("time")
    assert "'time' is ambiguous: acme_one 1.2 and hermes-log " in text


def test_an_object_that_was_passed_is_checked_too() -> None:
    with pytest.raises(
        HermesError, match=r"^the test's policy: builtins\.int is not an IRetention"
    ):
        verify_plugin(3, IRetentionPolicy, "the test's policy")


def test_a_package_that_is_missing_names_the_extra_that_brings_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "msgpack", None)
    monkeypatch.delitem(sys.modules, "hermes.plugins.encoders.message_pack", raising=False)
    with pytest.raises(PluginError) as caught:
        load_plugin("hermes.encoders", "msgpack", IEncoder)
    assert str(caught.value).endswith("(pip install 'msgpack>=1.0')")
