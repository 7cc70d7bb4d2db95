import pytest

from hermes.console.page_request import InputError, PageRequest


@pytest.mark.parametrize("text", ["0" * 20 + "9" * 30, "9" * 5000, "-1", "\u00b2", "1e3", "0x1"])
def test_what_is_no_number_in_bounds_is_refused(text):
    with pytest.raises(InputError, match="expected a whole number"):
        PageRequest("GET", (), {"offset": text}).number("offset", 0)


def test_a_number_is_read():
    assert PageRequest("GET", (), {"offset": "0007"}).number("offset", 0) == 7
    assert PageRequest("GET", ()).number("offset", 3) == 3
