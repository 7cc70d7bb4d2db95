from hermes.cli import top
from hermes.cli.samples import LagRow, TopicRow


def test_long_names_leave_room_for_the_figures_on_a_terminal() -> None:
    topics = [TopicRow("t" * 200, 1000, 10**12, 1e9)]
    lags = [LagRow("g" * 200, "t" * 200, 100, 10**12, None, 1e9)]
    for line in top._lines("headline", topics, lags, 80)[3::3]:
        assert "…" in line
        assert line.endswith("/s")
        assert len(line) < 80
    assert "t" * 200 in "".join(top._lines("headline", topics, lags))
