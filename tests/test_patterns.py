"""Groups are found where there are several, and one where there is one, whatever its shape."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest
from recording_builder import SECOND, START, recorded

from rca.case import Case
from rca.patterns import cluster, requests
from rca.patterns.grouping import Grouping, Matrix, Sizes, group

SEEDS = 40


def cloud(seed: int, members: int, spread: tuple[float, ...]) -> Matrix:
    return np.random.default_rng(seed).standard_normal((members, len(spread))) * spread


def two_clouds(seed: int, apart: float, members: int = 60) -> Matrix:
    features = cloud(seed, members, (0.1, 0.1, 0.1))
    features[members // 3 :, 0] += apart
    return features


@pytest.mark.parametrize(
    ("members", "spread", "sizes"),
    [
        (200, (0.3, 0.3, 0.3, 0.3), Sizes()),
        (400, (0.5, 0.02), Sizes()),  # nearly on a line, where every split looks good
        (60, (0.5, 0.1, 0.05, 0.05), Sizes()),
        (14, (0.5, 0.3, 0.1, 0.1, 0.1, 0.1), Sizes(3, 2)),
    ],
)
def test_one_cloud_is_rarely_split(
    members: int, spread: tuple[float, ...], sizes: Sizes
) -> None:
    split = [
        seed
        for seed in range(SEEDS)
        if group(cloud(seed, members, spread), sizes).labels.max() > 0
    ]
    assert len(split) <= SEEDS // 10


def test_a_line_would_be_split_by_its_silhouette_alone() -> None:
    """The test is what holds one cloud together: its best split lies far above the floor."""
    one = group(cloud(3, 400, (0.5, 0.02)))
    assert one.silhouette is None
    assert one.p_one is not None
    assert one.p_one > 0.05


@pytest.mark.parametrize("seed", range(8))
def test_two_clouds_are_found_with_their_members(seed: int) -> None:
    found = group(two_clouds(seed, apart=1.0))
    assert found.labels.tolist() == [1] * 20 + [0] * 40  # the larger one first
    assert found.p_one == pytest.approx(1 / 40)
    assert found.silhouette is not None
    assert found.silhouette > 0.6
    assert found.stability == pytest.approx(1.0)
    assert found.outliers < 20


def test_a_gap_makes_groups_also_on_a_line() -> None:
    features = cloud(1, 300, (0.05, 0.02))
    features[100:200, 0] += 0.6
    features[200:, 0] += 1.2
    labels = group(features).labels
    assert [len(set(part.tolist())) for part in np.split(labels, 3)] == [1, 1, 1]
    assert sorted(set(labels.tolist())) == [0, 1, 2]


def test_the_same_members_give_the_same_groups() -> None:
    for features in (two_clouds(0, apart=1.0), cloud(5, 500, (0.5, 0.1, 0.1))):
        first, second = group(features), group(features.copy())
        assert first.labels.tolist() == second.labels.tolist()
        assert first[1:] == second[1:]


def test_members_that_are_all_alike_are_one_group() -> None:
    assert group(np.zeros((50, 3)))[1:] == Grouping(np.zeros(50), None, None, 0, None)[1:]


def test_too_few_to_divide_are_one_group() -> None:
    few = group(two_clouds(0, apart=1.0, members=15))
    assert few.labels.tolist() == [0] * 15
    assert few.p_one is None


def request_case() -> Case:
    """Slow requests: two of three wait in the queue, one is slow without."""
    case = recorded(None, slow=True)
    case.execute(
        "INSERT INTO incident_window (id, status, start_ns, end_ns, margin_ns) VALUES (1, 'incident', ?, ?, ?)",
        [START, START + 600 * SECOND, 15 * SECOND],
    )
    case.execute(
        "UPDATE span SET attributes = replace(attributes, '\"gen_ai.latency.time_in_queue\": 3.6', "
        "'\"gen_ai.latency.time_in_queue\": 0.05') WHERE source_id = 12 AND (start_ns // 3000000000) % 3 = 0"
    )
    return case


def test_ways_of_being_slow_are_told_apart() -> None:
    with request_case() as case:
        waiting, others = requests.groups(case)
        queue = dict(
            case.rows("SELECT request_id, queue_ns FROM request WHERE part = 'incident'")
        )
    assert (waiting["name"], others["name"]) == (
        "queue up, time per token up",
        "time per token up",
    )
    assert {queue[key] for key in json.loads(waiting["members"])} == {3_600_000_000}
    assert {queue[key] for key in json.loads(others["members"])} == {50_000_000}
    assert waiting["size"] + others["size"] == 201
    assert waiting["p_one"] == others["p_one"] == pytest.approx(1 / 40)


def test_ids_are_counted_over_all_kinds_and_come_again() -> None:
    with request_case() as case:
        cluster(case)
        first = case.rows("SELECT * FROM pattern")
        cluster(case)
        assert case.rows("SELECT * FROM pattern") == first
    assert [row[0] for row in first] == list(range(1, len(first) + 1))
    assert list(dict.fromkeys(row[1] for row in first)) == ["request", "signal"]


def test_a_case_with_hardly_anything_is_not_grouped_and_loads_nothing() -> None:
    program = (
        "import sys\n"
        "from rca.case import Case\n"
        "from rca.patterns import cluster\n"
        "case = Case.create()\n"
        "cluster(case)\n"
        'case.execute("INSERT INTO incident_window (id, status, start_ns, end_ns, margin_ns) "\n'
        "    \"VALUES (1, 'incident', 0, 9, 0)\")\n"
        'case.execute("INSERT INTO source (id, part, kind, format, path, bytes, sha256, status) "\n'
        "    \"VALUES (1, 'incident', 'alert', 'x', 'x', 1, 'x', 'ok')\")\n"
        "case.execute(\"INSERT INTO alert VALUES (1, 'Slow', 3, NULL, NULL, '{}', '{}')\")\n"
        "cluster(case)\n"
        "print(case.scalar('SELECT count(*) FROM pattern'), 'sklearn' in sys.modules)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "0 False\n", "")
