from hermes.console.charts import WIDTH, draw
from hermes.console.formatting import bytes_text
from hermes.console.rates import History, Rates


def history(*points):
    made = History()
    for at, value in points:
        made.add(at, value)
    return made


def test_a_chart_without_values_says_so():
    chart = draw("k", "Title", history(), 100.0, bytes_text)
    assert (chart.now, chart.line, chart.area, chart.marks) == ("\N{EN DASH}", "", "", ())


def test_the_last_value_is_at_the_right_edge_and_the_top_is_round():
    chart = draw("k", "Title", history((0.0, 0.0), (30.0, 0.0), (60.0, 1500.0)), 60.0, bytes_text)
    assert chart.line == "M0.0,120.0 L300.0,120.0 L600.0,32.1"
    assert (chart.now, chart.top, chart.since) == ("1.5 KiB", "2.0 KiB", "1 min ago")
    assert chart.marks[-1].text == "1.5 KiB, 0 s ago"


def test_a_time_that_nobody_looked_at_is_a_gap():
    chart = draw("k", "Title", history((0.0, 1.0), (5.0, 1.0), (90.0, 1.0)), 90.0, bytes_text)
    assert chart.line.count("M") == 2


def test_what_is_too_old_is_left_out():
    chart = draw("k", "Title", history((0.0, 9.0), (400.0, 1.0)), 400.0, bytes_text)
    assert chart.line == f"M{WIDTH:.1f},0.0"


def test_marks_are_few_however_many_points_there_are():
    points = history(*((float(at), 1.0) for at in range(299)))
    assert 20 < len(draw("k", "Title", points, 299.0, bytes_text).marks) <= 60


def test_rates_are_known_from_the_second_sample_on():
    rates = Rates()
    assert rates.add(10.0, {"a": 100}) == {}
    assert rates.add(12.0, {"a": 300, "new": 5}) == {"a": 100.0}


def test_a_counter_that_went_back_has_no_rate():
    rates = Rates()
    rates.add(10.0, {"a": 100, "b": 1})
    assert rates.add(11.0, {"a": 50, "b": 1}) == {"b": 0.0}


def test_a_rate_is_that_of_the_last_seconds():
    rates = Rates()
    for at in range(30):
        found = rates.add(float(at), {"a": at * 10 if at < 15 else 150 + (at - 15) * 100})
    assert found == {"a": 100.0}


def test_samples_from_long_ago_say_nothing_about_now():
    rates = Rates()
    rates.add(0.0, {"a": 0})
    assert rates.add(100.0, {"a": 1000}) == {}
