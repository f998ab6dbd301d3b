"""Labels: beside their points, clear of each other and of everything else."""

from hypothesis import given
from hypothesis import strategies as st

from cstool.foundation.drawing.labels import Label, clusters, path_boxes, place_labels, point_box

AREA = (0.0, 0.0, 300.0, 200.0)
PITCH = 8.0
POINTS = st.lists(st.tuples(st.floats(0, 300), st.floats(0, 200)), max_size=25)


def box_of(placed):
    left = placed.x if placed.is_right else placed.x - placed.label.width_pt
    return left, placed.y - PITCH / 2, left + placed.label.width_pt, placed.y + PITCH / 2


def are_apart(one, other, air=1e-6):
    return one[2] <= other[0] + air or other[2] <= one[0] + air or one[3] <= other[1] + air or other[3] <= one[1] + air


@given(POINTS, POINTS)
def test_labels_are_clear_of_each_other_and_of_what_is_there(points, others):
    taken = [point_box(point, 3.0) for point in [*points, *others]]
    labels = [Label(point, str(number), 30.0 + number) for number, point in enumerate(points)]
    placed = place_labels(labels, taken, AREA, PITCH)
    boxes = list(map(box_of, placed))
    assert len({place.label for place in placed}) == len(placed) <= len(labels)
    for number, box in enumerate(boxes):
        assert all(are_apart(box, other) for other in boxes[:number])
        assert all(are_apart(box, other) for other in taken)
        assert min(box[0] - AREA[0], box[1] - AREA[1], AREA[2] - box[2], AREA[3] - box[3]) >= -1e-6


def test_labels_by_hand():
    (placed,) = place_labels([Label((100.0, 100.0), "a", 20.0)], [point_box((100.0, 100.0), 3.0)], AREA, PITCH)
    assert (placed.x, placed.y, placed.is_right, placed.line_end) == (105.0, 100.0, True, None)
    # Those of points above each other are a stack in their order.
    labels = [Label((100.0, 100.0 + 3 * n), str(n), 20.0) for n in range(4)]
    placed = place_labels(labels, [point_box(label.point, 3.0) for label in labels], AREA, PITCH)
    assert [place.label.text for place in placed] == ["3", "2", "1", "0"]
    assert {place.x for place in placed} == {115.0}
    assert [one.y - other.y for one, other in zip(placed, placed[1:], strict=False)] == [PITCH] * 3
    assert all(place.line_end == (place.x, place.y) for place in placed)
    label = Label((250.0, 100.0), "a", 60.0)
    wall = path_boxes([(200.0, 0.0), (200.0, 200.0)])
    assert place_labels([label], wall, AREA, PITCH)[0].x > 200
    beyond = (100.0, 0.0, 260.0, 200.0)
    assert place_labels([label], [], beyond, PITCH, crossable=wall)[0].x < 200
    assert place_labels([label], wall, beyond, PITCH) == []
    labels = [Label((5.0, 5.0), "a", 20.0)]
    assert place_labels(labels, [], (0.0, 0.0, 10.0, 10.0), PITCH) == []
    assert place_labels(labels, [AREA], AREA, PITCH) == []
    assert place_labels([], [], AREA, PITCH) == []


@given(POINTS, st.floats(1, 50))
def test_clusters_are_all_points_each_once(points, reach):
    found = clusters(points, reach)
    assert sorted(number for cluster in found for number in cluster) == list(range(len(points)))
    for cluster in found:
        first = points[cluster[0]]
        for number in cluster:
            x, y = points[number]
            assert ((x - first[0]) ** 2 + (y - first[1]) ** 2) ** 0.5 <= reach * (1 + 1e-9)
