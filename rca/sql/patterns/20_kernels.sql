-- Kernels of the captures, one row a kernel. With captures on both sides how it changed, as natural
-- logarithms of incident / baseline; without a baseline what it is like.
WITH run AS (
    SELECT s.part, o.source_id, o.name, o.grid, count(*) AS n, sum(o.dur_ns) AS ns,
        min(o.start_ns) AS first_ns, max(o.start_ns + o.dur_ns) AS last_ns
    FROM gpu_op AS o
    JOIN source AS s ON s.id = o.source_id
    WHERE o.kind = 'kernel' AND o.flaw IS NULL AND o.dur_ns > 0
    GROUP BY s.part, o.source_id, o.name, o.grid
),
sized AS (
    SELECT *, list_product(list_transform(string_split(grid, ','), lambda x: TRY_CAST(x AS DOUBLE))) AS blocks
    FROM run
),
kernel AS (
    SELECT name, part, sum(n) AS n, sum(ns) AS ns,
        -- The mean of logarithms over runs: one large launch does not stand for a thousand small ones.
        sum(n * ln(blocks)) FILTER (blocks > 0) / sum(n) FILTER (blocks > 0) AS log_blocks,
        sum(ns) / sum(sum(ns)) OVER (PARTITION BY part) AS share
    FROM sized
    GROUP BY name, part
),
-- What runs are counted by, captures being of different lengths: steps where both sides mark them, else the
-- requests in flight where both sides have some, else the kernels together.
capture AS (
    SELECT r.part, r.source_id, min(r.first_ns) + any_value(s.shift_ns) AS first_ns,
        max(r.last_ns) + any_value(s.shift_ns) AS last_ns
    FROM run AS r
    JOIN source AS s ON s.id = r.source_id
    GROUP BY r.part, r.source_id
),
work AS (
    SELECT 1 AS choice, 1 AS least, count(*) FILTER (c.part = 'baseline') AS n_baseline,
        count(*) FILTER (c.part = 'incident') AS n_incident
    FROM capture AS c
    JOIN rank_step AS r ON r.source_id = c.source_id
    UNION ALL
    SELECT 2, 8, count(*) FILTER (c.part = 'baseline'), count(*) FILTER (c.part = 'incident')
    FROM capture AS c
    JOIN request AS r ON r.part = c.part AND r.start_ns < c.last_ns AND r.end_ns > c.first_ns
),
pair AS (
    SELECT name,
        max(n) FILTER (part = 'baseline') AS n_baseline,
        max(n) FILTER (part = 'incident') AS n_incident,
        max(ns / n) FILTER (part = 'baseline') AS ns_baseline,
        max(ns / n) FILTER (part = 'incident') AS ns_incident,
        max(log_blocks) FILTER (part = 'baseline') AS blocks_baseline,
        max(log_blocks) FILTER (part = 'incident') AS blocks_incident,
        coalesce(max(share) FILTER (part = 'baseline'), 0) AS share_baseline,
        coalesce(max(share) FILTER (part = 'incident'), 0) AS share_incident
    FROM kernel
    GROUP BY name
),
usual AS (
    SELECT EXISTS (FROM kernel WHERE part = 'baseline') AS is_compared,
        coalesce(
            (SELECT n_incident / n_baseline FROM work WHERE least(n_baseline, n_incident) >= least
                ORDER BY choice LIMIT 1),
            (SELECT median(n_incident / n_baseline) FROM pair)) AS count_ratio
)
SELECT
    -- Name of the kernel.
    p.name,
    -- Whether the baseline has a capture too.
    u.is_compared,
    -- Time of a run; of a kernel of one side only nothing is known.
    CASE WHEN u.is_compared THEN ln(p.ns_incident / p.ns_baseline) ELSE ln(p.ns_incident) END AS time_per_call,
    -- Runs for the same work; likewise.
    CASE WHEN u.is_compared THEN ln(p.n_incident / p.n_baseline / u.count_ratio) ELSE ln(p.n_incident) END AS calls,
    -- Share of the kernels' time, a thousandth more on each side.
    CASE WHEN u.is_compared THEN ln((p.share_incident + 0.001) / (p.share_baseline + 0.001))
        ELSE ln(p.share_incident + 0.001) END AS share,
    -- Blocks of a launch.
    CASE WHEN u.is_compared THEN p.blocks_incident - p.blocks_baseline ELSE p.blocks_incident END AS grid,
    -- 1 when the baseline does not have it, -1 when the incident does not, else 0.
    CASE WHEN NOT u.is_compared THEN NULL WHEN p.n_baseline IS NULL THEN 1.0 WHEN p.n_incident IS NULL THEN -1.0
        ELSE 0.0 END AS presence
FROM pair AS p
CROSS JOIN usual AS u
WHERE EXISTS (FROM kernel WHERE part = 'incident')
-- The largest; what takes a millionth of the time tells nothing.
ORDER BY greatest(p.share_baseline, p.share_incident) DESC, p.name
LIMIT $1;
