"""No client outlives its test, also where an exception that was caught holds the frame that holds it."""

from __future__ import annotations

import pytest


@pytest.mark.parametrize(("kind", "gone"), [("clients", True), ("cluster", True), ("slow", False)])
def test_what_a_circle_holds_is_gone_when_its_test_is_over(pytester: pytest.Pytester, kind: str, gone: bool) -> None:
    pytester.makepyfile(
        f"""
        import gc
        import weakref
        import pytest

        class Client: pass

        LEFT = []
        gc.disable()

        @pytest.fixture
        def given(): return Client()

        @pytest.mark.{kind}
        def test_makes_one(given):
            client = Client()
            LEFT.extend(map(weakref.ref, (client, given)))
            with pytest.raises(ValueError) as caught:
                raise ValueError
            assert caught

        def test_behind_it():
            assert [it() is None for it in LEFT] == [{gone}] * 2
            gc.enable()
        """
    )
    pytester.makeini("[pytest]\nmarkers =\n    clients\n    cluster\n    slow\n")
    pytester.runpytest_subprocess("-p", "tests.harness.left_clients", "-p", "no:cacheprovider", "-n", "0").assert_outcomes(
        passed=2
    )
