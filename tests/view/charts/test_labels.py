"""Labels cover neither each other nor other points, and stay within the plot."""

from hypothesis import given, settings
from hypothesis import strategies as st

from agent.view.charts.parts.labels import Labelled, _around, _strip, placed
from agent.view.charts.parts.words import fitting, text_px, wrapped

WIDTH, HEIGHT = 400.0, 200.0
points = st.builds(
    Labelled,
    st.tuples(st.floats(0, WIDTH), st.floats(0, HEIGHT)),
    st.text(min_size=1, max_size=80),
)


@settings(max_examples=60, deadline=None)
@given(st.lists(points, max_size=12, unique_by=lambda point: point.at))
def test_no_label_covers_another_or_another_point(wanted):
    labels = placed(wanted, [], WIDTH, HEIGHT)
    for label in labels:
        mine = _strip(label)
        assert not any(mine.covers(_strip(other)) for other in labels if other is not label)
        assert not any(mine.covers(_around(point.at)) for point in wanted if point.at != label.point.at)


def test_a_label_lies_where_it_covers_fewer_dots():
    point, above = (
        Labelled((200.0, 100.0), "a title of some length"),
        [(250.0 + 5 * at, 84.0 - 1.6 * at) for at in range(9)],
    )
    assert [label.begins for label in placed([point], [], WIDTH, HEIGHT)] == [True]
    assert [label.begins for label in placed([point], above, WIDTH, HEIGHT)] == [False]


def test_a_title_is_cut_where_the_plot_ends_and_left_out_where_too_little_would_stay():
    long = "Add tables of 2-, 3- and 4-grams, trained by AdaGrad"
    (label,) = placed([Labelled((270.0, 10.0), long)], [], WIDTH, 190.0)
    assert label.text != long
    assert label.text.endswith("…")
    assert placed([Labelled((2.0, 2.0), long)], [], 40.0, 40.0) == []


@given(st.text(max_size=200), st.floats(20, 500))
def test_a_fitting_text_is_not_wider_than_its_place(text, most_px):
    line = fitting(text, most_px)
    assert len(line) <= 1 or text_px(line) <= most_px
    assert line.isprintable()


def test_phrases_are_wrapped_between_each_other():
    assert wrapped(["3 kept of 5 attempts", "a phrase", "another phrase"], 200) == [
        "3 kept of 5 attempts · a phrase",
        "another phrase",
    ]
